"""How much memory should the pipeline of a 14.6B-parameter GPT get? A frontier that ends in a recommendation.

The times are those of models/gpt-14.6b.toml, 16 devices. Memory is turned into GiB with --activation (one microbatch on one
device) and --static (weights, gradients and optimizer state): by default what 46 layers with hidden size 5120, 40 heads and one
sample of 1024 tokens take in 16 bit without recompute (Korthikanti et al. 2022, arXiv 2205.05198), and 16 bytes per parameter.
Measure both on your own machine and give them here.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from ppopt.files import read_model
from ppopt.pictures.figure import save
from ppopt.pictures.frontier import frontier as draw
from ppopt.pipeline import Memory, Pipeline, Units
from ppopt.study.buying import best_buy, best_by_limit, recommendation, time_of, today
from ppopt.study.frontier import Frontier, Point, frontier

GIB = 2**30
MODEL = Path(__file__).parents[1] / "models" / "gpt-14.6b.toml"
ACTIVATION = round(46 / 16 * (34 * 1024 * 5120 + 5 * 40 * 1024 * 1024) / GIB, 2)
STATIC = round(14.6e9 / 16 * 16 / GIB, 1)


def in_gib(pipeline: Pipeline, activation: float, static: float) -> Pipeline:
    """The pipeline with its memory in GiB; what is retained keeps its share, and the limit its activations."""
    size, old = Fraction(str(activation)), pipeline.memory
    whole = isinstance(old.retained, Fraction) and isinstance(old.activation, Fraction)
    share = old.retained / old.activation if whole else Fraction(1)  # type: ignore[operator]
    weights = Fraction(str(static))
    limit = weights + size * old.limit / old.activation if isinstance(old.limit, Fraction) else None  # type: ignore[operator]
    memory = Memory(activation=size, retained=size * share, static=weights, limit=limit)
    return pipeline.changed(memory=memory, units=Units(time=pipeline.units.time, memory="GiB"))


def command(point: Point) -> str:
    """The command that finds a point's schedule; its limit is in the activations of the model file."""
    pipeline = point.result.pipeline
    amounts = pipeline.amounts
    room = min(
        Fraction(int(limit - static), int(amounts.activation.max()) * pipeline.chunks)
        for limit, static in zip(amounts.limit, amounts.static, strict=True)  # type: ignore[arg-type]
    )
    chunks = f" -v {pipeline.chunks}" if pipeline.chunks > 1 else ""
    where = f"-d {pipeline.devices} -m {pipeline.microbatches} --placement {pipeline.placement}{chunks}"
    return f"ppopt solve models/gpt-14.6b.toml {where} --memory-limit {float(room):g} -o best.json"


def fitting(line: Frontier, scale: Fraction) -> str:
    """The fastest named schedule that fits a limit, on whatever placement."""
    found = [
        (float(row.schedule.pipeline.time(row.schedule.objective(line.objective))), row.name)
        for row in line.named
        if row.schedule is not None and line.needed(row.schedule) <= scale
    ]
    return "{1} {0:.6g}".format(*min(found)) if found else "-"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(MODEL), help="model file (models/gpt-14.6b.toml)")
    parser.add_argument("--activation", type=float, default=ACTIVATION, help=f"GiB of a microbatch on a device ({ACTIVATION})")
    parser.add_argument("--static", type=float, default=STATIC, help=f"GiB of weights and optimizer state ({STATIC})")
    parser.add_argument("--points", type=int, default=12, help="limits that are looked at (12)")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds for each of them (30)")
    parser.add_argument("-o", "--output", type=Path, default=Path("studies"), help="folder for the picture (studies)")
    parser.add_argument("--quick", action="store_true", help="4 devices and 8 microbatches only")
    args = parser.parse_args(argv)
    pipeline = in_gib(read_model(args.model).pipeline, args.activation, args.static)
    if args.quick:
        quarter = dataclasses.replace(pipeline.memory, limit=pipeline.memory.static + 4 * pipeline.memory.activation)  # type: ignore[operator]
        pipeline = pipeline.changed(devices=4, microbatches=8, memory=quarter)

    def show(point: Point, found: int) -> None:
        limit, value = float(point.scale), point.result.value
        print(f"{found}: {limit:.4g} GiB: {'nothing found' if value is None else value}", file=sys.stderr)

    options = {"points": args.points, "seconds": args.time_limit, "progress": show}
    lines = [frontier(each, **options) for each in (pipeline.placed("linear"), pipeline.placed("wave", 2))]
    of_today = today(lines, "1f1b")
    assert of_today is not None, "1F1B applies to every linear pipeline"
    now = of_today[1]
    table = Table("GiB", "placement", "time", "bound", "against 1F1B", "fastest named schedule that fits (any placement)")
    for point in sorted((point for line in lines for point in line.points), key=lambda point: point.scale):
        result = point.result
        found = (f"{time_of(point):.6g}", f"{time_of(point) / now - 1:+.1%}") if result.value is not None else ("-", "-")
        bound = f"{result.lower_bound:.6g}"
        table.add_row(
            f"{float(point.scale):.4g}", result.pipeline.placement, found[0], bound, found[1], fitting(lines[0], point.scale)
        )
    Console(width=140, highlight=False).print(table)
    for sentence in recommendation(lines):
        print(sentence)
    print(f"To get it: {command(best_buy(best_by_limit(lines)))}")
    args.output.mkdir(parents=True, exist_ok=True)
    picture = Figure(figsize=(10, 6), layout="constrained")
    ax = draw(lines, picture.subplots())
    ax.axhline(now, color="#777777", linewidth=0.8, linestyle=":")
    ax.set_title(f"{pipeline.name}: {pipeline.devices} devices, {pipeline.microbatches} microbatches", loc="left")
    picture.legend(*ax.get_legend_handles_labels(), loc="outside right upper", fontsize=8, frameon=False)
    path = args.output / "memory_budget.png"
    save(picture, str(path))
    print(path)


if __name__ == "__main__":
    main()
