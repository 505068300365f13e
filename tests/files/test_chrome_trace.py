"""Schedules as Chrome traces."""

import json
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from ppopt.files.chrome_trace import DEVICES, LINKS, microseconds, trace_lines
from ppopt.named import find
from ppopt.op import Kind, Pair
from ppopt.pipeline import Links, Memory, Pipeline, Units
from ppopt.schedule import Schedule
from tests.support import golden
from tests.support.many import each

Event = dict[str, Any]


def events(schedule: Schedule) -> list[Event]:
    found: list[Event] = json.loads("".join(trace_lines(schedule)))["traceEvents"]
    return found


def of(found: Sequence[Event], **fields: Any) -> list[Event]:
    return [event for event in found if all(event.get(key) == value for key, value in fields.items())]


def on_each(name: str, check: Callable[[Schedule], None]) -> None:
    """Check the small golden schedules of a name, with transfers that take a while."""
    small = {key: t for key, t in golden.timings(name).items() if t.case == "unit_comm1" and t.entry["devices"] <= 4}
    each(small, lambda timing: check(timing.schedule))


@pytest.mark.parametrize("name", golden.SCHEDULES)
def test_every_operation_and_transfer_is_there_once_with_its_time(name: str) -> None:
    def check(schedule: Schedule) -> None:
        found = events(schedule)
        for device in range(schedule.pipeline.devices):
            shown = [(e["name"], e["ts"], e["dur"]) for e in of(found, ph="X", pid=DEVICES, tid=device)]
            rows = (schedule.order.texts()[device], schedule.start[device].tolist(), schedule.duration[device].tolist())
            assert shown == list(zip(*rows, strict=True))
        shown = [e["name"].split()[1] for e in of(found, ph="X", pid=LINKS)]
        assert sorted(shown) == sorted(crossing(schedule))

    on_each(name, check)


def crossing(schedule: Schedule) -> list[str]:
    """What goes to another device, told from the routes alone."""
    pipeline = schedule.pipeline
    names = []
    for device in range(pipeline.devices):
        for action in schedule.order.ops(device):
            for op in (action.forward, action.backward) if isinstance(action, Pair) else (action,):
                to = op.stage + (1 if op.kind == Kind.F else -1)
                route = pipeline.routes[pipeline.route_of_microbatch[op.microbatch]]
                if op.kind != Kind.W and 0 <= to < len(route) and route[to] != device:
                    names.append(str(op))
    return names


@pytest.mark.parametrize("name", golden.SCHEDULES)
def test_arrows_lead_from_the_maker_over_the_link_to_the_user(name: str) -> None:
    def check(schedule: Schedule) -> None:
        found = events(schedule)
        slices = defaultdict(list)
        for event in of(found, ph="X"):
            slices[event["pid"], event["tid"]].append(event)

        def slice_at(event: Event) -> Event:
            inside = [s for s in slices[event["pid"], event["tid"]] if s["ts"] <= event["ts"] < s["ts"] + s["dur"]]
            assert len(inside) == 1
            return inside[0]

        arrows = defaultdict(list)
        for event in found:
            if event["ph"] in ("s", "t", "f"):
                arrows[event["id"]].append(event)
        assert len(arrows) == len(crossing(schedule))
        for start, over, end in arrows.values():
            assert (start["ph"], over["ph"], end["ph"]) == ("s", "t", "f")
            maker, transfer, user = slice_at(start), slice_at(over), slice_at(end)
            assert transfer["name"].split()[1] in maker["name"]
            assert maker["ts"] + maker["dur"] == transfer["ts"]
            assert transfer["ts"] + transfer["dur"] <= user["ts"]

    on_each(name, check)


@pytest.mark.parametrize("name", golden.SCHEDULES)
def test_rows_have_names_and_no_two_slices_of_a_row_overlap(name: str) -> None:
    def check(schedule: Schedule) -> None:
        found = events(schedule)
        named = {(e["pid"], e["tid"]) for e in of(found, ph="M", name="thread_name")}
        rows = defaultdict(list)
        for event in of(found, ph="X"):
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        assert rows.keys() == named
        for row in rows.values():
            assert all(first[1] <= second[0] for first, second in pairwise(sorted(row)))

    on_each(name, check)


def test_transfers_that_overlap_on_one_link_get_rows_of_their_own() -> None:
    schedule = find("gpipe").schedule(Pipeline(2, 4, links=Links(Fraction(5, 2))))
    names = [e["args"]["name"] for e in of(events(schedule), ph="M", name="thread_name", pid=LINKS)]
    assert names == ["0 to 1", "0 to 1 (2)", "0 to 1 (3)", "1 to 0", "1 to 0 (2)"]


def test_transfers_that_take_no_time_are_arrows_only() -> None:
    found = events(find("1f1b").schedule(Pipeline(2, 3)))
    assert not of(found, pid=LINKS, ph="X")
    assert len(of(found, ph="s")) == len(of(found, ph="f")) == 6


def test_one_device_has_no_links() -> None:
    assert not of(events(find("1f1b").schedule(Pipeline(1, 3))), pid=LINKS)


@pytest.mark.parametrize(("unit", "scale"), [("ms", 1000), ("us", 1), ("µs", 1), ("ns", 0.001), ("s", 10**6), ("0.1 ms", 100)])
def test_times_are_in_microseconds(unit: str, scale: float) -> None:
    pipeline = Pipeline(2, 2, links=Links(Fraction(1, 2)), units=Units(time=unit))
    found = events(find("1f1b").schedule(pipeline))
    starts = [e["ts"] for e in of(found, ph="X", pid=DEVICES, tid=1)]
    assert starts == pytest.approx([t * scale for t in (1.5, 2.5, 4.5, 5.5)])
    assert {e["dur"] for e in of(found, ph="X", pid=LINKS)} == {0.5 * scale}


@pytest.mark.parametrize("unit", ["", "ticks", "fortnights", "ms ms"])
def test_what_is_no_unit_of_time_is_said_to_be(unit: str) -> None:
    assert microseconds(unit) is None
    head = json.loads("".join(trace_lines(find("1f1b").schedule(Pipeline(1, 1, units=Units(time=unit))))))
    assert "1 us" in head["otherData"]["time unit"]


def test_memory_is_a_counter_that_reaches_the_peak_and_comes_back_to_what_is_static() -> None:
    memory = Memory(activation=Fraction(3, 2), retained=Fraction(1, 2), static=2)
    schedule = find("zb-h1").schedule(Pipeline(3, 6, memory=memory, units=Units(memory="GiB")))
    for device in range(3):
        held = [e["args"]["GiB"] for e in of(events(schedule), ph="C", name=f"memory of device {device}")]
        assert held[0] == held[-1] == 2
        assert max(held) == schedule.pipeline.amount(schedule.peak_memory[device])


def test_a_large_trace_needs_little_memory() -> None:
    schedule = find("1f1b").schedule(Pipeline(4, 1000))
    length = sum(map(len, trace_lines(schedule)))
    tracemalloc.start()
    for _ in trace_lines(schedule):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < length / 2
