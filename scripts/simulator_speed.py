"""How long the simulation of a step takes over the number of its operations.

Perceptrons of 32 to 4096 layers of width 64, batch 64, on one device, as in DistIR's companion notebook; the median of five runs,
and beside it the time in which this package times a schedule of a pipeline with about as many operations (1F1B on 8 devices).
These are times of this machine: repeat them on yours.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import perceptrons
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from ppopt.named import find
from ppopt.perceptron import Grid, Perceptron, program, simulated
from ppopt.pictures.curves import curves
from ppopt.pictures.figure import save
from ppopt.pipeline import Pipeline
from ppopt.timing import time_order

LAYERS = [32, 64, 128, 256, 512, 1024, 2048, 4096]
DEVICES = 8
LINES = {"a perceptron, operation by operation": "program_ms", "1F1B with as many operations": "schedule_ms"}
"""What is drawn, and its column."""


def seconds_of(call: Callable[[], object], runs: int = 5) -> float:
    """The median time of a call."""
    found = []
    for _ in range(runs):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def main(argv: Sequence[str] | None = None) -> None:
    options = perceptrons.parser_of(__doc__ or "", "steady").parse_args(argv)
    model = perceptrons.model_of(options)
    rows = []
    for layers in LAYERS[:3] if options.quick else LAYERS:
        written = program(Perceptron(layers, 64, 64), Grid(), model, options.schedule)
        count = len(written.operations)
        pipeline = Pipeline(DEVICES, -(-count // (2 * DEVICES)))
        order = find("1f1b").schedule(pipeline).order
        rows.append(
            {
                "operations": count,
                "program_ms": 1000 * seconds_of(lambda: simulated(written, 64)),  # noqa: B023 - called at once
                "schedule_ms": 1000 * seconds_of(lambda: time_order(pipeline, order)),  # noqa: B023
            }
        )
    perceptrons.write_table(rows, options.output / "simulator_speed.csv")
    draw(rows, options.output / "simulator_speed.png")


def draw(rows: Sequence[Mapping[str, float]], path: Path) -> None:
    """Milliseconds over operations, both logarithmic."""
    picture = Figure(figsize=(6, 3.9), layout="constrained")
    ax = picture.subplots()
    x = [row["operations"] for row in rows]
    curves(x, {name: [row[key] for row in rows] for name, key in LINES.items()}, ax, xlabel="operations", ylabel="ms")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    ax.set_xticks(x[::2], [f"{count:,}" for count in x[::2]])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.legend(frameon=False, fontsize=9)
    ax.set_title("Time of a simulation", fontsize=11)
    save(picture, str(path))
    print(path)


if __name__ == "__main__":
    main()
