"""A published plan of another planner against the best that ppopt finds for the same layers, schedule and memory.

Three values: the plan's cut and what recomputes in it, in the order of the schedule that it is for; the best order for that cut
and that recomputing; and the best of all, with its bound, where cut, recomputing and order are left open.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import ppopt as pp
from ppopt.named import Model, Row
from ppopt.search import Result
from ppopt.text import number, percent

MODEL = Path(__file__).parents[1] / "models" / "llama2-70b-sapp.toml"


class Comparison(NamedTuple):
    """``plan``: the plan in its schedule's order; ``ordered``: the same cut in the best order; ``best``: all left open."""

    plan: Row
    ordered: Result
    best: Result

    @property
    def saved(self) -> float:
        """By how much the best takes less than the plan, a fraction."""
        assert self.best.value is not None
        assert self.plan.makespan is not None
        return 1 - self.best.value / self.plan.makespan


def plan_of(model: Model) -> Row:
    """The row of the schedule that the file stands for, on its own cut."""
    return pp.compare(model)[model.schedule or ""]


def best_of(model: Model, seconds: float, workers: int | None = None) -> Result:
    """The best cut, recomputing and order on the plan's placement, within its memory limit."""
    return pp.solve(model.pipeline.changed(partition="best", recompute="choose"), seconds=seconds, workers=workers)


def comparison(model: Model, seconds: float, workers: int | None = None) -> Comparison:
    """The plan, its best order and the best of all, each solve within ``seconds``."""
    ordered = pp.solve(model, seconds=seconds, workers=workers, best_cut=False)
    return Comparison(plan_of(model), ordered, best_of(model, seconds, workers))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(MODEL), help="a model file (default: models/llama2-70b-sapp.toml)")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each of the two solves")
    parser.add_argument("--workers", type=int, help="threads of the solver")
    options = parser.parse_args(argv)
    model = pp.read_model(options.model)
    found = comparison(model, options.time_limit, options.workers)
    unit = model.pipeline.units.memory
    for name, answer in (
        (f"the plan in {model.schedule}", found.plan),
        ("its best order", found.ordered),
        ("the best", found.best),
    ):
        peak = max(answer.peak_memory or (0,))
        bound = f"   lower bound {number(answer.lower_bound)}" if isinstance(answer, Result) else ""
        print(f"{name:28} {number(answer.makespan or 0):>10}   peak {number(peak)} {unit}{bound}")
    print(f"the best takes {percent(found.saved)} less than the plan")
    print(f"layers of each stage: {', '.join(map(str, found.best.pipeline.counts))}")


if __name__ == "__main__":
    main()
