"""A schedule as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing, in Chrome's JSON trace format.

One row per device; transfers that take time on rows of their link, with arrows from what makes a result over the transfer to
what needs it; the memory held by each device as a counter. The file is made line by line, whatever its size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ppopt.op import Kind, Op, Pair, Send
from ppopt.pipeline import IntArray, Pipeline, microseconds
from ppopt.schedule import Schedule, durations, halves, memory_changes, memory_levels

DEVICES, LINKS, COPIES = 0, 1, 2
"""The trace's processes."""
_BLOCK = 4096


def trace_lines(schedule: Schedule) -> Iterator[str]:
    """The lines of the trace of a schedule, each with its line end.

    Times are in microseconds as the format wants them: the pipeline's unit of time says how many one unit is; where it says
    nothing, one unit is one microsecond.
    """
    pipeline = schedule.pipeline
    known = microseconds(pipeline.units.time)
    clock = _Clock(float((known or Fraction(1)) / pipeline.ticks.per_unit))
    unit = pipeline.units.time if known else "1 time unit is shown as 1 us"
    head = {"displayTimeUnit": "ms", "otherData": {"pipeline": pipeline.name, "time unit": unit}}
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    yield encode(head)[:-1] + ',"traceEvents":[\n'
    separator = ""
    for event in _events(schedule, clock):
        yield separator + encode(event)
        separator = ",\n"
    yield "\n]}\n"


def _together(*columns: IntArray) -> Iterator[tuple[int, ...]]:
    """The entries of several arrays side by side, turned into Python's integers block by block."""
    for first in range(0, len(columns[0]), _BLOCK):
        yield from zip(*(column[first : first + _BLOCK].tolist() for column in columns), strict=True)


class _Clock(NamedTuple):
    per_tick: float

    def at(self, ticks: float) -> float:
        """Microseconds, to the picosecond."""
        return round(ticks * self.per_tick, 6)


def _events(schedule: Schedule, clock: _Clock) -> Iterator[dict[str, Any]]:
    pipeline = schedule.pipeline
    transfers = _transfers(schedule)
    yield _name("process_name", DEVICES, 0, "devices")
    for device in range(pipeline.devices):
        yield _name("thread_name", DEVICES, device, f"device {device}")
    for device in range(pipeline.devices):
        yield from _computing(schedule, device, clock)
        yield from _margins(schedule, device, clock)
        yield from _memory(schedule, device, clock)
    if len(transfers.sent):
        yield from _links(schedule, transfers, clock)
    yield from _copies(schedule, clock)


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _computing(schedule: Schedule, device: int, clock: _Clock) -> Iterator[dict[str, Any]]:
    for number, start, duration in _together(schedule.order.rows[device], schedule.start[device], schedule.duration[device]):
        action = schedule.order.index.op(number)
        yield {
            "ph": "X",
            "name": str(action),
            "cat": "pair" if isinstance(action, Pair) else action.kind.name,
            "pid": DEVICES,
            "tid": device,
            "ts": clock.at(start),
            "dur": clock.at(duration),
            "args": _args(action),
        }


def _margins(schedule: Schedule, device: int, clock: _Clock) -> Iterator[dict[str, Any]]:
    """What the device does before its first operation and after its last one."""
    for of, since, until in schedule.margins:
        if of == device:
            where = "before" if until <= int(schedule.start[device].min()) else "after"
            name = f"{where} the {'first' if where == 'before' else 'last'} operation"
            times = {"ts": clock.at(since), "dur": clock.at(until - since)}
            yield {"ph": "X", "name": name, "cat": "margin", "pid": DEVICES, "tid": device, **times, "args": {}}


def _args(action: Op | Pair) -> dict[str, Any]:
    if isinstance(action, Pair):
        return {"forward": str(action.forward), "backward": str(action.backward)}
    return {"stage": action.stage, "microbatch": action.microbatch}


def _memory(schedule: Schedule, device: int, clock: _Clock) -> Iterator[dict[str, Any]]:
    """What the device holds, after every change."""
    pipeline = schedule.pipeline
    if any(map(len, schedule.copies.rows)):
        yield _counter(pipeline, device, 0.0, int(pipeline.amounts.static[device]))
        for time, level in _together(*memory_levels(schedule, device)):
            yield _counter(pipeline, device, clock.at(time), level)
        return
    claimed, released = memory_changes(pipeline, schedule.order.rows[device])
    held = int(pipeline.amounts.static[device])
    yield _counter(pipeline, device, 0.0, held)
    for start, claim, end, release in _together(schedule.start[device], claimed, schedule.end[device], released):
        if claim:
            held += claim
            yield _counter(pipeline, device, clock.at(start), held)
        if release:
            held -= release
            yield _counter(pipeline, device, clock.at(end), held)


def _copies(schedule: Schedule, clock: _Clock) -> Iterator[dict[str, Any]]:
    """Slices on rows of the engines that copy to the host and back."""
    pipeline = schedule.pipeline
    if schedule.copies.rows:
        yield _name("process_name", COPIES, 0, "copies to the host")
    for place, (numbers, starts) in enumerate(zip(*schedule.copies, strict=True)):
        yield _name("thread_name", COPIES, place, str(pipeline.engines[place]))
        for number, start, takes in _together(numbers, starts, durations(pipeline, numbers)):
            name, begun, lasts = str(pipeline.index.op(number)), clock.at(start), clock.at(takes)
            yield {"ph": "X", "name": name, "cat": "copy", "pid": COPIES, "tid": place, "ts": begun, "dur": lasts}


def _counter(pipeline: Pipeline, device: int, time: float, held: int) -> dict[str, Any]:
    value = {pipeline.units.memory or "held": pipeline.amount(held)}
    return {"ph": "C", "name": f"memory of device {device}", "pid": DEVICES, "ts": time, "args": value}


# --- transfers ---------------------------------------------------------------------------------------------------


class _Transfers(NamedTuple):
    """Results that go from one device to another; an entry of each array per transfer, in the order of sending."""

    sent: IntArray
    """End of what makes the result, in ticks."""
    made: IntArray
    """Number of what makes it."""
    took: IntArray
    """Duration of what makes it."""
    source: IntArray
    begun: IntArray
    """When it goes: at once, or when it gets the link that it holds."""
    over: IntArray
    """When the link is free again, or, where none is held, when the result is there."""
    used: IntArray
    """Start of what needs the result."""
    target: IntArray


def _transfers(schedule: Schedule) -> _Transfers:
    pipeline = schedule.pipeline
    index = pipeline.index
    device = np.full(len(Kind) * index.stages * index.microbatches, -1, dtype=np.int64)
    start, end, duration = np.zeros_like(device), np.zeros_like(device), np.zeros_like(device)
    for d, row in enumerate(schedule.order.rows):
        for half in halves(index, row):
            there = (half >= 0) & (half < len(device))  # further pieces of weight gradients send nothing
            device[half[there]] = d
            start[half[there]], end[half[there]] = schedule.start[d][there], schedule.end[d][there]
            duration[half[there]] = schedule.duration[d][there]
    slots, step = index.stages * index.microbatches, index.microbatches
    forward = np.arange(slots - step)
    made, used = [forward], [forward + step]
    for kind in (Kind.B, Kind.I):
        backward = np.arange(int(kind) * slots + step, (int(kind) + 1) * slots)
        fused = (backward - step) % slots + int(Kind.B) * slots
        made.append(backward)
        used.append(np.where(device[fused] >= 0, fused, fused - int(Kind.B) * slots + int(Kind.I) * slots))
    before, after = np.concatenate(made), np.concatenate(used)
    crosses = (device[before] >= 0) & (device[before] != device[after])
    before, after = before[crosses], after[crosses]
    order = np.argsort(end[before], kind="stable")
    before, after = before[order], after[order]
    begun = end[before]
    over = begun + pipeline.ticks.lag[device[before], device[after]]
    if pipeline.lines:
        number, held = np.concatenate(schedule.transfers.rows), np.full(index.size, -1, dtype=np.int64)
        held[number] = np.concatenate(schedule.transfers.start)
        carrier = before % slots + np.where(before < slots, Send.SEND_F, Send.SEND_B) * slots
        begun = np.where(held[carrier] >= 0, held[carrier], begun)
        over = np.where(held[carrier] >= 0, begun + durations(pipeline, carrier), over)
        order = np.argsort(begun, kind="stable")
        before, after, begun, over = before[order], after[order], begun[order], over[order]
    return _Transfers(end[before], before, duration[before], device[before], begun, over, start[after], device[after])


def _links(schedule: Schedule, transfers: _Transfers, clock: _Clock) -> Iterator[dict[str, Any]]:
    """Slices on link rows (a further row where transfers of one link overlap) and the arrows."""
    lanes: dict[tuple[int, int], list[int]] = {}
    threads: dict[tuple[int, int, int], int] = {}
    op = schedule.order.index.op
    yield _name("process_name", LINKS, 0, "links")
    for identity, (sent, made, took, source, begun, over, used, target) in enumerate(_together(*transfers)):
        action = op(made)
        assert isinstance(action, Op)
        carries = "activation" if action.kind == Kind.F else "gradient"
        flow = {"name": carries, "cat": "transfer", "id": identity}
        # an arrow belongs to the slice that is open at its time: a little before the end, where the next one is not yet open
        yield {**flow, "ph": "s", "pid": DEVICES, "tid": source, "ts": clock.at(sent - took / 1000)}
        if over > begun:
            free = lanes.setdefault((source, target), [])
            lane = next((i for i, until in enumerate(free) if until <= begun), len(free))
            free[lane : lane + 1] = [over]
            thread = threads.get((source, target, lane))
            if thread is None:
                thread = threads[source, target, lane] = len(threads)
                name = f"{source} to {target}" + (f" ({lane + 1})" if lane else "")
                yield _name("thread_name", LINKS, thread, name)
            yield {
                "ph": "X",
                "name": f"{carries} {action}",
                "cat": "transfer",
                "pid": LINKS,
                "tid": thread,
                "ts": clock.at(begun),
                "dur": clock.at(over - begun),
            }
            yield {**flow, "ph": "t", "pid": LINKS, "tid": thread, "ts": clock.at(begun)}
        yield {**flow, "ph": "f", "bp": "e", "pid": DEVICES, "tid": target, "ts": clock.at(used)}
