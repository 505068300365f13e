"""Kernels made better in neighbourhoods, and what later searches need not ask again."""

import random

import numpy as np
import pytest

from ppopt.clock import Limits
from ppopt.constraints import graphs_of
from ppopt.cpsat import engine
from ppopt.periodic import Grown
from ppopt.periodic.kernel import Kernel, least_period
from ppopt.periodic.kernel_model import KernelModel
from ppopt.periodic.kernel_neighbourhoods import Improving, improve
from ppopt.pipeline import Memory, Pipeline
from ppopt.search.tuning import MODULO
from tests.support import tuned
from tests.support.periodic import LINKS, PIPELINES, REAL, graph_of, keeps_the_rules


def slowest(name: str, unroll: int) -> Kernel:
    """Of the kernels that are placed."""
    found = [kernel for kernel in tuned.placed_kernels(graph_of(name), unroll) if kernel is not None]
    return max(found, key=lambda kernel: kernel.period)


def apart(kernel: Kernel, first: int, second: int) -> int:
    """How many whole periods the second starts after the first."""
    start = np.concatenate(kernel.start).tolist()
    return (start[second] - start[first]) // kernel.period


@pytest.mark.parametrize("name", ["linear", "real costs", "wave", "loop", "uneven", "fused"])
def test_what_is_not_free_keeps_its_order(name: str) -> None:
    graph, kernel, chance = graph_of(name), slowest(name, 2), random.Random(1)
    for _ in range(3):
        free = set(chance.sample(range(2 * len(graph.families)), len(graph.families)))
        model = KernelModel(graph, kernel.period, 2, kernel, 2, free=free)
        answer = engine.search(model.model, Limits.of(20, workers=1), engine.SMALL)
        assert answer.found
        found = model.found(answer)
        for _, own in graph.machines:
            operations = [2 * family + copy for family in own for copy in (0, 1)]
            kept = [(a, b) for a in operations for b in operations if a // 2 != b // 2 and not (a in free and b in free)]
            assert [apart(found, a, b) for a, b in kept] == [apart(kernel, a, b) for a, b in kept]


@pytest.mark.parametrize("name", ["linear", "real costs", "wave", "loop", "uneven", "fused", "two routes"])
def test_a_kernel_made_better_repeats(name: str) -> None:
    graph, kernel = graph_of(name), slowest(name, 2)
    search = Improving.of(kernel, MODULO, 0)
    better = improve(search, least_period(graph, 2), Limits.of(3, workers=1, deterministic=True), MODULO)
    assert better == (search.kernel.period < kernel.period)
    routes = len(PIPELINES[name].routes)
    keeps_the_rules(name, search.kernel.with_ends((40 // routes,) * routes))


@pytest.mark.parametrize(("limit", "unroll", "period"), [(3, 3, 10), (3, 2, 7), (2, 1, 5)])
def test_the_smallest_period_of_unit_costs(limit: int, unroll: int, period: int) -> None:
    """Four devices, 10/3 per microbatch with room for three and 5 with room for two: from a kernel of one operation at a time."""
    (graph,) = graphs_of(Pipeline(4, 32, memory=Memory(limit=limit)))
    one_by_one = sum(graph.duration)
    slow = Kernel(graph, unroll * one_by_one, tuple(one_by_one * np.arange(unroll) + row for row in _in_turn(graph.duration)))
    search = Improving.of(slow, MODULO, 0)
    assert improve(search, 0, Limits.of(60, workers=1, deterministic=True), MODULO)
    assert search.kernel.period == period
    assert search.exhausted


def _in_turn(durations: tuple[int, ...]) -> list[int]:
    """Starts of operations that follow each other."""
    return (np.cumsum(durations) - np.array(durations)).tolist()


def test_half_of_the_memory_of_a_wave() -> None:
    """Two microbatches per 2226 ticks, which placing operations one by one does not reach (tests/periodic/test_search.py)."""
    memory = Memory(limit=2)
    (graph,) = graphs_of(Pipeline(4, 32, placement="wave", chunks=2, costs=REAL, links=LINKS, memory=memory))
    placed = [kernel for kernel in tuned.placed_kernels(graph, 2) if kernel is not None]
    search = Improving.of(min(placed, key=lambda kernel: kernel.period), MODULO, 0)
    assert search.kernel.period > 2226
    improve(search, 2226, Limits.of(60, workers=1, deterministic=True), MODULO)
    assert search.kernel.period == 2226


def test_what_was_refuted_is_not_asked_again() -> None:
    """Nor what stayed open, in no more time."""
    pipeline, grown = PIPELINES["wave"].changed(microbatches=64), Grown()
    lower = int(pipeline.work.max())
    first, second = (
        tuned.periodic_schedule(
            pipeline, lower_bound=lower, limits=Limits.of(seconds, workers=1, deterministic=True), grown=grown
        )
        for seconds in (6, 2)
    )
    in_vain = {asked.question for asked in first.asked if asked.answer in ("there is none", "open")}
    assert in_vain
    assert in_vain.isdisjoint(asked.question for asked in second.asked)
