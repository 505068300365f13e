"""Every violation of the rules, by a reading of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import TypeAlias

from ppopt.checker.copies import copy_violations
from ppopt.checker.memory import in_time, levels, room_elsewhere
from ppopt.checker.microbatches import misplaced
from ppopt.checker.passes import exchanges
from ppopt.checker.quick import sound
from ppopt.checker.records import Entry, Record, Run, length_of, read_rows, read_schedule
from ppopt.checker.transfers import arrivals, late_transfers, stopped, transfer_violations
from ppopt.checker.violation import Rule, Violation
from ppopt.checker.waits import Ran, circles, waits
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule

Found: TypeAlias = Iterator[Violation]


def violations(pipeline: Pipeline, schedule: Schedule, *, earliest: bool = False) -> list[Violation]:
    """Every rule of ``pipeline`` that a schedule breaks, exactly; those of earlier times first, those without a time last.

    ``earliest`` asks besides that every operation start as early as order, data and links allow.

    Raises:
        ValueError: a device has another number of starts than of operations.
    """
    if not earliest and sound(pipeline, schedule):
        return []
    return _violations(read_schedule(pipeline, schedule), earliest)


def violations_of(
    pipeline: Pipeline, rows: Sequence[Iterable[Record]], transfers: Iterable[Record] = (), *, earliest: bool = False
) -> list[Violation]:
    """Every rule of ``pipeline`` that recorded operations break, with their own starts and ends.

    ``rows[device]`` are ``(operation, start, end)`` in the device's order, in the model's unit; ``transfers`` the same for
    those that hold a link (``0SEND_F3``), in any order. They are compared to a millionth of the shortest operation that takes
    any time (and to what a double can tell). Nothing in them raises: an operation or a time that is none is a violation, too.
    """
    return _violations(read_rows(pipeline, rows, transfers), earliest)


def _violations(run: Run, earliest: bool) -> list[Violation]:
    found = list(run.found)
    ran = _tabulate(run, found)
    found += _completeness(run, ran)
    found += _data(run, ran)
    found += _circular(run)
    found += misplaced(run)
    found += transfer_violations(run, ran)
    found += copy_violations(run, ran)
    for device in range(len(run.rows)):
        found += _times(run, device)
        found += _listed_order(run, device)
        found += _overlaps(run, device)
        found += _passes(run, device)
    if run.facts.limit is not None:
        for device in range(min(len(run.rows), run.pipeline.devices)):
            found += _memory(run, device, run.facts.limit[device])
    if earliest and not run.copied:  # who waits for memory that a copy gives back waits on purpose
        found += _late(run, ran)
    return sorted(found, key=lambda v: (v.time is None, v.time or 0, -1 if v.device is None else v.device))


def _tabulate(run: Run, found: list[Violation]) -> Ran:
    """Where and when every operation ran first; what ran again, or elsewhere, is ``found``."""
    pipeline = run.pipeline
    microbatches, stages = pipeline.microbatches, pipeline.stages
    size = (run.last_kind + 1) * stages * microbatches
    seen = bytearray(size)
    start: list[int | None] = [None] * size
    end: list[int | None] = [None] * size
    timed = ((device, entry, True) for device, row in enumerate(run.rows) for entry in row)
    for device, entry, has_time in chain(timed, ((device, entry, False) for device, entry in run.untimed)):
        homes = []
        for key in entry.keys:
            family, home = key // microbatches, run.home(key)
            homes.append(home)
            time = run.time(entry.start) if has_time and (seen[key] or home != device) else None
            if seen[key]:
                found.append(
                    Violation(Rule.TWICE, device, run.text(key), time, f"{run.text(key)} is run again on device {device}")
                )
            elif has_time:
                start[key], end[key] = entry.start, entry.end
            seen[key] = 1
            if home != device:
                back = "the backward of " if pipeline.backward_routes and family // stages != Kind.F else ""
                message = (
                    f"{run.text(key)} runs on device {device}; the route of its microbatch has {back}stage {family % stages} "
                    f"on {home}"
                )
                found.append(Violation(Rule.DEVICE, device, run.text(key), time, message))
        if len(set(homes)) > 1:
            message = f"{run.shown(entry)}: its halves belong to devices {homes[0]} and {homes[1]}"
            time = run.time(entry.start) if has_time else None
            found.append(Violation(Rule.PAIR, device, run.shown(entry), time, message))
    return Ran(seen, start, end)


def _completeness(run: Run, ran: Ran) -> Found:
    pipeline, seen = run.pipeline, ran.seen
    stages, microbatches = pipeline.stages, pipeline.microbatches
    slots = stages * microbatches
    for slot in range(slots):
        forward, full, input_, *weights = range(slot, (run.last_kind + 1) * slots, slots)
        if seen[forward] and seen[full] != seen[input_] and all(seen[weight] == seen[input_] for weight in weights):
            continue
        device = run.home(forward if not seen[forward] else full)
        f, b, i = (run.text(key) for key in (forward, full, input_))
        w = " and ".join(map(run.text, weights))
        if not seen[forward]:
            yield Violation(Rule.MISSING, device, f, None, f"{f} is never run; it belongs on device {device}")
        if seen[full]:
            for key in (input_, *weights):
                if seen[key]:
                    message = f"{run.text(key)} is run although {b} is: one or the other"
                    yield _at(run, ran, Rule.BOTH_BACKWARDS, device, key, message)
        elif any(seen[weight] for weight in weights) and not seen[input_]:
            for weight in weights:
                if seen[weight]:
                    yield _at(run, ran, Rule.W_WITHOUT_I, device, weight, f"{run.text(weight)} is run without {i}")
        elif seen[input_]:
            for weight in weights:
                if not seen[weight]:
                    text = run.text(weight)
                    message = f"{text} is never run, but {i} is; it belongs on device {device}"
                    yield Violation(Rule.MISSING, device, text, None, message)
        else:
            choice = f"neither {b} nor {i} and {w}" if pipeline.costs.backward_input is not None else f"no {b}"
            yield Violation(Rule.MISSING, device, b, None, f"{choice} is ever run; it belongs on device {device}")


def _at(run: Run, ran: Ran, rule: Rule, device: int, key: int, message: str) -> Violation:
    start = ran.start[key]
    return Violation(rule, device, run.text(key), None if start is None else run.time(start), message)


def _data(run: Run, ran: Ran) -> Found:
    start_of, end_of, tolerance = ran.start, ran.end, run.tolerance
    for before, after, lag in waits(run):
        start, end = start_of[after], end_of[before]
        if start is None or end is None or start + tolerance >= end + lag:
            continue
        device = run.home(after)
        op, needed, at = run.text(after), run.text(before), run.time(start)
        if start + tolerance < end:
            message = f"{op} starts at {at} on device {device}, but needs {needed}, which ends at {run.time(end)}"
            yield Violation(Rule.DATA, device, op, at, message)
        else:
            message = (
                f"{op} starts at {at} on device {device}, but the result of {needed}, which ends at {run.time(end)}, "
                f"arrives at {run.time(end + lag)}"
            )
            yield Violation(Rule.LATENCY, device, op, at, message)


def _circular(run: Run) -> Found:
    for circle in circles(run):
        device, first = circle[0]
        names = [run.shown(entry) for _, entry in circle]
        at = run.time(first.start)
        message = f"at {at}, on device {device}: {' waits for '.join([*names, names[0]])}; nothing can be the first"
        yield Violation(Rule.DATA, device, names[0], at, message)


def _times(run: Run, device: int) -> Found:
    for entry in run.rows[device]:
        gather = run.traffic(run.facts.gather, entry)
        if -run.tolerance <= entry.start < gather - run.tolerance:
            op, at = run.shown(entry), run.time(entry.start)
            message = (
                f"{op} starts at {at} on device {device}, whose all-gather would begin before 0: it takes {run.time(gather)}"
            )
            yield Violation(Rule.NEGATIVE, device, op, at, message)
        if entry.start < -run.tolerance:
            op, at = run.shown(entry), run.time(entry.start)
            yield Violation(Rule.NEGATIVE, device, op, at, f"{op} starts at {at} on device {device}, before 0")
        length = length_of(run, entry)
        if length >= 0 and abs(entry.end - entry.start - length) > run.tolerance:
            op, at = run.shown(entry), run.time(entry.start)
            message = (
                f"{op} on device {device} takes {run.time(entry.end - entry.start)} from {at} on; it costs {run.time(length)}"
            )
            yield Violation(Rule.DURATION, device, op, at, message)


def _listed_order(run: Run, device: int) -> Found:
    row = run.rows[device]
    for earlier, later in pairwise(row):
        if later.start < earlier.start - run.tolerance:
            op, at = run.shown(later), run.time(later.start)
            message = (
                f"{op} starts at {at} on device {device}, before {run.shown(earlier)}, which is listed before it "
                f"and starts at {run.time(earlier.start)}"
            )
            yield Violation(Rule.ORDER, device, op, at, message)


def _overlaps(run: Run, device: int) -> Found:
    running: Entry | None = None  # of those that have started, the last to end
    for entry in in_time(run, device):
        if running is not None and entry.start < running.end - run.tolerance:
            op, other, at = run.shown(entry), run.shown(running), run.time(entry.start)
            if _torn(run, entry, running):
                message = f"{op} and {other} start together at {at} on device {device}, but not as an overlapped pair"
                yield Violation(Rule.PAIR, device, op, at, message)
            else:
                message = f"{op} starts at {at} on device {device} while {other} runs until {run.time(running.end)}"
                yield Violation(Rule.OVERLAP, device, op, at, message)
        if running is None or entry.end >= running.end:
            running = entry


def _passes(run: Run, device: int) -> Found:
    for before, after, lag, what in exchanges(run, device):
        if after.start + run.tolerance < before.end + lag:
            op, at = run.shown(after), run.time(after.start)
            message = (
                f"{op} starts at {at} on device {device}; between it and {run.shown(before)}, which ends at "
                f"{run.time(before.end)}, the {what}, which takes {run.time(lag)}"
            )
            yield Violation(Rule.PASS, device, op, at, message)


def _torn(run: Run, a: Entry, b: Entry) -> bool:
    """Whether these are a forward and a full backward that start as a pair's halves do."""
    slots = run.pipeline.stages * run.pipeline.microbatches
    kinds = {a.key // slots, b.key // slots}
    together = abs(a.start - b.start) <= run.tolerance and min(a.end - a.start, b.end - b.start) > run.tolerance
    return together and a.second < 0 and b.second < 0 and kinds == {Kind.F, Kind.B}


def _memory(run: Run, device: int, limit: int) -> Found:
    """One violation for each stretch of operations over the limit."""
    first: Entry | None = None
    worst, most = first, limit
    for entry, held in levels(run, device):
        if held > most:
            first = entry if first is None else first
            worst, most = entry, held
        elif held <= limit and first is not None and worst is not None:
            yield _excess(run, device, first, worst, most)
            first, most = None, limit
    if first is not None and worst is not None:
        yield _excess(run, device, first, worst, most)


def _excess(run: Run, device: int, first: Entry, worst: Entry, most: int) -> Violation:
    assert run.facts.limit is not None
    limit = run.facts.limit[device]
    at = run.time(first.start)
    message = (
        f"device {device} exceeds its memory limit of {run.amount(limit)} from the start of {run.shown(first)} at {at} on: "
        f"it holds up to {run.amount(most)}, {run.amount(most - limit)} too much, at {run.time(worst.start)}"
    )
    return Violation(Rule.MEMORY, device, run.shown(first), at, message)


def _late(run: Run, ran: Ran) -> Found:
    ready = [0] * len(ran.seen)
    for before, after, lag in waits(run):
        end = ran.end[before]
        if end is not None and end + lag > ready[after]:
            ready[after] = end + lag
    for after, arrival in arrivals(run):
        ready[after] = max(ready[after], arrival)
    stops = stopped(run)
    yield from late_transfers(run, ran)
    if room_elsewhere(run):
        return
    for device, row in enumerate(run.rows):
        for before_, after_, lag, _ in exchanges(run, device):
            for key in after_.keys:
                ready[key] = max(ready[key], before_.end + lag)
        free = 0
        for entry in row:
            earliest = max([free, run.traffic(run.facts.gather, entry), *(ready[key] for key in entry.keys)])
            earliest = max(earliest, stops[device].over(entry.start + run.tolerance))
            if entry.start > earliest + run.tolerance:
                op, at = run.shown(entry), run.time(entry.start)
                message = f"{op} starts at {at} on device {device}, but nothing holds it back after {run.time(earliest)}"
                yield Violation(Rule.LATE, device, op, at, message)
            free = max(free, entry.end)
