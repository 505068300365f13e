"""Bounds count data-parallel traffic."""

from random import Random

import pytest

from ppopt.bounds import Objective, machine
from ppopt.clock import Limits
from ppopt.pipeline import Costs, DataParallel, Memory, Pipeline
from ppopt.search import solve
from tests.support import tuned


def test_the_bound_meets_the_traffic_of_the_slowest_way() -> None:
    # One device: nothing hides its traffic.
    result = solve(Pipeline(1, 2, data_parallel=DataParallel(4, 5)), workers=1)
    assert (result.reason, result.value) == ("optimal", 4 + 6 + 5)


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_the_state_graph_counts_the_least_traffic(objective: Objective) -> None:
    plain = Pipeline(2, 5, memory=Memory(limit=1))
    pipeline = plain.changed(data_parallel=DataParallel((4, 2), (3, 1)))
    without, found = (tuned.throughput(p, objective) for p in (plain, pipeline))
    assert without is not None
    assert found is not None
    best = solve(pipeline, objective=objective, workers=1)
    assert best.reason == "optimal"
    # the first operation and the last one are of device 0; of the spans, any may be the largest
    assert without.value + (4 + 3 if objective == "makespan" else 2 + 1) == found.value <= best.lower_bound


def test_windows_of_spans_count_the_traffic_of_each_device() -> None:
    plain = Pipeline(3, 8, "wave", 2, costs=Costs(forward=4, backward_input=4, backward_weight=2), memory=Memory(limit=2))

    def found(pipeline: Pipeline) -> int:
        least = machine(pipeline)
        assert least is not None
        bound = tuned.window(pipeline, 30, 30, "span", makespan=least.value, limits=Limits.of(60, workers=1))
        assert bound is not None
        return bound.value

    without = found(plain)
    assert found(plain.changed(data_parallel=DataParallel(4, 5))) == without + 9
    busiest = found(plain.changed(data_parallel=DataParallel((0, 40, 0), 0)))
    assert without < busiest <= without + 40


@pytest.mark.parametrize("seed", range(8))
def test_windows_of_spans_are_no_more_than_optima(seed: int) -> None:
    rng = Random(seed)
    placement, chunks = rng.choice((("linear", 1), ("wave", 2), ("loop", 2)))
    each = [tuple(rng.randint(0, 6) for _ in range(2)) for _ in range(3)]
    costs = Costs(
        forward=rng.randint(1, 3), backward_input=rng.randint(1, 3), backward_weight=rng.randint(0, 2), optimizer=each[0]
    )
    traffic = DataParallel(each[1], each[2], overlap=rng.random() < 0.4)
    pipeline = Pipeline(2, rng.randint(2, 4), placement, chunks, costs=costs, data_parallel=traffic, memory=Memory(limit=1.5))
    best = solve(pipeline, objective="span", workers=1)
    assert best.reason == "optimal"
    assert best.value is not None
    least = machine(pipeline)
    assert least is not None
    for first in (2, 5, 9):
        bound = tuned.window(pipeline, first, first, "span", makespan=least.value, limits=Limits.of(60, workers=1))
        assert bound is None or bound.value <= best.value * pipeline.ticks.per_unit
