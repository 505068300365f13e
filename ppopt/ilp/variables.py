"""The variables of an integer program, and what is written with them."""

from __future__ import annotations

from typing import TypeAlias

import pulp

from ppopt.ilp.jobs import Jobs
from ppopt.ilp.windows import Windows

Expression: TypeAlias = pulp.LpVariable | pulp.LpAffineExpression | int
_NAME = str.maketrans({"(": "", ")": "", ";": "_"})


class Variables:
    """The decisions of a program: when jobs start, whether they run, which is first, and which run as a pair."""

    def __init__(self, problem: pulp.LpProblem, jobs: Jobs, windows: Windows) -> None:
        self.problem, self.jobs, self.windows = problem, jobs, windows
        ops = [jobs.pipeline.index.op(number) for number in jobs.numbers.tolist()]
        self.run = {job: problem.add_variable(f"run_{ops[job]}", cat=pulp.LpBinary) for job in jobs.optional}
        """By job, whether it is run; jobs without an entry always are."""
        self.names = [str(op).translate(_NAME) for op in ops]
        self.start = [
            problem.add_variable(f"start_{name}", low, high)
            for name, low, high in zip(self.names, windows.earliest.tolist(), windows.latest.tolist(), strict=True)
        ]
        """By job, its start in ticks; of no account where the job is not run."""
        self.open: dict[tuple[int, int], pulp.LpVariable] = {}
        """By two jobs of one device whose order is open, whether the one named first is before the other."""
        self.pair: dict[tuple[int, int], pulp.LpVariable] = {}
        """By the forward's and the backward's job, whether they run as a pair."""
        self.overlap: dict[tuple[int, int], int] = {}
        """By the same, the duration of the pair."""
        self.pairs_of: dict[int, list[tuple[int, pulp.LpVariable]]] = {}
        """By job, how much longer than the job alone each of its pairs is, and whether it runs in that pair."""

    def add_pair(self, forward: int, backward: int, overlap: int) -> pulp.LpVariable:
        """A binary: whether two jobs run as a pair, which takes ``overlap`` ticks."""
        name = f"pair_{self.names[forward]}_{self.names[backward]}"
        binary = self.pair[forward, backward] = self.problem.add_variable(name, cat=pulp.LpBinary)
        self.overlap[forward, backward] = overlap
        for job in (forward, backward):
            self.pairs_of.setdefault(job, []).append((overlap - int(self.jobs.size[job]), binary))
        return binary

    def runs(self, job: int) -> Expression:
        """1 where a job is run, else 0."""
        return self.run.get(job, 1)

    def end(self, job: int) -> pulp.LpAffineExpression:
        """The end of a job, or of the pair in which it runs; its start where it is not run."""
        size = int(self.jobs.size[job])
        length: Expression = size * self.run[job] if job in self.run else size
        if job in self.pairs_of:
            length += pulp.lpSum(more * binary for more, binary in self.pairs_of[job])
        return self.start[job] + length

    def before(self, a: int, b: int) -> Expression:
        """1 where job a, on the same device, is before job b: a binary unless that is decided."""
        first = self.windows.first
        if first[a, b] or first[b, a]:
            return int(first[a, b])
        if (a, b) in self.open:
            return self.open[a, b]
        if (b, a) in self.open:
            return 1 - self.open[b, a]
        name = f"before_{self.names[a]}_{self.names[b]}"
        variable = self.open[a, b] = self.problem.add_variable(name, cat=pulp.LpBinary)
        return variable
