"""The one place where families, machines and reservoirs become constraints of CP-SAT, for all models.

Times are in whatever steps a model counts in. An operation that may be left out has a literal; what is said of it holds where
that is true.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ortools.sat.python import cp_model

from ppopt.constraints import FamilyGraph

Start: TypeAlias = cp_model.LinearExpr | int
"""A variable, an expression, or a number where the start is known."""
Literal: TypeAlias = cp_model.IntVar


class Row(NamedTuple):
    """The operations of a family in the order of the microbatches, or the first of them: when they start, how long each takes.

    ``present``: the literals that they are there; ``None``: all are.
    """

    start: Sequence[Start]
    duration: int
    present: Sequence[Literal] | None = None


class Hold(NamedTuple):
    """``amount`` is held from ``start`` to ``end``, for ``longest`` steps at most; where ``present`` is true, if it is given.

    ``shortest``: other constraints imply that it is held for as many steps, where it is.
    """

    start: Start
    end: Start
    amount: int
    longest: int
    present: cp_model.LiteralT | None = None
    name: str = ""
    shortest: int = 0


# --- families ---


def waits(model: cp_model.CpModel, before: Start, after: Start, steps: int, given: Sequence[cp_model.LiteralT] = ()) -> None:
    """``after >= before + steps``, where all literals ``given`` hold."""
    constraint = model.add(after >= before + steps)
    if given:
        constraint.only_enforce_if(*given)  # a list takes a quarter longer


def in_order(model: cp_model.CpModel, row: Row) -> None:
    """A family's operations run one after the other."""
    precedence(model, row, row, 1)


def precedence(model: cp_model.CpModel, before: Row, after: Row, shift: int, lag: int = 0) -> None:
    """``after(n)`` starts at least ``lag`` after the end of ``before(n - shift)``.

    Where the operations may be left out, ``after(n)`` is there only if ``before(n - shift)`` is.
    """
    steps = before.duration + lag
    if before.present is None or after.present is None:
        for a, b in zip(before.start, after.start[shift:], strict=False):
            waits(model, a, b, steps)
        return
    for n in range(shift, len(after.start)):
        if n - shift < len(before.start):
            model.add_implication(after.present[n], before.present[n - shift])
            waits(model, before.start[n - shift], after.start[n], steps, [after.present[n]])
        else:
            model.add(after.present[n] == 0)


def families(model: cp_model.CpModel, graph: FamilyGraph, rows: Sequence[Row]) -> None:
    """All families of a graph: each in order, the data, and what memory implies."""
    for row in rows:
        in_order(model, row)
    for before, after, shift, lag in (*graph.precedences, *graph.implied):
        precedence(model, rows[before], rows[after], shift, lag)


def start_earlier(model: cp_model.CpModel, start: cp_model.IntVar, steps: int, given: Sequence[cp_model.LiteralT]) -> None:
    """In a copy of the model that ``start`` is of, let it be that many steps earlier at the latest. Where no time is left for it
    not all literals hold."""
    domain = model.proto.variables[start.index].domain
    if domain[1] - steps < domain[0]:
        model.add_bool_or([~literal for literal in given])
    else:
        domain[1] -= steps


# --- machines ---


def interval(
    model: cp_model.CpModel, start: Start, size: int, present: Literal | None = None, name: str = ""
) -> cp_model.IntervalVar:
    """The time of an operation."""
    if present is None:
        return model.new_fixed_size_interval_var(start, size, name)
    return model.new_optional_fixed_size_interval_var(start, size, present, name)


def machine(model: cp_model.CpModel, intervals: Sequence[cp_model.IntervalVar]) -> None:
    """One operation at a time."""
    if len(intervals) > 1:
        model.add_no_overlap(intervals)


def machine_of(model: cp_model.CpModel, rows: Iterable[Row]) -> None:
    """One operation at a time of all in these rows."""
    intervals = []
    for start, duration, present in rows:
        literals: Sequence[Literal | None] = [None] * len(start) if present is None else present
        intervals += [interval(model, x, duration, literal) for x, literal in zip(start, literals, strict=True)]
    machine(model, intervals)


# --- reservoirs ---


def reservoir(model: cp_model.CpModel, holds: Iterable[Hold], limit: int) -> list[cp_model.IntVar]:
    """What is held at a time is ``limit`` at most; for each of the ``holds`` a variable for how long it lasts.

    Nothing is posted, and none comes back, where all of it together fits. Amounts are divided by what they have in common.
    Of those that last some steps (``shortest``) and are more than half of the limit no two are held at once: said once more.
    """
    holds = list(holds)
    if sum(hold.amount for hold in holds) <= limit:
        return []
    unit = math.gcd(*(hold.amount for hold in holds))
    intervals, sizes = [], []
    for start, end, _, longest, present, name, shortest in holds:
        size = model.new_int_var(min(shortest, longest), longest, name)
        sizes.append(size)
        if present is None:
            intervals.append(model.new_interval_var(start, size, end, name))
        else:
            intervals.append(model.new_optional_interval_var(start, size, end, present, name))
    model.add_cumulative(intervals, [hold.amount // unit for hold in holds], limit // unit)
    machine(model, [one for one, hold in zip(intervals, holds, strict=True) if hold.shortest and 2 * hold.amount > limit])
    return sizes


def reservoirs(model: cp_model.CpModel, graph: FamilyGraph, rows: Sequence[Row], longest: int) -> None:
    """What every device holds, beside what precedences say alone; those have to be posted (:func:`families`).

    All operations are there.
    """
    for room in graph.reservoirs:
        if room.simple:
            continue
        held = (
            Hold(a, b + rows[last].duration, amount, longest)
            for first, last, amount in room.held
            for a, b in zip(rows[first].start, rows[last].start, strict=True)
        )
        reservoir(model, held, room.limit)
