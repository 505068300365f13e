"""What contention costs: a pipeline solved as if only delays counted, and as it is.

Three values: the best makespan when every transfer is a mere delay (latency and occupancy, no queue, nobody stopped);
the same order run on the links as they are, transfers first come, first served; and the best makespan on these links.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ppopt.files import read_model
from ppopt.pipeline import Pipeline
from ppopt.search import Result, solve
from ppopt.timing import time_order

MODEL = Path(__file__).parents[1] / "models" / "two-sites-v.toml"


class Contention(NamedTuple):
    """Ticks of ``planned``: the best with mere delays; ``met``: its order on the real links; ``best``: the best on these."""

    planned: Result
    met: int
    best: Result

    @property
    def loss(self) -> float:
        """How much longer the order planned with mere delays takes than the best, a fraction."""
        assert self.best.ticks.value is not None
        return self.met / self.best.ticks.value - 1


def contention(pipeline: Pipeline, time_limit: float, seed: int = 0) -> Contention:
    """Solve ``pipeline`` with and without its links' occupancy."""
    delays = pipeline.changed(links=pipeline.links.uncontended())
    planned, best = (solve(p, seconds=time_limit, seed=seed) for p in (delays, pipeline))
    if planned.schedule is None or best.schedule is None:
        raise SystemExit("no schedule was found in the time; give more with --time-limit")
    return Contention(planned, time_order(pipeline, planned.schedule.order).makespan, best)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(MODEL), help="a model file (default: models/two-sites-v.toml)")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each of the two solves")
    options = parser.parse_args(argv)
    pipeline = read_model(options.model).pipeline
    found = contention(pipeline, options.time_limit)
    for text, ticks, note in (
        ("planned with mere delays", found.planned.ticks.value, found.planned.reason),
        ("the same order on the links", found.met, ""),
        ("the best on the links", found.best.ticks.value, found.best.reason),
    ):
        print(f"{text:28} {pipeline.time(ticks or 0):>10} {pipeline.units.time} {note}".rstrip())
    print(f"the plan loses {found.loss:.1%}")


if __name__ == "__main__":
    main()
