"""The strategy: baselines, then bounds, then a solver from the best of them; each step only where the gap is still open."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppopt.bounds import Objective
from ppopt.constraints import own_words
from ppopt.named import Row, compare, find
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.solve.horizons import horizon, span_horizon
from ppopt.solve.result import Limit, Progress, Reason, Result, Step
from ppopt.solve.search import Search, words_of
from ppopt.solve.strategy import run
from ppopt.solvers.interrupt import noting
from ppopt.solvers.outcome import Limits, check_for_ilp
from ppopt.timing import time_order

if TYPE_CHECKING:
    from ppopt.constraints import Word
    from ppopt.solvers.repetition import Periodic
    from ppopt.solvers.verify import Opinion

__all__ = [
    "SOLVERS",
    "Limit",
    "Progress",
    "Reason",
    "Result",
    "Step",
    "horizon",
    "model_text",
    "solve",
    "span_horizon",
    "verify",
]

SOLVERS = ("auto", "cp-sat", "ilp")


def solve(
    pipeline: Pipeline,
    *,
    objective: Objective = "makespan",
    solver: str = "auto",
    order: str | None = None,
    params: Mapping[str, Any] | None = None,
    free: Collection[Kind] = (),
    constraints: Iterable[Word] = (),
    chunks: Sequence[int] = (),
    named_params: Mapping[str, Mapping[str, Any]] | None = None,
    own: Sequence[Row] = (),
    time_limit: float = 60.0,
    gap: float = 0.0,
    workers: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    progress: Progress | None = None,
    start: Schedule | None = None,
    lower_bound: int = 0,
    enough: int | None = None,
    periodic: Periodic | None = None,
) -> Result:
    """The best schedule of ``pipeline`` that can be found in ``time_limit`` seconds, and what is proved about it.

    Starts are whole ticks, in what is found and in what is proved; that matters for the device span alone, which might
    otherwise be less than one tick smaller where routes cross.

    ``order`` makes the constraints of a named schedule (with ``params``) binding, on its own placement; ``free`` sets some
    kinds free again (:func:`ppopt.solvers.binding.binding`). ``constraints`` are words of :mod:`ppopt.constraints` (``Precede``,
    ``OneOf``, ``Exclusive``, ``Capacity``, ``Together``) that bind as well; value, bound and proof are under these. ``solver``:
    ``"ilp"`` leaves what baselines and bounds in closed form do not settle to the integer program. ``gap``: stop once
    ``(value - lower bound) / value`` is at most this.
    ``deterministic``: one worker, and the time limit in deterministic seconds of the solver, so that the same call gives the
    same answer.

    ``start`` is a schedule of this pipeline to begin with, ``lower_bound`` a bound (ticks of the objective) that is known to
    hold; both only save work. ``enough``: only values below so many ticks are of interest; a bound that reaches it ends the
    search. ``chunks`` and ``named_params`` are for the named schedules shown beside (:func:`ppopt.named.compare`). ``own``: rows
    of the user's own, shown before them and, like them, begun from where they have this placement; those for another number of
    microbatches are left out. ``progress`` is called with
    the best value and the bound whenever one improves, from any thread. Ctrl-C ends the search and keeps its best.
    ``periodic`` is what a result for other numbers of microbatches has (:attr:`Result.periodic`), to begin repetition with.

    Raises:
        ValueError: an unknown objective, solver or schedule, a limit out of range, or constraints about what this pipeline does
            not have, that contradict each other, or that the solver cannot say.
        TypeError: a constraint that is no such word.
        Restriction: ``order`` is not defined for this pipeline.
        TooLarge: the pipeline is too large for the ILP.
    """
    if objective not in ("makespan", "span"):
        raise ValueError(f'objective: expected "makespan" or "span", got {objective!r}')
    if solver not in SOLVERS:
        raise ValueError(f"solver: expected one of {', '.join(SOLVERS)}, got {solver!r}")
    if not time_limit > 0:
        raise ValueError(f"time_limit: expected seconds > 0, got {time_limit!r}")
    if not 0 <= gap <= 1:
        raise ValueError(f"gap: expected a fraction between 0 and 1, got {gap!r}")
    if workers is not None and not workers >= 1:
        raise ValueError(f"workers: expected a whole number >= 1, got {workers!r}")
    extra: tuple[Word, ...] = ()
    constraints = tuple(constraints)
    if order is not None:
        from ppopt.solvers.binding import binding

        definition = find(order)
        pipeline = definition.place(pipeline, **(params or {}))
        extra = binding(pipeline, definition.words(pipeline, **(params or {})), free)
        start = None if free else time_order(pipeline, definition.order(pipeline, **(params or {})))
    if constraints:
        extra = own_words(pipeline, constraints, extra)
        if solver == "ilp":
            check_for_ilp(pipeline, extra)
    search = Search(
        pipeline,
        objective,
        extra,
        time_limit,
        gap,
        workers=workers,
        seed=seed,
        deterministic=deterministic,
        progress=progress,
        enough=enough,
        periodic=periodic,
    )
    if start is not None:
        known = search.obeying(start if start.pipeline == pipeline else time_order(pipeline, start.order))
        if known is not None and (search.pairs or not known.order.paired):
            search.found(known, "start")
    mine = [row for row in own if row.schedule is None or row.schedule.pipeline.microbatches == pipeline.microbatches]
    if lower_bound:
        search.prove(lower_bound, "a bound that was given")
    try:
        with noting():
            run(search, solver, lambda: [*mine, *compare(pipeline, chunks, named_params or {})])
    except KeyboardInterrupt:
        search.interrupted = True
    return replace(search.result(), constraints=constraints)


def verify(
    result: Result, *, time_limit: float = 60.0, workers: int | None = None, seed: int = 0, deterministic: bool = False
) -> Opinion:
    """Show by another route that nothing is better than ``result.lower_bound``, or that nothing exists at all."""
    from ppopt.solvers.verify import second_opinion

    pipeline, objective, bound = result.pipeline, result.objective, result.lower_bound
    if result.reason == "infeasible":
        objective, bound = "makespan", horizon(pipeline, result.binding) + 1
    words = result.binding
    until = bound - 1 if objective == "makespan" else span_horizon(pipeline, bound - 1, free=not words, words=words)
    limits = Limits(time_limit, workers=workers, seed=seed, deterministic=deterministic)
    return second_opinion(
        pipeline,
        result.binding,
        objective=objective,
        bound=bound,
        proved_by=result.proved_by,
        horizon=until,
        limits=limits,
    )


def model_text(result: Result, solver: str = "auto") -> str:
    """The model that a plain minimisation would be given, within the best value that is known, as text.

    For OR-Tools, or an integer program where ``solver`` is ``"ilp"`` (:func:`ppopt.solvers.export.model_text`).

    Raises:
        TooLarge: the pipeline is too large for the ILP.
    """
    from ppopt.solvers.export import model_text as text_of

    pipeline, objective = result.pipeline, result.objective
    words = result.binding
    upper = horizon(pipeline, words) if result.value is None else result.value
    return text_of(
        pipeline,
        words_of(pipeline, words),
        solver="ilp" if solver == "ilp" else "cp-sat",
        objective=objective,
        lower=0,
        upper=upper,
        horizon=upper if objective == "makespan" else span_horizon(pipeline, upper, free=not words, words=words),
    )
