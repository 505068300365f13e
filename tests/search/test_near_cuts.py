"""From cut to cut by moving ends: to smaller bounds, and with an order that is known."""

from fractions import Fraction

import pytest

from ppopt import bounds
from ppopt.clock import Clock
from ppopt.pipeline import Memory, Pipeline, PipelineError
from ppopt.schedule import Objective
from ppopt.search import Settings, solve_closed
from ppopt.search.cuts import moved
from ppopt.search.near_cuts import followed, improved, retimed, value_of
from ppopt.search.over_cuts import Counts
from tests.support.layered import MODEL, cuts

OBJECTIVES = pytest.mark.parametrize("objective", ["makespan", "span"])
PIPELINE = Pipeline(2, 4, "wave", 2, layers=MODEL)


def at(counts: Counts, limit: int | None = None) -> Pipeline | None:
    try:
        return PIPELINE.changed(partition=counts, memory=Memory(limit=limit))
    except PipelineError:
        return None


def worst(known: list[Fraction]) -> tuple[Fraction, Fraction]:
    return known[0], Fraction(0)


def machine(counts: Counts, objective: Objective) -> int:
    pipeline = at(counts)
    bound = None if pipeline is None else bounds.machine(pipeline, objective)
    assert bound is not None
    return bound.value


def test_moved_cuts_have_the_same_layers_and_none_is_empty() -> None:
    everything = set(cuts(7, 4))
    for counts in everything:
        assert set(moved(counts)) <= everything - {counts}
    assert set(moved((1, 2))) == {(2, 1)}
    assert set(moved((2, 1, 2))) == {(1, 2, 2), (3, 1, 1), (2, 2, 1), (1, 1, 3)}


@OBJECTIVES
def test_no_end_leads_to_a_smaller_bound_from_an_improved_cut(objective: Objective) -> None:
    for counts in list(cuts(7, 4))[::5]:
        found = improved(counts, objective, worst, at, (), Clock(30))
        assert machine(found, objective) <= machine(counts, objective)
        assert all(machine(other, objective) >= machine(found, objective) for other in moved(found))


def test_cuts_that_are_left_out_or_have_no_room_are_not_given() -> None:
    start = (1, 1, 1, 4)
    assert improved(start, "makespan", worst, at, (), Clock(30)) != start
    assert improved(start, "makespan", worst, at, set(moved(start)), Clock(30)) == start
    assert improved(start, "makespan", worst, lambda counts: at(counts) if counts == start else None, (), Clock(30)) == start


@OBJECTIVES
def test_the_order_takes_no_more_time_on_another_cut_and_stays_within_memory(objective: Objective) -> None:
    gained, settings = 0, Settings(seconds=2, workers=1)
    for limit in (None, 30):
        for counts in list(cuts(7, 4))[::4]:
            pipeline = at(counts, limit)
            schedule = None if pipeline is None else solve_closed(pipeline, objective, settings=settings).schedule
            if schedule is None:
                continue
            found = followed(schedule, objective, lambda other, limit=limit: at(other, limit), (), Clock(30))  # type: ignore[misc]
            assert value_of(found, objective) <= value_of(schedule, objective)
            assert found.within_memory
            assert found.order == schedule.order
            assert found.pipeline.counts != counts or found is schedule
            gained += found is not schedule
            assert followed(schedule, objective, at, set(cuts(7, 4)), Clock(30)) is schedule
    assert gained > 2


def test_no_order_where_it_is_open_what_recomputes() -> None:
    schedule = solve_closed(PIPELINE.changed(partition="even"), settings=Settings(seconds=2, workers=1)).schedule
    assert schedule is not None
    assert retimed(schedule, PIPELINE.changed(partition="even", recompute="choose"), "makespan") is None
    again = retimed(schedule, PIPELINE.changed(partition="even"), "makespan")
    assert again is not None
    assert again.makespan == schedule.makespan
