"""How many layers of each stage recompute at which level: the best choice for a named schedule that a descent finds."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from ppopt.named.recomputing.stages import Objective
from ppopt.pipeline import Pipeline, PipelineError
from ppopt.pipeline.recompute_choices import Choice, RecomputeChoices
from ppopt.schedule import Schedule


def best_levels(pipeline: Pipeline, made: Callable[[Pipeline], Schedule], objective: Objective) -> Schedule:
    """The schedule that ``made`` gives with the least recomputing that fits the memory, stage by stage.

    Without recomputing where that fits. Else every stage begins with what saves most, and recomputes less where that still fits
    and takes no longer, the stage with the most recomputing first. Where even the most does not fit, the schedule is over the
    limit.

    Raises:
        PipelineError: there is no room for a microbatch, whatever recomputes.
    """
    choices = RecomputeChoices(pipeline)
    best = _made(choices, choices.lowest, made)
    if best is not None and best.within_memory:
        return best
    choice = choices.highest
    best = made(choices.resolved(choice))
    improved = best.within_memory
    while improved:
        improved = False
        for stage in sorted(range(len(choice)), key=lambda s: (-choices.time(s, choice[s]), s)):
            for number in _fewer(choice[stage]):
                less = (*choice[:stage], number, *choice[stage + 1 :])
                found = _made(choices, less, made)
                if found is not None and found.within_memory and _time(found, objective) <= _time(best, objective):
                    best, choice, improved = found, less, True
                    break
    return best


def _made(choices: RecomputeChoices, choice: Choice, made: Callable[[Pipeline], Schedule]) -> Schedule | None:
    """The schedule with a choice; ``None``: there is no room for a microbatch."""
    try:
        return made(choices.resolved(choice))
    except PipelineError:
        return None


def _fewer(number: int) -> list[int]:
    """Options with less recomputing to try, the least first."""
    return sorted({0, number // 2, number - 1} - {number}) if number else []


def _time(schedule: Schedule, objective: Objective) -> Fraction:
    return Fraction(schedule.objective(objective), schedule.pipeline.ticks.per_unit)
