"""The configurations of the five systems that this one grew from: what they show, what is measured here, and the optimum.

The models are in models/seeds, what they are expected to take in models/seeds/expected.toml: figures of the original systems, and
the best makespan on the placement of the model, proved or with its bound.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppopt.files import read_model
from ppopt.files.model import setting
from ppopt.named import Model, find
from ppopt.schedule import Schedule
from ppopt.search import Result, solve
from ppopt.text import figure, new_table, rendered

FOLDER = Path(__file__).parents[1] / "models" / "seeds"
EXPECTED = FOLDER / "expected.toml"
TIMES = ("makespan", "device_span")


@dataclass(frozen=True)
class Shown:
    """A schedule of an original system, and the figures that are known of it."""

    schedule: str
    figures: dict[str, Any]
    chunks: int | None = None
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A model, maybe with other keys, and what it is expected to show. ``optimum``: an objective's value, and its bound."""

    path: Path
    of: str
    changes: tuple[str, ...]
    shows: tuple[Shown, ...]
    optimum: dict[str, float]

    @property
    def name(self) -> str:
        """What it is called in tables and tests."""
        return f"{self.path.stem}: {self.of}"

    def model(self) -> Model:
        """The model with the changes."""
        return read_model(str(self.path), [setting(text) for text in self.changes])

    def schedule(self, shown: Shown) -> Schedule:
        """A schedule of the original system, here."""
        return find(shown.schedule).schedule(self.model().pipeline, shown.chunks, **shown.params)

    def solved(self, seconds: float) -> Result:
        """The best schedule on the model's placement, on one thread."""
        objective = "span" if "device_span" in self.optimum else "makespan"
        return solve(self.model().pipeline, objective=objective, seconds=seconds, workers=1)

    @property
    def best(self) -> float:
        """The best value of its objective that is known."""
        return next(self.optimum[name] for name in TIMES if name in self.optimum)


def cases(path: Path = EXPECTED) -> Iterator[Case]:
    """All of the table."""
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["case"]:
        shows = []
        for shown in entry["shows"]:
            figures = dict(shown)
            schedule, chunks, params = figures.pop("schedule"), figures.pop("chunks", None), figures.pop("params", {})
            shows.append(Shown(schedule, figures, chunks, params))
        changes = tuple(entry.get("set", ()))
        yield Case(path.parent / entry["model"], entry["of"], changes, tuple(shows), entry.get("optimum", {}))


def measured(schedule: Schedule, name: str) -> Any:
    """A figure of a schedule, in the model's unit."""
    value = getattr(schedule, name)
    if name in TIMES:
        return schedule.pipeline.time(value)
    return list(map(schedule.pipeline.amount, value)) if name == "peak_memory" else value


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="the models whose names begin like this (default: all)")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds for each optimum (20)")
    parser.add_argument("--named-only", action="store_true", help="without solving")
    options = parser.parse_args(argv)
    table = new_table(None, ["model", "schedule"], ["original", "here", "optimum", "lower bound"])
    for case in cases():
        if not case.path.stem.startswith(options.only):
            continue
        for shown in case.shows:
            value = figure(measured(case.schedule(shown), "makespan"))
            table.add_row(case.name, shown.schedule, figure(shown.figures["makespan"]), value, "", "")
        if case.optimum and not options.named_only:
            result = case.solved(options.time_limit)
            proved = result.reason == "optimal"
            name = "proved" if proved else "best found"
            found = "" if result.value is None else figure(result.value)
            table.add_row(case.name, name, "", found, figure(case.best), figure(result.lower_bound))
    print(rendered(table))


if __name__ == "__main__":
    main()
