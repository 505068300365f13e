"""Data-parallel traffic of a pipeline on this and other placements."""

from ppopt.heuristics import baselines
from ppopt.pipeline import DataParallel, Pipeline
from tests.support.traffic import wave


def test_one_stage_per_device_has_nothing_to_overlap_with() -> None:
    for placement, same in (("linear", True), ("bidirectional", False)):
        times = []
        for overlap in (False, True):
            pipeline = Pipeline(2, 2, placement, data_parallel=DataParallel(3, 2, overlap))
            times.append(sorted(pipeline.time(schedule.makespan) for _, schedule in baselines(pipeline)))
        assert (times[0] == times[1]) is same
        assert times[0] >= times[1]


def test_the_same_traffic_on_another_placement() -> None:
    pipeline = wave(2, (2, 1, 4, 5), 3)
    assert pipeline.placed("linear").data_parallel == DataParallel((7, 5), (6, 6), True)
    assert pipeline.placed("loop", 2).ticks.lead[:, 0].tolist() == [[7, 5, 14, 10]]  # halves, per stage: 3.5, 2.5
    assert pipeline.placed("loop", 2).ticks.per_unit == 2
