"""Many numbers of microbatches in one search."""

import pytest

from ppopt.checker import violations
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import solve


def test_each_point_is_the_optimum() -> None:
    """Room for all on three devices: the work of a device and two units of idle time, whatever M is."""
    results = solve(Pipeline(3, [300, 6, 30, 6], memory=Memory(limit=3)), seconds=60, workers=1).points
    assert [result.pipeline.microbatches for result in results] == [6, 30, 300]
    for result in results:
        assert result.reason == "optimal"
        assert result.schedule is not None
        assert result.value == 3 * result.pipeline.microbatches + 2
        assert violations(result.pipeline, result.schedule) == []


@pytest.mark.slow
def test_what_was_found_is_where_the_next_begins() -> None:
    costs = Costs(forward=185, backward_input=181, backward_weight=93)
    pipeline = Pipeline(4, [400, 900], placement="wave", chunks=2, costs=costs, links=Links(6), memory=Memory(limit=3))
    first, second = solve(pipeline, seconds=60, workers=1).points
    assert first.periodic is not None
    assert second.value is not None
    promised = first.periodic.makespan_for((900,))
    assert promised is not None
    assert second.ticks.value <= promised
