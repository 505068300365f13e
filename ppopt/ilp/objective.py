"""The objective of an integer program: it covers the work of every device and link."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pulp

from ppopt.ilp.variables import Variables
from ppopt.pipeline import IntArray


class Objective:
    """The makespan or the largest device span, in ticks, within ``lower..upper``."""

    def __init__(self, variables: Variables, measure: str, lower: int, upper: int) -> None:
        self.variables, self.jobs, self.problem, self.measure = variables, variables.jobs, variables.problem, measure
        self.value = self.problem.add_variable("objective", lower, upper)
        self.problem.setObjective(self.value)

    def cover(self, machine: int, jobs: Sequence[int]) -> None:
        """The objective covers a device (or link) with these jobs, and what a job has before it and after it there.

        The latter two follow from the orders being whole, and make the relaxation much stronger.
        """
        if not jobs:
            return
        run, start, end_of, before = self.variables.run, self.variables.start, self.variables.end, self.variables.before
        own_lead, own_tail = self.jobs.lead, self.jobs.tail
        begin, end, heads, tails = self._ends(machine)
        head, tail = int(heads[jobs].min()), int(tails[jobs].min())
        always = [job for job in jobs if job not in run]
        for j in jobs:
            absent = self.variables.windows.horizon * (1 - run[j]) if j in run else 0
            earlier = pulp.lpSum(int(self.jobs.size[i]) * before(i, j) for i in always if i != j)
            later = pulp.lpSum(int(self.jobs.size[i]) * before(j, i) for i in always if i != j)
            less_before, less_after = self._saved(j, always)
            self.problem += start[j] + absent >= begin + head + earlier - less_before
            self.problem += end >= end_of(j) + later + tail - absent - less_after
            if own_lead[j] > head:
                self.problem += start[j] + absent >= begin + int(own_lead[j])
            if own_tail[j] > tail:
                self.problem += end >= end_of(j) + int(own_tail[j]) - absent

    def _ends(self, machine: int) -> tuple[Any, Any, IntArray, IntArray]:
        """When a machine begins and ends; by job, the least time from that begin to its start, and from its end to that end."""
        windows = self.variables.windows
        if self.measure == "span":
            begin = self.problem.add_variable(f"first_start_{machine}", 0, windows.horizon)
            return begin, self.value + begin, self.jobs.lead, self.jobs.tail
        return 0, self.value, windows.earliest, windows.tail

    def _saved(self, job: int, counted: Collection[int]) -> tuple[pulp.LpAffineExpression, pulp.LpAffineExpression]:
        """At least the time that pairs save of the sizes counted before ``job`` and after it.

        Other pairs save no more than their two sizes exceed the overlap. In a pair of ``job``, its partner counts as before it
        or after it, and takes no time there.
        """
        before, after = [], []
        for (forward, backward), binary in self.variables.pair.items():
            sizes = [int(self.jobs.size[half]) * (half in counted) for half in (forward, backward)]
            if job == backward:
                before.append(sizes[0] * binary)
            elif job == forward:
                after.append(sizes[1] * binary)
            else:
                saved = max(0, sum(sizes) - self.variables.overlap[forward, backward])
                before.append(saved * binary)
                after.append(saved * binary)
        return pulp.lpSum(before), pulp.lpSum(after)
