"""Every schedule that is shown has passed the checker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from weakref import WeakSet

from ppopt.checker import violations
from ppopt.named.row import Row
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule

_PASSED: WeakSet[Schedule] = WeakSet()
"""Those that have passed; they never change."""


def verified(schedule: Schedule, name: str) -> Schedule:
    """The schedule itself, once the checker has found nothing; the limits of memory aside, of devices and host, which the caller
    reports.

    Raises:
        RuntimeError: it violates a rule, which is a mistake of the program.
    """
    if schedule in _PASSED:
        return schedule
    found = violations(_without_limits(schedule.pipeline), schedule)
    if found:
        raise RuntimeError(f"{name} violates a rule (please report this): {found[0].message}")
    _PASSED.add(schedule)
    return schedule


def _without_limits(pipeline: Pipeline) -> Pipeline:
    if pipeline.memory.limit is None and pipeline.offload is None:
        return pipeline  # to make another one takes as long as to check the schedule
    offload = pipeline.offload and replace(pipeline.offload, host_limit=None)
    return pipeline.changed(memory=replace(pipeline.memory, limit=None), offload=offload)


def verified_rows(rows: Iterable[Row], known: Schedule | None = None) -> None:
    """Check the schedules of rows, but for ``known``, which has been checked.

    Raises:
        RuntimeError: as :func:`verified`.
    """
    for row in rows:
        schedule = row.schedule
        if schedule is None:
            continue
        if known is None or schedule.pipeline != known.pipeline or schedule.order != known.order:
            verified(schedule, row.name)


def excess(schedule: Schedule) -> str:
    """By how much a schedule exceeds the limits of memory: on the devices where it does, and on the host."""
    pipeline = schedule.pipeline
    limits, host = pipeline.amounts.limit, pipeline.amounts.host
    over = (
        []
        if limits is None
        else [
            f"device {device} holds {pipeline.amount(peak)} of {pipeline.amount(limit)}"
            for device, (peak, limit) in enumerate(zip(schedule.peak_memory, limits.tolist(), strict=True))
            if peak > limit
        ]
    )
    found = over[:4]
    if len(over) > 4:
        found[-1] += f" and {len(over) - 4} more devices"
    if host is not None and schedule.host_peak > host:
        found.append(f"the host holds {pipeline.amount(schedule.host_peak)} of {pipeline.amount(host)}")
    return ", ".join(found)
