"""What a frontier says to somebody who buys memory: as fast as today with less, faster with the same, and the best buy."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ppopt.named import Row
from ppopt.study.frontier import Frontier, Point
from ppopt.text import figure, percent, place

TOLERANCE = 0.01
"""The best buy is at most that much slower than the fastest."""


def time_of(point: Point) -> float:
    """The value of a point that has one, in the user's unit."""
    return float(point.result.value or 0)


def today(lines: Sequence[Frontier], name: str) -> tuple[Fraction, float] | None:
    """The limit that the named schedule of today needs, and its time; ``None``: it does not apply."""
    line = lines[0]
    rows = [row for row in line.named if row.name == name and row.schedule is not None]
    if not rows:
        return None
    row: Row = min(rows, key=lambda row: row.objective(line.objective))
    assert row.schedule is not None
    return line.needed(row.schedule), float(row.objective(line.objective))


def best_by_limit(lines: Sequence[Frontier]) -> list[Point]:
    """At each limit of any placement the fastest point that fits, over all placements; the smallest limit first."""
    points = [point for line in lines for point in line.points if point.result.value is not None]
    scales = sorted({point.scale for point in points})
    return [min((p for p in points if p.scale <= scale), key=lambda p: (time_of(p), p.scale)) for scale in scales]


def best_buy(points: Sequence[Point], tolerance: float = TOLERANCE) -> Point:
    """The point with the smallest limit whose time is at most ``tolerance`` above that of the fastest."""
    return next(point for point in points if time_of(point) <= (1 + tolerance) * time_of(points[-1]))


def recommendation(lines: Sequence[Frontier], name: str = "1f1b", tolerance: float = TOLERANCE) -> list[str]:
    """What to do, in sentences: at the memory of today, with the least memory that is as fast as today, and the best buy.

    ``lines``: the frontiers of all placements; ``name``: the named schedule that is run today. Where that does not apply, what
    is said of it is left out.
    """
    points = best_by_limit(lines)
    if not points:
        return ["No schedule was found within the time limit; give more time."]
    line, now, fastest, buy = lines[0], today(lines, name), points[-1], best_buy(points, tolerance)
    said, less = [], ""
    if now is not None:
        memory, time = now
        unit = f" {line.pipeline.units.time}".rstrip()
        said.append(f"Today: {name} takes {figure(time)}{unit} and needs {_memory(line, memory)} on its fullest device.")
        here = [point for point in points if point.scale <= memory]
        if here and time_of(here[-1]) < time:
            said.append(f"Same memory: {described(line, here[-1])}, {percent(1 - time_of(here[-1]) / time)} less time.")
        as_fast = next((point for point in points if time_of(point) <= time), None)
        if as_fast is not None and as_fast.scale < memory:
            saved = _memory(line, memory - as_fast.scale)
            said.append(f"As fast as {name}: {described(line, as_fast)}; that is {saved} less.")
        change = 1 - time_of(buy) / time if time else 0.0
        less = f", {percent(abs(change))} {'less' if change >= 0 else 'more'} time than {name}"
    said.append(f"Best buy: {described(line, buy)}{less}.")
    gained = 1 - time_of(fastest) / time_of(buy) if time_of(buy) else 0.0
    end = f"{percent(gained)} at {_memory(line, fastest.scale)}, then nothing" if gained > 0 else "nothing"
    said.append(f"More memory gains {end}.")
    return said


def described(line: Frontier, point: Point) -> str:
    """Memory, time, placement and how good it is."""
    result = point.result
    unit = f" {line.pipeline.units.time}".rstrip()
    proof = (
        "proved optimal there" if result.reason == "optimal" else f"at most {percent(result.gap or 0.0)} from the optimum there"
    )
    return f"{_memory(line, point.scale)}, {figure(time_of(point))}{unit}, {place(result.pipeline)} ({proof})"


def _memory(line: Frontier, scale: Fraction) -> str:
    """A limit in words: an amount, or how many times the limits that were given."""
    amount = figure(scale.numerator if scale.denominator == 1 else float(scale))
    if len(set(line.shares)) > 1 or line.shares[0] != 1:
        return f"{amount} times the limits"
    return f"{amount} {line.pipeline.units.memory or 'of memory'}"
