"""A plan as text: a ranked table, the frontier, the bound; and its best as a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ppopt.cli.render import shown
from ppopt.files import json_text, result_dict
from ppopt.files.model_tree import model_dict
from ppopt.files.toml_text import toml_text
from ppopt.study.planning import Plan, Plans
from ppopt.text import figure, new_table, number, percent, place

GIB = 2**30 / 1e9
_RANKS = {"layers of the stages": 9, "tokens/s/GPU": 8, "bound": 7, "memory": 6, "recompute": 5, "MFU": 4}
_RANKS |= {"expert": 3, "context": 3, "zero": 3, "schedule": 2, "placement": 1}
"""Columns that are left out first where there is no room."""


def report(plans: Plans, top: int) -> str:
    """What ``ppopt plan`` prints; ``top``: rows of the table."""
    parts = [str(plans)]
    if plans.nearest is not None:
        parts.append(_nearest(plans.nearest))
    if plans:
        parts += ["", _table("Combinations, the fastest first", plans[:top])]
        if len(plans) > top:
            parts.append(f"{len(plans) - top} more: --top {len(plans)}")
        if len(plans.frontier) > 1:
            parts += ["", _table("Less memory for more time", plans.frontier)]
    if plans.recipe is not None:
        parts += ["", _table("The recipe", [plans.recipe])]
        if plans:
            more = plans.recipe.step_time / plans[0].step_time - 1
            parts.append(f"The recipe takes {percent(more)} more than the best found.")
    elif plans.recipe_problem is not None:
        parts += ["", f"The recipe has no schedule: {plans.recipe_problem}."]
    return "\n".join(parts)


def _nearest(nearest: Any) -> str:
    sizes = ", ".join(f"{name} {nearest[name]}" for name in ("tensor", "pipeline", "context", "data", "microbatch", "zero"))
    missing = nearest["missing"]
    return (
        f"Nothing fits. What comes nearest ({sizes}): cut as evenly as can be, device {nearest['device']} holds at least "
        f"{number(round(nearest['needed'], 3))} GB of {number(nearest['limit'])} GB: "
        f"{number(round(missing, 3))} GB ({number(round(missing / GIB, 3))} GiB) are missing."
    )


def _table(title: str, plans: Iterable[Plan]) -> str:
    sizes = ["tensor", "data", "pipeline", "context", "expert", "microbatch", "zero"]
    rows = list(plans)
    kept = [
        name
        for name in sizes
        if name in ("tensor", "data", "pipeline", "microbatch") or any(_size(row, name) > 1 for row in rows)
    ]
    figures = ["step [s]", "bound [s]", "tokens/s/GPU", "MFU", "memory [GB]"]
    table = new_table(title, ["schedule", "placement", "recompute"], [*kept, *figures], ["layers of the stages"], ranks=_RANKS)
    for row in rows:
        cells = [str(_size(row, name)) for name in kept]
        cells += [figure(row.step_time), figure(min(row.lower_bound, row.step_time)), f"{row.tokens_per_second_per_gpu:.0f}"]
        cells += [percent(row.mfu), figure(round(row.peak_memory, 2))]
        table.add_row(row.found.name, place(row.pipeline), _recompute(row), *cells, _counts(row.pipeline.counts))
    return shown(table)


def _size(row: Plan, name: str) -> int:
    return row.combination.sizes[name]


def _recompute(row: Plan) -> str:
    chosen: Any = row.pipeline.recompute
    if isinstance(chosen, str):
        return chosen
    counts: Counter[str] = Counter()
    for stage in chosen:
        for _, level, n in stage:
            counts[level] += n
    return ", ".join(f"{n} {level}" for level, n in counts.items())


def _counts(counts: Iterable[int]) -> str:
    return ",".join(map(str, counts))


def written(plan: Plan, path: str) -> str:
    """The plan as a file: a result with its schedule, or a model file with its order."""
    if path.endswith(".json"):
        return json_text(result_dict(plan.result))
    return toml_text(model_dict(plan.model, resolved=True))
