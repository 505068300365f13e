"""Bounds count data-parallel traffic."""

import pytest

from ppopt.bounds import Objective
from ppopt.pipeline import DataParallel, Memory, Pipeline
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
