"""The variables of single operations: when each starts, whether it is run, how, and as half of what pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from ppopt.constraints import Pairable, Stream, Together, Word, chosen, instances, margins, operations
from ppopt.constraints.couples import Couple, couples
from ppopt.cpsat.posting import Literal, interval, start_earlier, waits
from ppopt.pipeline import Pipeline
from ppopt.schedule import durations


class NoRoom(ValueError):
    """An operation that has to be run takes longer than the horizon."""


class Mode(NamedTuple):
    """A way to run an operation: its size in steps, and the literal that it is run so; ``None``: it always is."""

    size: int
    literal: Literal | None


class Paired(NamedTuple):
    """How an operation may be half of a pair; ``alone``: or of none; ``leads``: its intervals stand for the pair's."""

    modes: list[Mode]
    alone: bool
    leads: bool


class Operations:
    """A start per operation (the halves of a pair share one), a literal for those that may be left out and for each couple.

    Times are in steps of ``grid`` ticks, durations rounded down; in parts of a step with ``strict``
    (:class:`~ppopt.cpsat.model.Model`). Every operation ends by ``horizon`` steps, and with ``to_the_end`` also what follows the
    last operations. An operation that may be half of a pair has a size for each way to run it.

    Raises:
        ValueError: one half of a pair is left out by another word.
        NoRoom: an operation that has to be run takes longer than the horizon.
    """

    def __init__(
        self, pipeline: Pipeline, words: Iterable[Word], *, horizon: int, grid: int, strict: bool, to_the_end: bool
    ) -> None:
        self.pipeline, self.words, self.grid = pipeline, tuple(words), grid
        self.model = cp_model.CpModel()
        forced, free = chosen(pipeline, self.words)
        paired = [instances(pipeline, word) for word in self.words if isinstance(word, Together)]
        self.partner = {int(a): int(b) for first, second in paired for a, b in zip(first, second, strict=True)}
        """By first half the second one, of the pairs that the words demand."""
        self.present: dict[int, Literal | None] = dict.fromkeys(forced.tolist())
        self.present |= {op: self.model.new_bool_var(f"run {pipeline.index.op(op)}") for op in free.tolist()}
        """By operation: the literal that it is run; ``None`` = it always is; those never run are missing."""
        self.start: dict[int, cp_model.IntVar] = {}
        self.modes: dict[int, list[Mode]] = {}
        """By operation, the ways to run it; one of them is taken where it is run."""
        self.intervals: dict[int, list[cp_model.IntervalVar]] = {}
        numbers = np.array(list(self.present), dtype=np.int64)
        steps = durations(pipeline, numbers) // grid
        pairs = np.array([pipeline.index.pair(*pair) for pair in self.partner.items()], dtype=np.int64)
        together = durations(pipeline, pairs) // grid
        halves_of_pairs = {op for pair in self.partner.items() for op in pair}
        free_pairs = couples(pipeline, self.words, set(self.present).difference(halves_of_pairs))
        at_once = {forward for forward, _, overlap in free_pairs if overlap < grid}
        self.slack = int((steps == 0).sum() + (together == 0).sum()) + len(at_once) if strict else 0
        """Parts that operations without duration may take in all."""
        self.parts = self.slack + 1
        """Of a step."""
        self.horizon = horizon * self.parts + self.slack
        self._to_the_end = to_the_end
        lead, tail = ((of // grid * self.parts).tolist() for of in margins(pipeline, self.words, numbers))
        self._margins: dict[int, tuple[int, int]] = dict(zip(numbers.tolist(), zip(lead, tail, strict=True), strict=True))
        self.couple: dict[tuple[int, int], Literal] = {}
        """By forward and backward that may run as a pair, the literal that they do."""
        self.couple_size: dict[tuple[int, int], int] = {}
        self.never_alone: set[int] = set()
        """Operations that are run as half of a pair, if at all."""
        self.alone: dict[int, Literal] = {}
        """By operation that may be half of a pair, the literal that it is none."""
        self.one_of_pairs: dict[tuple[int, int], Literal] = {}
        """By operation and size, where there are several such pairs, the literal that it is run in one of them."""
        pairable = self._pair_up(free_pairs)
        for op, duration in zip(numbers.tolist(), steps.tolist(), strict=True):
            if op not in halves_of_pairs:
                self._add(op, str(pipeline.index.op(op)), self.size(duration), self.present[op], pairable.get(op))
        for (forward, backward), literal in self.couple.items():
            self.model.add(self.start[forward] == self.start[backward]).only_enforce_if(literal)
        for pair, number, duration in zip(self.partner.items(), pairs.tolist(), together.tolist(), strict=True):
            self._add_pair(*pair, str(pipeline.index.op(number)), self.size(duration))

    def of(self, stream: Stream) -> list[int]:
        """The operations of a stream that may be run."""
        return [op for op in operations(self.pipeline, stream).tolist() if op in self.present]

    def size(self, steps: int) -> int:
        """In parts of a step."""
        return steps * self.parts if steps or self.parts == 1 else 1

    def margins(self, op: int) -> tuple[int, int]:
        """How long before an operation its device begins at least, and how long after it that ends, in parts."""
        return self._margins.get(op, (0, 0))

    def ends_before(self, a: int, b: int, lag: int, given: Sequence[cp_model.LiteralT]) -> None:
        """Operation b starts ``lag`` or more after the end of a, where all literals ``given`` hold and a is run."""
        modes, run = self.modes[a], self.present[a]
        least = modes[0].size if len(modes) == 1 else min(size for size, _ in modes)
        waits(self.model, self.start[a], self.start[b], least + lag, given if run is None else [*given, run])
        for size, literal in modes:
            if size > least and literal is not None:
                waits(self.model, self.start[a], self.start[b], size + lag, [*given, literal])

    def on_machine(self, streams: Iterable[Stream]) -> list[cp_model.IntervalVar]:
        """The intervals of streams. A pair is one, its forward's; but its backward's where the forward is not among these."""
        ops = dict.fromkeys(op for stream in streams for op in self.of(stream))
        firsts = {second: first for first, second in self.partner.items()}
        found = [one for op in ops if firsts.get(op, -1) not in ops for one in self.intervals[op]]
        for (forward, backward), literal in self.couple.items():
            if backward in ops and forward not in ops:
                found.append(interval(self.model, self.start[backward], self.couple_size[forward, backward], literal))
        return found

    def shorten(self, model: cp_model.CpModel, less: int) -> None:
        """Let all operations of a copy of the model end that many steps earlier."""
        less *= self.parts
        for op, start in {start.index: (op, start) for op, start in self.start.items()}.values():  # a pair's is one
            present = self.present[op]
            start_earlier(model, start, less, [] if present is None else [present])
            for size, literal in self.modes[op]:
                if size > self._room(op)[1] - less and literal is not None:
                    model.add_bool_or([~literal])

    # --- how they are made ---

    def _add(self, op: int, name: str, size: int, present: Literal | None, paired: Paired | None = None) -> None:
        """An operation of that size, or run in a pair."""
        if paired is None:
            modes = [Mode(size, present)]
        else:
            modes = list(paired.modes)
            if paired.alone:
                self.alone[op] = self.model.new_bool_var(f"{name} alone")
                modes.insert(0, Mode(size, self.alone[op]))
            ways = [literal for _, literal in modes if literal is not None]
            self.model.add_exactly_one(ways if present is None else [*ways, ~present])
        before, room = self._room(op)
        for way, literal in modes:
            if way > room and literal is None:
                raise NoRoom(f"{name} takes {way // self.parts} of {room // self.parts} steps")
            if way > room:
                self.model.add(literal == 0)
        modes = [Mode(min(way, max(room, 0)), literal) for way, literal in modes] or [Mode(0, present)]
        start = self.model.new_int_var(before, before + max(room, 0) - min(way for way, _ in modes), name)
        self.start[op], self.modes[op] = start, modes
        own = modes if paired is None or paired.leads else modes[: len(modes) - len(paired.modes)]
        self.intervals[op] = [interval(self.model, start, way, literal, name) for way, literal in own]

    def _room(self, op: int) -> tuple[int, int]:
        """The earliest start of an operation, and how long after that it may end."""
        before, after = map(max, *(self.margins(half) for half in (op, self.partner.get(op, op))))
        return before, self.horizon - before - after * self._to_the_end

    def _add_pair(self, forward: int, backward: int, name: str, size: int) -> None:
        """A pair that the words demand; both halves are run."""
        for op in (forward, backward):
            if op not in self.present:
                raise ValueError(f"{self.pipeline.index.op(op)} is one half of a pair, and left out by another word")
            if self.present[op] is not None:
                self.model.add(self.present[op] == 1)
                self.present[op] = None
        self._add(forward, name, size, None)
        self.start[backward], self.modes[backward] = self.start[forward], self.modes[forward]
        self.intervals[backward] = self.intervals[forward]

    def _pair_up(self, free: Iterable[Couple]) -> dict[int, Paired]:
        """Make the literals of all couples; by operation how it may be run in a pair."""
        alone: dict[int, bool] = {}
        for word in self.words:
            if isinstance(word, Pairable):
                alone |= dict.fromkeys((op for family in word.forwards for op in self.of(family)), True)
                alone |= dict.fromkeys((op for family in word.backwards for op in self.of(family)), word.alone)
        ways: dict[int, dict[int, list[Literal]]] = {op: {} for op in alone}
        for forward, backward, overlap in free:
            name = str(self.pipeline.index.op(self.pipeline.index.pair(forward, backward)))
            literal = self.couple[forward, backward] = self.model.new_bool_var(name)
            size = self.couple_size[forward, backward] = self.size(overlap // self.grid)
            for op in (forward, backward):
                ways[op].setdefault(size, []).append(literal)
        self.never_alone.update(op for op in alone if not alone[op])
        for op, of in ways.items():
            for size, literals in of.items():
                if len(literals) > 1:
                    one = self.one_of_pairs[op, size] = self.model.new_bool_var(f"{self.pipeline.index.op(op)} in a pair")
                    self.model.add(cp_model.LinearExpr.sum(literals) == one)
                    of[size] = [one]
        leading = {forward for forward, _ in self.couple}
        return {
            op: Paired([Mode(size, literal) for size, (literal,) in of.items()], alone[op], op in leading)
            for op, of in ways.items()
            if of or not alone[op]
        }
