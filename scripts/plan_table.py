"""The tables of plans in docs/plans.md: every file of models/plans planned once, and every one of models/perceptrons.

    python scripts/plan_table.py --into docs/plans.md                            # all, anew: a minute each, so half an hour
    python scripts/plan_table.py models/plans/gpt-3-13b.toml --into docs/plans.md    # the row of one
    python scripts/plan_table.py models/plans/gpt-3-13b.toml                     # only printed

A transformer is planned by ppopt plan with its defaults; a perceptron by all its grids (perceptron_grid.py), which are simulated
to the end. Each row is written as soon as it is known. With --store a plan that was stopped goes on where it was. Times of
searches depend on the machine, and so may what is found.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import perceptron_grid
import perceptrons
from proof_times import replaced

from ppopt.perceptron import Perceptron
from ppopt.study.planning import plan
from ppopt.text import percent

ROOT = Path(__file__).parents[1]
PLANS, PERCEPTRONS = ROOT / "models" / "plans", ROOT / "models" / "perceptrons"
MARKS = {PLANS: ("<!-- plans -->", "<!-- end of plans -->"), PERCEPTRONS: ("<!-- perceptrons -->", "<!-- end of perceptrons -->")}
"""The marks around each table, by the folder that it is of."""
HEADS = {
    PLANS: (
        *("model", "parameters", "GPUs", "tokens a step", "best plan found", "step", "bound", "gap", "tokens/s/GPU", "MFU"),
        *("peak", "combinations"),
    ),
    PERCEPTRONS: ("model", "parameters", "devices", "best grid", "step", "samples/s", "peak", "grids"),
}


def row_of_plan(path: Path, seconds: float, store: str | None, workers: int | None) -> str:
    """A plan as a row of the table."""
    plans = plan(str(path), seconds=seconds, store=store, workers=workers)
    if not len(plans):
        return f"`{path.stem}` | {' | ' * 10}{plans}"
    best, space = plans[0], plans.space
    pipeline, case = best.pipeline, best.case
    where = [f"{name} {size}" for name, size in best.combination.sizes.items() if size > 1 or name == "zero"]
    place = pipeline.placement if pipeline.chunks == 1 else f"{pipeline.placement} of {pipeline.chunks} chunks"
    if pipeline.devices > 1:
        where += [place, best.found.name]
    cells = [
        f"`{path.stem}`",
        shortened(case.estimate.counts.total),
        f"{best.combination.parallel.gpus:,}",
        shortened(case.tokens),
        ", ".join(where),
        f"{best.step_time:.3g} s",
        f"{plans.lower_bound:.3g} s",
        percent(plans.gap or 0.0),
        f"{best.tokens_per_second_per_gpu:,.0f}",
        percent(best.mfu),
        f"{best.peak_memory:.3g} GB",
        f"{space.combinations:,}",
    ]
    return " | ".join(cells)


def row_of_perceptron(path: Path) -> str:
    """The best grid of a perceptron as a row of the table."""
    options = perceptron_grid.arguments([str(path)])
    sizes, model = Perceptron(options.layers, options.width, options.batch), perceptrons.model_of(options)
    found = perceptron_grid.searched(sizes, options.devices, model, options.schedule, options.microbatches)
    best, grid = found[0], found[0].grid
    named = [
        f"{name} {getattr(grid, name)}" for name in ("data", "tensor", "pipeline", "microbatches") if getattr(grid, name) > 1
    ]
    cells = [
        f"`{path.stem}`",
        shortened(sizes.parameters),
        f"{grid.devices}",
        ", ".join(named) or "one device",
        f"{best.seconds:.3g} s",
        f"{best.throughput:,.0f}",
        f"{max(best.peak_memory) / 1e9:.3g} GB",
        f"{len(found)}",
    ]
    return " | ".join(cells)


def shortened(number: float) -> str:
    """A count in thousands, millions, …, with three digits."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:g}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="files of models/plans or models/perceptrons (all)")
    parser.add_argument("--time-limit", type=float, default=50.0, help="seconds for each plan (50)")
    parser.add_argument("--store", help="SQLite file that keeps what was searched (none)")
    parser.add_argument("--workers", type=int, help="threads of the solver (all cores)")
    parser.add_argument("--into", type=Path, help="a Markdown file in whose tables the rows are written")
    options = parser.parse_args(argv)
    for path in options.files or sorted([*PLANS.glob("*.toml"), *PERCEPTRONS.glob("*.toml")]):
        folder = PERCEPTRONS if path.resolve().parent == PERCEPTRONS else PLANS
        if folder == PERCEPTRONS:
            row = row_of_perceptron(path)
        else:
            row = row_of_plan(path, options.time_limit, options.store, options.workers)
        print(f"| {row} |", flush=True)
        if options.into is not None:
            text = options.into.read_text(encoding="utf-8")
            options.into.write_text(with_row(text, folder, path.stem, f"| {row} |"), encoding="utf-8")


def with_row(text: str, folder: Path, name: str, row: str) -> str:
    """The page with a row in the table of a folder: in the place of that of the same name, sorted by name. Rows of files that are
    no longer there are left out.

    Raises:
        ValueError: the page has not the marks of the table.
    """
    start, end = MARKS[folder]
    lines = text.partition(start)[2].partition(end)[0].splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    known = {path.stem for path in folder.glob("*.toml")} | {name}
    kept = [line for _, line in sorted({**rows, name: row}.items()) if line.split("`")[1] in known]
    table = [f"| {' | '.join(HEADS[folder])} |", f"|{'---|' * len(HEADS[folder])}", *kept]
    return replaced(text, "\n".join(table), MARKS[folder])


if __name__ == "__main__":
    main()
