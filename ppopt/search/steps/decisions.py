"""CP-SAT: is there a schedule up to some length; and the best one between two lengths."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ppopt import cpsat
from ppopt.search.run import Run
from ppopt.search.step import Kind, Needs, Step

if TYPE_CHECKING:
    from ppopt.solvers.outcome import Outcome


class Answer(Enum):
    """Whether there is a schedule of at most some length."""

    YES = "there is"
    NO = "there is none"
    OPEN = "not decided in time"
    GOING = "another question was answered first, or has had its time"


class Decide(Step):
    """Ask at the bound and whether the best, or what is enough, can be beaten at all, then by bisection.

    Far below the optimum a target is refuted at once, far above it a schedule is found at once; what lies between may not be
    decided in time. Bisection goes on where there is more room, below or above that, until there is little on either side. With
    two workers two questions are asked at once; when one is answered, the other goes on beside the next one, where that still
    matters. Measured on 18 spans that 8 s leave open, beside one question for both workers: the idle gaps add up to 4.8 instead
    of 5.2, and one is proved.
    """

    name = "CP-SAT: decisions"
    kind = Kind.DECIDE
    copies = True

    def applies(self, run: Run) -> str | None:
        """Where there is a schedule to beat."""
        return "there is no schedule yet" if run.incumbent.best is None else None

    def run(
        self,
        run: Run,
        seconds: float,
        *,
        ends: bool = True,
        bound: bool = True,
        best: bool = True,
        between: bool = True,
        patience: int | None = None,
        leap: bool = False,
        exact: bool = False,
        **options: Any,
    ) -> None:
        """``seconds`` are for one question. ``ends``: whether the ends are asked, at the ``bound`` and below the ``best``, where
        these are not left out. ``between``: whether what lies between is, until ``patience`` questions stay open, those at the
        ends among them; with ``leap`` it is asked below the best, too, once two in a row are refuted. ``exact``: on the exact
        grid."""
        at_once = min(2, run.limits(seconds).threads)
        with questions(run, run.problem.grids[-1 if exact else 0]) as decisions:
            if ends:
                stayed = self._ends(run, seconds, decisions, at_once, bound, best, between)
                patience = None if patience is None else patience - stayed
            if between:
                self._between(run, seconds, decisions, at_once, patience, leap)

    def _ends(
        self,
        run: Run,
        seconds: float,
        decisions: cpsat.Decisions,
        at_once: int,
        at_bound: bool,
        at_best: bool,
        between: bool,
    ) -> int:
        """At the bound and one tick below the best, if asked, each until it is answered or stays open: how many did.

        Where there are questions ``between``, one that is left alone goes on beside them.
        """
        stayed = 0
        while run.goes_on:
            low, high = run.incumbent.lower, run.incumbent.to_beat
            at_best = at_best and (low < high - 1 or not at_bound)
            targets = ([low] * at_bound + [high - 1] * at_best)[:at_once]
            if not targets or (between and decisions.going and len(targets) < at_once):
                break
            for target, answer in zip(targets, ask(run, targets, seconds, decisions), strict=True):
                if answer is Answer.GOING:
                    continue
                stayed += answer is Answer.OPEN
                if at_bound and target == low:
                    at_bound = False
                else:
                    at_best = False
        return stayed

    def _between(
        self, run: Run, seconds: float, decisions: cpsat.Decisions, at_once: int, patience: int | None, leap: bool
    ) -> None:
        """By bisection, until ``patience`` questions stay open; that to which it may ``leap`` is not among them.

        Where no more than the shortest operation is open, the proof of a span is asked for at once, and that of a makespan where
        questions come one at a time: there is hardly more to gain. Measured on a span of 4 devices of 2 chunks, 12 microbatches:
        that takes 8 s, and so does each of four questions of the bisection; it is proved in 24 to 32 s instead of 47.
        """
        undecided: list[int] = []
        in_a_row = 0
        while run.goes_on and (patience is None or len(undecided) < patience):
            low, high = run.incumbent.lower, run.incumbent.to_beat
            undecided = [target for target in undecided if low <= target < high]
            if leap and in_a_row == 2:
                leap = False
                ask(run, [high - 1], seconds, decisions)
                continue
            nearly = (run.problem.span or at_once == 1) and high - low <= run.problem.shortest and high - 1 not in undecided
            going = [target for target in decisions.going if low <= target < high]
            going += [high - 1] * (nearly and high - 1 not in going)
            targets = between(low, high, undecided, at_once, going) or [high - 1] * nearly
            if not targets:
                return
            answers = ask(run, targets, seconds, decisions)
            in_a_row = in_a_row + 1 if Answer.NO in answers else 0
            undecided += [target for target, answer in zip(targets, answers, strict=True) if answer is Answer.OPEN]
            undecided.sort()


def between(low: int, high: int, undecided: Sequence[int], count: int, going: Sequence[int] = ()) -> list[int]:
    """Up to ``count`` targets, far from both ends and from what is ``undecided``; none where there is little left.

    What is ``going`` there is among them, and the others halve the largest parts that it leaves; of equal ones the upper one.
    """
    least = max(1, (high - low) // 6)
    gaps = [(low, undecided[0]), (undecided[-1], high)] if undecided else [(low, high)]
    gaps = sorted((gap for gap in gaps if gap[1] - gap[0] > least or not undecided), key=lambda gap: gap[0] - gap[1])
    kept = [target for target in going if any(since <= target < until for since, until in gaps)]
    if kept:
        parts = [part for since, until in gaps for part in pairwise(sorted({since, *kept, until}))]
        parts.sort(key=lambda part: (part[1] - part[0], part[0]), reverse=True)
        middles = [(since + until) // 2 for since, until in parts]
        return sorted([*kept, *(target for target in middles if target not in (*kept, *undecided))][:count])
    if len(gaps) == 1:
        (since, until), thirds = gaps[0], count + 1
        return sorted({since + (until - since) * part // thirds for part in range(1, thirds)}.difference(undecided))
    return [(since + until) // 2 for since, until in gaps][:count]


def questions(run: Run, grid: int) -> cpsat.Decisions:
    """Questions on this grid whether there are schedules that are better than what is known, or enough."""
    problem, most = run.problem, run.incumbent.to_beat - 1
    return cpsat.Decisions(
        problem.pipeline,
        problem.all_words,
        objective=problem.objective,
        most=most,
        horizon=problem.ended_by(most),
        grid=grid,
        known=problem.device_times,
    )


def ask(run: Run, targets: Sequence[int], seconds: float, decisions: cpsat.Decisions) -> list[Answer]:
    """For each of ``targets``, whether there is a schedule of at most that many ticks.

    They are asked at the same time, until the first is answered or has had its time. A schedule found on a coarser grid may be
    longer than asked for; where it is no better than the best, the question stays open.
    """
    problem, before = run.problem, run.incumbent.value
    times = " or ".join(str(problem.pipeline.time(target)) for target in targets)
    with run.note(f"CP-SAT: is there one of {times}?{_on(decisions.grid)}") as say:
        found = [
            Answer.GOING if outcome is None else _learned(run, outcome, target, target)
            for outcome, target in zip(decisions.ask(targets, run.limits(seconds)), targets, strict=True)
        ]
        refuted = [target for target, answer in zip(targets, found, strict=True) if answer is Answer.NO]
        if Answer.YES in found:
            say(run.incumbent.text())
        elif refuted:
            say("no" if len(refuted) == len(targets) else f"none of {problem.pipeline.time(max(refuted))}")
        else:
            late = [problem.pipeline.time(target) for target, answer in zip(targets, found, strict=True) if answer is Answer.OPEN]
            say("not decided in time" if len(late) == len(targets) else f"{late[0]}: not decided in time")
    better = run.incumbent.value < before
    return [Answer.OPEN if answer is Answer.YES and not better else answer for answer in found]


class Minimise(Step):
    """The best schedule between bound and best, or that there is none at all."""

    name = "CP-SAT: minimise"
    kind = Kind.DECIDE
    copies = True
    needs = Needs.TIME

    def run(self, run: Run, seconds: float, *, exact: bool = False, **options: Any) -> None:
        """``exact``: on the exact grid."""
        grid, incumbent = run.problem.grids[-1 if exact else 0], run.incumbent
        with run.note(f"CP-SAT: minimise{_on(grid)}") as say:
            upper = run.problem.longest if incumbent.best is None else incumbent.value
            nothing = incumbent.best is None
            answer = _learned(run, _solved(run, incumbent.lower, upper, seconds, grid), incumbent.lower, upper)
            if nothing and answer is Answer.NO:
                incumbent.refute(incumbent.proved_by or self.name)
                say("there is no schedule")
            else:
                say(incumbent.text_with_bound)


def _solved(run: Run, lower: int, upper: int, seconds: float, grid: int) -> Outcome:
    """The best schedule in ``lower..upper``."""
    problem = run.problem
    return cpsat.solve(
        problem.pipeline,
        problem.all_words,
        objective=problem.objective,
        lower=lower,
        upper=upper,
        horizon=problem.ended_by(upper),
        limits=run.limits(seconds),
        hint=run.incumbent.best,
        grid=grid,
        progress=run.incumbent.report,
        known=problem.device_times,
    )


def _learned(run: Run, outcome: Outcome, lower: int, upper: int) -> Answer:
    """Keep what CP-SAT has shown of schedules in ``lower..upper``."""
    run.versions["ortools"] = cpsat.VERSION
    argument = f"{cpsat.NAME} {cpsat.VERSION}"
    if outcome.schedule is not None:
        run.incumbent.offer(outcome.schedule, "CP-SAT")
    if outcome.lower_bound > upper or lower < upper:
        run.incumbent.prove(outcome.lower_bound, argument)
    if outcome.schedule is not None:
        return Answer.YES
    return Answer.NO if outcome.lower_bound > upper else Answer.OPEN


def _on(grid: int) -> str:
    return f" (on a grid of {grid} ticks)" if grid > 1 else ""
