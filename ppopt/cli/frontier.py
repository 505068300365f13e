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
from ppopt.interrupt import held
from ppopt.named import Table
from ppopt.study.frontier import SECONDS

if TYPE_CHECKING:
    from ppopt import text
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
    or what recomputes is open, each point has its own. Where activations may be on the host (offload), with and without that.

    \b
    Examples:
      ppopt frontier models/gpt-1.5b.toml --plot frontier.svg
      ppopt frontier -d 4 -m 8 --limits 2,3,4
      ppopt frontier -d 4 -m 8 --placement any --json > frontier.json
      ppopt frontier models/deepseek-v3.toml -m 16 --limits 60,70,80
    """
    from ppopt.study.buying import recommendation
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
    model = given.read()
    pipeline = model.pipeline

    lines = _explored(pipeline, settings, form, objective=objective, limits=wanted, points=points, chunks=given.chunks)
    if not any(line.points for line in lines):
        raise click.UsageError("no schedule exists at any of these limits")
    table = Table(lines[0].named, pipeline)
    with held():
        if as_json:
            lines[0] = replace(lines[0], named=table.rows)
            tree = {**frontier_dict(lines), "recommendation": recommendation(lines, model.stands_for or "1f1b")}
            click.echo(json.dumps(tree, indent=1, ensure_ascii=False))
        else:
            _print_all(lines, table, model.stands_for)
        if plot is not None:
            _draw(lines, plot)


def _explored(pipeline: Pipeline, settings: Settings, form: Form, *, objective: Objective, **options: Any) -> list[Frontier]:
    """The frontier of each placement; the points are told as they come."""
    from ppopt.search import at
    from ppopt.study.frontier import frontier as explore
    from ppopt.study.frontier import ways
    from ppopt.text import brief

    # what is found without copies comes first: it is where the search with copies begins
    each_place = [ways(place)[::-1] for place in pipeline.placements()]
    places: list[Pipeline] = [way for of_place in each_place for way in of_place]
    lines: list[Frontier] = []
    with Progress(objective, pipeline.units.time, form) as progress:

        def show(point: Point, found: int) -> None:
            progress.told(f"{found}: limit {_limit(point)}: {_value(point)}")
            progress(point.result.value, point.result.lower_bound)

        for i, each in enumerate(places, 1):
            with at(f"[{i}/{len(places)}] {brief(each)}") if len(places) > 1 else nullcontext():
                free = each.offload is not None and each.offload.stages == "choose"
                known = [p.result.schedule for p in lines[-1].points if p.result.schedule is not None] if lines and free else []
                lines.append(explore(each, settings, objective=objective, known=known, progress=show, **options))
            if any(point.result.limit == "interrupted" for point in lines[-1].points):
                break
    left = [brief(each) for each in places[len(lines) :]]
    limits = [_limit(p) for p in lines[-1].points if p.result.limit == "interrupted" and not p.result.seconds]
    left += [f"limits {', '.join(limits)}"] if limits else []
    if left:
        click.echo(f"Interrupted before these were begun: {', '.join(left)}.", err=True)
    together = len(each_place[0])
    return [line for i in range(0, len(lines), together) for line in reversed(lines[i : i + together])]


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
    from ppopt.text import figure

    return " ".join(figure(most) for most in (point.limit if isinstance(point.limit, list) else [point.limit]))


def _value(point: Point) -> str:
    from ppopt.text import number

    result = point.result
    if result.value is None:
        return f"{result.reason}, lower bound {number(result.lower_bound)}"
    if result.reason == "optimal":
        return f"{number(result.value)}, optimal"
    return f"{number(result.value)}, lower bound {number(result.lower_bound)}"


def _print_all(lines: Sequence[Frontier], table: Table, name: str | None) -> None:
    """The frontiers, the named schedules, and what follows for who buys memory."""
    from ppopt.cli.render import shown, styled, width
    from ppopt.study.buying import recommendation
    from ppopt.text import wrapped

    for line in lines:
        click.echo(shown(_table(line)) + "\n")
    click.echo(table.text("Named schedules without a limit", width(), objective=lines[0].objective, styled=styled()))
    click.echo("")
    for sentence in recommendation(lines, name or "1f1b"):
        click.echo(wrapped(sentence, width()))


def _table(line: Frontier) -> text.Table:
    from ppopt.pipeline import CHOOSE
    from ppopt.search.summary import recomputing
    from ppopt.text import figure, heading, new_table, percent, unit

    units = line.pipeline.units
    figures = [unit(line.objective, units.time), unit("lower bound", units.time), "gap", "bubble ratio", "seconds"]
    layers, open_ = line.pipeline.layers is not None, line.pipeline.recompute == CHOOSE
    chosen = ["layers of each stage"] * layers + ["recomputing"] * open_
    repeats = open_ or line.pipeline.recompute != "none"
    figures[4:4] = ["efficiency"] * repeats
    ranks = {"seconds": 6, "proved by": 5, "bubble ratio": 4, "efficiency": 3, "recomputing": 2, "layers of each stage": 1}
    table = new_table(heading(line.pipeline), [unit("limit", units.memory)], figures, [*chosen, "proved by"], ranks=ranks)
    for point in line.points:
        result, schedule = point.result, point.result.schedule
        table.add_row(
            _limit(point),
            "" if result.value is None else figure(result.value),
            figure(result.lower_bound),
            "" if result.gap is None else percent(result.gap),
            "" if schedule is None else percent(schedule.bubble_ratio),
            *(["" if schedule is None else percent(schedule.efficiency)] * repeats),
            f"{result.seconds:.1f}",
            *([_cut(result)] if layers else []),
            *([recomputing(result.pipeline) if schedule is not None else ""] if open_ else []),
            (result.proved_by or "") if result.reason == "optimal" else "",
        )
    return table


def _cut(result: Result) -> str:
    return "" if result.schedule is None else ", ".join(map(str, result.pipeline.counts))
