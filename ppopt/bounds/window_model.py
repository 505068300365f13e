"""The CP-SAT model of the first and the last ticks of every schedule (:func:`ppopt.bounds.windows.window`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ortools.sat.python import cp_model

from ppopt.bounds.latest_starts import latest_first_starts
from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph, Precedence, Reservoir, weights_in_turn
from ppopt.cpsat.engine import WINDOW, WINDOW_PRESOLVED, race
from ppopt.cpsat.posting import Hold, Literal, Row, Start, families, machine_of, precedence, reservoir
from ppopt.cpsat.running import Answer
from ppopt.pipeline import IntArray


class Side(NamedTuple):
    """One of the two windows: its graph (reversed for the end), how many ``units`` it is long, and the earliest starts."""

    graph: FamilyGraph
    units: int
    heads: Sequence[IntArray]


class Idle(NamedTuple):
    """The idle ticks of a machine in a window; ``done``: a literal that all its operations start in it, ``None``: they cannot."""

    ticks: Start
    done: Literal | None


class Windows:
    """The least ``X = max over machines of (work + idle time in both windows)`` in ``known..target - 1``.

    ``work``: what each machine takes beside. Starts are counted in units of ``grain`` ticks. With ``own`` idle ticks count from
    each device's own first start. Weight gradients of equal cost run in the order of their input gradients
    (:mod:`ppopt.constraints.weight_order`), which changes no device's times.
    """

    def __init__(self, sides: Sequence[Side], work: Sequence[int], *, known: int, target: int, grain: int, own: bool) -> None:
        self.model = model = cp_model.CpModel()
        self.base = max(work)
        extra = model.new_int_var(known - self.base, target - 1 - self.base, "X")
        last, turns = len(sides[0].graph.families) - 1, weights_in_turn(sides[0].graph)
        turned = tuple(Precedence(last - after, last - before, shift) for before, after, shift, _ in turns)
        idle = [_Side(model, side, of, grain, own).idle() for side, of in zip(sides, (turns, turned), strict=True)]
        for time, *both in zip(work, *idle, strict=True):
            within = [one.done for one in both if one.done is not None]
            least = time - self.base + sum(one.ticks for one in both)
            model.add(extra >= least).only_enforce_if([~done for done in within])
        model.minimize(extra)

    def least(self, limits: Limits) -> Answer:
        """What a search shows of ``X - base``. With two workers or more two solvers race.

        Measured: often ten times faster than two workers that share what they find.
        """
        return race(self.model, limits, (WINDOW_PRESOLVED, WINDOW))


class _Side:
    """The window [0, units) of a graph: who starts in it, and when. ``turns``: waits beside the graph's own."""

    def __init__(self, model: cp_model.CpModel, side: Side, turns: Sequence[Precedence], grain: int, own: bool) -> None:
        self.model, self.grain, self.own = model, grain, own
        self.graph, self.units = side.graph, side.units
        self.coarse = side.graph.rounded_down(grain)
        self.edge = side.units * grain
        self.rows = [self._row(family, earliest) for family, earliest in enumerate(side.heads)]
        families(model, self.coarse, self.rows)
        for before, after, shift, _ in turns:
            precedence(model, self.rows[before], self.rows[after], shift)

    def _row(self, family: int, earliest: IntArray) -> Row:
        """The operations of a family that can start in the window. One that does not starts at its end; its literal is false."""
        model, units = self.model, self.units
        starts, literals = [], []
        for n, least in enumerate(earliest[earliest < self.edge].tolist()):
            start = model.new_int_var(least // self.grain, units, f"{self.graph.label[family]}{n}")
            literal = model.new_bool_var(f"{self.graph.label[family]}{n} starts")
            model.add(start < units).only_enforce_if(literal)
            model.add(start == units).only_enforce_if(~literal)
            starts.append(start)
            literals.append(literal)
        return Row(starts, self.coarse.duration[family], literals)

    def idle(self) -> list[Idle]:
        """Post machines and memory; per machine its idle ticks."""
        latest = latest_first_starts(self.graph) if self.own else []
        found = []
        for place, (_, own) in enumerate(self.graph.machines):
            machine_of(self.model, [self.rows[family] for family in own])
            left = self.edge - self._spent(place, own)
            if self.own:
                left -= self._before(place, own, latest[place])
            else:
                self.model.add(left >= 0)
            found.append(Idle(left, self._done(place, own) if self.own else None))
        for room in self.graph.reservoirs:
            self._memory(room)
        return found

    def _spent(self, place: int, own: Sequence[int]) -> Start:
        """For how many ticks of the window a machine runs something; what straddles its edge counts with its part."""
        model, duration = self.model, self.graph.duration
        over = model.new_int_var(0, max((duration[family] for family in own), default=0), f"over the edge {place}")
        spent: Start = 0
        for family in own:
            for start, literal in _starts(self.rows[family]):
                model.add(over >= self.grain * start + duration[family] - self.edge).only_enforce_if(literal)
                spent += duration[family] * literal
        return spent - over

    def _before(self, place: int, own: Sequence[int], latest: int | None) -> Start:
        """No more than the ticks before a device's first start, which is proved to be by ``latest``."""
        most = self.units if latest is None else min(self.units, latest // self.grain)
        begin = self.model.new_int_var(0, most, f"begin {place}")
        for family in own:
            for start in self.rows[family].start[:1]:
                self.model.add(begin <= start)
        return self.grain * begin + self.grain - 1

    def _done(self, place: int, own: Sequence[int]) -> Literal | None:
        """That all operations of a device start in the window: then it may end in it too, and what is behind is not idle time."""
        if any(len(self.rows[family].start) < self.graph.count[family] for family in own):
            return None
        done = self.model.new_bool_var(f"all of {place} start")
        last = [(self.rows[family].present or [])[-1] for family in own]
        self.model.add_bool_or([done, *(~literal for literal in last)])
        for literal in last:
            self.model.add_implication(done, literal)
        return done

    def _memory(self, room: Reservoir) -> None:
        """What a device holds; what is not given back in the window is held to its end. Precedences say a simple one alone."""
        if room.simple:
            return
        holds = []
        for first, last, amount in room.held:
            time, releases = self.coarse.duration[last], _starts(self.rows[last])
            for n, (start, literal) in enumerate(_starts(self.rows[first])):
                end = self.model.new_int_var(0, self.units + time, "")
                if n < len(releases):
                    release, released = releases[n]
                    self.model.add(end >= release + time).only_enforce_if(released)
                    self.model.add(end >= self.units).only_enforce_if(~released)
                else:
                    self.model.add(end >= self.units)
                holds.append(Hold(start, end, amount, self.units + time, literal))
        reservoir(self.model, holds, room.limit)


def _starts(row: Row) -> list[tuple[Start, Literal]]:
    return list(zip(row.start, row.present or (), strict=True))
