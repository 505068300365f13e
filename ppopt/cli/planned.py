"""A plan as text: a ranked table, the frontier, the bound; and its best as a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ppopt.cli.render import shown
from ppopt.files import json_text, result_dict
from ppopt.files.model_tree import model_dict
from ppopt.files.toml_text import toml_text
from ppopt.search.summary import cut_lines
from ppopt.study.planning import Plan, Plans
from ppopt.text import figure, new_table, number, percent, place

GIB = 2**30 / 1e9
LETTERS = {"tensor": "T", "pipeline": "P", "context": "C", "data": "D", "expert": "E", "microbatch": "b", "zero": "Z"}
"""Sizes in a table."""
LEGEND = "T tensor, P pipeline, C context, D data, E expert size, b sequences of a microbatch, Z ZeRO stage; left out: 1 (Z: 0)."
_RANKS = {"bound": 5, "tokens/s/GPU": 4, "MFU": 3, "recompute": 2, "schedule": 1}
"""Columns that are left out first where there is no room."""


def report(plans: Plans, top: int) -> str:
    """What ``ppopt plan`` prints; ``top``: rows of the table."""
    parts = [str(plans)]
    if plans.nearest is not None:
        parts.append(_nearest(plans.nearest))
    if plans:
        parts += cut_lines(plans[0].pipeline)
        parts += ["", _table("Combinations, the fastest first", plans[:top])]
        if len(plans) > top:
            parts.append(f"{len(plans) - top} more: --top {len(plans)}")
        parts.append(LEGEND)
        if len(plans.frontier) > 1:
            parts += ["", _table("Less memory for more time", plans.frontier)]
    if plans.recipe is not None:
        parts += ["", _table("The recipe", [plans.recipe])]
        if plans:
            more = plans.recipe.step_time / plans[0].step_time - 1
            parts.append(f"The recipe takes {percent(abs(more))} {'more' if more >= 0 else 'less'} than the best found.")
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
    figures: dict[str, Callable[[Plan], str]] = {
        "step [s]": lambda row: figure(row.step_time),
        "bound [s]": lambda row: figure(min(row.lower_bound, row.step_time)),
        "tokens/s/GPU": lambda row: f"{row.tokens_per_second_per_gpu:.0f}",
        "MFU": lambda row: percent(row.mfu),
        "memory [GB]": lambda row: figure(round(row.peak_memory, 2)),
    }
    table = new_table(title, ["sizes", "schedule", "placement", "recompute"], list(figures), ranks=_RANKS)
    for row in plans:
        cells = [cell(row) for cell in figures.values()]
        table.add_row(_sizes(row), row.found.name, place(row.pipeline), _recompute(row), *cells)
    return shown(table)


def _sizes(row: Plan) -> str:
    """``T2 P8 C4 b1 Z1``; of several numbers of GPUs first that."""
    parts = [f"{row.combination.parallel.gpus}:"] if len(row.case.question.clusters) > 1 else []
    for name, letter in LETTERS.items():
        value = row.combination.sizes[name]
        if value > (name != "zero") or name in ("tensor", "pipeline", "microbatch"):
            parts.append(f"{letter}{value}")
    return " ".join(parts)


def _recompute(row: Plan) -> str:
    chosen: Any = row.pipeline.recompute
    if isinstance(chosen, str):
        return chosen
    counts: Counter[str] = Counter()
    for stage in chosen:
        for _, level, n in stage:
            counts[level] += n
    return ", ".join(f"{n} {level}" for level, n in counts.items())


def written(plan: Plan, path: str) -> str:
    """The plan as a file: a result with its schedule, or a model file with its order."""
    if path.endswith(".json"):
        return json_text(result_dict(plan.result))
    return toml_text(model_dict(plan.model, resolved=True))
