"""The constraints of an integer program: one method per word; a word without one raises."""

from __future__ import annotations

from functools import singledispatchmethod
from itertools import combinations, product

import pulp

from ppopt.constraints import Capacity, Exclusive, Lead, Maybe, OneOf, Pairable, Precede, Tail, Together, Turns, instances
from ppopt.ilp.variables import Expression, Variables
from ppopt.ilp.windows import Impossible


class Constraints:
    """Adds constraints to the program of some variables."""

    def __init__(self, variables: Variables) -> None:
        self.variables, self.jobs, self.problem = variables, variables.jobs, variables.problem
        self._ordered: set[tuple[int, int]] = set()
        self._done: dict[tuple[int, int], pulp.LpVariable] = {}
        self._begun: dict[tuple[int, int], pulp.LpVariable] = {}
        self._starts_first: dict[tuple[int, int], pulp.LpVariable] = {}
        self._is_over: dict[tuple[int, int], pulp.LpVariable] = {}

    # --- what holds whatever the words are ---

    def leave_out(self) -> None:
        """Jobs that do not fit the horizon are not run."""
        for job in self.variables.windows.left_out:
            self.problem += self.variables.run[job] == 0

    def pair_up(self) -> None:
        """A binary for each two jobs that may run as a pair; they start together, and the forward counts as the first."""
        windows, start = self.variables.windows, self.variables.start
        for forward, backward, overlap in self.jobs.couples:
            if windows.first[forward, backward] or windows.first[backward, forward]:
                continue
            binary = self.variables.add_pair(forward, backward, overlap)
            apart = int(
                max(
                    windows.latest[forward] - windows.earliest[backward],
                    windows.latest[backward] - windows.earliest[forward],
                )
            )
            self.problem += start[forward] - start[backward] <= apart * (1 - binary)
            self.problem += start[backward] - start[forward] <= apart * (1 - binary)
            self.problem += self.variables.before(forward, backward) >= binary
        for job, pairs in self.variables.pairs_of.items():
            self.problem += pulp.lpSum(binary for _, binary in pairs) <= self.variables.runs(job)

    def _after(self, a: int, b: int, lag: int, unless: Expression) -> None:
        """Job b starts ``lag`` ticks after job a ends, unless ``unless`` >= 1."""
        windows = self.variables.windows
        longest = max([0, *(more for more, _ in self.variables.pairs_of.get(a, ()))])
        slack = int(windows.latest[a] + self.jobs.size[a] + longest + lag - windows.earliest[b])
        if slack > 0:
            self.problem += self.variables.start[b] >= self.variables.end(a) + lag - slack * unless

    # --- the words ---

    @singledispatchmethod
    def post(self, word: object) -> None:
        """Add a word's constraints.

        Raises:
            TypeError: there are none for this word.
            Impossible: the word leaves no schedule.
        """
        raise TypeError(f"the integer program does not know the word {word!r}")

    @post.register
    def _(self, word: Precede) -> None:
        run, pair = self.variables.run, self.variables.pair
        before, after = (self.jobs.job[numbers].tolist() for numbers in instances(self.jobs.pipeline, word))
        for a, b in zip(before, after, strict=True):
            if a >= 0 and b >= 0:
                for couple in ((a, b), (b, a)):
                    if couple in pair:
                        self.problem += pair[couple] == 0
                absent = [1 - run[job] for job in (a, b) if job in run]
                self._after(a, b, word.lag, pulp.lpSum(absent) if absent else 0)

    @post.register
    def _(self, word: Exclusive) -> None:
        """Two links of a device that transfers block have its computations in common: an order is posted once."""
        pair = self.variables.pair
        for a, b in combinations(self.jobs.on(word), 2):
            if (a, b) in self._ordered:
                continue
            self._ordered.add((a, b))
            first = self.variables.before(a, b)
            if not isinstance(first, int):
                paired = pair.get((a, b), pair.get((b, a), 0))
                self._after(a, b, 0, 1 - first + paired)
                self._after(b, a, 0, first + paired)
            else:
                self._after(*((a, b) if first else (b, a)), 0, 0)

    @post.register
    def _(self, word: Capacity) -> None:
        """What earlier jobs claimed and did not release, and what this one claims, stay within the limit at every claim."""
        claims, releases = self._changes(word)
        most = sum(claims.values())
        for at, amount in claims.items():
            held = [more * self._claimed(job, at) for job, more in claims.items() if job != at]
            given = [less * self._released(job, at) for job, less in releases.items() if job != at]
            spare = most * (1 - self.variables.run[at]) if at in self.variables.run else 0
            self.problem += pulp.lpSum(held) + amount - pulp.lpSum(given) <= word.limit + spare

    def _changes(self, word: Capacity) -> tuple[dict[int, int], dict[int, int]]:
        """By job, what it claims; and by job, what it releases: a copy out does, and the copy in claims it again."""
        claims: dict[int, int] = {}
        releases: dict[int, int] = {}
        for away in word.away:
            for changed, family in ((releases, away.out), (claims, away.back)):
                changed |= {job: away.amount for job in self.jobs.of(family) if job >= 0}
        for hold in word.holds:
            for job in self.jobs.of(hold.claim):
                if job >= 0:
                    claims[job] = claims.get(job, 0) + hold.amount
            for family in hold.release:
                for job in self.jobs.of(family):
                    if job >= 0:
                        releases[job] = releases.get(job, 0) + hold.amount
        return claims, releases

    def _claimed(self, job: int, at: int) -> Expression:
        """At least 1 where ``job`` is run before ``at``, else at least 0."""
        first, run = self._claims_first(job, at), self.variables.run
        if job not in run or (isinstance(first, int) and not first):
            return first
        if (job, at) not in self._begun:
            name = f"begun_{self.variables.names[job]}_at_{self.variables.names[at]}"
            begun = self._begun[job, at] = self.problem.add_variable(name, 0, 1)
            self.problem += begun >= run[job] + first - 1
        return self._begun[job, at]

    def _released(self, job: int, at: int) -> Expression:
        """At most 1 where ``job`` is run before ``at``, else at most 0."""
        first, run = self._ends_first(job, at), self.variables.run
        if job not in run:
            return first
        if (job, at) not in self._done:
            name = f"done_{self.variables.names[job]}_at_{self.variables.names[at]}"
            done = self._done[job, at] = self.problem.add_variable(name, 0, 1)
            self.problem += done <= run[job]
            self.problem += done <= first
        return self._done[job, at]

    def _apart(self, a: int, b: int) -> bool:
        """Whether two jobs of which one is a copy may run at the same time, in any order."""
        first, index = self.variables.windows.first, self.jobs.pipeline.index
        copies = any(map(index.sends, self.jobs.numbers[[a, b]].tolist()))
        return bool(copies and not first[a, b] and not first[b, a])

    def _claims_first(self, a: int, b: int) -> Expression:
        """1 where a starts before b, which both claim something; at one time either may count as the first."""
        if not self._apart(a, b):
            return self.variables.before(a, b)
        if (b, a) in self._starts_first:
            return 1 - self._starts_first[b, a]
        if (a, b) not in self._starts_first:
            first = self._starts_first[a, b] = self._binary("starts", a, b)
            self._starts(a, b, 1 - first)
            self._starts(b, a, first)
        return self._starts_first[a, b]

    def _ends_first(self, a: int, b: int) -> Expression:
        """At most 1 where a ends before b starts, else 0."""
        if not self._apart(a, b):
            return self.variables.before(a, b)
        if (a, b) not in self._is_over:
            over = self._is_over[a, b] = self._binary("over", a, b)
            self._after(a, b, 0, 1 - over)
        return self._is_over[a, b]

    def _binary(self, what: str, a: int, b: int) -> pulp.LpVariable:
        names = self.variables.names
        return self.problem.add_variable(f"{what}_{names[a]}_before_{names[b]}", cat=pulp.LpBinary)

    def _starts(self, a: int, b: int, unless: Expression) -> None:
        """Job b does not start before job a, unless ``unless`` >= 1."""
        windows, start = self.variables.windows, self.variables.start
        slack = int(windows.latest[a] - windows.earliest[b])
        if slack > 0:
            self.problem += start[b] >= start[a] - slack * unless

    @post.register
    def _(self, word: Maybe) -> None:
        """All of its operations are run, or none."""
        for first, *others in zip(*(self.jobs.of(stream) for stream in word.streams), strict=True):
            for other in others:
                self.problem += self.variables.runs(first) == self.variables.runs(other)

    @post.register
    def _(self, word: Turns) -> None:
        """What of two turns is run keeps the pause between them."""
        run = self.variables.run
        turns = [(turn, [job for f in turn.families for job in self.jobs.of(f) if job >= 0]) for turn in word.turns]
        for (one, firsts), (other, seconds) in combinations(turns, 2):
            for a, b in product(firsts, seconds):
                absent: Expression = pulp.lpSum(1 - run[job] for job in (a, b) if job in run)
                first = self.variables.before(a, b)
                self._after(a, b, one.after + other.before, 1 - first + absent)
                self._after(b, a, other.after + one.before, first + absent)

    @post.register
    def _(self, word: Together) -> None:
        """The two halves are one job."""

    @post.register
    def _(self, word: Pairable) -> None:
        """The pairs have their binaries already; some operations are run in one only."""
        for family in () if word.alone else word.backwards:
            for job in self.jobs.of(family):
                if job >= 0:
                    binaries = [binary for _, binary in self.variables.pairs_of.get(job, ())]
                    self.problem += pulp.lpSum(binaries) >= self.variables.runs(job)

    @post.register
    def _(self, word: Lead | Tail) -> None:
        """What a device does before and after its operations is part of the objective."""

    @post.register
    def _(self, word: OneOf) -> None:
        """Of the alternatives exactly one is run, with all its operations."""
        runs = self.variables.runs
        columns = [zip(*(self.jobs.of(stream) for stream in streams), strict=True) for streams in word.alternatives]
        for alternatives in zip(*columns, strict=True):
            possible = [jobs for jobs in alternatives if min(jobs) >= 0]
            if not possible:
                raise Impossible("nothing is left of a choice")
            self.problem += pulp.lpSum(runs(jobs[0]) for jobs in possible) == 1
            for jobs in possible:
                for other in jobs[1:]:
                    self.problem += runs(other) == runs(jobs[0])
