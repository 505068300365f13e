"""A second opinion: that no schedule is better, shown again by another route than the first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ppopt import bounds, cpsat
from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import Pairable, Together, Word, cuts_of, free_choices, pairs_of, rules_of, select
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.search import tuning
from ppopt.solvers.outcome import NotForIlp, Outcome, TooLarge
from ppopt.timing.obeys import broken

ARGUMENTS = ("work", "one-machine", "memory", "window certificate")
"""First proofs that are bounds of this package: another of them shares too much with it to be a second opinion."""


@dataclass(frozen=True)
class Trial:
    """One route: what it was, what it gave, and its seconds."""

    route: str
    outcome: str
    seconds: float


@dataclass(frozen=True)
class Opinion:
    """Whether no schedule is shorter than ``bound`` ticks.

    ``confirmed``: ``True`` - shown again, by ``route``; ``False`` - ``schedule`` is shorter, so the first proof is wrong;
    ``None`` - not decided in the time.
    """

    bound: int
    confirmed: bool | None
    route: str | None
    schedule: Schedule | None
    trials: tuple[Trial, ...]
    only: tuple[str, ...] = ()
    """Keys of the model file (``partition``, ``recompute``, …) that were open and of which it is about the answer's choice
    alone; empty: it is about all that the bound holds over."""

    @property
    def seconds(self) -> float:
        """What all routes together took."""
        return sum(trial.seconds for trial in self.trials)


@dataclass(frozen=True)
class _Claim:
    """No schedule within the rules and ``extra`` has an objective below ``bound``; one that has would end by ``horizon``."""

    pipeline: Pipeline
    extra: tuple[Word, ...]
    objective: Objective
    bound: int
    horizon: int


_Route = Callable[[_Claim, Limits], tuple[Schedule | bool, str]]
"""A schedule that refutes the claim, ``True`` where it is shown, ``False`` where it stays open; and that in words."""


def second_opinion(
    pipeline: Pipeline,
    extra: Sequence[Word] = (),
    *,
    objective: Objective,
    bound: int,
    proved_by: str | None,
    horizon: int,
    limits: Limits,
) -> Opinion:
    """Show again that no schedule has an objective below ``bound``, which ``proved_by`` has shown.

    ``extra`` are words that bind beside the rules. What the first proof was not is tried in turn: lower bounds; CP-SAT (after a
    proof by CP-SAT once more without cuts, as far as that goes); the ILP. Both solvers are asked for a schedule one tick
    better, without any bound or start. ``horizon``: ticks by which some better schedule has ended, if there is one.
    """
    if bound <= 0:
        return Opinion(bound, True, "nothing is shorter than 0", None, ())
    claim = _Claim(pipeline, tuple(extra), objective, bound, horizon)
    routes: list[tuple[str, _Route]] = []
    first = proved_by or ""
    if first not in ARGUMENTS:
        routes.append(("lower bounds", _by_bounds))
    if not first.startswith("CP-SAT"):
        routes.append(("CP-SAT", _by_cpsat))
    if not first.startswith("ILP"):
        routes.append(("ILP", _by_ilp))
    if first.startswith("CP-SAT"):
        routes.append(("CP-SAT without cuts", _by_plain_cpsat))
    trials: list[Trial] = []
    for left, (name, route) in zip(range(len(routes), 0, -1), routes, strict=True):
        begun = time.monotonic()
        found, text = route(claim, replace(limits.slice(limits.clock.left / left), gap=0.0))
        trials.append(Trial(name, text, time.monotonic() - begun))
        if isinstance(found, Schedule):
            _check(claim, found)
            return Opinion(bound, False, name, found, tuple(trials))
        if found:
            return Opinion(bound, True, name, None, tuple(trials))
    return Opinion(bound, None, None, None, tuple(trials))


def _by_bounds(claim: _Claim, limits: Limits) -> tuple[Schedule | bool, str]:
    best = None
    for best in bounds.best(
        claim.pipeline,
        claim.objective,
        target=claim.bound,
        pairs=not claim.extra or bool(select(claim.extra, Together, Pairable)),
        limits=limits,
        tuning=tuning.BOUNDS,
    ):
        if best.value >= claim.bound:
            return True, f"{best.argument}: {best.proof}"
    time = claim.pipeline.time
    return False, "none applies" if best is None else f"at least {time(best.value)} ({best.argument})"


def _by_cpsat(claim: _Claim, limits: Limits) -> tuple[Schedule | bool, str]:
    return _decided(claim, cpsat.solve, limits, cuts=True)


def _by_plain_cpsat(claim: _Claim, limits: Limits) -> tuple[Schedule | bool, str]:
    return _decided(claim, cpsat.solve, limits, cuts=False)


def _by_ilp(claim: _Claim, limits: Limits) -> tuple[Schedule | bool, str]:
    from ppopt import ilp

    try:
        return _decided(claim, ilp.solve, limits, cuts=True)
    except (NotForIlp, TooLarge) as error:
        return False, str(error)


def _decided(claim: _Claim, solve: Callable[..., Outcome], limits: Limits, *, cuts: bool) -> tuple[Schedule | bool, str]:
    """The answer to whether there is a schedule one tick better."""
    pipeline, better = claim.pipeline, claim.bound - 1
    choices = free_choices(pipeline) if cuts else pairs_of(pipeline)
    words = [*rules_of(pipeline), *(claim.extra or choices)]
    if cuts:
        words += cuts_of(pipeline, claim.extra)
    outcome = solve(pipeline, words, objective=claim.objective, lower=better, upper=better, horizon=claim.horizon, limits=limits)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.schedule is not None and outcome.schedule.objective(claim.objective) < claim.bound:
        return outcome.schedule, f"there is one of {pipeline.time(outcome.schedule.objective(claim.objective))}"
    if outcome.lower_bound >= claim.bound:
        return True, "there is none better"
    return False, "not decided in the time"


def _check(claim: _Claim, schedule: Schedule) -> None:
    """A schedule that refutes a proof had better be one."""
    found = violations(claim.pipeline, schedule)
    if found:
        raise AssertionError(f"the schedule of a second opinion breaks a rule: {found[0].message}")
    wrong = broken(schedule, claim.extra) if claim.extra else []
    if wrong:
        raise AssertionError(f"the schedule of a second opinion breaks a constraint: {wrong[0]}")
