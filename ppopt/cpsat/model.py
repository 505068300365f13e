"""Words compiled to a CP-SAT model: one method per word; a word without one raises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatchmethod
from itertools import combinations, product

from ortools.sat.python import cp_model

from ppopt.clock import Clock
from ppopt.constraints import (
    Capacity,
    Exclusive,
    Lead,
    Maybe,
    OneOf,
    Pairable,
    Precede,
    Tail,
    Together,
    Turns,
    Word,
    instances,
    operations,
)
from ppopt.cpsat.engine import no_time_to_build
from ppopt.cpsat.memory import Memory
from ppopt.cpsat.objective import Spans, post_makespan
from ppopt.cpsat.operations import Operations
from ppopt.cpsat.posting import machine
from ppopt.cpsat.running import Solution
from ppopt.cpsat.solutions import found_in, hint
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Objective, Schedule
from ppopt.solvers.device_times import NOTHING_KNOWN, DeviceTimes


class OutOfTime(Exception):
    """The model took too long to build."""


class Model:
    """A CP-SAT model of ``words``, with starts in steps of ``grid`` ticks.

    Durations and lags are rounded down to the grid, so that ``grid`` times a lower bound of the model is one of the
    pipeline. Every operation ends by ``horizon`` (steps), and the objective is in ``lower..upper``. With ``lower == upper`` it is
    a mere decision whether there is one of at most that.

    Two operations without duration that start at once may each be before the other here, for the memory or for different devices:
    a relaxation. With ``strict`` starts are counted in parts of a step, :attr:`parts` to one, and what takes no time takes one
    part, so that all that is before something else starts earlier; there are more parts in a step than such operations, so that
    rounded down to steps it is a schedule with the same objective.

    ``known``: of a model of spans, what is proved of the times of devices, in steps.
    ``clock``: building is given up where nothing is left of it.

    Raises:
        TypeError: a word that is not known here.
        ValueError: the words contradict each other.
        NoRoom: an operation that has to be run takes longer than the horizon.
        OutOfTime: building took too long.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        words: Iterable[Word],
        *,
        objective: Objective,
        horizon: int,
        lower: int,
        upper: int,
        grid: int = 1,
        strict: bool = False,
        known: DeviceTimes = NOTHING_KNOWN,
        clock: Clock | None = None,
    ) -> None:
        self.pipeline, self.words, self.grid, self.upper = pipeline, tuple(words), grid, upper
        to_the_end = objective == "makespan"
        self.ops = Operations(pipeline, self.words, horizon=horizon, grid=grid, strict=strict, to_the_end=to_the_end)
        self.model, self.parts = self.ops.model, self.ops.parts
        self.start, self.modes = self.ops.start, self.ops.modes
        self._clock = clock
        self.memory = Memory(self.ops, self._check)
        self._followed: set[int] = set()
        for word in self.words:
            self._check()
            self.post(word)
        self.memory.post_order()
        self.decision = lower == upper
        """Whether nothing is minimised."""
        self.spans = Spans(self.ops, lower, upper, known) if objective == "span" else None
        self.objective: cp_model.IntVar | None = None if self.spans is None else self.spans.value
        if self.spans is None and not self.decision:
            self.objective = post_makespan(self.ops, lower, upper, self._followed)

    def _check(self) -> None:
        if self._clock is not None and no_time_to_build(self.model, self._clock):
            raise OutOfTime

    # --- the words ---

    @singledispatchmethod
    def post(self, word: object) -> None:
        """Add a word's constraints.

        Raises:
            TypeError: a word that CP-SAT's model cannot say.
        """
        raise TypeError(f"the CP-SAT model does not know the word {word!r}")

    @post.register
    def _(self, word: Precede) -> None:
        ops = self.ops
        lag = word.lag // self.grid * self.parts
        before, after = instances(self.pipeline, word)
        for a, b in zip(before.tolist(), after.tolist(), strict=True):
            if a not in ops.present or b not in ops.present:
                continue
            literal = ops.present[b]
            ops.ends_before(a, b, lag, [] if literal is None else [literal])
            if literal is None and ops.margins(a)[1] <= ops.margins(b)[1]:
                self._followed.add(a)
            for couple in ((a, b), (b, a)):
                if couple in ops.couple:
                    self.model.add(ops.couple[couple] == 0)

    @post.register
    def _(self, word: Exclusive) -> None:
        machine(self.model, self.ops.on_machine(word.streams))

    @post.register
    def _(self, word: Capacity) -> None:
        self.memory.post(word)

    @post.register
    def _(self, word: Lead | Tail) -> None:
        """What a device does before and after its operations is part of the objective."""

    @post.register
    def _(self, word: Turns) -> None:
        ops = self.ops
        runs = [(turn, [op for family in turn.families for op in ops.of(family)]) for turn in word.turns]
        for (one, firsts), (other, seconds) in combinations(runs, 2):
            lags = [(a.after + b.before) // self.grid * self.parts for a, b in ((one, other), (other, one))]
            for a, b in product(firsts, seconds) if any(lags) else ():
                self._check()
                literal = self.model.new_bool_var(f"{self.pipeline.index.op(a)} in a turn before {self.pipeline.index.op(b)}")
                for first, second, lag, given in ((a, b, lags[0], literal), (b, a, lags[1], ~literal)):
                    run = ops.present[second]
                    ops.ends_before(first, second, lag, [given] if run is None else [given, run])

    @post.register
    def _(self, word: Together) -> None:
        """The halves share their variables already; each is run."""

    @post.register
    def _(self, word: Pairable) -> None:
        """The operations have their sizes and their literals already."""

    @post.register
    def _(self, word: Maybe) -> None:
        """All of its operations are run, or none."""
        columns = [operations(self.pipeline, stream).tolist() for stream in word.streams]
        for first, *others in zip(*columns, strict=True):
            for other in others:
                literals = [1 if (literal := self.ops.present[op]) is None else literal for op in (first, other)]
                self.model.add(literals[0] == literals[1])

    @post.register
    def _(self, word: OneOf) -> None:
        columns = [[operations(self.pipeline, stream).tolist() for stream in streams] for streams in word.alternatives]
        for alternatives in zip(*(zip(*column, strict=True) for column in columns), strict=True):
            self._one_of(alternatives)

    def _one_of(self, alternatives: Sequence[Sequence[int]]) -> None:
        present = self.ops.present
        possible = [ops for ops in alternatives if all(op in present for op in ops)]
        if len(possible) == 1:
            for op in possible[0]:
                if present[op] is not None:
                    self.model.add(present[op] == 1)
            return
        taken = []
        for ops in possible:
            literal = present[ops[0]]
            assert literal is not None, "one alternative is forced, so the others are left out"
            taken.append(literal)
            for op in ops[1:]:
                self.model.add(present[op] == literal)
        self.model.add_exactly_one(taken)

    def at_most(self, upper: int) -> cp_model.CpModel:
        """The model of a decision for ``upper`` steps, no more than it was made for: a copy where it is fewer.

        Measured: the copy takes a twentieth of the time that a new model does.
        """
        assert self.decision
        if upper == self.upper:
            return self.model
        model, less = self.model.clone(), self.upper - upper
        if self.spans is None:
            self.ops.shorten(model, less)
        else:
            self.spans.shorten(model, less)
        return model

    # --- schedules in and out ---

    def hint(self, schedule: Schedule) -> None:
        """Suggest ``schedule``: a value for every variable. A ``B`` that the words split is taken as ``I``, then ``W``."""
        hint(self.ops, self.memory, self.spans, self.objective, schedule)

    def found(self, solution: Solution) -> tuple[IntArray, IntArray]:
        """A found schedule: the numbers of the operations that are run (pairs as one), and their starts in parts of steps."""
        return found_in(self.ops, solution)

    def value(self, solution: Solution) -> int:
        """The found objective in steps."""
        if self.spans is not None:
            return max(solution.value(last) - solution.value(first) for first, last, _ in self.spans.bounds) // self.parts
        return self.upper if self.objective is None else solution.value(self.objective)
