"""What the devices and links of a schedule do with their time: work, idle time by cause and by phase, transfers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ppopt.op import Kind
from ppopt.schedule import Schedule, durations, halves
from ppopt.timing.waits import CAUSES, Cause, Waited
from ppopt.timing.weights import transfers

Phase: TypeAlias = Literal["warm-up", "steady", "cool-down"]
"""Of a device: until its first backward begins; from the end of its last forward on; and what is between."""
PHASES: tuple[Phase, ...] = ("warm-up", "steady", "cool-down")


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
    for device, (work, gaps) in enumerate(zip(schedule.work, waited.gaps, strict=True)):
        by_cause = np.zeros(len(CAUSES), dtype=np.int64)
        np.add.at(by_cause, gaps.cause, gaps.until - gaps.since)
        warm, cool = (np.clip(time, gaps.since, gaps.until) for time in _phases(schedule, device))
        by_phase = [int((until - since).sum()) for since, until in pairwise((gaps.since, warm, cool, gaps.until))]
        idle = dict(zip(CAUSES, by_cause.tolist(), strict=True))
        found.append(DeviceUse(work, idle, dict(zip(PHASES, by_phase, strict=True)), sent[device], received[device]))
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
