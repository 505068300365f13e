"""Shaving: the windows have what the best schedules have, and what is refuted has none."""

from random import Random

import numpy as np

from ppopt.bounds.edge_finding import EdgeFinding
from ppopt.bounds.shaving import Shaving, nothing_gained
from ppopt.clock import Clock
from ppopt.constraints import relaxed_graph
from ppopt.op import Kind
from ppopt.search import Settings, solve_closed
from tests.bounds.test_edge_finding import limits, settled
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
