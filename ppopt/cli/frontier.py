"""``ppopt frontier``: what one more unit of memory buys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ppopt.cli.options import MOST_WORKERS, Given, Limit, Seconds, json_option, model_options, output_path

if TYPE_CHECKING:
    from ppopt.study.frontier import Frontier, Point


@click.command(short_help="Makespan against memory limit, point by point with bounds.")
@model_options("any")
@click.option(
    "--objective", type=click.Choice(["makespan", "span"]), default="makespan", show_default=True, help="What to minimise."
)
@click.option("--limits", type=Limit(), metavar="LIST", help="The limits wanted (2,3,4.5) instead of all that matter.")
@click.option("--points", type=click.IntRange(2), default=24, show_default=True, help="Most points per placement.")
@click.option("--solver", type=click.Choice(["auto", "cp-sat"]), default="auto", show_default=True, help="Which solver.")
@click.option(
    "--time-limit", type=Seconds(positive=True), default=20.0, show_default=True, metavar="S", help="Seconds per point."
)
@click.option("--gap", type=Seconds(most=1.0), default=0.0, show_default=True, metavar="G", help="Stop at this gap, a fraction.")
@click.option("--workers", type=click.IntRange(1, MOST_WORKERS), help="Threads of the solver.  [default: all cores]")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the search.")
@click.option("--deterministic", is_flag=True, help="One worker and deterministic time: the same answer every time.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    callback=output_path,
    metavar="PICTURE",
    help="Draw it too: png, svg or pdf by suffix.",
)
@json_option
def frontier(
    given: Given,
    any_placement: bool,
    objective: Any,
    limits: Any,
    points: int,
    plot: str | None,
    as_json: bool,
    **search: Any,
) -> None:
    """The best makespan (or device span) of MODEL at each memory limit, each with its bound.

    The limits go from the smallest at which any schedule exists to where more memory buys nothing. A limit per device in the
    model gives the proportions: each point multiplies it. --placement any draws linear, loop and wave.

    \b
    Examples:
      ppopt frontier models/gpt-1.5b.toml --plot frontier.svg
      ppopt frontier -d 4 -m 8 --limits 2,3,4
      ppopt frontier -d 4 -m 8 --placement any --json > frontier.json
    """
    from ppopt.study.frontier import frontier as explore
    from ppopt.study.frontier import frontier_dict

    if plot is not None:
        from ppopt.pictures.figure import check_suffix

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
    pipelines = [pipeline]
    if any_placement:
        chunks = given.chunks or (2,)
        pipelines = [
            pipeline.placed("linear"),
            *(pipeline.placed(where, v) for where in ("loop", "wave") for v in chunks if v > 1),
        ]

    def show(point: Point, found: int) -> None:
        click.echo(f"{found}: limit {_limit(point)}: {_value(point)}", err=True)

    lines = [
        explore(each, objective=objective, limits=wanted, points=points, chunks=given.chunks, progress=show, **search)
        for each in pipelines
    ]
    lines = [replace(line, named=tuple(row.seen_from(pipeline) for row in line.named)) for line in lines]
    if not any(line.points for line in lines):
        raise click.UsageError("no schedule exists at any of these limits")
    if as_json:
        click.echo(json.dumps(frontier_dict(lines), indent=1, ensure_ascii=False))
    else:
        for line in lines:
            _print(line)
        from ppopt.cli.render import show_named

        show_named(pipeline, lines[0].named, "Named schedules without a limit", None)
    if plot is not None:
        _draw(lines, plot)


def _draw(lines: Sequence[Frontier], path: str) -> None:
    from matplotlib.figure import Figure

    from ppopt.cli.render import sizes
    from ppopt.files import FileError
    from ppopt.pictures.figure import save
    from ppopt.pictures.frontier import frontier as draw

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
    from ppopt.cli.render import number

    return " ".join(number(most) for most in (point.limit if isinstance(point.limit, list) else [point.limit]))


def _value(point: Point) -> str:
    from ppopt.cli.render import number

    result = point.result
    time = result.pipeline.time
    if result.value is None:
        return f"{result.reason}, lower bound {number(time(result.lower_bound))}"
    if result.reason == "optimal":
        return f"{number(time(result.value))}, optimal"
    return f"{number(time(result.value))}, lower bound {number(time(result.lower_bound))}"


def _print(line: Frontier) -> None:
    from ppopt.cli.render import heading, new_table, number, percent, show

    units = line.pipeline.units
    head = [f"limit{f' ({units.memory})' if units.memory else ''}"]
    figures = [f"{line.objective}{f' ({units.time})' if units.time else ''}", "lower bound", "gap", "bubble ratio", "seconds"]
    table = new_table(heading(line.pipeline), head, figures, ["proved by"])
    for point in line.points:
        result = point.result
        value = result.value
        gap = "" if value is None else percent((value - result.lower_bound) / value if value else 0.0)
        table.add_row(
            _limit(point),
            "" if value is None else number(result.pipeline.time(value)),
            number(result.pipeline.time(result.lower_bound)),
            gap,
            "" if result.schedule is None else percent(result.schedule.bubble_ratio),
            f"{result.seconds:.1f}",
            (result.proved_by or "") if result.reason == "optimal" else "",
        )
    show(table)
