"""Data-parallel traffic before the first and after the last operation of a device."""

import dataclasses
from typing import Any

from ppopt.checker import Rule, metrics, violations
from ppopt.files.result import metrics_dict
from ppopt.pipeline import Costs, DataParallel, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import exposed_traffic, time_order
from tests.support.traffic import wave

ROWS = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]


def two(gather: Any, scatter: Any) -> Schedule:
    pipeline = Pipeline(2, 2, costs=Costs(backward=2), data_parallel=DataParallel(gather, scatter))
    return time_order(pipeline, Order.of(pipeline, ROWS))


def test_traffic_counts_before_and_after() -> None:
    # Without: 0F0 0-1, 1F0 1-2, 1B0 2-4, 1F1 4-5, 1B1 5-7; device 0: B0 4-6, B1 7-9.
    schedule = two((3, 1), (0, 5))
    assert [row.tolist() for row in schedule.start] == [[3, 4, 7, 10], [4, 5, 7, 8]]
    assert schedule.makespan == 10 + 5  # device 1 ends at 10, device 0 at 12
    assert schedule.device_spans == (3 + 9, 1 + 6 + 5)
    assert exposed_traffic(schedule) == 15 - 9
    assert violations(schedule.pipeline, schedule, earliest=True) == []
    found = metrics(schedule.pipeline, schedule)
    assert (found.makespan, found.device_span) == (15, 12)
    assert metrics_dict(schedule)["exposed_traffic"] == 6
    assert exposed_traffic(two(0, 0)) == 0


def test_traffic_that_other_devices_hide() -> None:
    assert exposed_traffic(two((0, 1), (0, 2))) == 0  # device 1 waits for 1 anyway, and ends 2 before device 0


def test_a_device_that_starts_before_its_all_gather_has_ended() -> None:
    schedule = two((3, 1), 0)
    early = dataclasses.replace(schedule, start=tuple(row - 1 for row in schedule.start))
    assert {violation.rule for violation in violations(schedule.pipeline, early)} == {Rule.NEGATIVE}


def test_traffic_stage_by_stage() -> None:
    # 0F0 waits for stage 0 (2), 3F0 for stages 0 and 3 (2 + 5); 1F0 for its input (3), 2F0 for stages 1 and 2 (1 + 4).
    # 3B0 ends at 9, then stage 3 is scattered for 4, until 13. 0B0 ends at 12, and stage 0 waits for the network, 13 to 14.
    # 2B0 ends at 10, 1B0 at 11; their traffic ends at 10 + 3 and 13 + 3.
    pipeline = wave(1, (2, 1, 4, 5), (1, 3, 3, 4))
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "3F0", "3B0", "0B0"], ["1F0", "2F0", "2B0", "1B0"]]))
    assert [row.tolist() for row in schedule.start] == [[2, 7, 8, 11], [3, 5, 9, 10]]
    assert schedule.device_spans == (14, 16)
    assert schedule.makespan == 16
    assert exposed_traffic(schedule) == 16 - 8
    assert violations(pipeline, schedule, earliest=True) == []
    assert (metrics(pipeline, schedule).makespan, metrics(pipeline, schedule).device_span) == (16, 16)


def test_a_device_may_start_before_all_of_its_stages_are_gathered() -> None:
    rows = [["0F0", "3F0", "3B0", "0B0"], ["1F0", "2F0", "2B0", "1B0"]]
    starts = []
    for overlap in (False, True):
        pipeline = wave(1, 4, 0, overlap=overlap, per="device")  # 2 per stage
        schedule = time_order(pipeline, Order.of(pipeline, rows))
        starts.append([int(row[0]) for row in schedule.start])
        early = dataclasses.replace(schedule, start=tuple(row - 1 for row in schedule.start))
        assert {violation.rule for violation in violations(pipeline, early)} == {Rule.NEGATIVE}
    assert starts == [[4, 5], [2, 3]]
