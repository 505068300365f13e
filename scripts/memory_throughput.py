"""What throughput costs in memory, by kind of parallelism: every grid is a point, peak memory of a device against throughput.

Without FILE: all grids of a perceptron on 16 devices (64 layers of width 8192, batch 8192), simulated by one of DistIR's cost
models, as in the scatter of its paper (arXiv 2111.05426). With FILE, a question of `ppopt plan` (docs/plans.md): all its
combinations that fit, each with the named schedule on one stage per device, on the balanced cut and with as little recomputing as
fits, in tokens per second and GPU. Points that no other beats in both are joined by a line.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import perceptron_grid
import perceptrons
from matplotlib.figure import Figure

from ppopt.files.estimates import read_source
from ppopt.perceptron import Perceptron
from ppopt.pictures.figure import save
from ppopt.pictures.palette import MARKERS, SERIES
from ppopt.study.planning.question import Recipe, question_of
from ppopt.study.planning.recipe import timed
from ppopt.study.planning.space import cases_of

KINDS = ("data", "tensor", "pipeline", "context", "expert")


class Point(NamedTuple):
    """Peak memory of a device in GB (1e9 bytes), throughput, and which kinds of parallelism there are."""

    memory: float
    throughput: float
    kind: str


def of_perceptron(options: argparse.Namespace) -> tuple[list[Point], list[dict[str, Any]], str]:
    """The points of a perceptron's grids, their rows, and a title."""
    model = perceptrons.model_of(options)
    layers, devices = (8, 4) if options.quick else (64, 16)
    sizes = Perceptron(layers, 8192, 8192)
    found = perceptron_grid.searched(sizes, devices, model, options.schedule or "pipedream")
    rows = [{"kind": one.grid.kind, **perceptrons.row_of(one)} for one in found]
    points = [Point(row["peak_memory_gb"], row["throughput"], row["kind"]) for row in rows]
    return points, rows, f"{layers} layers of width 8192, batch 8192, {devices} devices ({model.name})"


def of_question(options: argparse.Namespace) -> tuple[list[Point], list[dict[str, Any]], str]:
    """The points of a question's combinations, their rows, and a title."""
    source = read_source(options.file)
    question = question_of(source.tables, source.name)
    schedule, until = options.schedule or "1f1b", time.monotonic() + options.time_limit
    rows: list[dict[str, Any]] = []
    cases = cases_of(question).possible
    for number, case in enumerate(cases):
        if time.monotonic() > until:
            print(f"time is over: {len(cases) - number} of {len(cases)} combinations are left out", file=sys.stderr)
            break
        sizes = case.combination.sizes
        cut = {name: size for name, size in sizes.items() if name != "microbatch"}
        recipe = Recipe(cut, sizes["microbatch"], partition="balanced", recompute="choose", schedule=schedule)
        one, _ = timed(question, recipe)
        if one is not None:
            kind = " + ".join(name for name in KINDS if sizes[name] > 1) or "one GPU"
            figures = {"tokens_per_second_per_gpu": one.tokens_per_second_per_gpu, "peak_memory_gb": one.peak_memory}
            rows.append({"kind": kind, **sizes, "step_time": one.step_time, **figures})
    if not rows:
        raise SystemExit(f"error: {options.file}: no combination has a schedule that fits")
    points = [Point(row["peak_memory_gb"], row["tokens_per_second_per_gpu"], row["kind"]) for row in rows]
    return points, rows, f"{question.name}, {question.clusters[-1].gpus} GPUs, {schedule}"


def frontier(points: Iterable[Point]) -> list[Point]:
    """Those that no other has more throughput than in as little memory, by memory."""
    found: list[Point] = []
    for point in sorted(points, key=lambda point: (point.memory, -point.throughput)):
        if not found or point.throughput > found[-1].throughput:
            found.append(point)
    return found


def draw(points: Sequence[Point], title: str, ylabel: str, path: Path) -> None:
    """The scatter."""
    picture = Figure(figsize=(7, 4), layout="constrained")
    ax = picture.subplots()
    for number, kind in enumerate(sorted({point.kind for point in points}, key=lambda kind: (kind.count("+"), kind))):
        mine = [point for point in points if point.kind == kind]
        colour, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
        at = [point.memory for point in mine], [point.throughput for point in mine]
        face = colour if number < len(SERIES) else "none"  # beyond the colours: hollow
        ax.scatter(*at, label=kind, facecolors=face, edgecolors=colour, marker=marker, s=22, linewidths=0.8, zorder=3)
    best = frontier(points)
    ax.plot([p.memory for p in best], [p.throughput for p in best], color="#999999", linewidth=1.0, zorder=2)
    ax.set_xlabel("peak memory of a device [GB]")
    ax.set_ylabel(ylabel)
    ax.set_xlim(0, 1.05 * max(point.memory for point in points))
    ax.set_ylim(0, 1.05 * max(point.throughput for point in points))
    ax.grid(alpha=0.3)
    picture.suptitle(title, fontsize=10)
    picture.legend(loc="outside right center", frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(picture, str(path))
    print(path)


def main(argv: Sequence[str] | None = None) -> None:
    parser = perceptrons.parser_of(__doc__ or "", "all", "dist-ir-2022-01")
    parser.add_argument("file", nargs="?", help="a question of ppopt plan (default: the perceptron)")
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds for the combinations of FILE (300)")
    parser.set_defaults(schedule=None)
    options = parser.parse_args(argv)
    try:
        points, rows, title = of_perceptron(options) if options.file is None else of_question(options)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    name = "memory_throughput" + ("" if options.file is None else f"_{Path(options.file).stem}")
    perceptrons.write_table(rows, options.output / f"{name}.csv")
    ylabel = "samples per second" if options.file is None else "tokens per second and GPU"
    draw(points, title, ylabel, options.output / f"{name}.png")
    print(f"{len(points)} points, {len(frontier(points))} that no other beats in both", file=sys.stderr)


if __name__ == "__main__":
    main()
