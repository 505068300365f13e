"""Shaving: the windows have what the best schedules have, and what is refuted has none."""

from collections import Counter
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from ppopt.bounds.edge_finding import EdgeFinding
from ppopt.bounds.listed_cuts import LOOKED, SHAVING
from ppopt.bounds.many_cuts import counts_of
from ppopt.bounds.shaving import Shaving, Windows, nothing_gained
from ppopt.clock import Clock, Limits
from ppopt.constraints import relaxed_graph
from ppopt.op import Kind
from ppopt.pipeline import IntArray
from ppopt.search import Settings, solve_closed
from ppopt.search.over_cuts import Counts
from tests.bounds.test_edge_finding import limits, over_cuts, settled, values_of
from tests.bounds.test_many_cuts import PLACES
from tests.support.tiers import thorough


def check(number: int, seed: int) -> int:
    """Compare with the best schedules of random pipelines; how many makespans were refuted that edge finding does not refute."""
    rng, more = Random(seed), 0
    for _ in range(number):
        pipeline = settled(rng, rng.choice(PLACES))
        graph = relaxed_graph(pipeline, links=False)
        best = solve_closed(pipeline, settings=Settings(seconds=30, workers=1)).schedule
        assert best is not None
        edges = EdgeFinding(graph)
        gained = nothing_gained(edges)
        Shaving(edges, graph.duration, best.makespan + rng.randint(-3, 3), gained).go_on(Clock(100))  # in whatever order is asked
        shaving = Shaving(edges, graph.duration, best.makespan, gained)
        shaving.go_on(Clock(100))
        assert shaving.ended
        assert not shaving.refuted
        early, late = shaving.windows
        if not pipeline.costs.split:  # else families may have no operations of their own
            starts = dict(zip(np.concatenate(best.order.rows).tolist(), np.concatenate(best.start).tolist(), strict=True))
            for number_of, family in enumerate(graph.families):
                first = pipeline.index.family(family.stage, Kind(family.kind))
                in_turn = sorted(starts[first + n] for n in range(pipeline.microbatches))  # microbatches are alike
                for n, start in enumerate(in_turn):
                    place = number_of * pipeline.microbatches + n
                    assert early[place] <= start, pipeline
                    assert start + graph.duration[number_of] <= late[place]
        least = int(edges.raised(np.array([graph.duration]), np.array([0]), best.makespan + 1, limits())[0])
        asked = Shaving(edges, graph.duration, best.makespan - 1, gained)
        asked.go_on(Clock(100))
        more += asked.refuted and least < best.makespan
    return more


def test_windows_have_what_the_best_schedules_have() -> None:
    assert check(25, 1) > 1


@thorough
def test_windows_have_what_the_best_of_many_schedules_have() -> None:
    assert check(120, 2) > 3


def test_what_narrowed_most_is_asked_first() -> None:
    graph = relaxed_graph(settled(Random(3), PLACES[1]), links=False)
    edges = EdgeFinding(graph)
    gained = nothing_gained(edges)
    most = int(edges.raised(np.array([graph.duration]), np.array([0]), 10**6, limits())[0])
    Shaving(edges, graph.duration, most, gained).go_on(Clock(100))
    assert gained.max() > 0
    of_all = gained.sum()
    first = int(gained.argmax())
    again = Shaving(edges, graph.duration, most, gained)
    assert again._order[0] == first
    again.go_on(Clock(100))
    assert gained.sum() > of_all


def test_it_goes_on_where_it_stopped() -> None:
    graph = relaxed_graph(settled(Random(3), PLACES[1]), links=False)
    at_once, slow, turns = (Shaving(EdgeFinding(graph), graph.duration, 300) for _ in range(3))
    at_once.go_on(Clock(100))
    while not slow.ended:
        slow.go_on(Clock(1e-6, deterministic=True))
    assert np.array_equal(slow.windows.early, at_once.windows.early)
    assert np.array_equal(slow.windows.late, at_once.windows.late)
    turns.go_on(Clock(0))
    assert not turns.ended


def test_all_are_asked_for_less_than_what_is_found_on_one() -> None:
    """Those behind a cut on which something is found, and that cut once more."""
    over = over_cuts(Random(11), PLACES[0])
    many, values = over.many, values_of(over)
    assert many is not None
    below, least = max(values.values()) + 1, min(values.values())
    assert over.list_cuts(Fraction(below, over.per_unit), len(values), limits(), lambda counts: False, 0)
    looked = list[tuple[Counts, int]]()

    def look(ends: IntArray, durations: IntArray, windows: Windows, most: int) -> int | None:
        """The optimum of a cut, where that is little enough."""
        counts = counts_of(ends, many.layers)
        assert (windows.late.max() - windows.early.min()) <= most
        looked.append((counts, most))
        return values[counts] if values[counts] <= most else None

    over.tighten_list(limits(), look)
    assert over.listed is not None
    assert looked[0][1] < below - 1, "some way from the bound"
    found = [values[counts] for counts, most in looked if values[counts] <= most]
    assert min(found) == least
    for number, (_, most) in enumerate(looked):
        known = [values[counts] for counts, asked in looked[:number] if values[counts] <= asked]
        assert most < min(known, default=below)
    listed = over.listed
    left = [counts_of(row, many.layers) for row in listed.ends]
    bounds = dict(zip(left, listed.bounds.tolist(), strict=True))
    assert bounds[next(counts for counts, value in values.items() if value == least)] <= least
    assert all(bounds.get(counts, below) <= max(value, least) for counts, value in values.items() if value < below - 1)
    over.shorten_list(Fraction(least, over.per_unit))
    before = len(looked)
    over.tighten_list(limits(), look)
    assert len(looked) == before, "all were asked"


@pytest.mark.parametrize("looking", [False, True])
def test_with_little_time_in_each_turn_all_are_asked_in_the_end(looking: bool) -> None:
    """What shaving did not come to its end of goes on in the next turn, and no cut is asked twice for as little."""
    over = over_cuts(Random(11), PLACES[0])
    many, values = over.many, values_of(over)
    assert many is not None
    below = max(values.values()) + 1
    assert over.list_cuts(Fraction(below, over.per_unit), len(values), limits(), lambda counts: False, 0)
    asked = Counter[tuple[Counts, int]]()
    listed = over.listed
    assert listed is not None
    turns = 0

    def look(ends: IntArray, durations: IntArray, windows: Windows, most: int) -> None:
        asked[counts_of(ends, many.layers), most] += 1

    while len(listed.todo(LOOKED if looking else SHAVING)):
        turn = Limits(Clock(2e-5, deterministic=True), 0.0, 1)
        over.tighten_list(turn, look if looking else None)
        turns += 1
        assert turns < 3000
    assert turns > 10
    assert max(asked.values(), default=1) <= 2, "once, or once more where the clock was over"
    assert bool(asked) == looking
    left = [counts_of(row, many.layers) for row in listed.ends]
    assert all(bound <= values[counts] for bound, counts in zip(listed.bounds.tolist(), left, strict=True))
    assert {counts for counts, value in values.items() if value < below} == set(left)


def test_listed_cuts_are_left_out_only_where_none_is_better() -> None:
    rng, left_out = Random(11), 0
    for place in (*PLACES[:3], *PLACES[:3]):
        over = over_cuts(rng, place)
        many, per_unit = over.many, over.per_unit
        assert many is not None
        values = values_of(over)
        below = min(values.values()) + 1
        assert over.list_cuts(Fraction(below, per_unit), len(values), limits(), lambda counts: False, 0)
        assert over.listed is not None
        assert not over.listed.tight
        before = len(over.listed.ends)
        over.tighten_list(limits(workers=2))
        assert over.listed.tight
        assert (over.listed.asked <= below).all()
        left = {counts_of(row, many.layers) for row in over.listed.ends}
        assert all(value >= below for counts, value in values.items() if counts not in left)
        assert over.bound == Fraction(over.listed.bound, per_unit)
        left_out += before - len(left)
    assert left_out > 1
