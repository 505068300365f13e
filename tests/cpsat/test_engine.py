"""The engine of CP-SAT and what it posts: small models with known answers, and what they cost on the clock."""

from itertools import pairwise

import pytest
from ortools.sat.python import cp_model

from ppopt.clock import Clock, Limits
from ppopt.cpsat import engine
from ppopt.cpsat.engine import BUILD, DECIDING, MINIMISING, SMALL, SMALL_PRESOLVED, SMALL_RELAXED, WINDOW, Known
from ppopt.cpsat.posting import Hold, Row, in_order, machine_of, precedence, reservoir
from ppopt.pipeline import Memory, Pipeline
from ppopt.search import solve
from tests.support import tuned


def jobs(until: int, count: int = 3, time: int = 2) -> tuple[cp_model.CpModel, list[cp_model.IntVar]]:
    """Jobs one after the other on a machine, all over by ``until``; the end is minimised."""
    model = cp_model.CpModel()
    starts = [model.new_int_var(0, until - time, f"{n}") for n in range(count)]
    machine_of(model, [Row(starts, time)])
    end = model.new_int_var(0, until, "end")
    model.add_max_equality(end, [start + time for start in starts])
    model.minimize(end)
    return model, starts


def test_the_best_there_is_and_none() -> None:
    model, starts = jobs(10)
    answer = engine.search(model, Limits.of(10, workers=1), MINIMISING)
    assert (answer.known, answer.objective, answer.bound) == (Known.BEST, 6, 6)
    assert sorted(answer.value(start) for start in starts) == [0, 2, 4]
    refuted = engine.search(jobs(5)[0], Limits.of(10, workers=1), DECIDING)
    assert (refuted.known, refuted.found, refuted.certain) == (Known.NONE, False, True)


def test_nothing_is_searched_when_the_clock_is_over() -> None:
    answer = engine.search(jobs(10)[0], Limits.of(0, workers=1), MINIMISING)
    assert (answer.known, answer.found, answer.certain) == (Known.OPEN, False, False)
    with pytest.raises(AssertionError):
        _ = answer.objective


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_all_ways_agree(workers: int) -> None:
    limits = Limits.of(20, workers=workers)
    ways = (SMALL, SMALL_RELAXED, SMALL_PRESOLVED)
    for until, known in ((6, Known.BEST), (5, Known.NONE)):
        assert engine.race(jobs(until)[0], limits, ways).known is known
        assert engine.in_every_way(jobs(until)[0], limits, ways, 5).known is known
    first, second = engine.at_once([jobs(until)[0] for until in (6, 5)], limits, DECIDING, seconds=5, seeds=(0, 1))
    assert (first.known, second.known) == (Known.BEST, Known.NONE)
    answers = engine.until_one_ends([jobs(until)[0] for until in (6, 5)], limits, DECIDING)
    assert any(answer.certain for answer in answers)


def test_progress_is_reported() -> None:
    seen: list[tuple[int | None, int]] = []
    engine.search(jobs(20, 5)[0], Limits.of(10, workers=1), MINIMISING, watch=lambda best, bound: seen.append((best, bound)))
    assert seen[-1] == (10, 10)


def test_deterministic_time_and_building_are_charged() -> None:
    model, _ = jobs(30, 9)
    clock = Clock(10, deterministic=True)
    spent = []
    for _ in range(2):
        engine.search(model, Limits(clock), WINDOW)
        spent.append(clock.spent - sum(spent))
    assert spent[0] == pytest.approx(spent[1])
    assert spent[0] > BUILD * len(model.proto.constraints)


def test_what_may_be_left_out_binds_only_where_it_is_there() -> None:
    for taken, first, second in ((True, 0, 3), (False, 0, 0)):
        model = cp_model.CpModel()
        starts = [[model.new_int_var(0, 9, "") for _ in range(2)] for _ in range(2)]
        there = [[model.new_bool_var("") for _ in range(2)] for _ in range(2)]
        before, after = (Row(row, 2, literals) for row, literals in zip(starts, there, strict=True))
        for row in (before, after):
            in_order(model, row)
        precedence(model, before, after, 0, 1)
        model.add(there[1][0] == taken)
        model.minimize(sum(x for row in starts for x in row) - 100 * there[1][0])
        answer = engine.search(model, Limits.of(10, workers=1), MINIMISING)
        assert (answer.value(starts[0][0]), answer.value(starts[1][0])) == (first, second)
        assert answer.boolean_value(there[0][0]) or not taken


def test_a_reservoir_holds_what_fits() -> None:
    for limit, least in ((4, 2), (3, 4), (1, None)):
        model = cp_model.CpModel()
        starts = [model.new_int_var(0, 9, "") for _ in range(2)]
        sizes = reservoir(model, [Hold(start, start + 2, 2, 9) for start in starts], limit)
        assert len(sizes) == (0 if limit >= 4 else 2)
        end = model.new_int_var(0, 9, "")
        for start in starts:
            model.add(end >= start + 2)
        model.minimize(end)
        answer = engine.search(model, Limits.of(10, workers=1), MINIMISING)
        assert (answer.objective if answer.found else None) == least


def test_bounds_charge_the_clock_in_deterministic_mode() -> None:
    """Else a search in deterministic mode would take far longer than it was given."""
    pipeline = Pipeline(4, 8, placement="wave", chunks=2, memory=Memory(limit=3))
    limits = [Limits.of(2, deterministic=True) for _ in range(2)]
    found = [[bound.value for bound in tuned.best(pipeline, target=60, limits=each)] for each in limits]
    assert found[0] == found[1]
    assert limits[0].clock.spent == limits[1].clock.spent > 0
    states = Limits.of(2, deterministic=True)
    tuned.throughput(Pipeline(4, 16, memory=Memory(limit=2)), limits=states)
    assert states.clock.spent > 0


def test_a_deterministic_search_spends_what_it_was_given() -> None:
    first, second = (
        solve(Pipeline(5, 10, memory=Memory(limit=3, retained=0.5)), objective="span", seconds=1, deterministic=True)
        for _ in range(2)
    )
    assert (first.value, first.lower_bound) == (second.value, second.lower_bound)
    assert [step.name for step in first.steps] == [step.name for step in second.steps]
    assert all(a <= b for a, b in pairwise([first.lower_bound, first.value or 0]))
