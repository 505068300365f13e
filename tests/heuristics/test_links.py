"""List schedules where transfers hold links."""

import pytest

from ppopt.checker import violations
from ppopt.files.model import read_model
from ppopt.heuristics import baselines
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.timing import time_order
from tests.support.places import MODELS


@pytest.mark.parametrize("name", ["two-sites", "two-sites-v", "embedding-and-head", "moe-overlap"])
def test_model_files_of_machines(name: str) -> None:
    pipeline = read_model(str(MODELS / f"{name}.toml")).pipeline
    for _, schedule in baselines(pipeline):
        assert violations(pipeline, schedule, earliest=True) == []


def test_greedy_schedules_see_contention() -> None:
    links = Links(latency=5, occupancy=23, blocking=True, shared=[[[1, 2], [3, 0]], [[2, 1], [0, 3]]])
    costs = Costs(forward=38, backward_input=36, backward_weight=18)
    pipeline = Pipeline(4, 6, placement="loop", chunks=2, costs=costs, links=links, memory=Memory(limit=4))
    delays = pipeline.changed(links=links.uncontended())
    blind = min(time_order(pipeline, schedule.order).makespan for _, schedule in baselines(delays))
    assert min(schedule.makespan for _, schedule in baselines(pipeline)) < blind
