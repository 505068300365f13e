"""A schedule as text: a row per device, a cell per time unit, as tutorials and papers draw it."""

from __future__ import annotations

import numpy as np

from ppopt.op import Op, Pair
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule

FINEST = 12
"""A cell is the greatest common divisor of all times while the shortest operation has at most this many of them."""


def grid(schedule: Schedule, width: int | None = None, *, coarse: bool = False) -> str:
    """The schedule as text, one cell per time unit: ``F0`` where an operation starts, ``-`` while it goes on, ``.`` idle.

    Operations are named by kind and microbatch where every device has one stage, else in full (``2F0``); a pair is
    ``2F3;5B1``. The unit is the greatest common divisor of all times; where that is much shorter than any operation, it
    is the shortest operation and the others are rounded to it, as the last line then says. Operations that take no time
    are left out. With ``width``, lines longer than that many characters lose their middle. ``coarse``: the unit is the shortest
    operation anyway.
    """
    pipeline = schedule.pipeline
    unit, even = _unit(schedule, coarse)
    rows = _cells(schedule, unit) if unit else [[] for _ in schedule.start]
    columns = max((last for row in rows for _, last, _ in row), default=0)
    cell = max([2, *(-(-(len(label) + 1) // (last - first)) for row in rows for first, last, label in row)])
    if columns <= 1000:
        cell = max(cell, min(3, len(str(columns)) + 1))
    heads = [f"device {device}: " for device in range(pipeline.devices)]
    head = len(heads[-1])
    lines = ["time → ".ljust(head) + _ruler(pipeline, unit, columns, cell)]
    lines += [text.rjust(head) + _line(row, columns, cell) for text, row in zip(heads, rows, strict=True)]
    if width is not None:
        lines = [_shortened(line, width, head, cell) for line in lines]
    lines.insert(1, "-" * max(map(len, lines)))
    if not even:
        lines.append(f"one cell is {pipeline.time(unit)} × {pipeline.units.time or 'the time unit'}; times are rounded to it")
    return "\n".join(line.rstrip() for line in lines)


def _unit(schedule: Schedule, coarse: bool) -> tuple[int, bool]:
    """Ticks per cell (0: nothing takes time), and whether all times are multiples of it."""
    durations = np.concatenate(schedule.duration)
    positive = durations[durations > 0]
    if not len(positive):
        return 0, True
    starts = np.concatenate(schedule.start)
    divisor = int(np.gcd.reduce(np.concatenate((positive, starts - starts.min()))))
    shortest = int(positive.min())
    fine = shortest == divisor or (shortest <= FINEST * divisor and not coarse)
    return (divisor, True) if fine else (shortest, False)


def _cells(schedule: Schedule, unit: int) -> list[list[tuple[int, int, str]]]:
    """Per device its operations: first cell, end cell, label.

    Edges are rounded to the nearest cell, so nothing overlaps, and what takes at least one unit keeps a cell.
    """
    short = _one_stage_each(schedule.pipeline)
    origin = min(int(row.min()) for row in schedule.start if len(row))
    rows = []
    for device, (start, end) in enumerate(zip(schedule.start, schedule.end, strict=True)):
        edges = (((2 * (row - origin) + unit) // (2 * unit)).tolist() for row in (start, end))
        cells = zip(*edges, schedule.order.ops(device), strict=True)
        rows.append([(first, last, _label(op, short)) for first, last, op in cells if last > first])
    return rows


def _one_stage_each(pipeline: Pipeline) -> bool:
    alone = len(pipeline.ways) == 1 and len(set(pipeline.routes[0])) == pipeline.stages
    return alone and not pipeline.backward_routes


def _label(op: Op | Pair, short: bool) -> str:
    halves = (op.forward, op.backward) if isinstance(op, Pair) else (op,)
    return ";".join(str(half).removeprefix(str(half.stage) if short else "") for half in halves)


def _line(row: list[tuple[int, int, str]], columns: int, cell: int) -> str:
    parts, at = [], 0
    for first, last, label in row:
        parts.append(".".rjust(cell) * (first - at))
        text = label.rjust(cell) if len(label) < cell else " " + label
        parts.append(text.ljust(cell * (last - first), "-"))
        at = last
    parts.append(".".rjust(cell) * (columns - at))
    return "".join(parts)


def _ruler(pipeline: Pipeline, unit: int, columns: int, cell: int) -> str:
    """Times above the cells: at every cell where they fit, else at every second, fifth, tenth, …"""
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        texts = [f"{pipeline.time(column * unit):.6g}" for column in range(0, columns, step)]
        if all(len(text) < cell * step for text in texts):
            return "".join((text.rjust(cell) if len(text) < cell else " " + text).ljust(cell * step) for text in texts)
    return ""


def _shortened(line: str, width: int, head: int, cell: int) -> str:
    """``line`` with whole cells cut out of its middle, so that it has at most ``width`` characters."""
    if len(line) <= width:
        return line
    room = max((width - head - 3) // cell, 2)
    left, right = (room + 1) // 2, room // 2
    return f"{line[: head + left * cell]} … {line[len(line) - right * cell :]}"
