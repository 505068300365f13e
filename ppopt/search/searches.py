"""Steps that search: CP-SAT, the ILP, repetition, neighbourhoods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ppopt import cpsat
from ppopt.bounds.late import start_by
from ppopt.interrupt import uninterrupted
from ppopt.schedule import Schedule
from ppopt.search.horizons import horizon
from ppopt.search.result import Step
from ppopt.search.state import Search
from ppopt.solvers.outcome import Outcome


def repeat(search: Search, seconds: float, like: Schedule | None = None) -> None:
    """A schedule of few microbatches with a period that repeats, expanded to all of them; ``like`` may be one to begin with.

    It is looked for without data-parallel traffic, which lengthens a schedule by the longest of either kind at most.
    """
    with uninterrupted():
        from ppopt import periodic as repetition

    search.versions["ortools"] = cpsat.VERSION
    ticks = search.pipeline.ticks
    traffic = int(ticks.gather.max() + ticks.scatter.max())

    def report(value: int | None, bound: int) -> None:
        search.report(None if value is None else value + traffic, bound)

    with search.step("repetition" + ", without traffic" * ticks.traffic) as done:
        outcome = repetition.solve(
            search.pipeline,
            lower_bound=max(0, search.lower - traffic),
            limits=search.limits(seconds),
            upper=None if search.best is None else search.value,
            start=search.periodic,
            base=search.base,
            like=like or search.best,
            progress=report,
        )
        search.periodic, search.base = outcome.periodic or search.periodic, outcome.base or search.base
        if outcome.schedule is not None:
            search.found(outcome.schedule, "repetition")
        done(search.best_text())
    search.steps += [Step(f"repetition: {step.question}", step.seconds, step.answer) for step in outcome.steps]
    if outcome.interrupted:
        raise KeyboardInterrupt


def improve(search: Search, seconds: float) -> bool:
    """Search around the best schedule; whether a better one was found."""
    if search.best is None or not search.goes_on or search.extra or search.pipeline.ticks.traffic:
        return False
    search.versions["ortools"] = cpsat.VERSION
    with search.step("neighbourhoods") as done:
        outcome = cpsat.improved(
            search.best,
            objective=search.objective,
            lower=search.lower,
            limits=search.limits(seconds),
            progress=search.report,
        )
        if outcome.schedule is not None:
            search.found(outcome.schedule, "neighbourhoods")
        done(search.best_text())
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.schedule is not None


def decide(search: Search, seconds: float, grid: int, otherwise: Callable[[], None] | None = None) -> None:
    """Ask at the bound and whether the best can be beaten at all, then by bisection; two questions at once with two workers.

    Where it stays open whether the best can be beaten, what there is ``otherwise`` to prove it comes before bisection.
    Far below the optimum a target is refuted at once, far above it a schedule is found at once; what lies between may not be
    decided in time. Bisection goes on where there is more room, below or above that, until there is little on either side.
    """
    one = search.objective == "span"  # which one question takes both workers for
    at_once = 1 if one else min(2, search.limits(seconds).threads)
    at_bound = at_best = True
    undecided: list[int] = []
    while search.open and search.best is not None and search.left > 0:
        low, high = search.lower, search.value
        undecided = [target for target in undecided if low <= target < high]
        at_best = at_best and (low < high - 1 or not at_bound)
        ends = [low] * at_bound + [high - 1] * at_best
        targets = (ends or between(low, high, undecided, at_once))[:at_once]
        if not targets:
            return
        for target, decided in zip(targets, ask(search, targets, seconds, grid), strict=True):
            if decided is None:
                continue
            if at_bound and target == low:
                at_bound = False
            elif at_best and target == high - 1:
                at_best = False
                if otherwise is not None and not decided and search.open and search.left > 0:
                    otherwise()
            elif not decided:
                undecided = sorted([*undecided, target])


def between(low: int, high: int, undecided: Sequence[int], count: int) -> list[int]:
    """Up to ``count`` targets, far from both ends and from what is ``undecided``; none where there is little left."""
    least = max(1, (high - low) // 6)
    gaps = [(low, undecided[0]), (undecided[-1], high)] if undecided else [(low, high)]
    gaps = sorted((gap for gap in gaps if gap[1] - gap[0] > least or not undecided), key=lambda gap: gap[0] - gap[1])
    if len(gaps) == 1:
        (since, until), parts = gaps[0], count + 1
        return sorted({since + (until - since) * part // parts for part in range(1, parts)}.difference(undecided))
    return [(since + until) // 2 for since, until in gaps]


def ask(search: Search, targets: Sequence[int], seconds: float, grid: int) -> list[bool | None]:
    """For each of ``targets`` whether it could be decided if there is a schedule of at most so many true ticks.

    They are asked at the same time, and the first answer ends it: ``None`` where another one came first.
    """
    times = " or ".join(str(search.pipeline.time(target)) for target in targets)
    with search.step(f"CP-SAT: is there one of {times}?{_on(grid)}") as done:
        before = search.value
        if len(targets) == 1:
            found = [cp_sat(search, targets[0], targets[0], seconds, grid)]
        else:
            found = _at_once(search, targets, seconds, grid)
        refuted = [target for target, of in zip(targets, found, strict=True) if of is False]
        if any(found):
            done(search.best_text())
        elif refuted:
            done("no" if len(refuted) == len(targets) else f"none of {search.pipeline.time(max(refuted))}")
        else:
            done("not decided in time")
    answered = any(of is not None for of in found)
    return [None if of is None and answered else of is False or (of is True and search.value < before) for of in found]


def minimise(search: Search, seconds: float, grid: int) -> None:
    """The best schedule between bound and best, or that there is none at all."""
    with search.step(f"CP-SAT: minimise{_on(grid)}") as done:
        upper = horizon(search.pipeline, search.extra) if search.best is None else search.value
        found = cp_sat(search, search.lower, upper, seconds, grid)
        if search.best is None and found is False:
            search.infeasible = True
            done("there is no schedule")
        else:
            done(f"{search.best_text()}, bound {search.pipeline.time(search.lower)}")


def cp_sat(search: Search, lower: int, upper: int, seconds: float, grid: int) -> bool | None:
    """Whether a schedule in ``lower..upper`` was found, the best there is if possible; ``None`` if that stayed open."""
    outcome = cpsat.solve(
        search.pipeline,
        search.words,
        objective=search.objective,
        lower=lower,
        upper=upper,
        horizon=search.horizon(upper),
        limits=search.limits(seconds),
        hint=None if lower == upper else search.best,
        grid=grid,
        progress=search.report,
        start_by=start_by(search.pipeline) if search.objective == "span" and not search.extra else (),
    )
    found = _learned(search, outcome, lower, upper)
    _raise_interrupt([outcome])
    return found


def _at_once(search: Search, targets: Sequence[int], seconds: float, grid: int) -> list[bool | None]:
    """The same for makespans of at most each of ``targets``, until the first answer."""
    outcomes = cpsat.decide(search.pipeline, search.words, targets=targets, limits=search.limits(seconds), grid=grid)
    found = [_learned(search, outcome, target, target) for outcome, target in zip(outcomes, targets, strict=True)]
    _raise_interrupt(outcomes)
    return found


def _learned(search: Search, outcome: Outcome, lower: int, upper: int) -> bool | None:
    """Keep what CP-SAT has shown; as :func:`cp_sat`."""
    search.versions["ortools"] = cpsat.VERSION
    argument = f"{cpsat.NAME} {cpsat.VERSION}"
    if outcome.schedule is not None:
        search.found(outcome.schedule, "CP-SAT")
    if outcome.lower_bound > upper:
        search.prove(upper + 1, argument)
    elif lower < upper:
        search.prove(outcome.lower_bound, argument)
    if outcome.schedule is not None:
        return True
    return False if outcome.lower_bound > upper else None


def _raise_interrupt(outcomes: Iterable[Outcome]) -> None:
    if any(outcome.interrupted for outcome in outcomes):
        raise KeyboardInterrupt


def integer_program(search: Search) -> None:
    """Minimise by the ILP, from the best and from the bound."""
    with uninterrupted():
        from ppopt import ilp
    search.versions["pulp"] = ilp.VERSION
    with search.step("ILP: minimise") as done:
        upper = horizon(search.pipeline, search.extra) if search.best is None else search.value
        outcome = ilp.solve(
            search.pipeline,
            search.words,
            objective=search.objective,
            lower=search.lower,
            upper=upper,
            horizon=search.horizon(upper),
            limits=search.limits(search.left),
            hint=search.best,
        )
        search.infeasible = search.best is None and outcome.lower_bound > upper
        if outcome.schedule is not None:
            search.found(outcome.schedule, ilp.NAME)
        if outcome.lower_bound > search.lower:
            search.prove(outcome.lower_bound, f"{ilp.NAME} (PuLP {ilp.VERSION})")
        done("there is no schedule" if search.infeasible else f"{search.best_text()}, bound {search.pipeline.time(search.lower)}")


def _on(grid: int) -> str:
    return f" (on a grid of {grid} ticks)" if grid > 1 else ""
