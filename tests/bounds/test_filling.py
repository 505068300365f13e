"""What a limit of memory says of a device, whatever the cut is: never above the optimum, and as the model of cuts has it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from ppopt.bounds.certificates import durations_of
from ppopt.bounds.cuts import CutModel
from ppopt.bounds.filling import Count, Filling, Phase, fillings
from ppopt.bounds.ways import Part, Way
from ppopt.clock import Limits
from ppopt.op import Kind
from ppopt.pipeline import Costs, Memory, Pipeline, PipelineError
from ppopt.schedule import Objective
from ppopt.search import Settings, solve_closed
from tests.support.layered import a_pipeline, cuts, stages_of

PLACES = (("linear", 2, 1), ("linear", 3, 1), ("wave", 2, 2), ("loop", 2, 2))


def amounts(pipeline: Pipeline) -> tuple[dict[int, int], dict[int, int]]:
    """What a microbatch holds of each stage, and what is left of that between ``I`` and ``W``."""
    of = pipeline.amounts
    return dict(enumerate(of.activation[0].tolist())), dict(enumerate(of.kept[0].tolist()))


def bound(pipeline: Pipeline, each: Sequence[Filling] | None = None, objective: Objective = "makespan") -> int:
    """The best that a limit of memory says of a device."""
    limit, static = pipeline.amounts.limit, pipeline.amounts.static
    assert limit is not None
    held, kept = amounts(pipeline)
    duration = durations_of(pipeline)
    every = each if each is not None else list(fillings(pipeline, objective))
    return max(filling.value(duration, held, kept, int(limit[filling.device] - static[filling.device])) for filling in every)


def test_by_hand() -> None:
    """Two devices, four microbatches, F and B take 1 and 2, and each device has room for one.

    Device 0 runs F, waits for F and B of device 1 (3), runs B, four times: 4 x 6 ticks. The bound sees the first and the last
    wait alone: work 12, and 1 + 3 - 1 ticks before the first B, 3 + 2 - 2 behind the last F.
    """
    pipeline = Pipeline(2, 4, costs=Costs(forward=1, backward=2), memory=Memory(limit=1))
    assert bound(pipeline) == 12 + 3 + 3
    assert solve_closed(pipeline).ticks.value == 24
    assert (
        bound(pipeline.changed(memory=Memory(limit=2))) == 12 + 2 + 1
    )  # before the first B 4 - 2 ticks; behind the last F 5 - 4
    assert bound(pipeline.changed(memory=Memory(limit=4))) == 12  # no more than the work


def limited(rng: Random, places: Sequence[tuple[str, int, int]] = PLACES) -> Pipeline:
    """A random cut of random layers on few devices, with little more memory than a microbatch takes."""
    while True:
        pipeline = a_pipeline(rng, places)
        held, _ = amounts(pipeline)
        need = max(
            sum(held[s] for s, d in enumerate(pipeline.routes[0]) if d == device) + int(pipeline.amounts.static[device])
            for device in range(pipeline.devices)
        )
        limit = Fraction(need + rng.randint(0, 3 * max(held.values())), pipeline.amounts.per_unit)
        try:
            return pipeline.changed(memory=replace(pipeline.memory, limit=limit))
        except PipelineError:  # no room to split, and no other backward
            continue


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("number", [8, pytest.param(100, marks=pytest.mark.thorough)], ids=["few", "more"])
def test_never_above_the_optimum_and_often_equal(number: int, objective: Objective) -> None:
    rng = Random(7)
    solved = equal = 0
    for _ in range(number):
        pipeline = limited(rng)
        result = solve_closed(pipeline, objective, settings=Settings(seconds=10, workers=1))
        if result.reason == "optimal":
            solved += 1
            assert bound(pipeline, objective=objective) <= (result.ticks.value or 0)
            equal += bound(pipeline, objective=objective) == result.ticks.value
    assert solved > 0.7 * number
    assert equal > 0.1 * solved


class Drawn:
    """Random layers with amounts, in the model and for brute force."""

    def __init__(self, rng: Random) -> None:
        self.placement, self.devices, self.chunks = rng.choice(PLACES)
        self.stages, split = self.devices * self.chunks, rng.random() < 0.5
        self.layers = rng.randint(self.stages, self.stages + 3)
        self.times = {kind: [rng.randint(1, 9) for _ in range(self.layers)] for kind in (Kind.F, Kind.I, Kind.W)}
        if not split:
            self.times[Kind.W] = [0] * self.layers
        self.held = [rng.randint(0, 6) for _ in range(self.layers)]
        self.kept = [rng.randint(0, held) for held in self.held] if split else self.held
        self.own = [rng.randint(0, 3) for _ in range(self.layers)]
        self.limit = rng.randint(sum(self.held) // self.devices + sum(self.own), 3 * sum(self.held) + sum(self.own))
        costs = {"backward_input": 1, "backward_weight": 1} if split else {"backward": 1}
        some = Pipeline(
            self.devices, rng.randint(2, 5), self.placement, self.chunks, costs=Costs(per="stage", forward=1, **costs)
        )
        self.fillings = list(fillings(some))
        self.model = CutModel(self.times, self.stages)
        ends = [self.model.ends(of) for of in (self.held, self.kept, self.own)]
        for filling in self.fillings:
            self.model.hold([(ends[0], filling.stages), (ends[2], filling.stages)], self.limit)
            self.model.fill(filling, *ends, self.limit)

    def value(self, counts: Sequence[int]) -> int | None:
        """The best bound of a device by the numbers of microbatches one after the other; ``None``: it does not fit."""
        held, kept, own = ([sum(some) for some in stages_of(of, counts)] for of in (self.held, self.kept, self.own))
        duration: dict[Part, int] = {}
        for kind, of in self.times.items():
            duration |= {Part(kind, s): sum(values) for s, values in enumerate(stages_of(of, counts))}
        best = 0
        for filling in self.fillings:
            room = self.limit - sum(own[s] for s in filling.stages)
            if sum(held[s] for s in filling.stages) > room:
                return None
            best = max(best, filling.value(duration, dict(enumerate(held)), dict(enumerate(kept)), room))
        return best


def test_the_model_of_cuts_says_the_same() -> None:
    """For every cut; they come in the order of their bounds."""
    for seed in range(12):
        drawn = Drawn(Random(seed))
        values = {counts: drawn.value(counts) for counts in cuts(drawn.layers, drawn.stages)}
        left = {counts: value for counts, value in values.items() if value is not None}
        for _ in range(4):
            found = drawn.model.least(Limits.of(20, workers=1), 0, 10**6)
            if not left:
                assert found.none
                break
            assert found.counts is not None
            assert found.value == left[found.counts] == min(left.values())
            drawn.model.leave_out(left.popitem()[0] if found.counts not in left else found.counts)
            left.pop(found.counts, None)


F0, F1, I1 = Part(Kind.F, 0), Part(Kind.F, 1), Part(Kind.I, 1)


def each(part: Part) -> Way:
    return Way.of({part: 1})


def test_the_longest_choice_of_numbers_counts() -> None:
    """Room for 7, where two stages hold 2 and 3: 3 and 0 microbatches, 2 and 1, or, where they need not fall, 0 and 2."""

    def idle(first: int, second: int, falling: bool, least: int) -> int:
        counts = (Count(each(F0), 0, 1, (), least), Count(each(F1), 1, 1, (0,) if falling else (), least))
        duration: Mapping[Part, int] = {F0: first, F1: second}
        return Phase(Way((), 100), counts).least(duration, {0: 2, 1: 3}, 7, 4)

    assert idle(5, 1, True, 0) == 100 - 3 * 5
    assert idle(5, 1, True, 1) == 100 - 2 * 5 - 1
    assert idle(1, 5, True, 0) == 100 - 2 - 5
    assert idle(1, 5, False, 0) == 100 - 2 * 5


def test_what_is_given_back_makes_room_as_early_as_it_comes() -> None:
    """Room for two of a stage of F = 5, I = 7 within 100 ticks; the first I begins at 90, 80, 79, the next 10 behind it."""

    def idle(since: int) -> int:
        counts = (Count(each(F1), 1, 1), Count(each(I1), 1, -1, (0,), 0, Way((), since), Way((), 10)))
        return Phase(Way((), 100), counts).least({F1: 5, I1: 7}, {1: 1}, 2, 8)

    assert idle(100) == 100 - 2 * 5
    assert idle(99) == 100 - 3 * 5 - 1
    assert idle(90) == 100 - 3 * 5 - 7
    assert idle(80) == 100 - 4 * 5 - 2 * 7
    assert idle(79) == 100 - 5 * 5 - 2 * 7 - 1
