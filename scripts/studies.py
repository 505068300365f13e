"""What the studies share: the six series of the field, running a study with its store, and drawing panels of curves.

The studies repeat the figures of CrossPipe's simulation notebook (arXiv 2507.00217) with our names. A forward takes 400 / D
and a backward twice that on each of D devices; a chunk of v takes the v-th part. Hanayo runs in groups of D microbatches, as
there. ``optimal`` is the best schedule of the linear placement with the backward split in two, whatever its memory.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import study_charts
from matplotlib.figure import Figure

from ppopt.pictures.curves import curves
from ppopt.pictures.figure import legend_columns, save
from ppopt.pictures.palette import LIMIT
from ppopt.study.plan import Instance, study_of
from ppopt.study.store import Store, Stored
from ppopt.study.sweep import Progress, sweep
from ppopt.study.table import columns_of, rows_of

LATENCIES = [0, 4, 16]
DEVICES = [2, 4, 8, 16, 32]
GROUPS = {"variant": "groups"}
SIX = [
    "gpipe",
    "1f1b",
    {"name": "interleaved-1f1b", "chunks": 2},
    {"name": "hanayo", "chunks": 2, "params": GROUPS},
    {"name": "hanayo", "chunks": 4, "params": GROUPS},
    "zb-h1",
]
"""Six series; Hanayo with one and with two waves."""

Tree = dict[str, Any]
Keep = Callable[[Stored], bool]


@dataclass(frozen=True)
class Panel:
    """One plot: which results, and what is on its axes. A result without an x is a level for all x."""

    title: str
    keep: Callable[[Stored], bool]
    x: Callable[[Stored], float | None]
    xlabel: str
    y: str | Callable[[Stored], float | None] = "bubble_ratio"
    """A figure of the outcome, or what to make of a result."""
    ylabel: str = ""
    line: Callable[[Stored], str] | None = None
    """The series of a result; by default its schedule and chunks."""
    limit: float | None = None
    """A level that y must not be above, drawn dashed."""
    log: bool = False
    """Whether y is logarithmic."""


class Results(list[Stored]):
    """The results of a study. ``instances``: what each is of, by its key; ``charts``: draw schedules below curves."""

    instances: Mapping[str, Instance] = MappingProxyType({})
    charts: bool = False


def times(devices: int) -> Tree:
    """Costs on D devices: everything of a microbatch takes 1200 / D."""
    share = 400 / devices
    return {"costs.forward": share, "costs.backward_input": share, "costs.backward_weight": share}


def together(rows: Iterable[Tree]) -> Tree:
    """Lists that advance together, from the values that belong to each other."""
    table: Tree = {}
    for row in rows:
        for key, value in row.items():
            table.setdefault(key, []).append(value)
    return table


def arguments(about: str, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of every study, read."""
    return parser_of(about).parse_args(argv)


def parser_of(about: str) -> argparse.ArgumentParser:
    """The options of every study."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("studies"), help="folder for pictures and tables (studies)")
    parser.add_argument("--quick", action="store_true", help="only the smallest sizes, in seconds")
    parser.add_argument("--named-only", action="store_true", help="without the optimal curve")
    parser.add_argument("--no-charts", dest="charts", action="store_false", help="without the schedules below the curves")
    parser.add_argument("--devices", type=_counts, metavar="N,…", help="only these numbers of devices, where a study has several")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds for each optimum (20)")
    parser.add_argument("--store", type=Path, help="SQLite file that keeps results between runs (default: none)")
    parser.add_argument("--workers", type=int, help="processes (default: as many as the cores)")
    return parser


def _counts(text: str) -> list[int]:
    """Numbers of devices."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"expected numbers >= 1, got {text}")
    return found


def devices_of(options: argparse.Namespace, several: Sequence[int] = DEVICES) -> list[int]:
    """The numbers of devices of a study: those that are asked for, else ``several``, or the smallest of them."""
    return options.devices or ([2, 4] if options.quick else list(several))


def run(tree: Tree, options: argparse.Namespace, optimal: bool = True) -> Results:
    """The results of a study, from the store where they are there already."""
    if optimal and not options.named_only:
        tree = {**tree, "solve": {"time_limit": options.time_limit, "seed": 0}}
    study = study_of(tree, f"{tree['name']}.py")
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = str(options.store or Path(folder) / "results.db")
        if options.quick:
            with ThreadPoolExecutor(1) as pool:
                _sweep(study, path, pool, None)
        else:
            _sweep(study, path, None, options.workers)
        with Store(path) as store:
            results = Results(store.results(study.name))
    results.instances = {instance.key: instance for instance in study.instances if instance.pipeline is not None}
    results.charts = options.charts
    for result in results:
        if result.status == "failed":
            print(f"failed: {result.changes} {result.task}: {result.outcome['error']}", file=sys.stderr)
    _table(results, options.output / f"{study.name}.csv")
    return results


def _sweep(study: Any, path: str, executor: Executor | None, workers: int | None) -> None:
    last = time.monotonic()

    def show(state: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > 10:
            last = time.monotonic()
            left = "" if state.remaining is None else f", about {state.remaining:.0f} s left"
            print(f"{study.name}: {state.finished} of {state.total}{left}", file=sys.stderr)

    sweep(study, path, executor=executor, workers=workers, progress=show)


def _table(results: Sequence[Stored], path: Path) -> None:
    rows = rows_of(results)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns_of(rows))
        writer.writeheader()
        writer.writerows(rows)


def label(result: Stored) -> str:
    """The series of a result: schedule and chunks, or ``optimal``; what is not proved is a series of its own."""
    task = result.task
    if "schedule" not in task:
        return f"{proof(result)} (linear)"
    chunks = f", {task['chunks']} chunks" if "chunks" in task else ""
    return f"{task['schedule']}{chunks}"


def proof(result: Stored) -> str:
    """What a solved result is called."""
    return "optimal" if result.outcome.get("reason") == "optimal" else "best found"


def points(results: Iterable[Stored], panel: Panel) -> tuple[list[float], dict[str, list[float | None]]]:
    """The x values of a panel, and for each series its y at each of them; ``None`` where there is no such schedule."""
    lines: dict[str, dict[float | None, float | None]] = {}
    for result in results:
        if panel.keep(result):
            lines.setdefault((panel.line or label)(result), {})[panel.x(result)] = _value(result, panel.y)
    x = sorted({place for line in lines.values() for place in line if place is not None})
    return x, {name: [line.get(place, line.get(None)) for place in x] for name, line in lines.items()}


def _value(result: Stored, y: str | Callable[[Stored], float | None]) -> float | None:
    if callable(y):
        return y(result) if result.status == "done" else None
    value: float | None = result.outcome.get(y)
    return value


def draw(results: Results, panels: Sequence[Panel], title: str, path: Path) -> None:
    """One picture of several panels side by side, with one legend; below them the schedules of a point of the middle one."""
    middle = panels[len(panels) // 2]
    at, charts = 0.0, []
    if results.charts:
        kept = [result for result in results if middle.keep(result)]
        at, charts = study_charts.charts_of(kept, results.instances, middle.x, middle.line or label)
    heights = [4.6, *([study_charts.height(charts)] if charts else [])]
    picture = Figure(figsize=(5 * max(len(panels), 2 + bool(charts)), sum(heights)), layout="constrained")
    parts = picture.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    axes = parts[0].subplots(1, len(panels), squeeze=False)[0]
    for panel, ax in zip(panels, axes, strict=True):
        x, lines = points(results, panel)
        ylabel = panel.ylabel or str(panel.y).replace("_", " ")
        curves(x, lines, ax, xlabel=panel.xlabel, ylabel=ylabel, log=panel.log)
        if panel.limit is not None:
            ax.axhline(panel.limit, color=LIMIT, linestyle="--", linewidth=1.0)
        ax.set_title(panel.title)
    parts[0].suptitle(title)
    handles, labels = axes[0].get_legend_handles_labels()
    columns = legend_columns(labels, 0.9 * picture.get_figwidth())
    parts[0].legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    if charts:
        where = f", {middle.title}" if "=" in middle.title else ""
        study_charts.draw_charts(charts, f"The schedules at {middle.xlabel} = {at:g}{where}", parts[1])
    save(picture, str(path))
    print(path)


def by_latency(
    x: Callable[[Stored], float | None], xlabel: str, keep: Callable[[Stored], bool], line: Callable[[Stored], str] | None = None
) -> list[Panel]:
    """A panel for each latency."""

    def at(latency: float) -> Callable[[Stored], bool]:
        return lambda result: keep(result) and result.changes["links.latency"] == latency

    return [Panel(f"T_C = {latency}", at(latency), x, xlabel, line=line) for latency in LATENCIES]


def has(key: str, value: Any) -> Callable[[Stored], bool]:
    """Whether a result has this value of a varied key."""
    return lambda result: bool(result.changes[key] == value)


def scaling(name: str, microbatches: Callable[[int], int], devices: Sequence[int]) -> Tree:
    """Six series over the devices, for each latency."""
    rows = [{"pipeline.devices": d, "pipeline.microbatches": microbatches(d), **times(d)} for d in devices]
    return {"name": name, "vary": {"links.latency": LATENCIES}, "together": [together(rows)], "run": {"schedules": SIX}}


def draw_scaling(results: Results, name: str, title: str, output: Path, *, linear: bool = False) -> None:
    """Total time (logarithmic, and with ``linear`` as it is, too) and bubble ratio over the devices, a picture for each
    latency."""

    def devices(result: Stored) -> float:
        return float(result.changes["pipeline.devices"])

    for latency in LATENCIES:
        keep = has("links.latency", latency)
        panels = [
            *([Panel("total time", keep, devices, "devices", "makespan")] if linear else []),
            Panel("total time, logarithmic", keep, devices, "devices", "makespan", log=True),
            Panel("bubble ratio", keep, devices, "devices"),
        ]
        draw(results, panels, f"{title}, T_C = {latency}", output / f"{name}-latency-{latency}.png")
