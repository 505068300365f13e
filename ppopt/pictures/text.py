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
    return Grid(schedule, coarse=coarse).text(width)


class Grid:
    """What is drawn of a schedule (:func:`grid`), before anything is: of very many cells only few may be asked for."""

    def __init__(self, schedule: Schedule, *, coarse: bool = False) -> None:
        self.pipeline = schedule.pipeline
        self.unit, even = _unit(schedule, coarse)
        self.rows = _cells(schedule, self.unit) if self.unit else [[] for _ in schedule.start]
        self.columns = max((last for row in self.rows for _, last, _ in row), default=0)
        """Cells of a row."""
        cell = max([2, *(-(-(len(label) + 1) // (last - first)) for row in self.rows for first, last, label in row)])
        self.cell = max(cell, min(3, len(str(self.columns)) + 1)) if self.columns <= 1000 else cell
        """Characters of a cell."""
        self.heads = [f"device {device}: " for device in range(self.pipeline.devices)]
        unit = f"{self.pipeline.time(self.unit)} × {self.pipeline.units.time or 'the time unit'}"
        self.note = "" if even else f"one cell is {unit}; times are rounded to it"

    @property
    def width(self) -> int:
        """The characters of the longest line."""
        return max(self._whole, len(self.note))

    def text(self, width: int | None = None) -> str:
        """All of it; or, with ``width``, lines of at most that many characters, which lose cells in their middle."""
        shown = [(0, self.columns)]
        if width is not None and self._whole > width:
            room = max((width - self._head - 3) // self.cell, 2)
            shown = [(0, (room + 1) // 2), (self.columns - room // 2, self.columns)]
        ruler = _ruler(self.pipeline, self.unit, shown, self.cell)
        lines = ["time → ".ljust(self._head) + " … ".join(ruler)]
        for text, row in zip(self.heads, self.rows, strict=True):
            lines.append(text.rjust(self._head) + " … ".join(_line(row, *part, self.cell) for part in shown))
        lines.insert(1, "-" * max(map(len, lines)))
        return "\n".join(line.rstrip() for line in (*lines, *filter(None, [self.note])))

    @property
    def _head(self) -> int:
        return len(self.heads[-1])

    @property
    def _whole(self) -> int:
        """The characters of a row with all its cells."""
        return self._head + self.columns * self.cell


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


def _line(row: list[tuple[int, int, str]], begin: int, end: int, cell: int) -> str:
    """The cells of a device from ``begin`` to ``end``."""
    parts, at = [], begin
    for first, last, label in row:
        if last <= begin or first >= end:
            continue
        parts.append(".".rjust(cell) * (first - at))
        text = label.rjust(cell) if len(label) < cell else " " + label
        a, b = max(first, begin), min(last, end)
        parts.append(text[(a - first) * cell : (b - first) * cell].ljust(cell * (b - a), "-"))
        at = b
    parts.append(".".rjust(cell) * (end - at))
    return "".join(parts)


def _ruler(pipeline: Pipeline, unit: int, shown: list[tuple[int, int]], cell: int) -> list[str]:
    """Times above the cells, from the first to the last one of each part: at every cell where they fit, else at every second,
    fifth, tenth, …"""
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        times = [
            {column - begin: f"{pipeline.time(column * unit):.6g}" for column in range(-(-begin // step) * step, end, step)}
            for begin, end in shown
        ]
        if all(len(time) < cell * step for part in times for time in part.values()):
            return [_above(part, end - begin, cell) for part, (begin, end) in zip(times, shown, strict=True)]
    return [""] * len(shown)


def _above(times: dict[int, str], cells: int, cell: int) -> str:
    """A line of times, each in its cell or from there on; one that would go on beyond the last cell is left out."""
    line = ""
    for at, time in times.items():
        text = time.rjust(cell) if len(time) < cell else f" {time}"
        if at * cell + len(text) <= cells * cell:
            line = line.ljust(at * cell) + text
    return line.ljust(cells * cell)
