"""The named schedules as baselines."""

from __future__ import annotations

from typing import Any

from ppopt.clock import Clock, bounded
from ppopt.search import tuning
from ppopt.search.run import Run
from ppopt.search.step import Kind, Needs, Step
from ppopt.timing import time_order


class NamedSchedules(Step):
    """Time the rows that are shown; those of this placement are taken, where something binds those that obey it."""

    name = "named schedules"
    kind = Kind.IMPROVE
    copies = True
    needs = Needs.NOTHING

    def run(self, run: Run, seconds: float, *, rest: float = 0.0, **options: Any) -> str:
        """Make the rows, and begin from the best that fits.

        Those of a large problem, or of microbatches that differ, keep to ``seconds``; where nothing else is left to do, to all
        that is left but ``rest``, a part of the time limit.
        """
        problem, incumbent = run.problem, run.incumbent
        clock = self._clock(run, seconds, rest)
        with bounded(clock):
            run.named = tuple(run.rows())
        if clock is None:
            run.clock.charge(tuning.SCHEDULED * problem.operations * len(run.named))
        timed = [(row.name, row.schedule) for row in run.named if row.schedule is not None]
        own = [(name, schedule) for name, schedule in timed if schedule.pipeline.places == problem.pipeline.places]
        if problem.words:  # the best first: waiting for what binds makes none of them shorter
            own.sort(key=lambda row: row[1].objective(problem.objective))
        for name, schedule in own:
            if problem.words and incumbent.best is not None and schedule.objective(problem.objective) >= incumbent.value:
                break
            if schedule.within_memory:
                same = schedule.pipeline == problem.pipeline  # then with its transfers in their order
                found = problem.obeying(schedule if same else time_order(problem.pipeline, schedule.order))
                if found is not None:
                    incumbent.offer(found, name)
        late = sum(row.late for row in run.named)
        left_out = f"; no time was left for {late}" if late else ""
        return f"{len(own)} of {len(run.named)} have this placement; {incumbent.text()}{left_out}"

    @staticmethod
    def _clock(run: Run, seconds: float, rest: float) -> Clock | None:
        """What bounds the rows, where anything does: with each microbatch on a route of its own to make one takes a second."""
        if not run.problem.large and not run.problem.differing:
            return None
        left = run.clock.left - rest * run.clock.seconds
        return run.clock.slice(seconds if run.goes_on else max(0.0, left))
