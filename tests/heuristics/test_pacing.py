"""List schedules at a pace: valid, the same again for the same seed, better where several stages share a memory."""

from fractions import Fraction
from itertools import islice

import pytest

from ppopt.checker import violations
from ppopt.heuristics import baselines, each_paced
from ppopt.pipeline import Costs, Links, Memory, Pipeline

PIPELINES = [
    Pipeline(1, 1),
    Pipeline(3, 1, costs=Costs(forward=(0, 2, 1), backward_input=(0, 1, 3))),
    Pipeline(2, 5, costs=Costs(backward_input=1, backward_weight=1, backward=(1, 2))),
    Pipeline(2, 6, placement="bidirectional", links=Links(latency=Fraction(1, 3))),
    Pipeline(3, 7, placement="loop", chunks=2, links=Links(latency=1, occupancy=1), memory=Memory(retained=0, limit=2)),
    Pipeline(
        3, 6, placement="wave", chunks=4, costs=Costs(forward=3, backward_input=4, backward_weight=2), memory=Memory(limit=1)
    ),
]


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: f"{pipeline.placement}-{pipeline.devices}")
@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_every_one_keeps_the_rules_and_the_same_seed_gives_the_same_ones(pipeline, objective):
    found = list(islice(each_paced(pipeline, objective), 25))
    for name, schedule in found:
        assert not violations(pipeline, schedule), name
    again = islice(each_paced(pipeline, objective), 25)
    assert [(name, schedule.order.texts()) for name, schedule in found] == [(name, s.order.texts()) for name, s in again]


def test_better_than_entering_as_early_as_possible_and_better_from_the_best_on():
    pipeline = Pipeline(4, 12, placement="loop", chunks=2, memory=Memory(limit=2))
    early = min(schedule.makespan for _, schedule in baselines(pipeline))
    values = [schedule.makespan for _, schedule in islice(each_paced(pipeline, "makespan"), 120)]
    assert min(values) < min(values[:60]) < early
