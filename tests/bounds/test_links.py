"""Bounds where transfers hold links."""

import pytest
from hypothesis import strategies as st

from ppopt import bounds, cpsat
from ppopt.clock import Limits
from ppopt.constraints import rules_of
from ppopt.heuristics import baselines
from ppopt.pipeline import Links, Memory, Pipeline
from ppopt.search import solve
from tests.support import tuned
from tests.support.links import solved
from tests.support.strategies import linked
from tests.support.tiers import drawn


@pytest.mark.parametrize(
    ("pipeline", "least"),
    [
        # one line both ways, 8 transfers of 3 on it; the first result is there after 1, and the last gradient's I and W take 2
        (Pipeline(2, 4, links=Links(0, 3, shared=[[[0, 1], [1, 0]]])), 1 + 8 * 3 + 2),
        # device 1 computes for 12 and sends 4 gradients of 2 meanwhile; before that 0F0 and its transfer
        (Pipeline(2, 4, links=Links(0, 2, True)), 1 + 2 + 12 + 4 * 2),
    ],
)
def test_a_link_is_a_machine_of_the_bounds(pipeline: Pipeline, least: int) -> None:
    bound = bounds.machine(pipeline)
    delays = bounds.machine(pipeline.changed(links=pipeline.links.uncontended()))
    assert bound is not None
    assert delays is not None
    assert delays.value < least <= bound.value <= solved(cpsat.solve, pipeline, rules_of(pipeline), "makespan", 60).lower_bound


@drawn(5, 8, linked(40), st.sampled_from([1, 3, 5]), st.data())
def test_windows_of_any_length_are_valid_with_links(pipeline: Pipeline, times: int, data: st.DataObject) -> None:
    pipeline = pipeline.changed(microbatches=len(pipeline.routes) * times)
    makespan = max(bound.value for of in (bounds.machine, bounds.memory) if (bound := of(pipeline)) is not None)
    for objective in ("makespan", "span"):
        best = min(s.objective(objective) for _, s in baselines(pipeline) if s.within_memory)
        for _ in range(3):
            first = data.draw(st.integers(1, max(1, makespan - 1)))
            last, grain = data.draw(st.integers(1, max(1, makespan - first))), data.draw(st.integers(1, 2))
            bound = tuned.window(pipeline, first, last, objective, makespan=makespan, grain=grain, limits=Limits.of(1, workers=1))
            assert bound is None or bound.value <= best


def test_bounds_of_links_within_memory() -> None:
    for links, better in (
        (Links(0, 2, True), (bounds.machine, bounds.memory)),
        (Links(1, 2, False, [[[0, 1], [1, 2]]]), (bounds.machine, tuned.throughput)),
    ):
        tight = Pipeline(3, 8, links=links, memory=Memory(limit=3))
        optimum = solve(tight, seconds=20, workers=1)
        assert optimum.reason == "optimal"
        for of in better:
            less, more = of(tight.changed(links=links.uncontended())), of(tight)
            assert more is not None
            assert (0 if less is None else less.value) < more.value <= optimum.lower_bound
