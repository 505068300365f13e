"""DualPipe against the best schedule of its own setting: two directions, its memory, pairs of a forward and a backward.

Unit costs (F = I = W = 1). A pair of 3 takes as long as its halves one after the other; a shorter one saves time, so the
solver chooses which operations to run as pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from ppopt.named import find
from ppopt.pipeline import Costs, Memory, Pipeline, plain
from ppopt.search import Result, solve

SETTINGS = [(4, 8), (8, 16), (8, 20)]
OVERLAPS = [Fraction(3), Fraction(5, 2)]


class Comparison(NamedTuple):
    """DualPipe's makespan in ticks, and the solver's result on the same pipeline and memory."""

    dualpipe: int
    result: Result

    @property
    def pairs(self) -> int:
        """How many pairs the answer runs."""
        assert self.result.schedule is not None
        order = self.result.schedule.order
        return sum(int((row >= order.index.size).sum()) for row in order.rows)


def setting(devices: int, microbatches: int, overlap: Fraction) -> Pipeline:
    """Two directions, with the memory that DualPipe needs: one activation more than there are devices."""
    costs, memory = Costs(overlap=overlap), Memory(limit=devices + 1)
    return Pipeline(devices, microbatches, "bidirectional", costs=costs, memory=memory)


def compared(pipeline: Pipeline, time_limit: float, workers: int | None = None, seed: int = 0) -> Comparison:
    """Solve ``pipeline``, beginning with DualPipe."""
    dualpipe = find("dualpipe").schedule(pipeline).makespan
    return Comparison(dualpipe, solve(pipeline, seconds=time_limit, workers=workers, seed=seed))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each pipeline")
    parser.add_argument("--workers", type=int, default=None, help="threads of the solver")
    options = parser.parse_args(argv)
    print(f"{'D':>2} {'M':>3} {'pair':>5} {'dualpipe':>9} {'best':>6} {'bound':>6} {'pairs':>6} {'shorter by':>11}")
    for devices, microbatches in SETTINGS:
        for overlap in OVERLAPS:
            pipeline = setting(devices, microbatches, overlap)
            found = compared(pipeline, options.time_limit, options.workers)
            assert found.result.value is not None
            dualpipe = pipeline.time(found.dualpipe)
            best, bound = found.result.value, found.result.lower_bound
            shorter = 1 - best / dualpipe
            size = f"{devices:2} {microbatches:3} {plain(overlap):5}"
            print(f"{size} {dualpipe:>9g} {best:>6g} {bound:>6g} {found.pairs:6} {shorter:11.1%}", flush=True)


if __name__ == "__main__":
    main()
