"""Cut and order together: what a box of cuts has at best, as by solving each of its cuts."""

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from ppopt.bounds.scheduled_cuts import Box
from ppopt.clock import Clock, Limits
from ppopt.pipeline import Layers, Memory, Pipeline, PipelineError
from ppopt.search import Settings, solve
from ppopt.search.boxes import Around, AroundSettled, Everywhere
from ppopt.search.closed import solve_closed
from ppopt.search.cutting import PartitionChoice
from ppopt.search.over_cuts import Counts, OverCuts
from tests.bounds.test_margins import exchanging
from tests.support.every_cut import cuts, layered
from tests.support.layered import on
from tests.support.tiers import drawn, thorough

SETTINGS = Settings(seconds=60, workers=1)
GPT = Layers(
    [
        {"name": "embedding", "forward": 5, "backward": 9, "activation": 2, "weights": 3},
        {"name": "decoder", "count": 14, "forward": 10, "backward": 21, "activation": 3, "weights": 2},
        {"name": "head", "forward": 17, "backward": 35, "activation": 2, "weights": 4},
    ]
)
TIGHT = Pipeline(3, 4, "wave", 2, layers=GPT, memory=Memory(limit=48))
BEST = Fraction(998)
"""What its best cut takes; thorough tests prove it."""


def best_in(pipeline: Pipeline, box: Box) -> tuple[Fraction, Counts] | None:
    """The best of all cuts of a box, each solved to its optimum; ``None``: no schedule fits."""
    values = []
    for counts in cuts(pipeline):
        if not box.has(counts):
            continue
        try:
            result = solve_closed(pipeline.changed(partition=counts), "makespan", SETTINGS)
        except PipelineError:
            continue
        assert result.reason in ("optimal", "infeasible")
        if result.ticks.value is not None:
            values.append((Fraction(result.ticks.value, result.ticks.per_unit), counts))
    return min(values, default=None)


def looks_of(pipeline: Pipeline, over: OverCuts) -> tuple[Around, Everywhere, AroundSettled]:
    looks = over, lambda counts: on(pipeline, counts), SETTINGS, 60.0
    everywhere = Everywhere(*looks)
    everywhere._part = Fraction(1)
    return Around(*looks), everywhere, AroundSettled(*looks)


@drawn(10, 200, layered(6, 20), st.data())
def test_a_box_is_as_good_as_the_best_of_its_cuts(pipeline: Pipeline, data: st.DataObject) -> None:
    over = OverCuts(pipeline, "makespan", Fraction(0))
    assume(over.joint and pipeline.stages > 1)
    every = list(cuts(pipeline))
    box = Box.around(data.draw(st.sampled_from(every)), data.draw(st.integers(0, 6)))
    best = best_in(pipeline, box)
    found = over.with_order(Limits.of(60, workers=1), 0, 10_000, box)
    assert found.settled
    assert pipeline.layers is not None
    if best is None:
        return
    assert Fraction(found.bound, over.per_unit) <= best[0]
    rebuilt = any(layer.retained is not None or layer.recompute for layer in pipeline.layers.groups)
    if not rebuilt:  # the rules of the model are all that there are
        assert found.counts is not None
        assert box.has(found.counts)
        assert Fraction(found.bound, over.per_unit) == best[0]


@pytest.mark.parametrize("seed", range(6))
def test_what_layers_exchange_counts_in_a_box(seed: int) -> None:
    pipeline = exchanging(Random(seed), places=4)
    over = OverCuts(pipeline, "makespan", Fraction(0))
    box = Box.all_of(len(pipeline.layers or ()), pipeline.stages)
    best = best_in(pipeline, box)
    assert best is not None
    found = over.with_order(Limits.of(60, workers=1), 0, 10_000, box)
    assert Fraction(found.bound, over.per_unit) == best[0]


@drawn(4, 100, layered(6, 20), st.integers(0, 2))
def test_what_is_closed_has_nothing_better(pipeline: Pipeline, which: int) -> None:
    over = OverCuts(pipeline, "makespan", Fraction(0))
    assume(over.joint and pipeline.stages > 1)
    first = next(cuts(pipeline))
    looks = looks_of(pipeline, over)[which]
    if isinstance(looks, AroundSettled):
        assume(looks.useful)
        looks.cut = first
    looked = looks.look(first, 0, 10_000, Clock(60))
    best = best_in(pipeline, looked.box)
    assert best is None or looked.bound <= best[0]
    if looked.schedule is not None:
        assert looked.schedule.within_memory
        assert best is not None
        value = Fraction(looked.schedule.makespan, looked.schedule.pipeline.ticks.per_unit)
        assert value >= best[0]
        assert value == best[0] or not looked.closed
    elif looked.closed:
        assert best is None
    else:
        assert not looks.useful  # what seemed to be there broke a rule that the model does not know


def test_a_bound_of_the_cuts_that_are_left_is_none_of_a_box() -> None:
    """A cut that is being solved may be better than all others: what its box has is looked for from its own bound on."""
    pipeline = Pipeline(2, 3, layers=Layers([{"name": "layer", "count": 3, "forward": 2, "backward": 4}]))
    over = OverCuts(pipeline, "makespan", Fraction(0))
    best = best_in(pipeline, Box.all_of(3, 2))
    assert best is not None
    over.bound = best[0] + 10  # of the cuts but the best one, which is left out
    looked = looks_of(pipeline, over)[0].look(best[1], 0, best[0] + 20, Clock(60))
    assert looked.schedule is not None
    assert looked.closed
    assert looked.bound == best[0] == Fraction(looked.schedule.makespan, looked.schedule.pipeline.ticks.per_unit)


def test_around_settled_cuts_boxes_grow_while_they_are_closed() -> None:
    """From two ends to all, then further away; half as many after a box that stays open. None where its bound is too large."""
    over = OverCuts(TIGHT, "makespan", Fraction(0))
    looks = looks_of(TIGHT, over)[2]
    middle, sizes = (3, 3, 3, 3, 2, 2), list[int]()
    assert not looks.due(1e9)
    for number in (2, 4, 5):
        looks.cut = middle
        assert looks.due(1e9)
        assert looks.name(middle) == f"cuts and orders, up to {number} ends elsewhere than in 3,3,3,3,2,2"
        box = looks._box(middle, 10_000)
        assert box.has(middle)
        sizes.append(sum(high > low for low, high in zip(*box, strict=True)))
        looked = looks.look(next(cuts(TIGHT)), 0, 1, Clock(60))
        assert looked.closed
        assert looked.box == Box.around(middle, 0)
        assert not looks.due(1e9)
    assert sizes == [2, 4, 5]
    for reach in (1, 2):
        looks.cut = middle
        assert looks.look(next(cuts(TIGHT)), 0, 1, Clock(60)).box == Box.around(middle, reach)
    size, looks.cut = looks._size, middle
    assert not looks.look(middle, 0, 10_000, Clock(0)).closed
    assert looks._size == size // 2


def test_around_settled_cuts_no_look_without_a_limit_of_memory() -> None:
    free = TIGHT.changed(memory=Memory(limit=None))
    looks = looks_of(free, OverCuts(free, "makespan", Fraction(0)))[2]
    looks.cut = next(cuts(free))
    assert not looks.due(1e9)


def test_looks_at_all_cuts_raise_the_bound_step_by_step() -> None:
    """A part of the way at a time; what was asked for and is not there is a bound."""
    over = OverCuts(TIGHT, "makespan", Fraction(0))
    looks = looks_of(TIGHT, over)[1]
    looks._part = Fraction(1, 8)
    counts = next(cuts(TIGHT))
    lower, bounds, asked = Fraction(0), list[Fraction](), BEST
    for _ in range(6):
        assert looks.due(0.0) == (bounds != [])  # at once after an answer
        looked = looks.look(counts, lower, asked, Clock(60))
        assert looked.schedule is None
        lower = looked.bound
        bounds.append(lower)
        if looked.closed:
            break
    assert bounds == sorted(set(bounds))
    assert len(bounds) > 2
    assert looked.closed
    assert lower == asked


def test_looks_at_all_cuts_go_on_in_vain() -> None:
    """They may take as long as single cuts, and ask for a quarter of the way at first."""
    looks = Everywhere(OverCuts(TIGHT, "makespan", Fraction(0)), lambda counts: None, SETTINGS, 10.0)
    looks.in_vain = 3
    assert not looks.due(9.9)
    assert looks.due(10.0)
    looked = looks.look(next(cuts(TIGHT)), 0, 40, Clock(60))
    assert (looked.bound, looked.closed) == (10, False)
    assert looks.due(0.0)


class Eager(PartitionChoice):
    """A search that does nothing but look at cut and order together."""

    def _next_cut(self, few: Sequence[Counts] = ()) -> None:
        self._spent = 1e9


@thorough
@pytest.mark.parametrize("everywhere", [False, True])
def test_looks_alone_settle_the_search(everywhere: bool) -> None:
    """Boxes grow to all cuts."""
    expected = solve(TIGHT, seconds=600, workers=1)
    assert (expected.reason, expected.value) == ("optimal", BEST)
    choice = Eager(TIGHT, "makespan", SETTINGS)
    choice.looks = tuple(looks for looks in choice.looks if isinstance(looks, Everywhere if everywhere else Around))
    choice.iterated.spent = math.inf
    result = choice.go_on(Clock(60), float("inf"), None)
    assert (result.reason, result.value) == ("optimal", expected.value)
    names = [step.name for step in result.steps if "cuts and orders" in step.name]
    assert len(names) > 1 - everywhere
    assert all(("all" in name) == everywhere for name in names)
    assert not any("within 1 of" in name for name in names[1:])


def test_a_box_without_room_is_closed() -> None:
    narrow = dataclasses.replace(TIGHT.memory, limit=13)
    pipeline = TIGHT.changed(memory=narrow)
    over = OverCuts(pipeline, "makespan", Fraction(0))
    looked = looks_of(pipeline, over)[0].look((11, 1, 1, 1, 1, 1), 0, 10_000, Clock(60))
    assert looked.closed
    assert looked.schedule is None


def test_it_says_for_what_it_has_no_model() -> None:
    assert OverCuts(TIGHT, "makespan", Fraction(0)).joint
    assert not OverCuts(TIGHT, "span", Fraction(0)).joint
    bidirectional = Pipeline(2, 4, "bidirectional", layers=GPT)
    assert not OverCuts(bidirectional, "makespan", Fraction(0)).joint
