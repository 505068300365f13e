"""Searches with data-parallel traffic and many microbatches."""

from fractions import Fraction

import pytest

from ppopt.checker import violations
from ppopt.constraints import graphs_of
from ppopt.heuristics import each_baseline
from ppopt.pipeline import DataParallel, Links, Memory, Pipeline
from ppopt.search import solve
from tests.support import tuned


@pytest.mark.parametrize("overlap", [False, True])
def test_many_microbatches(overlap: bool) -> None:
    # What is best without traffic (device 2 begins after 2 and never idles) is best with it: device 0 gathers before its first
    # operation, and scatters after its last one. Modulo scheduling goes on from the kernel of a list schedule.
    pipeline = Pipeline(3, 560, data_parallel=DataParallel(4, 5, overlap))
    result = solve(pipeline, deterministic=True, seconds=10)
    steps = {step.name: step.outcome for step in result.steps}
    assert "repeated" in steps["kernels of schedules of 56 microbatches"]
    assert "(modulo scheduling), sought without what devices do before and after" in steps["modulo scheduling"]
    assert "microbatches per" in steps["modulo scheduling: the kernel of the best schedule"]
    assert result.schedule is not None
    assert violations(pipeline, result.schedule, earliest=True) == []
    assert result.reason == "optimal"
    assert result.schedule.makespan == result.lower_bound == 3 * 560 + 2 + 9


@pytest.mark.parametrize("links", [Links(latency=1), Links(occupancy=1)], ids=["latency", "occupancy"])
def test_the_middle_of_a_schedule_with_traffic_is_repeated(links: Links) -> None:
    traffic = DataParallel((4, Fraction(100, 3)), (1, Fraction(50, 7)), overlap=True)
    pipeline = Pipeline(2, 72, "wave", 2, memory=Memory(limit=3), links=links, data_parallel=traffic)
    patterns = graphs_of(pipeline)
    _, few = next(each_baseline(pipeline.changed(microbatches=36)))
    periodic = tuned.kernel_in(few, patterns[0])
    assert periodic is not None
    assert periodic.makespan_for((36,)) == max(row[-1] for row in few.end) - min(row[0] for row in few.start)  # without traffic
    many = tuned.repeated(few, patterns, pipeline)
    assert many is not None
    assert violations(pipeline, many) == []
    # a device computes three units for a microbatch, and does not idle in the middle
    assert many.makespan == tuned.repeated_value(few, patterns, 72) == few.makespan + 36 * 3 * pipeline.ticks.per_unit
    assert tuned.repeated(few, patterns, pipeline.changed(microbatches=1)) is None  # fewer than its beginning and end have
