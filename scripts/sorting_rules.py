"""What rules that order microbatches of different lengths lose to the best order for the same schedule; and the best schedule.

    python scripts/sorting_rules.py [--microbatches 16 32] [--time-limit 20] [--into docs/studies.md]

Sequences of three shapes are drawn (long tail, bimodal, uniform) and rounded to 1024 tokens, so that ticks are coarse. A
microbatch is one sequence; costs are of 4096 tokens at a hidden size of 4096 (a thirteenth of F is attention). ``loop`` has two
chunks, in the order of interleaved 1F1B. There is no limit of memory. The rules' columns are percent above the best order of the
microbatches that was found for 1F1B (interleaved 1F1B on the loop). Behind them stand its makespan and a bound of any order for
this schedule; then, in any order, the best schedule of all that was found, which splits backwards, and a bound of all schedules.
``--into`` puts the table into a page, between the lines ``<!-- sorting rules -->`` and ``<!-- end of sorting rules -->``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from proof_times import replaced

import ppopt as pp
from ppopt.named import compare
from ppopt.named.microbatch_orders import ORDERS
from ppopt.pipeline import Costs, Memory, Mix, Pipeline
from ppopt.sequences import generated

TOKENS = 1024
"""Lengths are multiples of so many tokens."""
MARKS = ("<!-- sorting rules -->", "<!-- end of sorting rules -->")
SHAPES = {"long tail": "wiki", "bimodal": "rl-bimodal", "uniform": "uniform"}
SCHEDULES = {"linear": "1f1b", "loop": "interleaved-1f1b"}


def rounded(length: int) -> int:
    """A number of tokens as a multiple of :data:`TOKENS`, and at least one."""
    return TOKENS * max(1, round(length / TOKENS))


def pipeline_of(lengths: Sequence[int | Sequence[int]], placement: str = "linear") -> Pipeline:
    """Four devices and microbatches of these lengths in tokens, in any order."""
    costs = Costs(
        forward=52, forward_quadratic=4, backward_input=56, backward_input_quadratic=8, backward_weight=48
    )  # of 4096 tokens
    mix = Mix(lengths=lengths, length=4 * TOKENS, microbatch_order="choose")
    return Pipeline(4, len(lengths), placement, memory=Memory(activation=1), costs=costs, mix=mix)


def found(result: pp.Result) -> list[str]:
    """The makespan of an answer, its bound, and how much is open."""
    proved = "proved" if result.reason == "optimal" else f"{100 * (result.gap or 0):.1f} % open"
    return [f"{result.makespan:g}", f"{result.lower_bound:g}", proved]


def rows(microbatches: Sequence[int], seconds: float) -> Iterator[list[str]]:
    """A row per shape, number of microbatches and placement."""
    for shape in SHAPES:
        for many in microbatches:
            for placement, schedule in SCHEDULES.items():
                lengths = [rounded(length) for length in generated(SHAPES[shape], many, seed=1)]
                pipeline = pipeline_of(lengths, placement)
                by_rule = {row.turns: row for row in compare(pipeline, (2,), {schedule: {}}, only=(schedule,))}
                alike, free = pp.solve(pipeline, order=schedule, seconds=seconds), pp.solve(pipeline, seconds=seconds)
                losses = [100 * (by_rule[name].makespan / alike.makespan - 1) for name in ("", *ORDERS)]
                yield [shape, str(many), placement, *(f"{loss:.1f}" for loss in losses), *found(alike), *found(free)]


def tell(heads: Sequence[str], rows: Iterable[Sequence[str]], into: Path | None, marks: tuple[str, str]) -> None:
    """Print a table row by row, and put it into a page between its marks."""
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    print(*lines, sep="\n", flush=True)
    for row in rows:
        lines.append(f"| {' | '.join(row)} |")
        print(lines[-1], flush=True)
    if into is not None:
        into.write_text(replaced(into.read_text(encoding="utf-8"), "\n".join(lines), marks), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and put it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microbatches", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--time-limit", type=float, default=20)
    parser.add_argument("--into", type=Path, help="a Markdown file whose table is replaced")
    options = parser.parse_args(argv)
    heads = ["lengths", "M", "placement", "given", *ORDERS, "best order", "bound", "", "best schedule", "bound", ""]
    tell(heads, rows(options.microbatches, options.time_limit), options.into, MARKS)


if __name__ == "__main__":
    main()
