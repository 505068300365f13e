"""The named schedules: those that people use today, and those of your own (:func:`register`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from ppopt.named.definition import (
    Definition,
    Parameter,
    Restriction,
    UnknownSchedule,
    alternating,
    deferred,
    filled_greedily,
    fused,
    overlapping,
    split,
)
from ppopt.named.registry import BUILT_IN, NAMED, ScheduleWarning, find, key_of, register
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.schedule import Order, Schedule
from ppopt.timing import OrderError, time_order

__all__ = [
    "NAMED",
    "Definition",
    "Parameter",
    "Restriction",
    "Row",
    "ScheduleWarning",
    "UnknownSchedule",
    "adapted",
    "alternating",
    "compare",
    "deferred",
    "filled_greedily",
    "find",
    "fused",
    "of_order",
    "overlapping",
    "reading",
    "register",
    "rows_of_order",
    "split",
]


_MEANT = MappingProxyType(
    {
        "zb1p": "zb1p is read as zb-h1, as PP-Emulation has it; the automatic scheduler with room for D activations is zb-1p",
        "zb2p": "zb2p is read as zb-h2; the automatic scheduler with room for 2D activations is zb-2p",
        "zb-1p": "zb-1p is the automatic scheduler with room for D activations; PP-Emulation's zb1p is zb-h1",
        "zb-2p": "zb-2p is the automatic scheduler with room for 2D activations; zb2p is zb-h2",
    }
)


def reading(name: str) -> str | None:
    """What ``name`` is read as, in words, where it is an alias or easily taken for another schedule; ``None``: it is plain.

    Raises:
        UnknownSchedule: nobody has this name.
    """
    definition, key = find(name), key_of(name)
    return _MEANT.get(key, None if key == definition.name else f"{name} is read as {definition.name}")


@dataclass(frozen=True)
class Row:
    """A named or user-written schedule on given hardware: its schedule on its own placement, or why it cannot be."""

    name: str
    placement: str
    chunks: int
    schedule: Schedule | None
    excluded: str | None
    recompute: str = ""
    """``"none"`` or ``"all"``: which stages recompute, where the pipeline leaves it open."""

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{self.name} + recompute" if self.recompute == "all" else self.name


def compare(
    pipeline: Pipeline, chunks: Sequence[int] = (), params: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> list[Row]:
    """All named schedules on the same devices and the same costs per device, each on its own placement.

    Where the pipeline leaves open which stages recompute, each is shown without recomputing and with it everywhere.
    Those that need chunks are shown for each number in ``chunks``; without, for the pipeline's own number where it has
    their placement, else for their smallest. ``params`` gives parameters by the name of a schedule; the others have none.

    Raises:
        Restriction: a parameter is unknown or out of range.
        Exception: whatever a definition of the user's raises, with a note that names the schedule.
    """
    read = {name: NAMED[name].read(given) for name, given in params.items()}
    if pipeline.recompute == CHOOSE:
        return [
            dataclasses.replace(row, recompute=choice)
            for choice in ("none", "all")
            for row in _resolved(pipeline, choice, chunks, params)
        ]
    rows = []
    for definition in NAMED.values():
        for v in (chunks or (None,)) if definition.any_chunks else (None,):
            try:
                schedule = definition.schedule(pipeline, v, **read.get(definition.name, {}))
            except Restriction as restriction:
                rows.append(Row(definition.name, definition.placement, v or definition.least_chunks, None, str(restriction)))
            else:
                rows.append(Row(definition.name, definition.placement, schedule.pipeline.chunks, schedule, None))
    return rows


def _resolved(
    pipeline: Pipeline, choice: Literal["none", "all"], chunks: Sequence[int], params: Mapping[str, Mapping[str, Any]]
) -> list[Row]:
    """The rows where no stage or every stage recomputes."""
    try:
        return compare(pipeline.resolved(choice), chunks, params)
    except PipelineError as error:
        reason = f"recompute = {choice}: {error}"
        return [Row(d.name, d.placement, d.least_chunks, None, f"{d.name}: {reason}") for d in NAMED.values()]


def adapted(pipeline: Pipeline) -> Iterator[tuple[str, Schedule]]:
    """The named schedules that are heuristics under a memory limit, on this placement, at one limit after the other.

    They count memory more coarsely than a pipeline does: what they make at a higher limit may fit, and what they make at a lower
    one may not. Limits are D to 2D activations of a microbatch, those nearest to the pipeline's first.
    """
    amounts, devices = pipeline.amounts, pipeline.devices
    room = 2.0 * devices
    if amounts.limit is not None:
        held = [int(amounts.activation[:, [d == at for at in pipeline.routes[0]]].sum(axis=1).max()) for d in range(devices)]
        room = max((float(limit) / own for limit, own in zip(amounts.limit, held, strict=True) if own), default=room)
    for limit in sorted(range(devices, 2 * devices + 1), key=lambda limit: abs(limit - room)):
        for definition in BUILT_IN.values():  # elsewhere a limit may mean something else
            takes = {parameter.name: parameter.choices for parameter in definition.parameters}
            if "limit" not in takes or definition.placement != pipeline.placement:
                continue
            params: dict[str, Any] = {"limit": limit} | ({"variant": "adapted"} if "variant" in takes else {})
            try:
                schedule = definition.schedule(pipeline, **params)
            except Restriction:
                continue
            if schedule.pipeline.routes == pipeline.routes:
                yield f"{definition.name}, limit {limit}", time_order(pipeline, schedule.order)


def of_order(pipeline: Pipeline, order: Order, name: str) -> Row:
    """A user's own order as a row beside the named schedules; one that cannot be timed is excluded, with the reason."""
    try:
        return Row(name, pipeline.placement, pipeline.chunks, time_order(pipeline, order), None)
    except OrderError as error:
        return Row(name, pipeline.placement, pipeline.chunks, None, f"{name}: {error}")


def rows_of_order(pipeline: Pipeline, order: Order, name: str) -> tuple[Row, ...]:
    """The row of a user's own order; without recomputing and with it everywhere, where the pipeline leaves that open."""
    if pipeline.recompute != CHOOSE:
        return (of_order(pipeline, order, name),)
    rows = []
    for choice in ("none", "all"):
        try:
            row = of_order(pipeline.resolved(choice), order, name)
        except PipelineError as error:
            row = Row(name, pipeline.placement, pipeline.chunks, None, f"{name}: recompute = {choice}: {error}")
        rows.append(dataclasses.replace(row, recompute=choice))
    return tuple(rows)
