"""The best of all grids: a perceptron on 16 devices, in every product of data, tensor and pipeline parallelism.

Prints the best grids in their order, and draws samples per second over the tensor parts, a panel for each number of replicas, a
line for each number of microbatches. With the defaults it repeats DistIR's published grid search to all its digits
(euromlsys21_grid_search_results.csv of microsoft/dist-ir: 64 layers of width 8192, batch 8192); --quirks none says what is left
of its order where no peculiarity of that simulator counts. Beside the best grids with several stages: what the pipeline of one
replica takes with that schedule, and with the best named schedule that has one stage per device. A FILE gives sizes and cost
model; options go before what it says.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import perceptrons

from ppopt.named import NAMED, Restriction
from ppopt.perceptron import CostModel, Grid, Perceptron, Simulation, grids, pipeline_of, simulate
from ppopt.transformer import EstimateError


def searched(
    sizes: Perceptron, devices: int, model: CostModel, schedule: str = "pipedream", microbatches: Sequence[int] | None = None
) -> list[Simulation]:
    """Every grid, the fastest first; of equals the one with fewer stages."""
    found = [simulate(sizes, grid, model, schedule) for grid in grids(sizes, devices, microbatches)]
    return sorted(found, key=lambda one: (one.seconds, one.grid.pipeline))


def named(sizes: Perceptron, grid: Grid, model: CostModel) -> dict[str, float]:
    """Seconds of every named schedule of the linear placement on a grid, the fastest first."""
    pipeline, found = pipeline_of(sizes, grid, model), {}
    for name, definition in NAMED.items():
        if definition.placement == "linear":
            try:
                found[name] = pipeline.time(definition.schedule(pipeline).makespan) / 1000
            except Restriction:
                continue
    return dict(sorted(found.items(), key=lambda item: item[1]))


def panels_of(found: Sequence[Simulation]) -> dict[str, Any]:
    """By number of replicas: the tensor parts, and for each number of microbatches the throughput at each."""
    panels, x = {}, sorted({one.grid.tensor for one in found})
    for data in sorted({one.grid.data for one in found}):
        mine = [one for one in found if one.grid.data == data]
        lines: dict[int, dict[int, float]] = {}
        for one in mine:
            lines.setdefault(one.grid.microbatches if one.grid.pipeline > 1 else 1, {})[one.grid.tensor] = one.throughput
        text = "one replica" if data == 1 else f"{data} replicas"
        panels[text] = (x, {_label(count): [line.get(tensor) for tensor in x] for count, line in sorted(lines.items())})
    return panels


def _label(microbatches: int) -> str:
    return "one stage" if microbatches == 1 else f"{microbatches} microbatches"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = perceptrons.parser_of(__doc__ or "", "all")
    parser.add_argument("file", nargs="?", help="sizes and cost model from a file, such as models/perceptrons/mlp-small.toml")
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=8192, help="samples of a step (8192)")
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--microbatches", type=lambda text: [int(n) for n in text.split(",")], help="to choose from: 2,4,8")
    parser.add_argument("--top", type=int, default=10, help="grids to print (10)")
    parser.set_defaults(name="perceptron_grid")
    options = parser.parse_args(argv)
    if options.file is not None:
        parser.set_defaults(**perceptrons.read_question(options.file))
        options = parser.parse_args(argv)
    return options


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments(argv)
    model = perceptrons.model_of(options)
    layers, devices = (8, 4) if options.quick else (options.layers, options.devices)
    try:
        sizes = Perceptron(layers, options.width, options.batch)
        found = searched(sizes, devices, model, options.schedule, options.microbatches)
    except (EstimateError, Restriction) as error:
        raise SystemExit(f"error: {error}") from None
    if not found:
        raise SystemExit(
            f"error: no grid of {devices} devices divides {layers} layers, width {options.width} and {options.batch} samples"
        )
    heads = f"{'data':>4} {'tensor':>6} {'pipeline':>8} {'microbatches':>12} {'seconds':>10} {'samples/s':>10} {'peak GB':>8}"
    print(f"{heads}   the pipeline of a replica")
    for one in found[: options.top]:
        grid, peak = one.grid, max(one.peak_memory) / 1e9
        line = f"{grid.data:>4} {grid.tensor:>6} {grid.pipeline:>8} {grid.microbatches:>12} {one.seconds:>10.5g}"
        line += f" {one.throughput:>10.1f} {peak:>8.3g}"
        if grid.pipeline > 1:
            known = named(sizes, grid, model)
            best = next(iter(known))
            line += f"   {options.schedule} {known[options.schedule]:.5g} s, {best} {known[best]:.5g} s"
        print(line)
    rows = [perceptrons.row_of(one) for one in found]
    perceptrons.write_table(rows, options.output / f"{options.name}.csv")
    title = f"{layers} layers of width {options.width}, batch {options.batch}, {devices} devices ({model.name})"
    perceptrons.draw(panels_of(found), title, options.output / f"{options.name}.png", xlabel="tensor parts")


if __name__ == "__main__":
    main()
