"""The engine of CP-SAT and what it posts: small models with known answers, and what they cost on the clock."""

import random
from collections.abc import Sequence
from itertools import pairwise, permutations, product
from typing import Any

import pytest
from ortools.sat.python import cp_model

from ppopt.clock import Clock, Limits
from ppopt.cpsat import engine
from ppopt.cpsat.engine import (
    BUILD,
    CUTS,
    CUTS_RELAXED,
    DECIDING,
    DECIDING_PRESOLVED,
    MINIMISING,
    SMALL,
    SMALL_PRESOLVED,
    SMALL_RELAXED,
    WINDOW,
)
from ppopt.cpsat.posting import Hold, Row, in_order, machine_of, precedence, reservoir
from ppopt.cpsat.running import Known
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.search import solve
from tests.support import tuned
from tests.support.tiers import thorough


def jobs(until: int, count: int = 3, time: int = 2) -> tuple[cp_model.CpModel, list[cp_model.IntVar]]:
    """Jobs one after the other on a machine, all over by ``until``; the end is minimised."""
    model = cp_model.CpModel()
    starts = [model.new_int_var(0, until - time, f"{n}") for n in range(count)]
    machine_of(model, [Row(starts, time)])
    end = model.new_int_var(0, until, "end")
    model.add_max_equality(end, [start + time for start in starts])
    model.minimize(end)
    return model, starts


def parities(nodes: int = 60) -> cp_model.CpModel:
    """A literal for each edge of a random graph; at one node an odd number of them is true, at all others an even one: no
    solution, and clauses alone take very long to show that (Tseitin)."""
    model = cp_model.CpModel()
    rng = random.Random(1)
    ends = [node for node in range(nodes) for _ in range(4)]
    rng.shuffle(ends)
    at: list[list[cp_model.IntVar]] = [[] for _ in range(nodes)]
    for a, b in zip(ends[::2], ends[1::2], strict=True):
        if a != b:
            edge = model.new_bool_var("")
            at[a].append(edge)
            at[b].append(edge)
    for node, edges in enumerate(at):
        for signs in product((0, 1), repeat=len(edges)):
            if sum(signs) % 2 != (node == 0):
                model.add_bool_or([edge.negated() if sign else edge for edge, sign in zip(edges, signs, strict=True)])
    return model


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


def test_searches_go_on_while_the_first_to_end_is_looked_at() -> None:
    """One is easy; the other one, of which nothing is known for long, goes on, is stopped by its name, and by the end."""
    limits = Limits.of(60, workers=2)
    with engine.Searches(DECIDING) as searches:
        first = searches.until_one_ends({1: lambda: jobs(6)[0], 7: parities, 8: parities}, limits)
        assert set(first) == {1}
        assert first[1].known is Known.BEST
        assert searches.names == (7, 8)
        again = searches.until_one_ends({2: lambda: jobs(5)[0], 8: parities}, limits)
        assert again[2].known is Known.NONE
        assert searches.names == (8,)
    assert searches.names == ()
    assert limits.clock.left > 30


def test_each_search_has_its_own_time() -> None:
    """The first one began with less; the second one goes on when that has had its time."""
    clock = Clock(60)
    with engine.Searches(DECIDING) as searches:
        assert set(searches.until_one_ends({1: parities, 2: lambda: jobs(6)[0]}, Limits(clock.slice(0.5)))) == {2}
        ended = searches.until_one_ends({1: parities, 3: parities}, Limits(clock))
        assert {name: answer.known for name, answer in ended.items()} == {1: Known.OPEN}
        assert searches.names == (3,)


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
    limits = [Limits.of(0.5, deterministic=True) for _ in range(2)]
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


# --- large coefficients ---


def sums(seed: int) -> tuple[cp_model.CpModel, int | None]:
    """A model of sums over booleans with coefficients from 2**31 on, and its least objective; ``None``: there is no solution.

    Some booleans imply others, and some limits hold only with one.
    """
    rng = random.Random(seed)
    unit, count = 2 ** rng.choice((31, 33, 36, 40)), rng.randint(3, 7)
    model = cp_model.CpModel()
    literals = [model.new_bool_var("") for _ in range(count)]
    several = range(rng.randint(1, 3))
    implied = [(a, b) for a, b in permutations(range(count), 2) if rng.random() < 0.15]
    for a, b in implied:
        model.add_implication(literals[a], literals[b])

    def some(low: int, high: int, at_all: float = 1.0) -> list[int]:
        each = [rng.randint(low, high) * unit + rng.randint(-unit // 1000, unit // 1000) for _ in range(count)]
        return [value if rng.random() < at_all else 0 for value in each]

    def total(values: Sequence[int], of: Any) -> Any:
        return sum(value * each for value, each in zip(values, of, strict=True))

    whole = [[abs(value) for value in some(0, 5)] for _ in several]
    held = [model.new_int_var(0, sum(values), "") for values in whole]
    for values, amount in zip(whole, held, strict=True):
        model.add(amount == total(values, literals))
    rows = [([rng.choice((-2, -1, 0, 1, 2, 3)) for _ in several], some(-2, 2, 0.4)) for _ in range(rng.randint(1, 4))]
    limits = [(rng.randint(-3, 8) * unit, rng.choice((None, rng.randrange(count)))) for _ in rows]
    for (factors, values), (most, only) in zip(rows, limits, strict=True):
        limit = model.add(total(factors, held) + total(values, literals) <= most)
        if only is not None:
            limit.only_enforce_if(literals[only])
    ways = [([rng.choice((-1, 0, 1, 2)) for _ in several], some(-2, 3, 0.5)) for _ in range(rng.randint(1, 3))]
    bound = model.new_int_var(-(2**48), 2**48, "")
    for factors, values in ways:
        model.add(bound >= total(factors, held) + total(values, literals))
    model.minimize(bound)

    best: int | None = None
    for chosen in product((0, 1), repeat=count):
        if any(chosen[a] > chosen[b] for a, b in implied):
            continue
        amounts = [total(values, chosen) for values in whole]
        each = [total(factors, amounts) + total(values, chosen) for factors, values in rows + ways]
        if all(x <= most or not (only is None or chosen[only]) for x, (most, only) in zip(each, limits, strict=False)):
            value = max(each[len(rows) :])
            best = value if best is None else min(best, value)
    return model, best


@pytest.mark.parametrize(
    "seeds", [(5, 72, 154, 262, 361, 935, 962, 1237), pytest.param(range(3000), marks=thorough)], ids=["some", "more"]
)
def test_presolve_takes_large_coefficients(seeds: Sequence[int]) -> None:
    """The few are some of those that CP-SAT 9.15 gets wrong by itself."""
    for seed in seeds:
        model, best = sums(seed)
        for preset in (MINIMISING, DECIDING_PRESOLVED, CUTS, CUTS_RELAXED):
            answer = engine.search(model, Limits.of(10, workers=1), preset)
            assert (answer.known, answer.objective if answer.found else None) == (
                Known.NONE if best is None else Known.BEST,
                best,
            ), (seed, preset)


def test_a_model_of_numbers_that_need_more_than_64_bits_stays_open() -> None:
    for most in (2**61, 2**62 + 1):  # the sum, or each variable
        model = cp_model.CpModel()
        times = [model.new_int_var(0, most, "") for _ in range(8)]
        model.add(sum(times) >= 1)
        assert engine.search(model, Limits.of(10, workers=1), MINIMISING).known is Known.OPEN


def test_times_of_sixteen_digits_end_no_search() -> None:
    """Steps whose models they are too much for leave it open."""
    result = solve(Pipeline(3, 4, costs=Costs(forward=2 / 3), memory=Memory(limit=2)), seconds=1, workers=1)
    assert result.value is not None
    assert result.lower_bound <= result.value
