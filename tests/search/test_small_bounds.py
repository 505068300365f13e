"""Local search for cuts with small bounds: the least of all where that is known, and what may not be given is not."""

import math
from fractions import Fraction
from random import Random

import pytest

from ppopt import bounds
from ppopt.bounds.scheduled_cuts import Box
from ppopt.clock import Clock
from ppopt.pipeline import Memory, Pipeline, PipelineError
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.small_bounds import SmallBounds
from tests.support.layered import MODEL, cuts

PIPELINE = Pipeline(2, 4, "wave", 2, layers=MODEL, partition="best", memory=Memory(limit=25))
EVERY = list(cuts(7, 4))


def at(counts: Counts) -> Pipeline | None:
    try:
        return PIPELINE.changed(partition=counts)
    except PipelineError:
        return None


def bound(counts: Counts) -> Fraction | float:
    """The best of the closed forms that the search goes by; infinite where there is no room."""
    pipeline = at(counts)
    if pipeline is None:
        return math.inf
    found = bounds.machine(pipeline), bounds.memory(pipeline)
    return max(Fraction(one.value, pipeline.ticks.per_unit) for one in found if one is not None)


def search() -> tuple[SmallBounds, OverCuts]:
    over = OverCuts(PIPELINE, "makespan", Fraction(0))
    assert over.many is not None
    return SmallBounds(over.many, over, at, 0), over


LEAST = min(map(bound, EVERY))


def test_some_cuts_have_no_room_and_their_bounds_differ() -> None:
    assert sum(bound(counts) == math.inf for counts in EVERY) > 2
    assert len({bound(counts) for counts in EVERY}) > 5


@pytest.mark.parametrize("start", Random(0).sample(EVERY, 5), ids=str)
def test_the_cut_that_is_found_has_the_least_bound_of_all(start: Counts) -> None:
    small, _ = search()
    found = small.cut([start], (), math.inf, Clock(60))
    assert found is not None
    assert bound(found) == LEAST
    assert small.bound(found) == LEAST


def test_without_time_it_is_the_best_of_those_to_begin_with() -> None:
    small, _ = search()
    some = Random(1).sample([counts for counts in EVERY if bound(counts) < math.inf], 4)
    assert len(set(map(bound, some))) > 1
    found = small.cut(some, (), math.inf, Clock(0))
    assert found in some
    assert bound(found) == small.bound(found) == min(map(bound, some))


def test_one_cut_after_the_other_in_the_order_of_their_bounds_until_none_is_below() -> None:
    small, _ = search()
    below = sorted(map(bound, EVERY))[8]
    left_out = list[Counts]()
    while (found := small.cut(EVERY[:1], left_out, below, Clock(60))) is not None:
        assert found not in left_out
        assert bound(found) < below
        left_out.append(found)
    assert len(left_out) >= 3
    assert bound(left_out[0]) == LEAST


def test_cuts_of_boxes_that_are_left_out_are_not_given() -> None:
    small, over = search()
    first = small.cut(EVERY[:1], (), math.inf, Clock(60))
    assert first is not None
    box = Box.around(first, 1)
    over.leave_out_box(box)
    other = small.cut((), (), math.inf, Clock(60))
    assert other is not None
    assert not box.has(other)


def test_nothing_where_there_is_no_room_or_no_time() -> None:
    small, _ = search()
    assert small.cut(EVERY[:1], EVERY, math.inf, Clock(60)) is None
    assert small.cut((), (), math.inf, Clock(0)) is None
