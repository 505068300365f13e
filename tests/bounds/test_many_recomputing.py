"""Bounds of cuts where it is open what recomputes: none is above the best schedule of its cut, whatever recomputes there."""

import math
from fractions import Fraction
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import pytest

from ppopt.bounds import many_recomputing
from ppopt.clock import Clock, Limits
from ppopt.op import Kind
from ppopt.pipeline import Layer, Layers, Memory, Pipeline, PipelineError
from ppopt.schedule import Objective
from ppopt.search.near_cuts import value_of
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.recomputing import RecomputeChoice
from ppopt.search.settings import Settings
from tests.support.layered import cuts
from tests.support.tiers import thorough

PLACES = (("linear", 2, 1, 4), ("linear", 3, 1, 4), ("wave", 2, 2, 3), ("loop", 2, 2, 3))
NUMBER = dict(zip(PLACES, (8, 6, 2, 2), strict=True))
"""Cuts that are solved."""
LONG = {("wave", "makespan"), ("loop", "span")}
"""What a quick run leaves out: many stages take seconds, and each of these placements and objectives is there once."""


def drawn(rng: Random, place: tuple[str, int, int, int]) -> Pipeline:
    """Random layers that can recompute, on a placement, with little room; partition and recomputing are open."""
    placement, devices, chunks, microbatches = place
    split, retains = rng.random() < 0.6, rng.random() < 0.5

    def layer(i: int) -> Layer:
        activation = rng.randint(2, 8)
        more: dict[str, Any] = {"backward": rng.randint(1, 12)}
        if split:
            more = {"backward_input": rng.randint(0, 9), "backward_weight": rng.randint(0, 9)}
        if retains:
            more["retained"] = rng.randint(0, activation)
        some = {"name": "some", "time": Fraction(rng.randint(1, 5), 2), "saved": rng.randint(1, activation)}
        full = {"name": "full", "time": rng.randint(1, 6), "saved": rng.randint(1, activation)}
        return Layer(f"l{i}", forward=rng.randint(1, 9), **more, activation=activation, weights=1, recompute=[some, full])

    every = [layer(i) for i in range(devices * chunks + 2)]
    least = sum(each.activation - max(level.saved for level in each.recompute) + 1 for each in every)
    limit = -(-int(least) // devices) + rng.randint(3, 9)
    runtime = "torch" if split and rng.random() < 0.3 else ""
    layers, memory = Layers(every), Memory(limit=limit)
    given: dict[str, Any] = {"partition": "best", "recompute": "choose", "runtime": runtime}
    return Pipeline(devices, microbatches, placement, chunks, layers=layers, memory=memory, **given)


def of_model(over: OverCuts, counts: Counts, below: Fraction) -> Fraction | float:
    """What the model of all cuts says of one of them."""
    other = OverCuts(over.pipeline, over.objective, Fraction(0))
    for certificate in over._known - other._known:
        other.model.learn(certificate)
    for row, end in zip(other.model.below, accumulate(counts), strict=False):
        for layer, literal in enumerate(row):
            other.model.model.add(literal == (layer < end))
    other.least(Limits(Clock(1000), 0.0, 2, 0), below, None)
    return other.bound


def free(over: OverCuts) -> OverCuts:
    """All cuts, where what is saved takes nothing."""
    found = OverCuts(over.pipeline, over.objective, Fraction(0))
    assert found.many is not None
    found.many._recomputing = None
    for certificate in over._known:
        found.many.learn(certificate)
    return found


@pytest.mark.parametrize(
    ("place", "objective"),
    [
        pytest.param(place, objective, marks=thorough if (place[0], objective) in LONG else ())
        for place in PLACES
        for objective in ("makespan", "span")
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value[0]}-{value[1]}",
)
def test_no_bound_is_above_the_best_of_its_cut(place: tuple[str, int, int, int], objective: Objective) -> None:
    rng, compared, raised, tight = Random(f"{place}{objective}"), 0, 0, 0
    while compared < NUMBER[place]:
        pipeline = drawn(rng, place)
        over = OverCuts(pipeline, objective, Fraction(0))
        assert over.many is not None
        every = list(cuts(len(pipeline.layers or ()), pipeline.stages))
        for counts in rng.sample(every, 3):
            over.learn_from(pipeline.changed(partition=counts, recompute="none", memory=Memory(limit=None)))
        for counts in rng.sample(every, 3):
            try:
                of_cut = pipeline.changed(partition=counts)
            except PipelineError:
                continue
            found = RecomputeChoice(of_cut, objective, Settings(seconds=1000)).go_on(Clock(1000), math.inf, None)
            if found.reason == "infeasible":
                continue
            assert found.reason == "optimal"
            assert found.schedule is not None
            best = value_of(found.schedule, objective)
            assert over.many.fits(np.array([list(accumulate(counts))[:-1]]))[0]
            known, model = over.known_of(counts), of_model(over, counts, best + 1)
            assert known <= best
            assert model <= best
            compared += 1
            tight += best in (known, model)
            raised += known > free(over).known_of(counts)
    assert tight or place[2] > 1 or objective == "span"  # there what is known leaves something open
    assert raised


def test_ticks_have_room_for_levels_that_take_a_million_times_as_long_as_a_layer() -> None:
    level = {"name": "full", "time": Fraction(10**12 + 1, 10**6), "saved": 9}
    layers = Layers([Layer("l", 64, forward=1, backward=2, activation=10, recompute=[level])])
    given: dict[str, Any] = {"layers": layers, "memory": Memory(limit=33), "partition": "best", "recompute": "choose"}
    over = OverCuts(Pipeline(2, 64, **given), "makespan", Fraction(0))
    assert over.least(Limits(Clock(1000), 0.0, 2, 0), Fraction(5 * 10**9), None) is not None
    assert not over.none_left
    assert over.bound <= Fraction("4096012288.004"), "the best cut takes that"


def test_times_that_no_numbers_fit_in_are_none() -> None:
    """Eight alike layers, half of them on each device: such a limit leaves room for no microbatch that does not recompute."""
    level = {"name": "full", "time": 1, "saved": 9}
    layers = Layers([Layer("l", 8, forward=1, backward=2, activation=10, recompute=[level])])
    found = []
    for limit in (5, 12):
        given: dict[str, Any] = {"layers": layers, "memory": Memory(limit=limit), "partition": "best", "recompute": "choose"}
        over = OverCuts(Pipeline(2, 8, **given), "makespan", Fraction(0))
        found.append(over.known_of((4, 4)))
    assert found == [141, 132], "134 and 124 where such times count; the best schedules take 256 and 144"


def test_more_ranges_say_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, more = Random(5), 0
    for _ in range(10):
        over = OverCuts(drawn(rng, PLACES[2]), "makespan", Fraction(0))
        assert over.many is not None
        every = np.array([list(accumulate(counts))[:-1] for counts in cuts(over.many.layers, over.many.stages)])
        found = []
        for ranges in (1, 4, 16):
            monkeypatch.setattr(many_recomputing, "RANGES", ranges)
            found.append(over.many.each(every))
        assert np.all(found[0] <= found[1])
        assert np.all(found[1] <= found[2])
        without = free(over).many
        assert without is not None
        assert np.all(without.each(every) <= found[0])
        more += int((found[2] > found[0]).sum())
    assert more > 20


def test_the_first_stage_recomputes_in_its_weight_gradient_where_pytorch_runs_it() -> None:
    full = {"name": "full", "time": 1, "saved": 2}
    layers = Layers([Layer("l", 6, forward=1, backward_input=1, backward_weight=1, activation=2, recompute=[full])])
    given: dict[str, Any] = {"layers": layers, "memory": Memory(limit=5), "partition": "best", "recompute": "choose"}
    kinds = []
    for runtime in ("", "torch"):
        over = OverCuts(Pipeline(2, 4, runtime=runtime, **given), "makespan", Fraction(0))
        assert over._amounts is not None
        assert over._amounts.savings is not None
        kinds.append(over._amounts.savings.kinds)
    assert kinds == [(Kind.I, Kind.I), (Kind.W, Kind.I)]
