"""What each kind of parallelism reaches alone: samples per second of a perceptron over 2 to 64 devices.

Data parallelism and pipeline parallelism (8 microbatches) on 64 layers of width 8192, a line for each batch; tensor parallelism
on 128 layers and a batch of 8192, a line for each width. These are the sizes of DistIR's companion notebook (arXiv 2111.05426).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import perceptrons

from ppopt.perceptron import Grid, Perceptron, simulate

DEVICES = [2, 4, 8, 16, 32, 64]
BATCHES = [512, 1024, 2048, 4096]
WIDTHS = [1024, 2048, 4096, 8192]


def cases(quick: bool) -> list[tuple[str, str, Perceptron, Grid]]:
    """Panel, line, sizes and grid of each point."""
    devices = DEVICES[:2] if quick else DEVICES
    batches, widths, layers = (BATCHES[:2], WIDTHS[:2], 8) if quick else (BATCHES, WIDTHS, 64)
    found = []
    for kind, grids in (
        ("data", [Grid(data=n) for n in devices]),
        ("pipeline", [Grid(pipeline=n, microbatches=8) for n in devices]),
    ):
        found += [(kind, f"batch {batch}", Perceptron(layers, 8192, batch), grid) for batch in batches for grid in grids]
    found += [
        ("tensor", f"width {width}", Perceptron(2 * layers, width, 8192), Grid(tensor=n)) for width in widths for n in devices
    ]
    return found


def main(argv: Sequence[str] | None = None) -> None:
    options = perceptrons.parser_of(__doc__ or "", "steady").parse_args(argv)
    model = perceptrons.model_of(options)
    rows: list[dict[str, Any]] = []
    panels: dict[str, tuple[list[int], dict[str, list[float]]]] = {}
    for kind, line, sizes, grid in cases(options.quick):
        found = simulate(sizes, grid, model, options.schedule)
        rows.append({"kind": kind, "line": line, **perceptrons.row_of(found)})
        x, lines = panels.setdefault(f"{kind} parallelism", ([], {}))
        if grid.devices not in x:
            x.append(grid.devices)
        lines.setdefault(line, []).append(found.throughput)
    perceptrons.write_table(rows, options.output / "isolated_parallelism.csv")
    perceptrons.draw(
        panels,
        f"Each kind of parallelism alone ({model.name})",
        options.output / "isolated_parallelism.png",
        xlabel=["replicas", "stages", "tensor parts"],
        one_legend=False,
    )


if __name__ == "__main__":
    main()
