"""What rules that put sequences into microbatches cost a pipeline, and what the order of their microbatches adds to it.

    python scripts/packing_rules.py [--bags 10] [--time-limit 10] [--into docs/studies.md]

Sequences of three shapes (those of ``sorting_rules.py``, with its devices and costs) arrive until there are tokens for so many
bags of 16384, and each of the rules of ``ppopt.sequences`` makes its microbatches of them. ``imbalance`` is the work of the
heaviest microbatch over the mean, F and B together. Then come, for 1F1B, the makespan in the order in which the rule leaves the
microbatches, by how many percent that is above the best order, the best order that was found and a bound of any order; and the
best schedule of all that was found, in any order, with a bound of all schedules. All rows of a shape have the same sequences, so
that their makespans can be compared. ``--into`` puts the table into a page, between the lines ``<!-- packing rules -->`` and
``<!-- end of packing rules -->``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from sorting_rules import SHAPES, found, pipeline_of, rounded, tell

import ppopt as pp
from ppopt.clock import Clock
from ppopt.named import Model, find
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.search import Result, Settings
from ppopt.search.turn_choice import TurnChoice, settled_order
from ppopt.sequences import PACKERS, generated, lengths_of, packed
from ppopt.timing import time_order

MOST = 16384
MARKS = ("<!-- packing rules -->", "<!-- end of packing rules -->")


def arrived(shape: str, bags: int) -> list[int]:
    """The first sequences of a shape that fill so many bags."""
    lengths = [rounded(length) for length in generated(SHAPES[shape], 64 * bags, seed=1, longest=MOST)]
    count = sum(tokens < bags * MOST for tokens in accumulate(lengths)) + 1
    if count > len(lengths):
        raise ValueError(f"{shape}: {len(lengths)} sequences do not fill {bags} bags")
    return lengths[:count]


def imbalance(pipeline: Pipeline) -> float:
    """The largest work of a microbatch over the mean, forward and backward on all stages."""
    duration = pipeline.ticks.duration
    work = [int(sum(duration[route, kind].sum() for kind in (Kind.F, Kind.B))) for route in pipeline.route_of_microbatch]
    return max(work) * len(work) / sum(work)


def best_order(pipeline: Pipeline, seconds: float) -> Result:
    """The best order of the microbatches for 1F1B; nothing is shown beside it, which would take longer than the search."""
    binding = pp.Binding("1f1b").read(Model(pipeline))
    order = settled_order(pipeline, binding)
    assert order is not None, "1F1B leaves nothing open"
    return TurnChoice(pipeline, "makespan", Settings(seconds=seconds), binding, order).go_on(Clock(seconds), math.inf, None)


def rows(bags: int, seconds: float) -> Iterator[list[str]]:
    """A row per shape and rule."""
    for shape in SHAPES:
        lengths = arrived(shape, bags)
        for name in PACKERS:
            pipeline = pipeline_of(lengths_of(packed(name, lengths, MOST), lengths))
            own = pipeline.time(time_order(pipeline, find("1f1b").order(pipeline)).makespan)
            alike, free = best_order(pipeline, seconds), pp.solve(pipeline, seconds=seconds)
            if alike.value is None:
                raise ValueError(f"{shape}, {name}: no order was found in {seconds} s")
            loss = f"{100 * (float(own) / alike.value - 1):.1f}"
            sizes = [shape, str(len(lengths)), name, str(pipeline.microbatches), f"{imbalance(pipeline):.2f}"]
            yield [*sizes, f"{float(own):g}", loss, *found(alike), *found(free)]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and put it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bags", type=int, default=10)
    parser.add_argument("--time-limit", type=float, default=10, help="of each of the two answers of a row, in seconds")
    parser.add_argument("--into", type=Path, help="a Markdown file whose table is replaced")
    options = parser.parse_args(argv)
    heads = ["lengths", "sequences", "rule", "M", "imbalance", "its order", "%", "best order", "bound", "", "best schedule"]
    tell([*heads, "bound", ""], rows(options.bags, options.time_limit), options.into, MARKS)


if __name__ == "__main__":
    main()
