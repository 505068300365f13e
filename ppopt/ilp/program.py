"""An integer program of words, put together; schedules in and out of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pulp

from ppopt.constraints import Exclusive, Word, spread
from ppopt.ilp.constraints import Constraints
from ppopt.ilp.jobs import Jobs, jobs_of
from ppopt.ilp.objective import Objective
from ppopt.ilp.variables import Variables
from ppopt.ilp.windows import windows_of
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule, halves
from ppopt.solvers.outcome import TooLarge, check_for_ilp

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
        words = tuple(words)
        self.pipeline, self.measure = pipeline, objective
        check_for_ilp(pipeline, words)
        machines = [word for word in words if isinstance(word, Exclusive)]
        self.problem = pulp.LpProblem("schedule", pulp.LpMinimize)
        self.jobs = jobs_of(pipeline, words)
        _check_size(self.jobs, machines)
        windows = windows_of(self.jobs, words, objective=objective, horizon=horizon)
        self.variables = Variables(self.problem, self.jobs, windows)
        constraints = Constraints(self.variables)
        constraints.leave_out()
        constraints.pair_up()
        for word in words:
            constraints.post(word)
        covering = Objective(self.variables, objective, lower, upper)
        for number, machine in enumerate(machines):
            if (machine.computes and not spread(pipeline, machine)) or objective == "makespan":
                covering.cover(number, self.jobs.on(machine))
        self.objective = covering.value
        """The variable that is minimised, in ticks."""

    def hint(self, schedule: Schedule) -> None:
        """Set every variable that is a decision to its value in ``schedule``, as a first solution.

        Words that keep an optimum may put the operations in another order than the schedule. What is outside its window then
        begins at the nearest time within it, and the engine sees whether that can be mended.
        """
        when: dict[int, int] = {}
        place: dict[int, tuple[int, int, int]] = {}
        pairs: set[tuple[int, int]] = set()
        index, transfers, copies = self.pipeline.index, schedule.transfers, schedule.copies
        rows = (*schedule.order.rows, *transfers.rows, *copies.rows)
        for row, starts in zip(rows, (*schedule.start, *transfers.start, *copies.start), strict=True):
            numbers = halves(index, row)
            jobs = [np.where(half >= 0, self.jobs.job[half], -1).tolist() for half in numbers]
            for i, (forward, backward, number, time) in enumerate(zip(*jobs, numbers[0].tolist(), starts.tolist(), strict=True)):
                sent = index.sends(number)
                turn = self.jobs.count if sent else i  # what starts with a transfer takes no time, and goes first
                pairs.add((forward, backward))
                for half, job in enumerate((forward, backward)):
                    if job >= 0:
                        when[job], place[job] = time - schedule.begin, (time, turn, half)
        windows = self.variables.windows
        for job, variable in enumerate(self.variables.start):
            low, high = int(windows.earliest[job]), int(windows.latest[job])
            variable.setInitialValue(min(max(low, when.get(job, low)), high))
        for job, literal in self.variables.run.items():
            literal.setInitialValue(int(job in when))
        for couple, binary in self.variables.pair.items():
            binary.setInitialValue(int(couple in pairs))
        for (a, b), binary in self.variables.open.items():
            if a in place and b in place:
                binary.setInitialValue(int(place[a] < place[b]))
        self.objective.setInitialValue(schedule.objective(self.measure))

    def found(self) -> tuple[IntArray, IntArray]:
        """The numbers of the operations that are run (pairs as one), and their starts rounded to ticks."""
        run, start = self.variables.run, self.variables.start
        partner = dict(couple for couple, binary in self.variables.pair.items() if binary.value() > 0.5)
        seconds = set(partner.values())
        chosen = [j for j in range(self.jobs.count) if j not in seconds and (j not in run or run[j].value() > 0.5)]
        pair, number = self.pipeline.index.pair, self.jobs.numbers.tolist()
        numbers = [pair(number[j], number[partner[j]]) if j in partner else number[j] for j in chosen]
        return np.array(numbers, dtype=np.int64), np.array([round(start[j].value()) for j in chosen], dtype=np.int64)


def _check_size(jobs: Jobs, machines: Sequence[Exclusive]) -> None:
    counts = [len(jobs.on(machine)) for machine in machines]
    pairs = sum(count * (count - 1) // 2 for count in counts)
    if pairs > MOST_PAIRS:
        raise TooLarge(f"too large for the ILP: {pairs} pairs of operations share a device, at most {MOST_PAIRS} are taken")
