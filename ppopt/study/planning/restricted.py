"""A plan that is kept to what a runtime can run, and what that restriction costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TypeAlias

from ppopt.clock import Clock
from ppopt.pipeline.runtimes import TORCH, TORCHTITAN
from ppopt.search import strategies
from ppopt.search.settings import Settings
from ppopt.study.planning.question import Question
from ppopt.study.planning.result import MS, Plans, Unrestricted

Progress: TypeAlias = Callable[[float | None, float], None]
"""Called with the best step time and the bound of all, in seconds, whenever one improves."""
Runs: TypeAlias = Callable[[Question, float, float, Clock | None, Progress | None], Plans]
"""A search: for a question, in so many seconds of a clock, of what takes less than so many ms."""


def restricted(
    question: Question,
    settings: Settings,
    run: Runs,
    progress: Progress | None,
) -> Plans:
    """What a runtime can run, then the same without the restriction as far as it may be better: with PyTorch's costs, where these
    are the runtime's."""
    clock, share = settings.limits().clock, strategies.RESTRICTED * settings.seconds
    own = run(question, share, math.inf, clock.slice(share), progress)
    best = own[0].step_time if own else math.inf
    if clock.interrupted:
        return dataclasses.replace(own, unrestricted=Unrestricted(best if own else None, 0.0))

    def shown(value: float | None, bound: float) -> None:  # of what the runtime can run
        if progress is not None:
            progress(best if own else None, max(own.lower_bound, min(bound, best)))

    search = dataclasses.replace(question.search, runtime=TORCH if question.search.runtime == TORCHTITAN else "")
    asked = dataclasses.replace(question, search=search, recipe=None)
    free = run(asked, max(clock.left, 1e-3), best * MS, clock.slice(clock.left), shown)
    value = min(best, free[0].step_time if free else math.inf)
    lower = min(free.lower_bound, value)
    if own and lower > own.lower_bound:  # what holds without the restriction holds under it
        own = own.raised(lower)
    known = Unrestricted(value if value < math.inf else None, lower)
    interrupted = clock.interrupted and own.reason != "optimal"
    return dataclasses.replace(
        own, unrestricted=known, seconds=own.seconds + free.seconds, limit="interrupted" if interrupted else own.limit
    )
