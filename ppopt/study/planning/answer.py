"""The answer of a plan from what is known of its combinations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ppopt.search.result import Limit
from ppopt.study.planning.question import Question
from ppopt.study.planning.result import MS, Plan, PlanReason, Plans, Space
from ppopt.study.planning.space import Case, Cases, Combination
from ppopt.study.planning.steps import Leaf


def answered(
    question: Question,
    cases: Cases,
    over: Sequence[Case],
    leaves: Sequence[Leaf],
    best: float,
    lower: float,
    *,
    interrupted: bool,
    closed: bool,
    recipe: tuple[Plan | None, str | None],
    seconds: float,
    seed: int,
) -> Plans:
    """What was found, best first: nothing takes less than ``lower`` ms, or than ``best``; ``over``: cases that do not fit."""
    own_of: dict[int, list[Leaf]] = {}
    for leaf in leaves:
        own_of.setdefault(id(leaf.case), []).append(leaf)
    plans, solved, pruned = [], 0, 0
    lower, whole = min(lower, best), not any(not leaf.settled and leaf.bound < best for leaf in leaves)
    limit: Limit | None = None if whole else "interrupted" if interrupted else "gap" if closed else "time"
    for own in own_of.values():
        found = min((leaf.found for leaf in own if leaf.found is not None), key=lambda one: one.value, default=None)
        looked = any(leaf.looked for leaf in own)
        solved += looked
        pruned += not looked and all(leaf.settled or leaf.bound >= best for leaf in own)
        if found is not None:
            opened = [leaf for leaf in own if not leaf.settled]
            weakest = min(opened or own, key=lambda leaf: leaf.order)
            bound = min([float(found.value / MS), *(leaf.bound / MS for leaf in opened)])
            plans.append(Plan(own[0].case, found, bound, weakest.proved_by, seconds, seed, limit))
    plans.sort(key=lambda one: (one.step_time, one.lower_bound))
    reason: PlanReason = "no-solution"
    if plans:
        reason = "optimal" if lower >= plans[0].step_time * MS * (1 - 1e-12) else "feasible"
    elif cases.count and whole and lower == math.inf:
        reason = "infeasible"
    heavy = len(over) + len(cases.heavy)
    return Plans(
        tuple(plans),
        min([lower / MS, *(one.step_time for one in plans[:1])]) if lower < math.inf else 0.0,
        Space(cases.count, heavy, pruned, solved, cases.count - heavy - pruned - solved),
        reason,
        None if reason in ("optimal", "infeasible") else limit,
        nearest(question, cases, over) if reason == "infeasible" else None,
        *recipe,
        seconds=seconds,
        runtime=question.search.runtime,
    )


def nearest(question: Question, cases: Cases, over: Sequence[Case]) -> Mapping[str, Any] | None:
    """Of what does not fit, the combination that lacks least; ``None``: everything does, by itself.

    Of combinations whose weights alone are too much, only those are cut that may lack less than what is known.
    """
    least: tuple[float, float, int, Case] | None = None
    heavy = sorted(cases.heavy, key=lambda one: one.missing)
    every: list[tuple[float, Case | Combination]] = [(0.0, case) for case in over]
    every += [(one.missing, one.combination) for one in heavy]
    for missing, one in every:
        if least is not None and missing >= least[0]:
            break
        case = one if isinstance(one, Case) else Case.of(question, one)
        needs, device = case.floors.fullest()
        if least is None or needs - case.floors.room < least[0]:
            least = needs - case.floors.room, needs, device, case
    if least is None:
        return None
    missing, needs, device, case = least
    memory = case.memory
    static = float(memory.static)  # type: ignore[arg-type]
    return {
        **case.combination.sizes,
        "device": device,
        "needed": needs + static,
        "limit": float(memory.limit or 0),  # type: ignore[arg-type]
        "missing": missing,
    }
