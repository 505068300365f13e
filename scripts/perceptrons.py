"""What the studies of perceptrons share: options that name a cost model with its quirks, tables, and panels of curves.

The studies repeat those of DistIR (arXiv 2111.05426) with our names: ``data`` replicas, ``tensor`` parts (its horizontal
parallelism), ``pipeline`` stages. Quirks are peculiarities of its simulator: ``all`` of a cost model, ``steady`` for all but that
a step begins with sending its inputs, ``none``, or their names with commas between.
"""

from __future__ import annotations

import argparse
import csv
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ppopt.perceptron import COST_MODELS, QUIRKS, CostModel, Simulation, cost_model
from ppopt.pictures.curves import curves
from ppopt.pictures.figure import legend_columns, save
from ppopt.transformer import EstimateError
from ppopt.transformer.checked import check_keys

STEADY = "inputs-in-step"
"""The quirk that ``steady`` leaves out."""
Series = Mapping[str, Sequence[float | None]]


def parser_of(about: str, quirks: str, model: str = "dist-ir-2021-02") -> argparse.ArgumentParser:
    """The options of every study of perceptrons; ``quirks`` and the cost ``model`` are the defaults."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("studies"), help="folder for pictures and tables (studies)")
    parser.add_argument("--quick", action="store_true", help="only the smallest sizes, in seconds")
    parser.add_argument("--cost-model", default=model, help=f"{' or '.join(COST_MODELS)} ({model})")
    parser.add_argument("--gbit", type=float, help="speed of the links in Gbit/s (the cost model's)")
    parser.add_argument("--quirks", default=quirks, help=f"all, steady, none, or of {', '.join(QUIRKS)} ({quirks})")
    parser.add_argument("--schedule", default="pipedream", help="a named schedule of the linear placement (pipedream)")
    return parser


KEYS = {"perceptron": ("layers", "width", "batch"), "cluster": ("devices", "cost_model", "gbit", "quirks", "microbatches")}
"""The tables of a file, and their keys."""


def read_question(path: str) -> dict[str, Any]:
    """What a file such as models/perceptrons/mlp-small.toml asks for, by the names of the options; its ``name`` too.

    Raises:
        SystemExit: it cannot be read, or has an unknown key.
    """
    try:
        with open(path, "rb") as file:
            tree = tomllib.load(file)
        for key in tree:
            if key != "name" and key not in KEYS:
                raise EstimateError(key, f"unknown; expected name, {', '.join(f'[{table}]' for table in KEYS)}")
        found: dict[str, Any] = {"name": tree.get("name", Path(path).stem)}
        for table, known in KEYS.items():
            given = tree.get(table, {})
            check_keys(table, tuple(given), known)
            found |= given
    except (OSError, tomllib.TOMLDecodeError, EstimateError) as error:
        raise SystemExit(f"error: {path}: {error}") from None
    return found


def model_of(options: argparse.Namespace) -> CostModel:
    """The cost model that the options name.

    Raises:
        SystemExit: there is no such model or quirk; the message lists them.
    """
    try:
        model = cost_model(options.cost_model)
        words = {"all": model.known, "steady": [name for name in model.known if name != STEADY], "none": []}
        quirks = options.quirks.split(",") if isinstance(options.quirks, str) else options.quirks
        model = model.with_quirks(*words.get(",".join(quirks), quirks))
        return model if options.gbit is None else model.at(options.gbit)
    except EstimateError as error:
        raise SystemExit(f"error: {error}") from None


def row_of(found: Simulation) -> dict[str, Any]:
    """A simulation as a row of a table."""
    grid = found.grid
    sizes = {name: getattr(grid, name) for name in ("data", "tensor", "pipeline", "microbatches")}
    peak = max(found.peak_memory) / 1e9
    return {"devices": grid.devices, **sizes, "seconds": found.seconds, "throughput": found.throughput, "peak_memory_gb": peak}


def write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A table as CSV, with the columns of its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    print(path)


def draw(
    panels: Mapping[str, tuple[Sequence[float], Series]],
    title: str,
    path: Path,
    *,
    xlabel: str | Sequence[str],
    ylabel: str = "samples per second",
    one_legend: bool = True,
) -> None:
    """One picture of several panels side by side, all from 0 on; with one legend, or one for each."""
    width = max(6.0, (2.7 if one_legend else 3.4) * len(panels))
    picture = Figure(figsize=(width, 3.9), layout="constrained")
    axes = picture.subplots(1, len(panels), squeeze=False, sharex=one_legend, sharey=one_legend)[0]
    known: dict[str, Line2D] = {}
    names = dict.fromkeys(name for _, series in panels.values() for name in series)
    for number, (text, (x, series)) in enumerate(panels.items()):
        ax: Axes = axes[number]
        every = {name: series.get(name, [None] * len(x)) for name in (names if one_legend else series)}
        label = xlabel if isinstance(xlabel, str) else xlabel[number]
        curves(x, every, ax, xlabel=label, ylabel=ylabel if number == 0 or not one_legend else "")
        ax.set_title(text, fontsize=10)
        if one_legend:
            known |= {str(line.get_label()): line for line in ax.get_lines()}
        else:
            ax.legend(fontsize=8, frameon=False)
    for ax in axes:  # after all curves: panels may share their axis
        ax.set_ylim(bottom=0)
    picture.suptitle(title, fontsize=11)
    if known:
        columns = legend_columns(list(known), 0.9 * width)
        picture.legend(list(known.values()), list(known), loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(picture, str(path))
    print(path)
