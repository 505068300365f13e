"""What others may make of a result: a second opinion on its proof, and the model that was minimised as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Unpack

from ppopt.named import Model
from ppopt.pipeline import BEST, CHOOSE, OPEN
from ppopt.search.problem import Problem
from ppopt.search.result import Result
from ppopt.search.settings import Settings, SettingsFields
from ppopt.text import place

if TYPE_CHECKING:
    from ppopt.search.second_opinion import Opinion


class Unanswerable(ValueError):
    """What is asked beside a search has no answer for what the pipeline leaves open."""


def check_asked(model: Model, *, verify: bool, model_text: bool) -> None:
    """Raise before a search for which there can be no second opinion, or no model, afterwards.

    Raises:
        Unanswerable: as :func:`verify` and :func:`model_text`.
    """
    counts = model.pipeline.microbatches
    if isinstance(counts, tuple) and (verify or model_text):
        what = "a second opinion" if verify else "a model"
        raise Unanswerable(f"{what} is for one number of microbatches; got {len(counts)}")


def verify(result: Result, settings: Settings | None = None, **changes: Unpack[SettingsFields]) -> Opinion:
    """Show by another route that nothing is better than ``result.lower_bound``, or that nothing exists at all.

    Where several placements were left open it is shown for each, in an equal share of the time. Where the cut of layers, or what
    recomputes, was left open, it is shown for what the answer has alone (:attr:`Opinion.only`): no other route knows of all cuts
    and choices. Ctrl-C leaves it undecided. Single fields of the ``settings`` may be given as keywords.

    Raises:
        Unanswerable: the result is of several numbers of microbatches.
    """
    settings = dataclasses.replace(settings or Settings(), **changes)
    if result.points:
        raise Unanswerable(f"a second opinion is for one number of microbatches; got {len(result.points)}")
    only = _chosen(result)
    try:
        if not only:
            return _asked(result, settings)
        return _on_the_answer(result, settings, only)
    except KeyboardInterrupt:
        from ppopt.search.second_opinion import Opinion

        return Opinion(result.ticks.lower_bound, None, None, None, ())


def _chosen(result: Result) -> tuple[str, ...]:
    """What of the answer another route cannot know all alternatives of, by the keys of the model file."""
    mix, scope = result.pipeline.mix, result.scope
    if result.order is not None and mix.differs and mix.microbatch_order == OPEN:
        return ("microbatch_order",)
    if scope is None:
        return ()
    open_ = {
        "placement": len(result.placements) > 1,
        "partition": scope.partition == BEST,
        "recompute": scope.recompute == CHOOSE,
    }
    return tuple(name for name, is_open in open_.items() if is_open) if open_["partition"] or open_["recompute"] else ()


def _on_the_answer(result: Result, settings: Settings, only: tuple[str, ...]) -> Opinion:
    """On the pipeline of the answer: that it has nothing below the bound, and so not below its value where that is optimal."""
    from ppopt.search.second_opinion import Opinion, Trial

    if result.schedule is None:
        nothing = Trial("the answer", "there is no schedule whose cut could be looked at", 0.0)
        return Opinion(result.ticks.lower_bound, None, None, None, (nothing,), only)
    return dataclasses.replace(_opinion(result, result.ticks.lower_bound, settings), only=only)


def _asked(result: Result, settings: Settings) -> Opinion:
    if not result.placements:
        return _opinion(result, result.ticks.lower_bound, settings)
    bound = Fraction(result.ticks.lower_bound, result.ticks.per_unit)
    each = dataclasses.replace(settings, seconds=settings.seconds / len(result.placements))
    opinions = []
    for placed in result.placements:
        opinions.append(_opinion(placed, math.ceil(bound * placed.ticks.per_unit), each))
        if opinions[-1].confirmed is False:
            break
    return _together(result, opinions)


def _opinion(result: Result, bound: int, settings: Settings) -> Opinion:
    """On one placement, of a bound in its ticks."""
    from ppopt.search.second_opinion import second_opinion

    pipeline, objective = result.pipeline, result.objective
    if result.reason == "infeasible":
        objective, bound = "makespan", Problem(pipeline, objective, result.binding).longest + 1
    return second_opinion(
        pipeline,
        result.binding,
        objective=objective,
        bound=bound,
        proved_by=result.proved_by,
        horizon=Problem(pipeline, objective, result.binding).ended_by(bound - 1),
        limits=settings.limits(),
    )


def _together(result: Result, opinions: Sequence[Opinion]) -> Opinion:
    """What the opinions on the placements of ``result`` say together; its bound is in the ticks of the answer."""
    wrong = [opinion for opinion in opinions if opinion.confirmed is False]
    routes = [opinion.route for opinion in opinions if opinion.route is not None]
    confirmed = False if wrong else True if len(routes) == len(result.placements) else None
    route = wrong[0].route if wrong else " and ".join(dict.fromkeys(routes)) if confirmed else None
    trials = tuple(
        dataclasses.replace(trial, route=f"{place(placed.pipeline)}: {trial.route}")
        for placed, opinion in zip(result.placements, opinions, strict=False)
        for trial in opinion.trials
    )
    first = opinions[0] if not wrong else wrong[0]
    return dataclasses.replace(first, bound=result.ticks.lower_bound, confirmed=confirmed, route=route, trials=trials)


def model_text(result: Result, solver: str = "auto") -> str:
    """The model that a plain minimisation of the answer's pipeline would be given, within the best value that is known, as text.

    For OR-Tools, or an integer program where ``solver`` is ``"ilp"`` (:func:`ppopt.search.export.model_text`).

    Raises:
        TooLarge: the pipeline is too large for the ILP.
        Unanswerable: the result is of several numbers of microbatches.
    """
    from ppopt.search.export import model_text as text_of

    if result.points:
        raise Unanswerable(f"a model is for one number of microbatches; got {len(result.points)}")
    pipeline, objective = result.pipeline, result.objective
    problem = Problem(pipeline, objective, result.binding)
    upper = problem.longest if result.ticks.value is None else result.ticks.value
    return text_of(
        pipeline,
        problem.all_words,
        solver="ilp" if solver == "ilp" else "cp-sat",
        objective=objective,
        lower=0,
        upper=upper,
        horizon=problem.ended_by(upper),
    )
