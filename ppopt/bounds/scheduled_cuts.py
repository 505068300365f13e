"""Cut and order in one model: is there a schedule of at most that makespan on any cut within a box of cuts?

The rules are those of the relaxed graph (:mod:`ppopt.constraints.graphs`), which every schedule keeps whichever way it runs its
backwards, with durations and amounts that are sums over the layers between two ends. So what the model refutes is refuted for
every cut of the box. What it finds is a cut and an order, which still have to be timed by the rules themselves.

*Ways.* No operation starts before the chain of reasons that makes its head, nor ends behind that of its tail
(:mod:`ppopt.bounds.certificates`). Both hold whatever the cut is, and are sums over layers: what is known of the ends of stages
says at once how long a way through many stages is. Measured for 24 to 36 layers on 8 devices of two chunks: an answer takes
three quarters to a twenty-fifth of the conflicts, and questions are answered that stayed open.

*Memory.* What a device holds grows only when a forward starts. Of each stage ``n * a`` is held then: ``n`` microbatches, which
are counted by literals that one operation is before another, and the amount ``a`` of a cut. The product is said by
``load >= k * a`` wherever ``n >= k``. It is exact once both are settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from ortools.sat.python import cp_model

from ppopt.bounds.certificates import Reasons
from ppopt.bounds.cuts import CutModel, End
from ppopt.bounds.filling import Held
from ppopt.bounds.ways import Once
from ppopt.clock import Limits
from ppopt.constraints import Precede
from ppopt.constraints.shifts import Shifts
from ppopt.cpsat.engine import DECIDING, DECIDING_PRESOLVED, race
from ppopt.cpsat.posting import machine
from ppopt.cpsat.running import Answer, Known
from ppopt.op import Kind, Op
from ppopt.pipeline import IntArray

Term: TypeAlias = cp_model.LinearExpr | int


class Box(NamedTuple):
    """Cuts by where their stages end: stage ``s`` behind ``low[s]`` to ``high[s]`` layers, for all stages but the last."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    @classmethod
    def all_of(cls, layers: int, stages: int) -> Box:
        """Every cut."""
        return cls(tuple(range(1, stages)), tuple(range(layers - stages + 1, layers)))

    @classmethod
    def around(cls, counts: Sequence[int], reach: int) -> Box:
        """Cuts none of whose ends is more than ``reach`` layers from that of a cut."""
        stages, layers = len(counts), sum(counts)
        ends = list(accumulate(counts))[:-1]
        low = tuple(max(s + 1, end - reach) for s, end in enumerate(ends))
        return cls(low, tuple(min(layers - stages + s + 1, end + reach) for s, end in enumerate(ends)))

    def has(self, counts: Sequence[int]) -> bool:
        """Whether a cut is in it."""
        return all(a <= end <= b for a, end, b in zip(self.low, accumulate(counts), self.high, strict=False))


@dataclass(frozen=True)
class FoundCut:
    """No cut of the box has a makespan below ``bound`` ticks; of what was found the cut and the order of each device.

    ``none``: there is nothing in the box. ``settled``: the search would not say more.
    """

    bound: int
    none: bool = False
    settled: bool = False
    counts: tuple[int, ...] | None = None
    rows: tuple[tuple[Op, ...], ...] = ()


class ScheduledCuts(CutModel):
    """Every cut of a box, and every schedule on it whose makespan is in ``lower..upper`` ticks.

    ``reasons``: of the relaxed graph of the placement, of a pipeline with one route and whole weight gradients; of its durations
    and memory nothing is used, and its lags and constants are multiplied by ``scale``. ``only``: some cuts of the box, a row of
    ends for each. Other arguments as for :class:`~ppopt.bounds.cuts.CutModel`.
    """

    def __init__(
        self,
        times: Mapping[Kind, Sequence[int]],
        stages: int,
        reasons: Reasons,
        box: Box,
        *,
        scale: int,
        lower: int,
        upper: int,
        memory: Held | None = None,
        first: Mapping[Kind, Sequence[int]] | None = None,
        once: Mapping[Once, Sequence[int]] | None = None,
        only: IntArray | None = None,
    ) -> None:
        super().__init__(times, stages, first=first, once=once)
        if only is not None:
            ends = self.ends([1] * self.layers)[1:-1]
            self.model.add_allowed_assignments(ends, only.tolist())
        graph = self.graph = reasons.graph
        self.box, self.lower, self.upper = box, lower, upper
        self._between(lower, upper)
        layers = self.layers
        self._places = list(zip((0, *box.low, layers), (0, *box.high, layers), strict=True))
        for row, low, high in zip(self.below, box.low, box.high, strict=True):
            for layer, literal in enumerate(row):
                if layer < low or layer >= high:
                    self.model.add(literal == (layer < low))
        tables = {kind: (times[kind], (first or times)[kind]) for kind in times}
        self.start: list[list[cp_model.IntVar]] = []
        self.end: list[list[cp_model.LinearExpr]] = []
        self._intervals: list[list[cp_model.IntervalVar]] = []
        for family, count in zip(graph.families, graph.count, strict=True):
            kind = Kind.I if family.kind == Kind.B else Kind(family.kind)
            self._family(family.stage, kind, tables[kind][family.stage == 0], count)
        self._follow(scale)
        self._within_ways(reasons, scale)
        for _, families in graph.machines:
            machine(self.model, [interval for o in families for interval in self._intervals[o]])
        self._befores: dict[tuple[int, int, int, int], cp_model.IntVar] = {}
        if memory is not None:
            self._shift = self._shifts()
            for device, (_, families) in enumerate(graph.machines[: graph.devices]):
                self._hold(memory, families, memory.room[device])

    # --- operations ---

    def _amount(self, of: Sequence[int], stage: int, expression: End | int) -> tuple[Term, int, int]:
        """What a stage has of something, with the least and the most of it in the box; a number where these are the same."""
        sums = [0, *accumulate(of)]
        (low, high), (least, most) = self._places[stage], self._places[stage + 1]
        fewest = min(sums[max(least, a + 1)] - sums[a] for a in range(low, min(high, most - 1) + 1))
        highest = sums[most] - sums[low]
        if fewest == highest:
            return fewest, fewest, fewest
        value = self.model.new_int_var(fewest, highest, "")
        self.model.add(value == expression)
        return value, fewest, highest

    def _family(self, stage: int, kind: Kind, of: Sequence[int], count: int) -> None:
        """The operations of a family, one after the other."""
        ends = (self.before if stage else self.first)[kind]
        duration, least, _ = self._amount(of, stage, ends[stage + 1] - ends[stage])
        starts, until, intervals = [], list[cp_model.LinearExpr](), []
        for _m in range(count):
            start = self.model.new_int_var(0, max(0, self.upper - least), "")
            if isinstance(duration, int):
                end: cp_model.LinearExpr = start + duration
                intervals.append(self.model.new_fixed_size_interval_var(start, duration, ""))
            else:
                end = self.model.new_int_var(0, self.upper, "")
                self.model.add(end == start + duration)
                intervals.append(self.model.new_interval_var(start, duration, end, ""))
            if until:
                self.model.add(start >= until[-1])
            starts.append(start)
            until.append(end)
        if until:
            self.model.add(until[-1] <= self.bound)
        self.start.append(starts)
        self.end.append(until)
        self._intervals.append(intervals)

    def _follow(self, scale: int) -> None:
        """What waits for what."""
        for before, after, shift, lag in self.graph.precedences:
            for end, start in zip(self.end[before], self.start[after][shift:], strict=False):
                self.model.add(start >= end + lag * scale)

    def _within_ways(self, reasons: Reasons, scale: int) -> None:
        """No operation starts before its head, nor ends behind its tail, both as chains of reasons that hold for every cut; nor
        within what its device does before and behind."""
        for before, behind, starts, ends in zip(*reasons.margins, self.start, self.end, strict=True):
            if starts:
                self.model.add(starts[0] >= self._time(before, scale))
                self.model.add(ends[-1] + self._time(behind, scale) <= self.bound)
        for o, (starts, ends) in enumerate(zip(self.start, self.end, strict=True)):
            for n, (start, end) in enumerate(zip(starts, reversed(ends), strict=True)):
                self.model.add(start >= self._least(reasons.head(o, n), scale))
                self.model.add(end + self._least(reasons.tail(o, n), scale) <= self.bound)

    # --- memory ---

    def _shifts(self) -> Shifts:
        """Which operation of a family is surely before which of another."""
        families = self.graph.families
        known = [Precede(families[before], families[after], shift=shift) for before, after, shift, _ in self.graph.precedences]
        return Shifts([*known, *(Precede(family, family, shift=1) for family in families)], families)

    def _hold(self, memory: Held, families: Sequence[int], room: int) -> None:
        """Whenever a forward of a device starts, what the device holds then has room."""
        of = {(self.graph.families[o].stage, self.graph.families[o].kind): o for o in families}
        stages = sorted({stage for stage, _ in of})
        early = [held - kept for held, kept in zip(memory.held, memory.kept, strict=True)]
        own: list[Term] = []
        parts: list[tuple[int, int, Term, int, int]] = []
        """Of each part of what a stage holds the families that take it and give it back, and the amount."""
        for stage in stages:
            taken = of[stage, Kind.F]
            gradient = of.get((stage, Kind.I), of.get((stage, Kind.B)))
            assert gradient is not None
            last = of.get((stage, Kind.W), gradient)
            for amounts, released in ((early, gradient), (memory.kept, last)) if last != gradient else ((memory.held, gradient),):
                ends = self.ends(amounts)
                amount = self._amount(amounts, stage, ends[stage + 1] - ends[stage])
                if amount[2]:
                    parts.append((taken, released, *amount))
            ends = self.ends(memory.own)
            own.append(self._amount(memory.own, stage, ends[stage + 1] - ends[stage])[0])
        for claim in (of[stage, Kind.F] for stage in stages):
            for j in range(self.graph.count[claim]):
                loads = [self._load(claim, j, *part) for part in parts]
                self.model.add(cp_model.LinearExpr.sum([*loads, *own]) <= room)

    def _load(self, claim: int, j: int, taken: int, released: int, amount: Term, least: int, most: int) -> Term:
        """What a stage holds when operation ``j`` of ``claim`` has started."""
        surely, perhaps = self._when(taken, claim, j)
        gone, going = self._when(released, claim, j)
        low, high = surely - gone - len(going), surely - gone + len(perhaps)
        number = cp_model.LinearExpr.sum([*perhaps, *(~literal for literal in going)]) + low
        if isinstance(amount, int):
            return number * amount
        load = self.model.new_int_var(0, most * max(high, 0), "")
        if low > 0:
            self.model.add(load >= low * amount)
        for k in range(max(low, 0) + 1, high + 1):
            reached = self.model.new_bool_var("")
            self.model.add(number <= k - 1).only_enforce_if(~reached)
            self.model.add(load >= k * amount).only_enforce_if(reached)
        return load

    def _when(self, family: int, claim: int, j: int) -> tuple[int, list[cp_model.IntVar]]:
        """How many operations of a family surely come before operation ``j`` of ``claim``, or are it, and literals that those do
        that may."""
        if family == claim:
            return j + 1, []
        count = self.graph.count[family]
        one, other = self.graph.families[family], self.graph.families[claim]
        first = min(max(j - self._shift(one, other) + 1, 0), count)
        last = max(first, min(j + self._shift(other, one), count))
        return first, [self._before(family, i, claim, j) for i in range(first, last)]

    def _before(self, family: int, i: int, claim: int, j: int) -> cp_model.IntVar:
        """That one operation of a device ends before another one starts; else it starts after that has ended."""
        turned = self._befores.get((claim, j, family, i))
        if turned is not None:
            return ~turned  # type: ignore[return-value]
        key = (family, i, claim, j)
        if key not in self._befores:
            literal = self._befores[key] = self.model.new_bool_var("")
            self.model.add(self.start[claim][j] >= self.end[family][i]).only_enforce_if(literal)
            self.model.add(self.start[family][i] >= self.end[claim][j]).only_enforce_if(~literal)
        return self._befores[key]

    # --- the answer ---

    def found(self, limits: Limits) -> FoundCut:
        """The best schedule on any cut of the box, as far as the limits let it be found.

        Raises:
            KeyboardInterrupt: a signal came before the search.
        """
        answer = race(self.model, limits, (DECIDING, DECIDING_PRESOLVED))
        if answer.known is Known.NONE:
            return FoundCut(self.upper + 1, none=True, settled=True)
        bound = max(self.lower, answer.bound)
        if not answer.found:
            return FoundCut(bound)
        rows = [sorted(self._timed(families, answer)) for _, families in self.graph.machines[: self.graph.devices]]
        found = tuple(tuple(op for *_, op in row) for row in rows)
        return FoundCut(bound, settled=answer.known is Known.BEST, counts=self._counts(answer), rows=found)

    def _timed(self, families: Sequence[int], answer: Answer) -> Iterator[tuple[int, int, int, int, Op]]:
        """The operations of a device with start, end and place; of those that take no time the earlier ones of the data first."""
        for o in families:
            family = self.graph.families[o]
            for m, (start, end) in enumerate(zip(self.start[o], self.end[o], strict=True)):
                yield answer.value(start), answer.value(end), m, o, Op(family.stage, Kind(family.kind), m)
