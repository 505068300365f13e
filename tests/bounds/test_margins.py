"""What layers take once per step, in bounds over all cuts: it holds on every cut, and is to the tick on its own."""

from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from ppopt import bounds
from ppopt.bounds.certificates import Certificate, certificates, durations_of
from ppopt.bounds.margins import given_once, margins_of, once_of_stages
from ppopt.bounds.tight_lists import times_on
from ppopt.bounds.ways import Once, Part, Way
from ppopt.clock import Clock, Limits
from ppopt.constraints import relaxed_graph
from ppopt.op import Kind
from ppopt.pipeline import Costs, DataParallel, Layer, Layers, Links, Memory, Pipeline
from ppopt.schedule import Objective
from ppopt.search import solve
from ppopt.search.over_cuts import OverCuts
from tests.support.every_cut import by_enumeration, cuts

PLACES = (("linear", 2, 1), ("linear", 3, 1), ("wave", 2, 2), ("loop", 2, 2), ("bidirectional", 2, 1), ("loop", 2, 3))
NAMES = ("all_gather", "reduce_scatter", "optimizer")


def exchanging(rng: Random, *, places: int = len(PLACES), limit: bool = False, pieces: bool = False) -> Pipeline:
    """Layers that take something once per step, much or little; the partition is open. What they do not take of that is given
    for each device."""
    placement, devices, chunks = rng.choice(PLACES[:places])
    split, most = rng.random() < 0.5, rng.choice((1, 5, 40))
    given = rng.choice((NAMES, NAMES[:2], NAMES[2:], NAMES[1:]))

    def backward() -> dict[str, int]:
        if split:
            return {"backward_input": rng.randint(1, 6), "backward_weight": rng.randint(0, 6)}
        return {"backward": rng.randint(1, 9)}

    def layer(i: int) -> Layer:
        once = {name: Fraction(rng.randint(0, 2 * most), rng.choice((1, 1, 2))) for name in given}
        amounts = {"activation": rng.randint(1, 4), "weights": rng.randint(0, 2)} if limit else {}
        return Layer(f"l{i}", forward=rng.randint(0, 5), **backward(), **amounts, **once)

    layers = Layers([layer(i) for i in range(devices * chunks + rng.randint(1, 3))])
    each = tuple(rng.randint(0, 9) for _ in range(devices))
    exchanged = (0, 0) if layers.has(*NAMES[:2]) else (rng.choice((0, each)), each)
    step = None if layers.has("optimizer") else rng.choice((None, each))
    costs = Costs(optimizer=step, weight_pieces=rng.choice((1, 2, 3)) if pieces and split else 1)
    memory = Memory(limit=rng.randint(5, 9) * (chunks + 1)) if limit else Memory()
    return Pipeline(
        devices,
        rng.randint(2, 5),
        placement,
        chunks,
        layers=layers,
        partition="best",
        links=Links(latency=rng.choice((0, 2))),
        costs=costs,
        data_parallel=DataParallel(*exchanged, overlap=rng.random() < 0.4),
        memory=memory,
    )


def on_every_cut(pipeline: Pipeline) -> list[Pipeline]:
    free = pipeline.changed(memory=replace(pipeline.memory, limit=None))
    return [free.changed(partition=counts) for counts in cuts(pipeline)]


def machine(pipeline: Pipeline, objective: Objective = "makespan") -> Fraction:
    """The one-machine bound, in units."""
    bound = bounds.machine(pipeline, objective)
    assert bound is not None
    return Fraction(bound.value, pipeline.ticks.per_unit)


def worth(certificate: Certificate, own: int, pipeline: Pipeline) -> Fraction:
    """What a certificate whose constants are in ticks of ``own`` per unit says of a pipeline, in units."""
    duration = {part: Fraction(ticks) / pipeline.ticks.per_unit for part, ticks in durations_of(pipeline).items()}
    times = [
        min(way.value(duration) - way.constant + Fraction(way.constant, own) for way in ways)
        for ways in (certificate.heads, (certificate.work,), certificate.tails)
    ]
    return Fraction(sum(times)) / certificate.spans


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("seed", range(6))
def test_a_certificate_is_the_bound_of_its_cut_and_holds_on_all_others(seed: int, objective: Objective) -> None:
    rng = Random(seed)
    for _ in range(4):
        every = on_every_cut(exchanging(rng, pieces=True))
        known = [machine(pipeline, objective) for pipeline in every]
        for at in rng.sample(range(len(every)), min(3, len(every))):
            own = every[at].ticks.per_unit
            found = certificates(every[at], every[at].devices + 1, objective)
            assert max(worth(one, own, every[at]) for one in found) == known[at]
            assert all(worth(one, own, pipeline) <= bound for one in found for pipeline, bound in zip(every, known, strict=True))


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_known_of_all_cuts_holds(seed: int, objective: Objective) -> None:
    """What is learned from a cut, too. It is no less than what each device takes, exchange and step included."""
    rng = Random(seed)
    for _ in range(4):
        pipeline = exchanging(rng, pieces=True)
        over, every = OverCuts(pipeline, objective, Fraction(0)), on_every_cut(pipeline)
        for cut in rng.sample(every, min(2, len(every))):
            over.learn_from(cut)
        for cut in every:
            said = max(worth(one, over.per_unit, cut) for one in over._known)
            assert said <= machine(cut, objective)
            assert over.bound <= machine(cut, objective)
            work = relaxed_graph(cut, links=False)
            busiest = max(map(sum, zip(work.work[: work.devices], work.around[: work.devices], strict=True)))
            assert said >= Fraction(busiest, cut.ticks.per_unit)


@pytest.mark.parametrize("seed", range(4))
def test_many_cuts_at_once_are_told_the_same(seed: int) -> None:
    rng = Random(seed)
    for _ in range(3):
        pipeline = exchanging(rng, places=4, limit=rng.random() < 0.5)
        over = OverCuts(pipeline, "makespan", Fraction(0))
        assert over.many is not None
        every = on_every_cut(pipeline)
        for cut in rng.sample(every, min(2, len(every))):
            over.learn_from(cut)
        ends = np.array([np.cumsum(cut.counts)[:-1] for cut in every], dtype=np.int64)
        said = over.many.each(ends, range(over.many.learned)).max(axis=1)
        for cut, ticks in zip(every, said.tolist(), strict=True):
            assert ticks <= machine(cut) * over.per_unit
        if not over.limited:
            over.least(Limits.of(60, workers=1), 10**6, None)
            assert over.bound * over.per_unit == said.min(), "the model of all cuts says the same"


@pytest.mark.parametrize("seed", range(3))
def test_margins_of_families_on_each_cut(seed: int) -> None:
    """What edge finding is given is what the graph of each cut has."""
    rng = Random(seed)
    for _ in range(4):
        pipeline = exchanging(rng, places=4)
        over = OverCuts(pipeline, "makespan", Fraction(0))
        assert over.many is not None
        for cut in on_every_cut(pipeline):
            graph = relaxed_graph(cut, links=False)
            ends = np.array([np.cumsum(cut.counts)[:-1]], dtype=np.int64)
            duration, before, behind = times_on(ends, over.many, over._reasons, over._scale)[0].tolist()
            table = zip(over.graph.families, duration, before, behind, strict=True)
            scale = over.per_unit // cut.ticks.per_unit
            given = zip(graph.families, graph.duration, graph.lead, graph.tail, strict=True)
            of_cut = {family: [scale * ticks for ticks in of] for family, *of in given}
            assert {family: of for family, *of in table if family in of_cut} == of_cut


def test_by_hand() -> None:
    """Two stages on each of two devices; with overlap a stage waits for what comes before it alone."""
    given = {"forward": 1, "backward": 2, "all_gather": 3, "reduce_scatter": 4}
    layers = Layers([{"name": "a", "count": 2, **given}, {"name": "b", "count": 3, **given, "all_gather": Fraction(1, 2)}])
    pipeline = Pipeline(2, 3, "loop", 2, layers=layers, partition=(1, 1, 1, 2), costs=Costs(optimizer=(5, 7)))
    assert given_once(pipeline) == {Once.ALL_GATHER, Once.REDUCE_SCATTER}
    assert once_of_stages(pipeline)[Part(Once.ALL_GATHER, 3)] == 2 * Fraction(1, 2) * pipeline.ticks.per_unit

    def of(pipeline: Pipeline, stage: int) -> tuple[Way, Way]:
        graph = relaxed_graph(pipeline, links=False)
        margins = margins_of(pipeline, graph)
        (place,) = (o for o, family in enumerate(graph.families) if (family.kind, family.stage) == (Kind.F, stage))
        return margins.before[place], margins.behind[place]

    def stages(once: Once, *some: int) -> dict[Part, int]:
        return {Part(once, stage): 1 for stage in some}

    step = 7 * pipeline.ticks.per_unit
    assert of(pipeline, 1) == (Way.of(stages(Once.ALL_GATHER, 1, 3)), Way.of(stages(Once.REDUCE_SCATTER, 1, 3), step))
    beside = pipeline.changed(data_parallel=DataParallel(overlap=True))
    assert of(beside, 1) == (Way.of(stages(Once.ALL_GATHER, 1)), Way.of(stages(Once.REDUCE_SCATTER, 1), step))
    assert of(beside, 3) == of(pipeline, 3) == of(pipeline, 1)


@pytest.mark.parametrize("seed", range(4))
def test_weight_gradients_in_pieces_beside_an_exchange(seed: int) -> None:
    rng = Random(seed)

    def layer(i: int) -> Layer:
        costs = {"forward": rng.randint(1, 3), "backward_input": rng.randint(1, 3), "backward_weight": 2 * rng.randint(1, 2)}
        return Layer(f"l{i}", **costs, **{name: rng.choice((0, 0, 10, 20)) for name in NAMES})

    pipeline = Pipeline(2, 3, layers=Layers([layer(i) for i in range(6)]), partition="best", costs=Costs(weight_pieces=2))
    result = solve(pipeline, workers=1, seconds=60)
    assert (result.reason, result.value) == ("optimal", by_enumeration(pipeline, "makespan"))


@pytest.mark.parametrize(("digits", "devices", "chunks", "microbatches"), [(6, 8, 4, 256), (9, 4, 1, 128)])
def test_edge_finding_has_room_for_fine_ticks(digits: int, devices: int, chunks: int, microbatches: int) -> None:
    rng = Random(0)

    def time(low: int, high: int) -> Fraction:
        return Fraction(rng.randint(low * 10**digits, high * 10**digits), 10**digits)

    def layer(i: int) -> Layer:
        once = {"all_gather": time(5, 300), "reduce_scatter": time(5, 300), "optimizer": time(1, 5)}
        return Layer(f"l{i}", forward=time(1, 3), backward=time(2, 6), **once)

    layers = Layers([layer(i) for i in range(devices * chunks + 1)])
    placement = "wave" if chunks > 1 else "linear"
    over = OverCuts(Pipeline(devices, microbatches, placement, chunks, layers=layers), "makespan", Fraction(0))
    clock = Clock(3, deterministic=True)
    assert over.list_cuts(Fraction(10**5), 10, Limits(clock, 0.0, 1), lambda counts: False, 2.0)
    assert over.listed is not None
    assert len(over.listed.ends)
