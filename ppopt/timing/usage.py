"""What the devices and links of a schedule do with their time: work, idle time by cause and by phase, transfers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from ppopt.op import Kind
from ppopt.schedule import Schedule, durations, halves
from ppopt.timing.waits import Cause, Waited
from ppopt.timing.weights import transfers

Phase: TypeAlias = Literal["warm-up", "steady", "cool-down"]
"""Of a device: until its first backward begins; from the end of its last forward on; and what is between."""
PHASES: tuple[Phase, ...] = ("warm-up", "steady", "cool-down")
CAUSES = (Cause.START, Cause.DATA, Cause.LINK, Cause.MEMORY, Cause.ORDER, Cause.END)
"""In the sequence in which tables show them."""


class DeviceUse(NamedTuple):
    """The makespan of a device, in ticks: ``work`` and the idle times add up to it, by cause and by phase."""

    work: int
    idle: Mapping[Cause, int]
    by_phase: Mapping[Phase, int]
    sent: int
    """How many results it gives to other devices."""
    received: int
    """How many results of other devices it takes."""


class LinkUse(NamedTuple):
    """A link that transfers hold."""

    pairs: tuple[tuple[int, int], ...]
    """The pairs of devices ``(from, to)`` that send over it."""
    transfers: int
    busy: int
    """Ticks in which a transfer holds it."""


def devices_of(schedule: Schedule) -> tuple[DeviceUse, ...]:
    """What each device does with the makespan."""
    waited = Waited(schedule)
    sent, received = transfers(schedule)
    found = []
    for device, (work, idle) in enumerate(zip(schedule.work, waited.idle, strict=True)):
        by_cause, by_phase = dict.fromkeys(CAUSES, 0), dict.fromkeys(PHASES, 0)
        warm, cool = _phases(schedule, device)
        for gap in idle:
            by_cause[gap.cause] += gap.until - gap.since
            early, late = min(max(warm, gap.since), gap.until), min(max(cool, gap.since), gap.until)
            for phase, ticks in zip(PHASES, (early - gap.since, late - early, gap.until - late), strict=True):
                by_phase[phase] += ticks
        found.append(DeviceUse(work, by_cause, by_phase, sent[device], received[device]))
    return tuple(found)


def links_of(schedule: Schedule) -> tuple[LinkUse, ...]:
    """The links that transfers hold, as in ``schedule.pipeline.lines``."""
    pipeline = schedule.pipeline
    if not pipeline.lines:
        return ()
    return tuple(
        LinkUse(line, len(row), int(durations(pipeline, row).sum()))
        for line, row in zip(pipeline.lines, schedule.transfers.rows, strict=True)
    )


def _phases(schedule: Schedule, device: int) -> tuple[int, int]:
    """When the warm-up of a device ends, and when its cool-down begins; for one without operations both are at the end."""
    row, index = schedule.order.rows[device], schedule.pipeline.index
    end = schedule.begin + schedule.makespan
    if not len(row):
        return end, end
    first, second = halves(index, row)
    kind = first // (index.stages * index.microbatches)
    backward, forward = (kind != Kind.F) | (second >= 0), kind == Kind.F
    warm = int(schedule.start[device][backward].min(initial=end))  # a run that was cut off may have none
    return warm, max(warm, int(schedule.end[device][forward].max(initial=0)))
