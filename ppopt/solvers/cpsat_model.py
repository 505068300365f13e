"""Words compiled to a CP-SAT model: one method per word; a word without one raises."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from functools import cached_property, singledispatchmethod
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from ppopt.constraints import (
    Capacity,
    Exclusive,
    Family,
    OneOf,
    Pairable,
    Precede,
    Stream,
    Together,
    Word,
    chosen,
    instances,
    operations,
    spread,
)
from ppopt.op import Kind, Send
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule, durations, halves, of_stages
from ppopt.solvers.couples import Couple, couples
from ppopt.solvers.shifts import Shifts

Literal = cp_model.IntVar


class NoRoom(ValueError):
    """An operation that has to be run takes longer than the horizon."""


class OutOfTime(Exception):
    """The model took too long to build."""


class Mode(NamedTuple):
    """A way to run an operation: its size in steps, and the literal that it is run so; ``None``: it always is."""

    size: int
    literal: Literal | None


class Paired(NamedTuple):
    """How an operation may be half of a pair; ``alone``: or of none; ``leads``: its intervals stand for the pair's."""

    modes: list[Mode]
    alone: bool
    leads: bool


class Model:
    """A CP-SAT model of ``words``, with starts in steps of ``grid`` ticks.

    Durations and lags are rounded down to the grid, so that ``grid`` times a lower bound of the model is one of the
    pipeline. ``objective`` is ``"makespan"`` or ``"span"``; every operation ends by ``horizon`` (steps), and the objective is in
    ``lower..upper``. With ``lower == upper`` it is a mere decision whether there is one of at most that.

    Two operations without duration that start at once may each be before the other here, for the memory or for different devices:
    a relaxation. With ``strict`` starts are counted in parts of a step, :attr:`parts` to one, and what takes no time takes one
    part, so that all that is before something else starts earlier; there are more parts in a step than such operations, so that
    rounded down to steps it is a schedule with the same objective.

    Variables are a start per operation (the halves of a pair share one), for those that may be left out a literal, and one for
    each two that may run as a pair. An operation that may be half of a pair has a size for each way to run it.

    ``start_by``: per device a step by which it has started, ``None`` where there is none; of a model of spans.
    ``until``: when to give up, by ``time.monotonic``.

    Raises:
        TypeError: a word that is not known here.
        ValueError: the words contradict each other.
        OutOfTime: building took too long.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        words: Iterable[Word],
        *,
        objective: str,
        horizon: int,
        lower: int,
        upper: int,
        grid: int = 1,
        strict: bool = False,
        start_by: Sequence[int | None] = (),
        until: float = math.inf,
    ) -> None:
        self.pipeline, self.words, self.grid, self.upper = pipeline, tuple(words), grid, upper
        self.model = cp_model.CpModel()
        forced, free = chosen(pipeline, self.words)
        paired = [instances(pipeline, word) for word in self.words if isinstance(word, Together)]
        self._partner = {int(a): int(b) for first, second in paired for a, b in zip(first, second, strict=True)}
        halves_of_pairs = {op: pair for pair in self._partner.items() for op in pair}
        self.present: dict[int, Literal | None] = dict.fromkeys(forced.tolist())
        self.present |= {op: self.model.new_bool_var(f"run {pipeline.index.op(op)}") for op in free.tolist()}
        """By operation: the literal that it is run; ``None`` = it always is; those never run are missing."""
        self.start: dict[int, cp_model.IntVar] = {}
        self.modes: dict[int, list[Mode]] = {}
        """By operation, the ways to run it; one of them is taken where it is run."""
        self.intervals: dict[int, list[cp_model.IntervalVar]] = {}
        numbers = np.array(list(self.present), dtype=np.int64)
        steps = durations(pipeline, numbers) // grid
        pairs = np.array([pipeline.index.pair(*pair) for pair in self._partner.items()], dtype=np.int64)
        together = durations(pipeline, pairs) // grid
        free_pairs = couples(pipeline, self.words, set(self.present).difference(halves_of_pairs))
        at_once = {forward for forward, _, overlap in free_pairs if overlap < grid}
        self._most = int((steps == 0).sum() + (together == 0).sum()) + len(at_once) if strict else 0
        """Parts that operations without duration may take in all."""
        self.parts = self._most + 1
        self.horizon = horizon * self.parts + self._most
        self._until_the_end = objective == "makespan"  # whether the horizon is that of what follows the last operations, too
        self.couple: dict[tuple[int, int], Literal] = {}
        """By forward and backward that may run as a pair, the literal that they do."""
        self._couple_size: dict[tuple[int, int], int] = {}
        self._never_alone: set[int] = set()
        self._alone: dict[int, Literal] = {}
        self._one_of_pairs: dict[tuple[int, int], Literal] = {}  # by operation and size, where there are several such pairs
        pairable = self._pair_up(free_pairs)
        for op, duration in zip(numbers.tolist(), steps.tolist(), strict=True):
            if op not in halves_of_pairs:
                self._add(op, str(pipeline.index.op(op)), self._size(duration), self.present[op], pairable.get(op))
        for (forward, backward), literal in self.couple.items():
            self.model.add(self.start[forward] == self.start[backward]).only_enforce_if(literal)
        for (forward, backward), number, duration in zip(self._partner.items(), pairs.tolist(), together.tolist(), strict=True):
            for op in (forward, backward):
                if op not in self.present:
                    raise ValueError(f"{pipeline.index.op(op)} is one half of a pair, and left out by another word")
                if self.present[op] is not None:
                    self.model.add(self.present[op] == 1)
                    self.present[op] = None
            self._add(forward, str(pipeline.index.op(number)), self._size(duration), None)
            self.start[backward], self.modes[backward] = self.start[forward], self.modes[forward]
            self.intervals[backward] = self.intervals[forward]
        self._holds: list[tuple[cp_model.IntVar, int, Sequence[int]]] = []
        self._untils: list[tuple[cp_model.IntVar, Sequence[int]]] = []
        self._befores: dict[tuple[tuple[int, ...], int], Literal] = {}
        self._later: dict[int, int] = {}
        self._earlier: dict[tuple[int, ...], tuple[int, ...]] = {}
        """The next or the one before of families that run in order."""
        self._followed: set[int] = set()
        self._until = until
        for word in self.words:
            if time.monotonic() > until:
                raise OutOfTime
            self.post(word)
        self._monotone()
        self.decision = lower == upper
        """Whether nothing is minimised."""
        self.objective: cp_model.IntVar | None = None
        self._bounds: list[tuple[cp_model.IntVar, cp_model.IntVar, IntArray]] = []
        if objective == "span":
            self._span(lower, upper, start_by)
        elif lower < upper:
            self._makespan(lower, upper)

    def _add(self, op: int, name: str, size: int, present: Literal | None, paired: Paired | None = None) -> None:
        """An operation of that size, or run in a pair."""
        if paired is None:
            modes = [Mode(size, present)]
        else:
            modes = list(paired.modes)
            if paired.alone:
                self._alone[op] = self.model.new_bool_var(f"{name} alone")
                modes.insert(0, Mode(size, self._alone[op]))
            ways = [literal for _, literal in modes if literal is not None]
            self.model.add_exactly_one(ways if present is None else [*ways, ~present])
        before, after = map(max, *(self._traffic(half) for half in (op, self._partner.get(op, op))))
        room = self.horizon - before - after * self._until_the_end
        for way, literal in modes:
            if way > room and literal is None:
                raise NoRoom(f"{name} takes {way // self.parts} of {room // self.parts} steps")
            if way > room:
                self.model.add(literal == 0)
        modes = [Mode(min(way, max(room, 0)), literal) for way, literal in modes] or [Mode(0, present)]
        start = self.model.new_int_var(before, before + max(room, 0) - min(way for way, _ in modes), name)
        self.start[op], self.modes[op] = start, modes
        self.intervals[op] = [
            self.model.new_fixed_size_interval_var(start, way, name)
            if literal is None
            else self.model.new_optional_fixed_size_interval_var(start, way, literal, name)
            for way, literal in modes[: None if paired is None or paired.leads else len(modes) - len(paired.modes)]
        ]

    def _traffic(self, op: int) -> tuple[int, int]:
        """What the stage of an operation has to wait for before its first one, and what follows its last one, in parts."""
        index, ticks = self.pipeline.index, self.pipeline.ticks
        if op >= index.computations:
            return 0, 0
        family, microbatch = divmod(op, index.microbatches)
        at = self.pipeline.route_of_microbatch[microbatch], family % index.stages
        return tuple(int(of[at]) // self.grid * self.parts for of in (ticks.gather, ticks.scatter))  # type: ignore[return-value]

    def _size(self, steps: int) -> int:
        """In parts of a step."""
        return steps * self.parts if steps or self.parts == 1 else 1

    def _pair_up(self, free: Iterable[Couple]) -> dict[int, Paired]:
        """Make the literals of all couples; by operation how it may be run in a pair."""
        alone: dict[int, bool] = {}
        for word in self.words:
            if isinstance(word, Pairable):
                alone |= dict.fromkeys((op for family in word.forwards for op in self._ops(family)), True)
                alone |= dict.fromkeys((op for family in word.backwards for op in self._ops(family)), word.alone)
        ways: dict[int, dict[int, list[Literal]]] = {op: {} for op in alone}
        for forward, backward, overlap in free:
            name = str(self.pipeline.index.op(self.pipeline.index.pair(forward, backward)))
            literal = self.couple[forward, backward] = self.model.new_bool_var(name)
            self._couple_size[forward, backward] = self._size(overlap // self.grid)
            for op in (forward, backward):
                ways[op].setdefault(self._size(overlap // self.grid), []).append(literal)
        self._never_alone.update(op for op in alone if not alone[op])
        for op, of in ways.items():
            for size, literals in of.items():
                if len(literals) > 1:
                    one = self._one_of_pairs[op, size] = self.model.new_bool_var(f"{self.pipeline.index.op(op)} in a pair")
                    self.model.add(cp_model.LinearExpr.sum(literals) == one)
                    of[size] = [one]
        leading = {forward for forward, _ in self.couple}
        return {
            op: Paired([Mode(size, literal) for size, (literal,) in of.items()], alone[op], op in leading)
            for op, of in ways.items()
            if of or not alone[op]
        }

    def _ops(self, stream: Stream) -> list[int]:
        return [op for op in operations(self.pipeline, stream).tolist() if op in self.present]

    def _ends_before(self, a: int, b: int, lag: int, given: Sequence[cp_model.LiteralT]) -> None:
        """Operation b starts ``lag`` or more after the end of a, where all literals ``given`` hold and a is run."""
        least = min(size for size, _ in self.modes[a])
        run = self.present[a]
        constraint = self.model.add(self.start[b] >= self.start[a] + (least + lag))
        constraint.only_enforce_if(given if run is None else [*given, run])
        for size, literal in self.modes[a]:
            if size > least and literal is not None:
                self.model.add(self.start[b] >= self.start[a] + (size + lag)).only_enforce_if([*given, literal])

    # --- the words ---

    @singledispatchmethod
    def post(self, word: object) -> None:
        """Add a word's constraints."""
        raise TypeError(f"the CP-SAT model does not know the word {word!r}")

    @post.register
    def _(self, word: Precede) -> None:
        lag = word.lag // self.grid * self.parts
        before, after = instances(self.pipeline, word)
        for a, b in zip(before.tolist(), after.tolist(), strict=True):
            if a not in self.present or b not in self.present:
                continue
            literal = self.present[b]
            self._ends_before(a, b, lag, [] if literal is None else [literal])
            if literal is None and self._traffic(a)[1] <= self._traffic(b)[1]:
                self._followed.add(a)
            for couple in ((a, b), (b, a)):
                if couple in self.couple:
                    self.model.add(self.couple[couple] == 0)

    @post.register
    def _(self, word: Exclusive) -> None:
        self.model.add_no_overlap(self._intervals(word))

    def _intervals(self, word: Exclusive) -> list[cp_model.IntervalVar]:
        """A pair is one interval, its forward's; but its backward's where the forward is not among these."""
        ops = dict.fromkeys(op for stream in word.streams for op in self._ops(stream))
        firsts = {second: first for first, second in self._partner.items()}
        found = [interval for op in ops if firsts.get(op, -1) not in ops for interval in self.intervals[op]]
        for (forward, backward), literal in self.couple.items():
            if backward in ops and forward not in ops:
                start, size = self.start[backward], self._couple_size[forward, backward]
                found.append(self.model.new_optional_fixed_size_interval_var(start, size, literal, ""))
        return found

    @post.register
    def _(self, word: Capacity) -> None:
        if all(self._shift(hold.claim, hold.claim) == 1 for hold in word.holds) and not spread(self.pipeline, word):
            self._counted(word)
        else:
            self._cumulated(word)

    @cached_property
    def _shift(self) -> Shifts:
        stages, routes = range(self.pipeline.stages), range(len(self.pipeline.routes))
        families = (Family(stage, kind, route) for stage in stages for kind in (*Kind, *Send) for route in routes)
        run = [f for f in families if all(self.present.get(op, 0) is None for op in operations(self.pipeline, f).tolist())]
        return Shifts(self.words, run)

    def _counted(self, word: Capacity) -> None:
        """Memory grows only when something is claimed: what is held then fits, said with a literal for each claim and
        release that may or may not have come before. Far stronger than intervals of unknown length where microbatches run
        in order, since most of these literals are then known."""
        columns = [
            (
                hold,
                operations(self.pipeline, hold.claim).tolist(),
                list(zip(*(operations(self.pipeline, family).tolist() for family in hold.release), strict=True)),
            )
            for hold in word.holds
        ]
        at: dict[int, tuple[Family, int]] = {op: (hold.claim, j) for hold, claims, _ in columns for j, op in enumerate(claims)}
        for now, (family, j) in at.items():
            if time.monotonic() > self._until:
                raise OutOfTime
            held, terms, counts = 0, [], []
            for hold, claims, releases in columns:
                first, last = self._decided(hold.claim, family, j, len(claims))
                held += hold.amount * first
                if hold.claim == family:
                    held += hold.amount
                    last = first
                for t in range(first, last):
                    terms.append(self._before([claims[t]], now))
                    counts.append(hold.amount)
                bounds = [self._decided(release, family, j, len(claims)) for release in hold.release]
                first, last = min(a for a, _ in bounds), max(b for _, b in bounds)
                held -= hold.amount * first
                for t in range(first, last):
                    run = [op for op in releases[t] if op in self.present]
                    if all(self.start[op] is not self.start[now] for op in run):
                        terms.append(self._before(run, now))
                        counts.append(-hold.amount)
            if held + sum(count for count in counts if count > 0) > word.limit:
                self.model.add(cp_model.LinearExpr.weighted_sum(terms, counts) <= word.limit - held)
        for hold, claims, releases in columns:
            self._later |= pairwise(claims)
            self._earlier |= {(second,): (first,) for first, second in pairwise(claims)}
            if all(self._shift(a, b) <= 1 for a in hold.release for b in hold.release):
                run = [tuple(op for op in ops if op in self.present) for ops in releases]
                self._earlier |= {second: first for first, second in pairwise(run)}

    def _monotone(self) -> None:
        """Families run in order: what is before a claim is before the next one of its family, and all earlier ones of its own
        family are before that claim. Propagation knows it only once the starts are nearly known."""
        for (ops, now), literal in self._befores.items():
            for key in ((ops, self._later.get(now, -1)), (self._earlier.get(ops, ()), now)):
                if (implied := self._befores.get(key)) is not None:
                    self.model.add_implication(literal, implied)

    def _decided(self, before: Family, after: Family, j: int, count: int) -> tuple[int, int]:
        """Of ``before``, operations 0..a-1 surely precede ``after(j)``, and those from b on surely do not."""
        first = min(max(j - self._shift(before, after) + 1, 0), count)
        return first, max(first, min(j + self._shift(after, before), count))

    def _before(self, ops: Sequence[int], now: int) -> Literal:
        """That whichever of ``ops`` is run ends before ``now`` starts; if not, it starts after ``now`` ends."""
        key = (tuple(ops), now)
        if key not in self._befores:
            name = " or ".join(str(self.pipeline.index.op(op)) for op in ops)
            literal = self._befores[key] = self.model.new_bool_var(f"{name} before {self.pipeline.index.op(now)}")
            for op in ops:
                self._ends_before(op, now, 0, [literal])
                couple = self.couple.get((now, op))
                apart = [] if couple is None else [~couple]
                run = self.present[op]
                self._ends_before(now, op, 0, [~literal, *apart, *([] if run is None else [run])])
                if couple is not None:
                    self.model.add_implication(couple, ~literal)
        return self._befores[key]

    def _cumulated(self, word: Capacity) -> None:
        intervals, demands = [], []
        for hold in word.holds:
            claims = operations(self.pipeline, hold.claim).tolist()
            releases = [operations(self.pipeline, family).tolist() for family in hold.release]
            for claim, *alternatives in zip(claims, *releases, strict=True):
                run = [op for op in alternatives if op in self.present]
                intervals.append(self._hold(claim, run))
                demands.append(hold.amount)
        self.model.add_cumulative(intervals, demands, word.limit)

    def _hold(self, claim: int, releases: Sequence[int]) -> cp_model.IntervalVar:
        """From the start of ``claim`` to the end of whichever of ``releases`` is run."""
        name = f"hold {self.pipeline.index.op(claim)}"
        size = self.model.new_int_var(0, self.horizon, name)
        end: cp_model.LinearExprT
        modes = [(op, mode) for op in releases for mode in self.modes[op]]
        if len(modes) == 1:
            end = self.start[releases[0]] + self.modes[releases[0]][0].size
        else:
            end = self.model.new_int_var(0, self.horizon, name)
            for op, (way, literal) in modes:
                same = self.model.add(end == self.start[op] + way)
                if literal is not None:
                    same.only_enforce_if(literal)
            self._untils.append((end, releases))
        self._holds.append((size, claim, releases))
        return self.model.new_interval_var(self.start[claim], size, end, name)

    @post.register
    def _(self, word: Together) -> None:
        """The halves share their variables already; each is run."""

    @post.register
    def _(self, word: Pairable) -> None:
        """The operations have their sizes and their literals already."""

    @post.register
    def _(self, word: OneOf) -> None:
        columns = [[operations(self.pipeline, stream).tolist() for stream in streams] for streams in word.alternatives]
        for alternatives in zip(*(zip(*column, strict=True) for column in columns), strict=True):
            self._one_of(alternatives)

    def _one_of(self, alternatives: Sequence[Sequence[int]]) -> None:
        possible = [ops for ops in alternatives if all(op in self.present for op in ops)]
        if len(possible) == 1:
            for op in possible[0]:
                if self.present[op] is not None:
                    self.model.add(self.present[op] == 1)
            return
        taken = []
        for ops in possible:
            literal = self.present[ops[0]]
            assert literal is not None, "one alternative is forced, so the others are left out"
            taken.append(literal)
            for op in ops[1:]:
                self.model.add(self.present[op] == literal)
        self.model.add_exactly_one(taken)

    # --- the objective ---

    def _makespan(self, lower: int, upper: int) -> None:
        self.objective = self.model.new_int_var(lower, upper, "makespan")
        for op, start in self.start.items():
            if op not in self._followed:
                for way, literal in self.modes[op]:
                    end_by = self.model.add(self.objective * self.parts + self._most >= start + (way + self._traffic(op)[1]))
                    if literal is not None:
                        end_by.only_enforce_if(literal)
        self.model.minimize(self.objective)

    def _span(self, lower: int, upper: int, start_by: Sequence[int | None]) -> None:
        self.objective = self.model.new_int_var(lower, upper, "span")
        for word in self.words:
            if not isinstance(word, Exclusive) or not word.computes or spread(self.pipeline, word):
                continue
            ops = np.array(list(dict.fromkeys(op for stream in word.streams for op in self._ops(stream))), dtype=np.int64)
            if not len(ops):
                continue
            traffic = {op: self._traffic(op) for op in ops.tolist()}
            by = start_by[int(of_stages(self.pipeline, ops[:1], self.pipeline.device_of)[0])] if start_by and len(ops) else None
            latest = self.horizon if by is None else min(self.horizon, by * self.parts + self._most)
            first = self.model.new_int_var(0, latest, "begin")
            span = self.upper * self.parts + self._most
            longest = max((after for _, after in traffic.values()), default=0)
            last = self.model.new_int_var(0, self.horizon + max(span, longest), "end")
            for op, (before, after) in traffic.items():
                enforced = [] if self.present[op] is None else [self.present[op]]
                self.model.add(first <= self.start[op] - before).only_enforce_if(enforced)
                for way, literal in self.modes[op]:
                    self.model.add(last >= self.start[op] + (way + after)).only_enforce_if([] if literal is None else [literal])
            if self.parts > 1:
                self.model.add_modulo_equality(0, first, self.parts)
            self.model.add(self.objective * self.parts + self._most >= last - first)
            if self.decision:
                self.model.add(last == first + span)
                if not self.couple and not self._partner:
                    self._within(first, span, ops.tolist())
            self._bounds.append((first, last, ops))
        if self.decision:
            begins = [first for first, _, _ in self._bounds]
            self.model.add_decision_strategy(begins, cp_model.CHOOSE_FIRST, cp_model.SELECT_LOWER_HALF)
        else:
            self.model.minimize(self.objective)

    def _within(self, first: cp_model.IntVar, span: int, ops: Sequence[int]) -> None:
        """No two operations of a device at once, said again of their times since its ``first`` start, a variable: in a ``span``
        that is given these times are known far better than those since the schedule's begin, as long as devices may begin
        early or late."""
        intervals = []
        for op in ops:
            ((way, literal),) = self.modes[op]
            since = self.model.new_int_var(0, max(0, span - way), "")
            same = self.model.add(self.start[op] == first + since)
            if literal is None:
                intervals.append(self.model.new_fixed_size_interval_var(since, way, ""))
            else:
                same.only_enforce_if(literal)
                intervals.append(self.model.new_optional_fixed_size_interval_var(since, way, literal, ""))
        self.model.add_no_overlap(intervals)

    # --- schedules in and out ---

    def hint(self, schedule: Schedule) -> None:
        """Suggest ``schedule``: a value for every variable. A ``B`` that the words split is taken as ``I``, then ``W``."""
        index, hint = self.pipeline.index, self.model.add_hint
        begin: dict[int, int] = {}
        pairs: set[tuple[int, int]] = set()
        transfers = schedule.transfers
        for row, starts in zip((*schedule.order.rows, *transfers.rows), (*schedule.start, *transfers.start), strict=True):
            first, second = halves(index, row)
            pairs |= self.couple.keys() & set(zip(first.tolist(), second.tolist(), strict=True))
            for half in (first, second):
                chosen_ = half >= 0
                begin |= zip(half[chosen_].tolist(), (starts[chosen_] // self.grid).tolist(), strict=True)
        earliest = schedule.begin // self.grid
        begin = {op: time - earliest for op, time in begin.items()}
        together = {op for pair in pairs for op in pair}
        slots = index.stages * index.microbatches
        for op in [op for op in begin if op not in self.present or (op in self._never_alone and op not in together)]:
            input_, weight = op + (Kind.I - Kind.B) * slots, op + (Kind.W - Kind.B) * slots
            begin[input_] = begin.pop(op)
            begin[weight] = begin[input_] + self.modes[input_][0].size
        for couple, literal in self.couple.items():
            hint(literal, couple in pairs)
        size_of = {op: modes[0].size for op, modes in self.modes.items()}
        for forward, backward in pairs:
            overlap = int(durations(self.pipeline, np.array([index.pair(forward, backward)]))[0])
            size_of[forward] = size_of[backward] = self._size(overlap // self.grid)
        end = {op: time + size_of[op] for op, time in begin.items()}
        for op, literal in self._alone.items():
            hint(literal, op in begin and op not in together)
        for (op, way), literal in self._one_of_pairs.items():
            hint(literal, op in together and size_of[op] == way)
        seconds = set(self._partner.values())
        for op, variable in self.start.items():
            if op not in seconds:
                hint(variable, min(begin.get(op, 0), self.horizon))
            if (present := self.present[op]) is not None:
                hint(present, op in begin)
        for size, claim, releases in self._holds:
            hint(size, max(end[op] for op in releases if op in end) - begin[claim])
        for until, releases in self._untils:
            hint(until, max(end[op] for op in releases if op in end))
        for (ops, now), literal in self._befores.items():
            hint(literal, max(end[op] for op in ops if op in end) <= begin[now])
        over = {op: time + self._traffic(op)[1] for op, time in end.items()}
        spans = []
        for first_start, last_end, of_device in self._bounds:
            since = min(begin[op] - self._traffic(op)[0] for op in of_device.tolist() if op in begin)
            latest = max(over[op] for op in of_device.tolist() if op in over)
            hint(first_start, since)
            hint(last_end, latest)
            spans.append(latest - since)
        if self.objective is not None:
            hint(self.objective, max(spans) if spans else max(over.values()))

    def found(self, solver: cp_model.CpSolver) -> tuple[IntArray, IntArray]:
        """A found schedule: the numbers of the operations that are run (pairs as one), and their starts in parts of steps."""
        index, partner = self.pipeline.index, dict(self._partner)
        partner |= dict(couple for couple, literal in self.couple.items() if solver.boolean_value(literal))
        seconds = set(partner.values())
        numbers, starts = [], []
        for op, variable in self.start.items():
            literal = self.present[op]
            if op in seconds or (literal is not None and not solver.boolean_value(literal)):
                continue
            numbers.append(index.pair(op, partner[op]) if op in partner else op)
            starts.append(solver.value(variable))
        return np.array(numbers, dtype=np.int64), np.array(starts, dtype=np.int64)

    def value(self, solver: cp_model.CpSolver, objective: str) -> int:
        """The found objective in steps."""
        if objective == "span":
            return max(solver.value(last) - solver.value(first) for first, last, _ in self._bounds) // self.parts
        return self.upper if self.objective is None else solver.value(self.objective)
