"""Kernels by greedy placing."""

import pytest

from ppopt.constraints import graphs_of
from ppopt.periodic.periodic_schedule import retimed
from ppopt.pipeline import Memory, Pipeline
from tests.support import tuned
from tests.support.periodic import LINKS, PIPELINES, REAL, examples, keeps_the_rules
from tests.support.tiers import thorough

SEVERAL = ("linear", "wave", "two routes", "nothing takes time")
"""Of these a quick run, too, places kernels of several microbatches."""


@pytest.mark.parametrize(
    ("name", "unroll"),
    [
        *((name, 1) for name in PIPELINES),
        *(pytest.param(name, 3, marks=() if name in SEVERAL else thorough) for name in PIPELINES),
    ],
)
def test_what_is_placed_repeats(name: str, unroll: int) -> None:
    found = examples(name, unroll)
    assert bool(found) == (name != "nothing takes time")
    for periodic in found:
        keeps_the_rules(name, periodic)


@pytest.mark.parametrize("name", ["linear", "real costs", "wave", "loop", "uneven"])
def test_the_period_is_the_shortest_for_its_turns(name: str) -> None:
    for periodic in examples(name, 1):
        assert retimed(periodic, periodic.graph, periodic.period) is not None
        if periodic.period > max(periodic.graph.work_per_microbatch):
            assert retimed(periodic, periodic.graph, periodic.period - 1) is None


def test_full_speed_for_many_devices() -> None:
    """Room for three quarters of what 1F1B holds costs a wave no throughput: no time passes between two microbatches but work."""
    pipeline = Pipeline(16, 64, placement="wave", chunks=2, costs=REAL, links=LINKS, memory=Memory(activation=1, limit=12))
    (graph,) = graphs_of(pipeline)
    assert min(found.period for found in tuned.placed_kernels(graph, 1) if found is not None) == max(graph.work_per_microbatch)
