"""The order in which a runtime that takes no order runs a pipeline, beside the order of a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from ppopt.named import Restriction, find
from ppopt.op import Kind, Op, Pair
from ppopt.schedule import Schedule
from ppopt.text import number

Candidate: TypeAlias = tuple[str, Mapping[str, Any]]
"""A named schedule and its parameters."""
_OPS = 200_000
"""Operations of all orders that are looked at, about; more of them take seconds."""


class Own(NamedTuple):
    """A runtime's own order."""

    name: str
    params: Mapping[str, Any]
    same: bool
    """Whether it is the order of the schedule."""
    schedule: Schedule | None
    reason: str = ""
    """Why there is no schedule."""


def interleaved(sizes: Iterable[int]) -> list[Candidate]:
    """Interleaved 1F1B with each of these group sizes."""
    return [("interleaved-1f1b", {"group_size": size}) for size in sizes]


def own_order(schedule: Schedule, candidates: Sequence[Candidate]) -> Own:
    """Of the orders that a runtime can run, the one that the schedule has; else the first that can be run at all."""
    pipeline = schedule.pipeline
    rows = [schedule.order.ops(device) for device in range(pipeline.devices)]
    fused = [_fused(row) for row in rows]
    first: Own | None = None
    reason = ""
    for name, params in islice(candidates, max(2, _OPS // (pipeline.stages * pipeline.microbatches))):
        try:
            timed = find(name).schedule(pipeline, pipeline.chunks, **params)
        except Restriction as error:
            reason = reason or str(error)
            continue
        theirs = [timed.order.ops(device) for device in range(pipeline.devices)]
        own = Own(name, params, theirs in (rows, fused), timed)
        if own.same:
            return own
        first = first or own
    return first or Own(*candidates[0], False, None, reason)


def _fused(row: Sequence[Op | Pair]) -> list[Op | Pair]:
    """The row with ``B`` for each ``I`` that is directly followed by its ``W``."""
    found: list[Op | Pair] = []
    for op in row:
        last = found[-1] if found else None
        if isinstance(op, Op) and op.kind == Kind.W and last == Op(op.stage, Kind.I, op.microbatch):
            found[-1] = Op(op.stage, Kind.B, op.microbatch)
        else:
            found.append(op)
    return found


def compared(runtime: str, schedule: Schedule, own: Own) -> str:
    """Whose order runs, and what it takes, in a line."""
    sizes = "".join(f", {name.replace('_', ' ')} {value}" for name, value in own.params.items())
    if own.same:
        return f"{runtime} runs this very order ({own.name}{sizes})"
    pipeline = schedule.pipeline
    unit = f" {pipeline.units.time}" if pipeline.units.time else ""
    planned = f"{number(pipeline.time(schedule.makespan))}{unit}"
    if own.schedule is None:
        return f"{runtime} runs its own order ({own.name}{sizes}), not this one of makespan {planned}; not timed: {own.reason}"
    text = f"{runtime} runs its own order ({own.name}{sizes}), not this one: "
    text += f"makespan {number(pipeline.time(own.schedule.makespan))}{unit} on this cut, not {planned}"
    return text if own.schedule.within_memory else f"{text}; it exceeds the memory limit"
