"""Where the stages should be: linear, loop and wave, each with its own best schedule and its own bound.

A proof holds for one placement. Times on different placements are compared in the user's unit, since their ticks may differ.
What one placement has reached is told to the others: as soon as a bound shows that a placement cannot beat it, its search ends.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ppopt import bounds
from ppopt.bounds import Objective
from ppopt.files import Model, result_dict
from ppopt.pipeline import Pipeline
from ppopt.search import Result, solve


@dataclass(frozen=True)
class Placements:
    """The results on all placements that were tried, in the order in which they were named."""

    results: tuple[Result, ...]

    @property
    def best(self) -> Result:
        """The one with the smallest value; of equal ones, the one that is proved, then the first."""
        return min(self.results, key=lambda result: (_value(result), result.reason != "optimal"))

    @property
    def bound(self) -> int | float:
        """No schedule on any of these placements takes less, in the user's unit."""
        least = min(self.results, key=_bound)
        return least.pipeline.time(least.lower_bound)

    @property
    def proved(self) -> bool:
        """Whether none of these placements has anything better than the best."""
        return all(_bound(result) >= _value(self.best) for result in self.results)


def placements(pipeline: Pipeline, chunks: Sequence[int] = (2,)) -> list[Pipeline]:
    """The same devices and costs per device: linear, and loop and wave with each number of chunks."""
    several = [(where, count) for where in ("loop", "wave") for count in dict.fromkeys(chunks) if count > 1]
    return [pipeline.placed(where, count) for where, count in [("linear", 1), *several]]


def solve_placements(
    pipelines: Sequence[Pipeline],
    *,
    objective: Objective = "makespan",
    time_limit: float = 60.0,
    deterministic: bool = False,
    progress: Callable[[Pipeline], AbstractContextManager[Any]] = lambda pipeline: nullcontext(),
    **search: Any,
) -> Placements:
    """The best schedule of each pipeline, as far as it matters which of them has the best of all.

    ``time_limit`` is for all together: each in turn gets an equal share of what is left, the most promising first, and what
    is still open begins again from where it was. ``deterministic``: an equal share of the limit each, once. ``progress`` is
    entered for each pipeline as its search begins and gives the progress callback; ``search`` goes to :func:`ppopt.search.solve`.
    """
    floor = [_least(pipeline, objective) for pipeline in pipelines]
    results: dict[int, Result] = {}
    begun = time.monotonic()

    def reached() -> Fraction | float:
        return min(map(_value, results.values()), default=math.inf)

    def is_open(i: int) -> bool:
        if i not in results:
            return True
        settled = deterministic or results[i].reason in ("optimal", "infeasible") or results[i].limit == "gap"
        return not settled and _bound(results[i]) < reached()

    while opened := [i for i in range(len(pipelines)) if is_open(i)]:
        left = time_limit - (time.monotonic() - begun)
        if len(results) == len(pipelines) and left < time_limit / 20:
            break
        opened.sort(key=lambda i: _bound(results[i]) if i in results else floor[i])
        for turn, i in enumerate(opened):
            if is_open(i):
                left = time_limit - (time.monotonic() - begun)
                share = time_limit / len(pipelines) if deterministic else max(time_limit / 100, left / (len(opened) - turn))
                limits = {"objective": objective, "time_limit": share, "deterministic": deterministic}
                with progress(pipelines[i]) as shown:
                    results[i] = _solved(pipelines[i], results.get(i), reached(), progress=shown, **limits, **search)
                if results[i].limit == "interrupted":
                    return Placements(tuple(results[k] for k in sorted(results)))
    return Placements(tuple(results[k] for k in sorted(results)))


def _solved(pipeline: Pipeline, before: Result | None, reached: Fraction | float, **search: Any) -> Result:
    """One placement, from what is known of it; only values below ``reached`` matter."""
    enough = math.ceil(reached * pipeline.ticks.per_unit) if isinstance(reached, Fraction) else None
    if before is None:
        return solve(pipeline, enough=enough, **search)
    result = solve(pipeline, enough=enough, start=before.schedule, lower_bound=before.lower_bound, **search)
    proved_by = before.proved_by if result.lower_bound == before.lower_bound else result.proved_by
    seconds, steps = before.seconds + result.seconds, (*before.steps, *result.steps)
    return dataclasses.replace(result, proved_by=proved_by, seconds=seconds, steps=steps)


def _least(pipeline: Pipeline, objective: Objective) -> Fraction:
    """A quick lower bound, in the user's unit."""
    found = [of(pipeline, objective, pairs=True) for of in (bounds.work, bounds.machine, bounds.memory)]
    ticks = max((bound.value for bound in found if bound is not None), default=0)
    return Fraction(ticks, pipeline.ticks.per_unit)


def _value(result: Result) -> Fraction | float:
    """In the user's unit; infinite without a schedule."""
    return math.inf if result.value is None else Fraction(result.value, result.pipeline.ticks.per_unit)


def _bound(result: Result) -> Fraction | float:
    """In the user's unit; infinite where there is no schedule."""
    return math.inf if result.reason == "infeasible" else Fraction(result.lower_bound, result.pipeline.ticks.per_unit)


def placements_list(found: Placements) -> list[dict[str, Any]]:
    """The results as ``placements`` of the result JSON: each placement with its ``result`` and ``metrics``."""
    entries = []
    for each in found.results:
        tree = result_dict(Model(each.pipeline), result=each)
        place = {"placement": each.pipeline.placement, "chunks": each.pipeline.chunks}
        entries.append({**place, "result": tree["result"], "metrics": tree["metrics"]})
    return entries
