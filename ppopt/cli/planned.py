"""A plan as text: a ranked table, the frontier, the bound; and its best as a file."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ppopt.cli.render import width
from ppopt.files import json_text, result_dict
from ppopt.files.model_tree import model_dict
from ppopt.files.toml_text import toml_text
from ppopt.search.summary import cut_lines
from ppopt.study.planning import Plan, Plans
from ppopt.text import new_table, number, percent, rendered

GIB = 2**30 / 1e9


LETTERS = {"tensor": "T", "pipeline": "P", "context": "C", "data": "D", "expert": "E", "microbatch": "b", "zero": "Z"}
"""Sizes in a table."""
LEGEND = "T tensor, P pipeline, C context, D data, E expert size, b sequences of a microbatch, Z ZeRO stage; left out: 1 (Z: 0)."
WIDE, MIDDLE = 112, 92
"""Columns of a terminal from which on a table has all figures, or all but those that follow from others."""


def report(plans: Plans, top: int) -> str:
    """What ``ppopt plan`` prints; ``top``: rows of the table."""
    parts = [_wrapped(str(plans))]
    if plans.nearest is not None:
        parts.append(_wrapped(_nearest(plans.nearest)))
    if plans:
        parts += map(_wrapped, cut_lines(plans[0].pipeline))
        parts += ["", _table("Combinations, the fastest first", plans[:top])]
        if len(plans) > top:
            parts.append(f"{len(plans) - top} more: --top {len(plans)}")
        parts.append(_wrapped(LEGEND))
        if len(plans.frontier) > 1:
            parts += ["", _table("Less memory for more time", plans.frontier)]
    if plans.recipe is not None:
        parts += ["", _table("The recipe", [plans.recipe])]
        if plans:
            more = plans.recipe.step_time / plans[0].step_time - 1
            parts.append(f"The recipe takes {percent(abs(more))} {'more' if more >= 0 else 'less'} than the best found.")
    elif plans.recipe_problem is not None:
        parts += ["", _wrapped(f"The recipe has no schedule: {plans.recipe_problem}.")]
    return "\n".join(parts)


def _wrapped(text: str) -> str:
    """Lines no longer than the terminal."""
    columns = width()
    if columns is None:
        return text
    return "\n".join(textwrap.fill(line, columns, subsequent_indent="  ", break_on_hyphens=False) for line in text.splitlines())


def _nearest(nearest: Any) -> str:
    sizes = ", ".join(f"{name} {nearest[name]}" for name in ("tensor", "pipeline", "context", "data", "microbatch", "zero"))
    missing = nearest["missing"]
    return (
        f"Nothing fits. What comes nearest ({sizes}): cut as evenly as can be, device {nearest['device']} holds at least "
        f"{number(round(nearest['needed'], 3))} GB of {number(nearest['limit'])} GB: "
        f"{number(round(missing, 3))} GB ({number(round(missing / GIB, 3))} GiB) are missing."
    )


def _table(title: str, plans: Iterable[Plan]) -> str:
    columns = width() or WIDE
    figures: dict[str, Callable[[Plan], str]] = {
        "step [s]": lambda row: f"{row.step_time:#.4g}",
        "bound [s]": lambda row: f"{min(row.lower_bound, row.step_time):#.4g}",
        "tokens/s/GPU": lambda row: f"{row.tokens_per_second_per_gpu:.0f}",
        "MFU": lambda row: percent(row.mfu),
        "memory [GB]": lambda row: f"{row.peak_memory:.1f}",
    }
    left_out = (
        () if columns >= WIDE else ("bound [s]", "tokens/s/GPU") if columns >= MIDDLE else ("bound [s]", "tokens/s/GPU", "MFU")
    )
    shown = [name for name in figures if name not in left_out]
    table = new_table(title, ["sizes", "schedule", "placement", "recompute"], shown)
    for row in plans:
        placement = row.pipeline.placement + (f" {row.pipeline.chunks}" if row.pipeline.chunks > 1 else "")
        table.add_row(_sizes(row), row.found.name, placement, _recompute(row), *(figures[name](row) for name in shown))
    return rendered(table, width())


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
