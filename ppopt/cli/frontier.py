"""``ppopt frontier``: what one more unit of memory buys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ppopt.cli.options import Given, json_option, model_options, output_path
from ppopt.cli.progress import Form, Progress, progress_option
from ppopt.cli.searching import search_options
from ppopt.cli.values import Limit
from ppopt.named import Table
from ppopt.study.frontier import SECONDS

if TYPE_CHECKING:
    from ppopt.pipeline import Pipeline
    from ppopt.schedule import Objective
    from ppopt.search import Result, Settings
    from ppopt.study.frontier import Frontier, Point


@click.command(short_help="Makespan against memory limit, point by point with bounds.")
@model_options()
@search_options(seconds=SECONDS, each=" per point", solvers=("auto", "cp-sat"))
@click.option("--limits", type=Limit(), metavar="LIST", help="The limits wanted (2,3,4.5) instead of all that matter.")
@click.option("--points", type=click.IntRange(2), default=24, show_default=True, help="Most points per placement.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    callback=output_path,
    metavar="PICTURE",
    help="Draw it too: png, svg or pdf by suffix.",
)
@progress_option
@json_option
def frontier(
    given: Given,
    objective: Any,
    settings: Settings,
    limits: Any,
    points: int,
    plot: str | None,
    form: Form,
    as_json: bool,
) -> None:
    """The best makespan (or device span) of MODEL at each memory limit, each with its bound.

    The limits go from the smallest at which any schedule exists to where more memory buys nothing. A limit per device in the
    model gives the proportions: each point multiplies it. --placement any draws linear, loop and wave. Where the cut of layers
    or what recomputes is open, each point has its own.

    \b
    Examples:
      ppopt frontier models/gpt-1.5b.toml --plot frontier.svg
      ppopt frontier -d 4 -m 8 --limits 2,3,4
      ppopt frontier -d 4 -m 8 --placement any --json > frontier.json
      ppopt frontier models/deepseek-v3.toml -m 16 --limits 60,70,80
    """
    from ppopt.study.frontier import frontier_dict

    if plot is not None:
        from ppopt.pictures.layout import check_suffix

        try:
            check_suffix(plot)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--plot") from None
    wanted = None
    if limits is not None:
        if limits == "none":
            raise click.BadParameter("expected numbers with commas between", param_hint="--limits")
        wanted = [Fraction(str(limit)) for limit in (limits if isinstance(limits, list) else [limits])]
    pipeline = given.read().pipeline

    lines = _explored(pipeline, settings, form, objective=objective, limits=wanted, points=points, chunks=given.chunks)
    if not any(line.points for line in lines):
        raise click.UsageError("no schedule exists at any of these limits")
    table = Table(lines[0].named, pipeline)
    if as_json:
        lines[0] = replace(lines[0], named=table.rows)
        click.echo(json.dumps(frontier_dict(lines), indent=1, ensure_ascii=False))
    else:
        for line in lines:
            _print(line)
        from ppopt.cli.render import width

        click.echo(table.text("Named schedules without a limit", width()))
    if plot is not None:
        _draw(lines, plot)


def _explored(pipeline: Pipeline, settings: Settings, form: Form, *, objective: Objective, **options: Any) -> list[Frontier]:
    """The frontier of each placement; the points are told as they come."""
    from ppopt.search import at
    from ppopt.study.frontier import frontier as explore
    from ppopt.text import brief

    places, lines = pipeline.placements(), []
    with Progress(objective, pipeline.units.time, form) as progress:

        def show(point: Point, found: int) -> None:
            progress.told(f"{found}: limit {_limit(point)}: {_value(point)}")
            progress(point.result.value, point.result.lower_bound)

        for i, each in enumerate(places, 1):
            with at(f"[{i}/{len(places)}] {brief(each)}") if len(places) > 1 else nullcontext():
                lines.append(explore(each, settings, objective=objective, progress=show, **options))
    return lines


def _draw(lines: Sequence[Frontier], path: str) -> None:
    from matplotlib.figure import Figure

    from ppopt.files import FileError
    from ppopt.pictures.figure import save
    from ppopt.pictures.frontier import frontier as draw
    from ppopt.text import sizes

    picture = Figure(figsize=(9, 6), layout="constrained")
    ax = draw(lines, picture.subplots())
    pipeline = lines[0].pipeline
    ax.set_title(f"{pipeline.name or 'Frontier'}: {sizes(pipeline)}", loc="left")
    handles, labels = ax.get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    try:
        save(picture, path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


def _limit(point: Point) -> str:
    from ppopt.text import number

    return " ".join(number(most) for most in (point.limit if isinstance(point.limit, list) else [point.limit]))


def _value(point: Point) -> str:
    from ppopt.text import number

    result = point.result
    if result.value is None:
        return f"{result.reason}, lower bound {number(result.lower_bound)}"
    if result.reason == "optimal":
        return f"{number(result.value)}, optimal"
    return f"{number(result.value)}, lower bound {number(result.lower_bound)}"


def _print(line: Frontier) -> None:
    from ppopt.cli.render import width
    from ppopt.pipeline import CHOOSE
    from ppopt.search.summary import recomputing
    from ppopt.text import heading, new_table, number, percent, rendered

    units = line.pipeline.units
    head = [f"limit{f' ({units.memory})' if units.memory else ''}"]
    figures = [f"{line.objective}{f' ({units.time})' if units.time else ''}", "lower bound", "gap", "bubble ratio", "seconds"]
    layers, open_ = line.pipeline.layers is not None, line.pipeline.recompute == CHOOSE
    chosen = ["layers of each stage"] * layers + ["recomputing"] * open_
    table = new_table(heading(line.pipeline), head, figures, [*chosen, "proved by"])
    for point in line.points:
        result = point.result
        table.add_row(
            _limit(point),
            "" if result.value is None else number(result.value),
            number(result.lower_bound),
            "" if result.gap is None else percent(result.gap),
            "" if result.schedule is None else percent(result.schedule.bubble_ratio),
            f"{result.seconds:.1f}",
            *([_cut(result)] if layers else []),
            *([recomputing(result.pipeline) if result.schedule is not None else ""] if open_ else []),
            (result.proved_by or "") if result.reason == "optimal" else "",
        )
    click.echo(rendered(table, width()))


def _cut(result: Result) -> str:
    return "" if result.schedule is None else ", ".join(map(str, result.pipeline.counts))
