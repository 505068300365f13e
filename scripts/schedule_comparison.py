"""GPipe, 1F1B and ZB-H1 side by side: ASCII drawings, bubble ratio against microbatches, and memory, done right.

What tutorials draw by hand, from schedules that are timed and checked. A forward and a backward take 1 each in the drawings,
so that a cell is a time unit; the split backward of ZB-H1 takes 1/2 + 1/2 of it and is left out there.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from fractions import Fraction

from rich.console import Console
from rich.table import Table

from ppopt.checker import violations
from ppopt.named import Restriction, find
from ppopt.pictures.text import grid
from ppopt.pipeline import Costs, Memory, Pipeline, Units
from ppopt.schedule import Schedule

DRAWN = ("gpipe", "1f1b")
TABLED = ("gpipe", "1f1b", "zb-h1")
MICROBATCHES = [1, 2, 4, 8, 16, 32, 64]
GIB = 2**30


def scheduled(name: str, pipeline: Pipeline) -> Schedule | None:
    """A named schedule that the checker accepts; ``None`` where it is not defined."""
    try:
        schedule = find(name).schedule(pipeline)
    except Restriction:
        return None
    assert not violations(pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=None)), schedule)
    return schedule


def drawings(stages: int, microbatches: int) -> list[tuple[str, Schedule]]:
    """The schedules that are drawn, forward = backward = 1."""
    pipeline = Pipeline(stages, microbatches, costs=Costs(forward=1, backward=1))
    return [(name, schedule) for name in DRAWN if (schedule := scheduled(name, pipeline)) is not None]


def bubble_rows(stages: int, counts: Sequence[int] = MICROBATCHES) -> list[list[float | None]]:
    """For each M: the closed form (D - 1) / (M + D - 1), then the measured bubble ratio of each schedule.

    Forward 1, backward 2 (1 + 1 where it is split).
    """
    rows: list[list[float | None]] = []
    for microbatches in counts:
        pipeline = Pipeline(stages, microbatches)
        schedules = [scheduled(name, pipeline) for name in TABLED]
        measured = [None if schedule is None else schedule.bubble_ratio for schedule in schedules]
        rows.append([(stages - 1) / (microbatches + stages - 1), *measured])
    return rows


def activation_bytes(layers: int, batch: int, sequence: int, hidden: int, heads: int) -> int:
    """Bytes that a stage keeps of one microbatch until its backward, 16-bit, nothing recomputed.

    ``layers * s * b * h * (34 + 5 * a * s / h)`` (Korthikanti et al. 2022, arXiv 2205.05198, without tensor parallelism).
    """
    return layers * (34 * sequence * batch * hidden + 5 * heads * sequence * sequence * batch)


def memory_rows(args: argparse.Namespace) -> list[tuple[str, list[float], float]]:
    """For each schedule its peak of activations on every device in GiB, and its share of GPipe's."""
    size = activation_bytes(args.layers // args.stages, args.batch // args.microbatches, args.sequence, args.hidden, args.heads)
    memory = Memory(activation=Fraction(size, GIB))
    pipeline = Pipeline(args.stages, args.microbatches, memory=memory, units=Units(memory="GiB"))
    rows = []
    first = 0.0
    for name in TABLED:
        schedule = scheduled(name, pipeline)
        if schedule is not None:
            peaks = [float(schedule.pipeline.amount(peak)) for peak in schedule.peak_memory]
            first = first or max(peaks)
            rows.append((name, peaks, max(peaks) / first))
    return rows


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-s", "--stages", type=int, default=4)
    parser.add_argument("-m", "--microbatches", type=int, default=8)
    parser.add_argument("--layers", type=int, default=24, help="of the whole model (24)")
    parser.add_argument("--hidden", type=int, default=4096, help="hidden size (4096)")
    parser.add_argument("--heads", type=int, default=32, help="attention heads (32)")
    parser.add_argument("--sequence", type=int, default=2048, help="tokens of a sample (2048)")
    parser.add_argument("--batch", type=int, default=32, help="samples of a batch; divided among the microbatches (32)")
    parser.add_argument("--quick", action="store_true", help="the same in a few sizes less")
    args = parser.parse_args(argv)
    console = Console(width=160, highlight=False)
    for name, schedule in drawings(args.stages, args.microbatches):
        print(f"{name}, {args.stages} stages, {args.microbatches} microbatches, forward = backward = 1")
        print(grid(schedule, 160))
        peaks = " ".join(f"{schedule.pipeline.amount(peak):g}" for peak in schedule.peak_memory)
        makespan = schedule.pipeline.time(schedule.makespan)
        print(f"makespan {makespan:g}, bubble ratio {schedule.bubble_ratio:.1%}, peak memory {peaks} microbatches\n")
    counts = MICROBATCHES[:4] if args.quick else MICROBATCHES
    heads = [head for name in TABLED for head in (name, "efficiency")]
    table = Table("microbatches", "(D-1)/(M+D-1)", *heads, title=f"Bubble ratio, {args.stages} stages, backward = 2 forwards")
    for count, (form, *measured) in zip(counts, bubble_rows(args.stages, counts), strict=True):
        cells = [percent(value) for ratio in measured for value in (ratio, None if ratio is None else 1 - ratio)]
        table.add_row(str(count), percent(form), *cells)
    console.print(table)
    enough = next((m for m in range(1, 10**4) if (args.stages - 1) / (m + args.stages - 1) < 0.2), None)
    print(f"More than 80 % efficiency with GPipe or 1F1B from M = {enough} microbatches on, 4 (D - 1) + 1.\n")
    table = Table("schedule", *(f"device {d}" for d in range(args.stages)), "of gpipe", title="Peak of activations, GiB")
    for name, peaks_, share in memory_rows(args):
        table.add_row(name, *(f"{peak:.2f}" for peak in peaks_), percent(share))
    console.print(table)
    print(
        f"{args.layers} layers, hidden {args.hidden}, {args.heads} heads, {args.sequence} tokens, {args.batch} samples in "
        f"{args.microbatches} microbatches; 16-bit, nothing recomputed. GPipe holds M microbatches, 1F1B min(M, D - d)."
    )


if __name__ == "__main__":
    main()
