"""``ppopt plot``: pictures of schedules, and the interactive page."""

from __future__ import annotations

from typing import Any

import click

from ppopt.cli.options import Given, find_schedule, model_options
from ppopt.cli.values import Seconds


def _names(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...]:
    """``1f1b,zb-v`` as names of schedules that there are."""
    return tuple(find_schedule(name.strip()).name for name in text.split(",")) if text is not None else ()


@click.command(short_help="Schedules as pictures, or as an interactive page.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@model_options(argument=False)
@click.option("--model", metavar="MODEL", help="Model file for all of them, instead of a result's own or unit costs.")
@click.option("-o", "--output", required=True, metavar="PICTURE", help="What to write: png, svg, pdf or html by suffix.")
@click.option("--beside", callback=_names, metavar="NAME,…", help="Draw these named schedules too, on the first FILE's hardware.")
@click.option("--label", "labels", multiple=True, metavar="TEXT", help="Title of the first schedule; again for the next.")
@click.option("--memory", is_flag=True, help="Show what each device holds over time too.")
@click.option("--full", is_flag=True, help="Show all of the time of a long schedule, not three parts of it.")
@click.option("--begin", type=Seconds(), metavar="TIME", help="Show the schedules from this time on.")
@click.option("--end", type=Seconds(positive=True), metavar="TIME", help="Show the schedules up to this time.")
@click.option("--width", type=Seconds(least=4, most=100), metavar="INCHES", help="By default as wide as the numbers need.")
def plot(
    files: tuple[str, ...],
    given: Given,
    output: str,
    beside: tuple[str, ...],
    labels: tuple[str, ...],
    memory: bool,
    full: bool,
    begin: float | None,
    end: float | None,
    width: float | None,
) -> None:
    """Draw the schedules in FILE…, results (JSON) or orders (CSV in PyTorch's notation), on one time axis.

    A result is drawn with its own model, an order with unit costs; --model or single options change that. Transfers that hold a
    link are on a row per link below the devices. In a picture, a long schedule is shown at its beginning, in its middle and at
    its end. A page is one file that works without a network: zoom, the path of a microbatch, the critical path, what each
    operation waited for.

    \b
    Examples:
      ppopt plot best.json -o best.png
      ppopt plot best.json -o best.html --beside 1f1b,zb-v
      ppopt plot best.json 1f1b.json -o both.pdf --memory
      ppopt order zb-h1 -d 4 -m 8 | ppopt plot - -o zb-h1.svg --label "ZB-H1 of our cluster"
    """
    from ppopt.pictures.layout import PAGE, PICTURES, check_suffix
    from ppopt.pictures.plot import plot as draw

    try:
        check_suffix(output, (*PICTURES, PAGE))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-o") from None
    if files.count("-") > 1:
        raise click.UsageError("standard input can be read once only")
    if len(labels) > len(files) + len(beside):
        count = len(files) + len(beside)
        raise click.UsageError(f"there are {len(labels)} labels for {count} schedule{'s' * (count > 1)}")
    if begin is not None and end is not None and begin >= end:
        raise click.BadParameter(f"expected a time after --begin {begin:g}, got {end:g}", param_hint="--end")
    model = given.read() if given.path is not None else None
    look: dict[str, Any] = {"memory": memory, "width": width, "full": full, "begin": begin, "end": end}
    draw(files, output, model=model, change=given.change, labels=labels, beside=beside, **look)
