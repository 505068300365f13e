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

from ppopt.constraints import (
    Capacity,
    Exclusive,
    OneOf,
    Pairable,
    Precede,
    Together,
    Word,
    chosen,
    expand,
    instances,
    operations,
    spread,
)
from ppopt.constraints.couples import couples
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule, durations, halves, of_stages
from ppopt.solvers.outcome import TooLarge, check_for_ilp


class Impossible(ValueError):
    """The words leave no schedule within the horizon; seen while the program was built."""


MOST_PAIRS = 100_000
"""Most pairs of operations on one device, over all devices; twice as many cannot be solved, and take long to write down."""


class Program:
    """An integer program of ``words``: starts in ticks, every end by ``horizon``, the objective in ``lower..upper``.

    A job is a single operation or a pair that the words demand. Jobs that may be left out take no time where they are. For each
    two jobs that may run as a pair a binary says that they do; then their order is of no account, and both take what a pair does.

    Raises:
        TypeError: a word that is not known here.
        ValueError: the words contradict each other.
        Impossible: nothing fits the horizon.
        TooLarge: more than :data:`MOST_PAIRS` operations might be run in either order.
        NotForIlp: a word that a program has no way to say.
    """

    def __init__(
        self, pipeline: Pipeline, words: Iterable[Word], *, objective: str, horizon: int, lower: int, upper: int
    ) -> None:
        self.pipeline, self.words, self.horizon, self.measure = pipeline, tuple(words), horizon, objective
        check_for_ilp(pipeline, self.words)
        self.problem = pulp.LpProblem("schedule", pulp.LpMinimize)
        self._make_jobs()
        counts = [len(self._jobs(word)) for word in self.words if isinstance(word, Exclusive)]
        pairs = sum(count * (count - 1) // 2 for count in counts)
        if pairs > MOST_PAIRS:
            raise TooLarge(f"too large for the ILP: {pairs} pairs of operations share a device, at most {MOST_PAIRS} are taken")
        before, after, lag = self._edges()
        self.earliest, self.latest = self._windows(before, after, lag)
        self._first = self._reach(before, after)
        self._names = names = [str(pipeline.index.op(number)).translate(_NAME) for number in self.numbers.tolist()]
        self.start = [
            self.problem.add_variable(f"start_{name}", low, high)
            for name, low, high in zip(names, self.earliest.tolist(), self.latest.tolist(), strict=True)
        ]
        self._open: dict[tuple[int, int], pulp.LpVariable] = {}
        self._posted: set[tuple[int, int]] = set()
        self._dones: dict[tuple[int, int], pulp.LpVariable] = {}
        self._pair_up()
        for word in self.words:
            self.post(word)
        self.objective = self.problem.add_variable("objective", lower, upper)
        self.problem.setObjective(self.objective)
        for d, word in enumerate(word for word in self.words if isinstance(word, Exclusive)):
            if (word.computes and not spread(pipeline, word)) or objective == "makespan":
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
        paired = [index.pair(first, second) for first, second in partner.items()]
        self.numbers: IntArray = np.concatenate((single, np.array(paired, dtype=np.int64)))
        """By job, the number of its operation (:class:`~ppopt.op.OpIndex`)."""
        self.size: IntArray = durations(self.pipeline, self.numbers)
        ticks = self.pipeline.ticks
        self._gather, self._scatter = (of_stages(self.pipeline, self.numbers, table) for table in (ticks.gather, ticks.scatter))
        """By job, what its device has to do before it could be the first, and after it could be the last."""
        self._job: IntArray = np.full(index.size, -1, dtype=np.int64)
        first, second = halves(index, self.numbers)
        for half in (first, second):
            self._job[half[half >= 0]] = np.flatnonzero(half >= 0)
        optional = self._job[np.setdiff1d(free, [*partner, *partner.values()])]
        self.run: dict[int, pulp.LpVariable] = {
            int(j): self.problem.add_variable(f"run_{index.op(int(self.numbers[j]))}", cat=pulp.LpBinary) for j in optional
        }
        """By job, whether it is run; jobs without an entry always are."""
        self.least: IntArray = self.size.copy()
        """By job, its size where it is smallest: alone or in a pair."""
        self._couples = [
            (int(self._job[forward]), int(self._job[backward]), overlap)
            for forward, backward, overlap in couples(self.pipeline, self.words, set(single.tolist()))
        ]
        for forward, backward, overlap in self._couples:
            for job in (forward, backward):
                self.least[job] = min(int(self.least[job]), overlap)

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
        earliest = _longest(self._gather, [(a, b, int(self.least[a]) + gap) for a, b, gap in edges])
        after = self._scatter if self.measure == "makespan" else np.zeros_like(self._scatter)
        self._tail = tail = _longest(after, [(b, a, int(self.least[b]) + gap) for a, b, gap in edges])
        latest = self.horizon - self.least - tail
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
        never = (self.earliest[None, :] + self.least[None, :] > self.latest[:, None]) & (self.least[None, :] > 0)
        for forward, backward, _ in self._couples:
            together[forward, backward] = together[backward, forward] = False  # neither first, as a pair
        reach |= never & together
        reach &= always[:, None] & always[None, :]
        np.fill_diagonal(reach, False)
        for via in range(count):
            reach |= reach[:, via, None] & reach[None, via, :]
        if reach.diagonal().any():
            raise Impossible("operations wait for each other")
        return reach

    def _pair_up(self) -> None:
        """A binary for each two jobs that may run as a pair; they start together, and the forward counts as the first."""
        self.pair: dict[tuple[int, int], pulp.LpVariable] = {}
        self._overlap: dict[tuple[int, int], int] = {}
        self._pairs_of: dict[int, list[tuple[int, pulp.LpVariable]]] = {}
        """By job, how much longer than alone each of its pairs is, and the binary."""
        for forward, backward, overlap in self._couples:
            if self._first[forward, backward] or self._first[backward, forward]:
                continue
            name = f"pair_{self._names[forward]}_{self._names[backward]}"
            binary = self.pair[forward, backward] = self.problem.add_variable(name, cat=pulp.LpBinary)
            self._overlap[forward, backward] = overlap
            for job in (forward, backward):
                self._pairs_of.setdefault(job, []).append((overlap - int(self.size[job]), binary))
            apart = int(max(self.latest[forward] - self.earliest[backward], self.latest[backward] - self.earliest[forward]))
            self.problem += self.start[forward] - self.start[backward] <= apart * (1 - binary)
            self.problem += self.start[backward] - self.start[forward] <= apart * (1 - binary)
            self.problem += self.before(forward, backward) >= binary
        for job, pairs in self._pairs_of.items():
            self.problem += pulp.lpSum(binary for _, binary in pairs) <= self.run.get(job, 1)

    def _length(self, job: int) -> pulp.LpAffineExpression | int:
        size = int(self.size[job])
        alone = size * self.run[job] if job in self.run else size
        return alone + pulp.lpSum(more * binary for more, binary in self._pairs_of[job]) if job in self._pairs_of else alone

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
        longest = max([0, *(more for more, _ in self._pairs_of.get(a, ()))])
        slack = int(self.latest[a] + self.size[a] + longest + lag - self.earliest[b])
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
                for couple in ((a, b), (b, a)):
                    if couple in self.pair:
                        self.problem += self.pair[couple] == 0
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
                paired = self.pair.get((a, b), self.pair.get((b, a), 0))
                self._after(a, b, 0, 1 - first + paired)
                self._after(b, a, 0, first + paired)
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
        if (job, at) not in self._dones:
            done = self._dones[job, at] = self.problem.add_variable(f"done_{self._names[job]}_at_{self._names[at]}", 0, 1)
            self.problem += done <= self.run[job]
            self.problem += done <= first
        return self._dones[job, at]

    @post.register
    def _(self, word: Together) -> None:
        """The two halves are one job."""

    @post.register
    def _(self, word: Pairable) -> None:
        """The pairs have their binaries already; some operations are run in one only."""
        for family in () if word.alone else word.backwards:
            for job in self._job[operations(self.pipeline, family)].tolist():
                if job >= 0:
                    binaries = [binary for _, binary in self._pairs_of.get(job, ())]
                    self.problem += pulp.lpSum(binaries) >= self.run.get(job, 1)

    @post.register
    def _(self, word: OneOf) -> None:
        columns = [[self._job[operations(self.pipeline, stream)].tolist() for stream in streams] for streams in word.alternatives]
        for alternatives in zip(*(zip(*column, strict=True) for column in columns), strict=True):
            possible = [jobs for jobs in alternatives if min(jobs) >= 0]
            if not possible:
                raise Impossible("nothing is left of a choice")
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
            end, heads, tails = self.objective + begin, self._gather, self._scatter
        else:
            begin, end, heads, tails = 0, self.objective, self.earliest, self._tail
        head, tail = int(heads[jobs].min()), int(tails[jobs].min())
        for j in jobs:
            absent = self.horizon * (1 - self.run[j]) if j in self.run else 0
            earlier = pulp.lpSum(int(self.size[i]) * self.before(i, j) for i in always if i != j)
            later = pulp.lpSum(int(self.size[i]) * self.before(j, i) for i in always if i != j)
            before, after = self._saved(j, always)
            self.problem += self.start[j] + absent >= begin + head + earlier - before
            self.problem += end >= self._end(j) + later + tail - absent - after
            if self._gather[j] > head:
                self.problem += self.start[j] + absent >= begin + int(self._gather[j])
            if self._scatter[j] > tail:
                self.problem += end >= self._end(j) + int(self._scatter[j]) - absent

    def _saved(self, job: int, counted: Sequence[int]) -> tuple[pulp.LpAffineExpression, pulp.LpAffineExpression]:
        """At least what pairs take less than the sizes counted before ``job`` and after it.

        Other pairs save no more than their two sizes exceed the overlap. In a pair of ``job``, its partner counts as before it
        or after it, and takes no time there.
        """
        before, after = [], []
        for (forward, backward), binary in self.pair.items():
            sizes = [int(self.size[half]) * (half in counted) for half in (forward, backward)]
            if job == backward:
                before.append(sizes[0] * binary)
            elif job == forward:
                after.append(sizes[1] * binary)
            else:
                saved = max(0, sum(sizes) - self._overlap[forward, backward])
                before.append(saved * binary)
                after.append(saved * binary)
        return pulp.lpSum(before), pulp.lpSum(after)

    # --- schedules in and out ---

    def hint(self, schedule: Schedule) -> None:
        """Set every variable that is a decision to its value in ``schedule``, as a first solution."""
        when: dict[int, int] = {}
        place: dict[int, tuple[int, int, int]] = {}
        pairs: set[tuple[int, int]] = set()
        begin = schedule.begin
        transfers = schedule.transfers
        for row, starts in zip((*schedule.order.rows, *transfers.rows), (*schedule.start, *transfers.start), strict=True):
            numbers = halves(self.pipeline.index, row)
            jobs = [np.where(half >= 0, self._job[half], -1).tolist() for half in numbers]
            for i, (forward, backward, number, time) in enumerate(zip(*jobs, numbers[0].tolist(), starts.tolist(), strict=True)):
                sent = number >= self.pipeline.index.computations
                turn = len(self.numbers) if sent else i  # what starts with a transfer takes no time, and goes first
                pairs.add((forward, backward))
                for half, job in enumerate((forward, backward)):
                    if job >= 0:
                        when[job], place[job] = time - begin, (time, turn, half)
        for job, variable in enumerate(self.start):
            variable.setInitialValue(when.get(job, int(self.earliest[job])))
        for job, literal in self.run.items():
            literal.setInitialValue(int(job in when))
        for couple, binary in self.pair.items():
            binary.setInitialValue(int(couple in pairs))
        for (a, b), binary in self._open.items():
            if a in place and b in place:
                binary.setInitialValue(int(place[a] < place[b]))
        self.objective.setInitialValue(schedule.objective(self.measure))

    def found(self) -> tuple[IntArray, IntArray]:
        """The numbers of the operations that are run (pairs as one), and their starts rounded to ticks."""
        partner = dict(couple for couple, binary in self.pair.items() if binary.value() > 0.5)
        seconds = set(partner.values())
        run = [j for j in range(len(self.numbers)) if j not in seconds and (j not in self.run or self.run[j].value() > 0.5)]
        pair, number = self.pipeline.index.pair, self.numbers.tolist()
        numbers = [pair(number[j], number[partner[j]]) if j in partner else number[j] for j in run]
        return np.array(numbers, dtype=np.int64), np.array([round(self.start[j].value()) for j in run], dtype=np.int64)


_NAME = str.maketrans({"(": "", ")": "", ";": "_"})


def _longest(begin: IntArray, edges: Sequence[tuple[int, int, int]]) -> IntArray:
    """For each node the longest path that leads to it; ``begin``: where one begins at it.

    Raises:
        Impossible: the edges have a cycle.
    """
    count = len(begin)
    following: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    waits = [0] * count
    for a, b, length in edges:
        following[a].append((b, length))
        waits[b] += 1
    longest = begin.copy()
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
