"""Which cut is looked at next: within a limit of memory by local search, elsewhere near the one with the least bound."""

import math
from fractions import Fraction

import pytest

from ppopt.clock import Clock
from ppopt.pipeline import Memory, Pipeline, PipelineError
from ppopt.search import Settings
from ppopt.search.cutting import PartitionChoice
from ppopt.search.offered_cuts import OfferedCuts
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.step import Taken
from tests.support.layered import MODEL, cuts

SETTINGS = Settings(seconds=600, workers=1)
TIGHT = Pipeline(2, 4, "wave", 2, layers=MODEL, partition="best", memory=Memory(limit=25))
FREE = TIGHT.changed(memory=Memory(limit=None))
EVERY = list(cuts(7, 4))


def offered(pipeline: Pipeline, left_out: set[Counts], steps: list[Taken]) -> tuple[OfferedCuts, OverCuts]:
    def at(counts: Counts) -> Pipeline | None:
        try:
            return pipeline.changed(partition=counts)
        except PipelineError:
            return None

    over = OverCuts(pipeline, "makespan", Fraction(0))
    return OfferedCuts(over, at, SETTINGS, left_out, steps), over


def test_within_a_limit_of_memory_one_after_the_other_by_local_search() -> None:
    left_out, steps = set[Counts](), list[Taken]()
    offers, over = offered(TIGHT, left_out, steps)
    assert offers.local
    assert offers.unasked(math.inf, Clock(600)) is None  # there is nothing to begin with
    (first,) = offers.first(EVERY[:2], (), math.inf, Clock(600))
    assert steps[-1].name == "local search for small bounds"
    assert (offers.last, offers.below) == (first, over.known_of(first))
    left_out.add(first)
    second = offers.unasked(math.inf, Clock(600))
    assert second is not None
    assert second != first
    left_out.update(EVERY)
    assert offers.unasked(math.inf, Clock(600)) is None
    assert (offers.last, offers.below) == (None, math.inf)
    assert steps[-1].outcome == "none is left"
    assert offers.near(first, math.inf, Clock(600)) == first


def test_the_answer_of_the_least_bound_is_one_to_begin_with() -> None:
    offers, over = offered(FREE, set(), [])
    bounds = {counts: over.bound_of(FREE.changed(partition=counts)) for counts in EVERY}
    least, most = (of(EVERY, key=bounds.__getitem__) for of in (min, max))
    moved = offers.first(EVERY[:2], (), math.inf, Clock(600))
    near = offers.first(EVERY[:2], [most, least], math.inf, Clock(600))
    assert set(near) == {*moved, least}
    assert [bounds[counts] for counts in near] == sorted(bounds[counts] for counts in near)


def test_without_one_ends_are_moved() -> None:
    steps = list[Taken]()
    offers, _ = offered(FREE, set(), steps)
    assert not offers.local
    near = offers.first(EVERY[:2], (), math.inf, Clock(600))
    assert 1 <= len(near) <= 2
    assert offers.unasked(math.inf, Clock(600)) is None
    assert offers.near(near[0], Fraction(1000), Clock(600)) in EVERY
    assert (offers.last, offers.below, steps) == (None, math.inf, [])


def test_what_is_known_is_not_asked() -> None:
    """Once no cut has less than the one that was offered last, the next one is offered without a question."""
    choice = PartitionChoice(TIGHT, "makespan", SETTINGS)
    choice._clock = Clock(600)
    (first,) = choice.offered.first(EVERY[:1], (), math.inf, choice._clock)
    choice.over.leave_out(first)
    choice.over.bound = choice.offered.below
    asked = choice.over.seconds
    choice._next_cut()
    assert len(choice.leaves) == 1
    assert choice.over.seconds == asked


@pytest.mark.parametrize("counts", EVERY[::3], ids=str)
def test_what_is_known_of_a_cut_is_no_more_than_its_bound(counts: Counts) -> None:
    _, over = offered(TIGHT, set(), [])
    try:
        pipeline = TIGHT.changed(partition=counts)
    except PipelineError:
        return
    before = over.known_of(counts)
    over.learn_from(pipeline)
    assert before <= over.known_of(counts) <= over.bound_of(pipeline)
