"""Words compiled to an integer program: one method per word; a word without one raises.

Two operations of one device stand in one of two orders, a binary for each two whose order is still open. Memory needs no
times: when a forward starts, its device holds what earlier forwards claimed, less what earlier operations gave back, and
"earlier" is what the binaries say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import singledispatchmethod
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pulp

from ppopt.constraints import Capacity, Exclusive, OneOf, Precede, Together, Word, chosen, expand, instances, operations
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule, durations, halves
from ppopt.solvers.outcome import TooLarge


class Impossible(ValueError):
    """The words leave no schedule within the horizon; seen while the program was built."""


MOST_PAIRS = 100_000
"""Most pairs of operations on one device, over all devices; twice as many cannot be solved, and take long to write down."""


class Program:
    """An integer program of ``words``: starts in ticks, every end by ``horizon``, the objective in ``lower..upper``.

    A job is a single operation or a pair. Jobs that may be left out take no time where they are.

    Raises:
        TypeError: a word that is not known here.
        ValueError: the words contradict each other.
        Impossible: nothing fits the horizon.
        TooLarge: more than :data:`MOST_PAIRS` operations might be run in either order.
    """

    def __init__(
        self, pipeline: Pipeline, words: Iterable[Word], *, objective: str, horizon: int, lower: int, upper: int
    ) -> None:
        self.pipeline, self.words, self.horizon, self.measure = pipeline, tuple(words), horizon, objective
        self.problem = pulp.LpProblem("schedule", pulp.LpMinimize)
        self._make_jobs()
        counts = [len(self._jobs(word)) for word in self.words if isinstance(word, Exclusive)]
        pairs = sum(count * (count - 1) // 2 for count in counts)
        if pairs > MOST_PAIRS:
            raise TooLarge(f"too large for the ILP: {pairs} pairs of operations share a device, at most {MOST_PAIRS} are taken")
        before, after, lag = self._edges()
        self.earliest, self.latest = self._windows(before, after, lag)
        self._first = self._reach(before, after)
        names = [str(pipeline.index.op(number)).translate(_NAME) for number in self.numbers.tolist()]
        self.start = [
            self.problem.add_variable(f"start_{name}", low, high)
            for name, low, high in zip(names, self.earliest.tolist(), self.latest.tolist(), strict=True)
        ]
        self._names = names
        self._open: dict[tuple[int, int], pulp.LpVariable] = {}
        self._posted: set[tuple[int, int]] = set()
        for word in self.words:
            self.post(word)
        self.objective = self.problem.add_variable("objective", lower, upper)
        self.problem.setObjective(self.objective)
        for d, word in enumerate(word for word in self.words if isinstance(word, Exclusive)):
            if word.computes or objective == "makespan":
                self._ends_of_machine(d, self._jobs(word), objective)

    # --- jobs, windows, what is ordered anyway ---

    def _make_jobs(self) -> None:
        index = self.pipeline.index
        forced, free = chosen(self.pipeline, self.words)
        pairs = [instances(self.pipeline, word) for word in self.words if isinstance(word, Together)]
        partner = {int(a): int(b) for first, second in pairs for a, b in zip(first, second, strict=True)}
        run = np.concatenate((forced, free))
        missing = sorted({*partner, *partner.values()}.difference(run.tolist()))
        if missing:
            raise ValueError(f"{index.op(missing[0])} is one half of a pair, and left out by another word")
        single = run[~np.isin(run, [*partner, *partner.values()])]
        slots = index.stages * index.microbatches
        paired = [index.size + first * slots + second - int(Kind.B) * slots for first, second in partner.items()]
        self.numbers: IntArray = np.concatenate((single, np.array(paired, dtype=np.int64)))
        """By job, the number of its operation (:class:`~ppopt.op.OpIndex`)."""
        self.size: IntArray = durations(self.pipeline, self.numbers)
        self._job: IntArray = np.full(index.size, -1, dtype=np.int64)
        first, second = halves(index, self.numbers)
        for half in (first, second):
            self._job[half[half >= 0]] = np.flatnonzero(half >= 0)
        optional = self._job[np.setdiff1d(free, [*partner, *partner.values()])]
        self.run: dict[int, pulp.LpVariable] = {
            int(j): self.problem.add_variable(f"run_{index.op(int(self.numbers[j]))}", cat=pulp.LpBinary) for j in optional
        }
        """By job, whether it is run; jobs without an entry always are."""

    def _edges(self) -> tuple[IntArray, IntArray, IntArray]:
        """All instances of ``Precede`` between jobs: before, after, lag."""
        before, after, lag = expand(self.pipeline, self.words)
        before, after = self._job[before], self._job[after]
        known = (before >= 0) & (after >= 0)
        return before[known], after[known], lag[known]

    def _windows(self, before: IntArray, after: IntArray, lag: IntArray) -> tuple[IntArray, IntArray]:
        """Earliest and latest starts, from the longest chains of jobs that are always run.

        What does not fit the horizon and may be left out is left out.
        """
        count = len(self.numbers)
        always = np.array([j not in self.run for j in range(count)])
        sure = always[before] & always[after]
        edges = list(zip(*(column[sure].tolist() for column in (before, after, lag)), strict=True))
        earliest = _longest(count, [(a, b, int(self.size[a]) + gap) for a, b, gap in edges])
        tail = _longest(count, [(b, a, int(self.size[b]) + gap) for a, b, gap in edges])
        latest = self.horizon - self.size - tail
        too_long = latest < earliest
        if (too_long & always).any():
            raise Impossible("a chain of operations is longer than the horizon")
        for job in np.flatnonzero(too_long).tolist():
            self.problem += self.run[job] == 0
        return earliest, np.maximum(latest, earliest)

    def _reach(self, before: IntArray, after: IntArray) -> npt.NDArray[np.bool_]:
        """``[a, b]``: job a is before job b in every schedule, by chains or, on one device, by their windows."""
        count = len(self.numbers)
        always = np.array([j not in self.run for j in range(count)])
        reach = np.zeros((count, count), dtype=bool)
        sure = always[before] & always[after]
        reach[before[sure], after[sure]] = True
        together = np.zeros((count, count), dtype=bool)  # elsewhere a job may run beside another
        for word in self.words:
            if isinstance(word, Exclusive):
                together[np.ix_(self._jobs(word), self._jobs(word))] = True
        never = (self.earliest[None, :] + self.size[None, :] > self.latest[:, None]) & (self.size[None, :] > 0)
        reach |= never & together
        reach &= always[:, None] & always[None, :]
        np.fill_diagonal(reach, False)
        for via in range(count):
            reach |= reach[:, via, None] & reach[None, via, :]
        if reach.diagonal().any():
            raise Impossible("operations wait for each other")
        return reach

    def _length(self, job: int) -> pulp.LpAffineExpression | int:
        return int(self.size[job]) * self.run[job] if job in self.run else int(self.size[job])

    def _end(self, job: int) -> pulp.LpAffineExpression:
        return self.start[job] + self._length(job)

    def before(self, a: int, b: int) -> pulp.LpVariable | pulp.LpAffineExpression | int:
        """1 where job a, on the same device, is before job b: a binary unless that is decided."""
        if self._first[a, b] or self._first[b, a]:
            return int(self._first[a, b])
        if (a, b) in self._open:
            return self._open[a, b]
        if (b, a) in self._open:
            return 1 - self._open[b, a]
        self._open[a, b] = variable = self.problem.add_variable(f"before_{self._names[a]}_{self._names[b]}", cat=pulp.LpBinary)
        return variable

    def _after(self, a: int, b: int, lag: int, unless: pulp.LpAffineExpression | int) -> None:
        """Job b starts ``lag`` after job a ends, unless ``unless`` >= 1."""
        slack = int(self.latest[a] + self.size[a] + lag - self.earliest[b])
        if slack > 0:
            self.problem += self.start[b] >= self._end(a) + lag - slack * unless

    # --- the words ---

    @singledispatchmethod
    def post(self, word: object) -> None:
        """Add a word's constraints."""
        raise TypeError(f"the integer program does not know the word {word!r}")

    @post.register
    def _(self, word: Precede) -> None:
        before, after = instances(self.pipeline, word)
        for a, b in zip(self._job[before].tolist(), self._job[after].tolist(), strict=True):
            if a >= 0 and b >= 0:
                absent = [1 - self.run[job] for job in (a, b) if job in self.run]
                self._after(a, b, word.lag, pulp.lpSum(absent) if absent else 0)

    def _jobs(self, word: Exclusive) -> list[int]:
        jobs = np.concatenate([self._job[operations(self.pipeline, stream)] for stream in word.streams])
        return [int(job) for job in np.unique(jobs) if job >= 0]

    @post.register
    def _(self, word: Exclusive) -> None:
        """Two links of a device that transfers block have its computations in common: an order is posted once."""
        for a, b in combinations(self._jobs(word), 2):
            if (a, b) in self._posted:
                continue
            self._posted.add((a, b))
            first = self.before(a, b)
            if not isinstance(first, int):
                self._after(a, b, 0, 1 - first)
                self._after(b, a, 0, first)
            else:
                self._after(*((a, b) if first else (b, a)), 0, 0)

    @post.register
    def _(self, word: Capacity) -> None:
        claims: dict[int, int] = {}
        releases: dict[int, int] = {}
        for hold in word.holds:
            for job in self._job[operations(self.pipeline, hold.claim)].tolist():
                claims[job] = claims.get(job, 0) + hold.amount
            for family in hold.release:
                for job in self._job[operations(self.pipeline, family)].tolist():
                    if job >= 0:
                        releases[job] = releases.get(job, 0) + hold.amount
        for at, amount in claims.items():
            held = [more * self.before(job, at) for job, more in claims.items() if job != at]
            given = [less * self._done(job, at) for job, less in releases.items() if job != at]
            self.problem += pulp.lpSum(held) + amount - pulp.lpSum(given) <= word.limit

    def _done(self, job: int, at: int) -> pulp.LpVariable | pulp.LpAffineExpression | int:
        """At most 1 where ``job`` is run before ``at``, else at most 0."""
        first = self.before(job, at)
        if job not in self.run:
            return first
        done = self.problem.add_variable(f"done_{self._names[job]}_at_{self._names[at]}", 0, 1)
        self.problem += done <= self.run[job]
        self.problem += done <= first
        return done

    @post.register
    def _(self, word: Together) -> None:
        """The two halves are one job."""

    @post.register
    def _(self, word: OneOf) -> None:
        columns = [[self._job[operations(self.pipeline, stream)].tolist() for stream in streams] for streams in word.alternatives]
        for alternatives in zip(*(zip(*column, strict=True) for column in columns), strict=True):
            possible = [jobs for jobs in alternatives if min(jobs) >= 0]
            self.problem += pulp.lpSum(self.run.get(jobs[0], 1) for jobs in possible) == 1
            for jobs in possible:
                for other in jobs[1:]:
                    self.problem += self.run.get(other, 1) == self.run.get(jobs[0], 1)

    def _ends_of_machine(self, machine: int, jobs: list[int], objective: str) -> None:
        """The objective covers this device (or link); and what a job has before it and behind it there takes its time.

        The latter two follow from the orders being whole, and make the relaxation much stronger.
        """
        if not jobs:
            return
        always = [j for j in jobs if j not in self.run]
        if objective == "span":
            begin = self.problem.add_variable(f"first_start_{machine}", 0, self.horizon)
            end, head, tail = self.objective + begin, begin, 0
        else:
            end, head = self.objective, int(self.earliest[jobs].min())
            tail = max(0, int((self.horizon - self.size[jobs] - self.latest[jobs]).min()))
        for j in jobs:
            absent = self.horizon * (1 - self.run[j]) if j in self.run else 0
            earlier = pulp.lpSum(int(self.size[i]) * self.before(i, j) for i in always if i != j)
            later = pulp.lpSum(int(self.size[i]) * self.before(j, i) for i in always if i != j)
            self.problem += self.start[j] + absent >= head + earlier
            self.problem += end >= self._end(j) + later + tail - absent

    # --- schedules in and out ---

    def hint(self, schedule: Schedule) -> None:
        """Set every variable that is a decision to its value in ``schedule``, as a first solution."""
        when: dict[int, int] = {}
        place: dict[int, tuple[int, int]] = {}
        begin = min(int(starts[0]) for starts in schedule.start if len(starts))
        transfers = schedule.transfers
        for row, starts in zip((*schedule.order.rows, *transfers.rows), (*schedule.start, *transfers.start), strict=True):
            for i, (number, time) in enumerate(zip(halves(self.pipeline.index, row)[0].tolist(), starts.tolist(), strict=True)):
                job = int(self._job[number])
                when[job] = time - begin
                sent = number >= self.pipeline.index.computations
                place[job] = time, len(self.numbers) if sent else i  # what starts with a transfer takes no time, and goes first
        for job, variable in enumerate(self.start):
            variable.setInitialValue(when.get(job, int(self.earliest[job])))
        for job, literal in self.run.items():
            literal.setInitialValue(int(job in when))
        for (a, b), binary in self._open.items():
            if a in place and b in place:
                binary.setInitialValue(int(place[a] < place[b]))
        self.objective.setInitialValue(schedule.objective(self.measure))

    def found(self) -> tuple[IntArray, IntArray]:
        """The numbers of the jobs that are run, and their starts rounded to ticks."""
        run = [j for j in range(len(self.numbers)) if j not in self.run or self.run[j].value() > 0.5]
        return self.numbers[run], np.array([round(self.start[j].value()) for j in run], dtype=np.int64)


_NAME = str.maketrans({"(": "", ")": "", ";": "_"})


def _longest(count: int, edges: Sequence[tuple[int, int, int]]) -> IntArray:
    """For each node the longest path that leads to it.

    Raises:
        Impossible: the edges have a cycle.
    """
    following: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    waits = [0] * count
    for a, b, length in edges:
        following[a].append((b, length))
        waits[b] += 1
    longest = np.zeros(count, dtype=np.int64)
    ready = deque(node for node in range(count) if not waits[node])
    done = 0
    while ready:
        node = ready.popleft()
        done += 1
        for after, length in following[node]:
            longest[after] = max(longest[after], longest[node] + length)
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    if done < count:
        raise Impossible("operations wait for each other")
    return longest
