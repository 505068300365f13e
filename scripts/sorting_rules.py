"""What rules that order microbatches of different lengths lose: 1F1B in each rule's order, and the best order of operations.

    python scripts/sorting_rules.py [--microbatches 16] [--time-limit 60]

Sequences of three shapes are drawn (long tail, bimodal, uniform) and rounded to 1024 tokens, so that ticks are coarse. A
microbatch is one sequence; costs are of 4096 tokens at a hidden size of 4096 (a thirteenth of F is attention). ``loop`` has two
chunks, in the order of interleaved 1F1B. There is no limit of memory. The rules' columns are percent above the best schedule that
was found over all orders, which splits backwards; the last columns are that, a proved bound, and how much is left open.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import ppopt as pp
from ppopt.named import compare
from ppopt.named.microbatch_orders import ORDERS
from ppopt.pipeline import Costs, Memory, Mix, Pipeline
from ppopt.sequences import generated

SHAPES = {"long tail": "wiki", "bimodal": "rl-bimodal", "uniform": "uniform"}
SCHEDULES = {"linear": "1f1b", "loop": "interleaved-1f1b"}


def pipeline_of(shape: str, microbatches: int, placement: str) -> Pipeline:
    """Four devices and sequences of one shape."""
    drawn = generated(SHAPES[shape], microbatches, seed=1)
    lengths = [max(1, round(length / 1024)) for length in drawn]
    costs = Costs(
        forward=52, forward_quadratic=4, backward_input=56, backward_input_quadratic=8, backward_weight=48
    )  # of 4 x 1024 tokens
    mix = Mix(lengths=lengths, length=4, microbatch_order="choose")
    return Pipeline(4, microbatches, placement, memory=Memory(activation=1), costs=costs, mix=mix)


def rows(microbatches: list[int], seconds: float) -> Iterator[list[str]]:
    """A row per shape, number of microbatches and placement."""
    for shape in SHAPES:
        for many in microbatches:
            for placement, schedule in SCHEDULES.items():
                pipeline = pipeline_of(shape, many, placement)
                found = {row.turns: row for row in compare(pipeline, (2,), {schedule: {}}, only=(schedule,))}
                result = pp.solve(pipeline, seconds=seconds)
                least = result.lower_bound
                losses = [100 * (found[name].makespan / result.makespan - 1) for name in ("", *ORDERS)]
                proved = "optimal" if result.reason == "optimal" else f"{100 * result.gap:.1f} % open"
                yield [
                    shape,
                    str(many),
                    placement,
                    *(f"{loss:.1f}" for loss in losses),
                    f"{result.makespan:g}",
                    f"{least:g}",
                    proved,
                ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microbatches", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--time-limit", type=float, default=60)
    options = parser.parse_args()
    heads = ["lengths", "M", "placement", "given", *ORDERS, "best found", "bound", "proof"]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for row in rows(options.microbatches, options.time_limit):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
