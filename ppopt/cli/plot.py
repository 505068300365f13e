"""``ppopt plot``: pictures of schedules."""

from __future__ import annotations

import click

from ppopt.cli.options import Given, model_options
from ppopt.cli.values import Seconds


@click.command(short_help="Gantt charts of schedules: png, svg or pdf by suffix.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@model_options(argument=False)
@click.option("--model", metavar="MODEL", help="Model file for all of them, instead of a result's own or unit costs.")
@click.option("-o", "--output", required=True, metavar="PICTURE", help="What to write: png, svg or pdf by suffix.")
@click.option("--memory", is_flag=True, help="Show what each device holds over time too.")
@click.option("--width", type=Seconds(least=4, most=100), metavar="INCHES", help="By default as wide as the numbers need.")
def plot(files: tuple[str, ...], given: Given, output: str, memory: bool, width: float | None) -> None:
    """Draw the schedules in FILE…, results (JSON) or orders (CSV in PyTorch's notation), on one time axis.

    A result is drawn with its own model, an order with unit costs; --model or single options change that. Transfers that hold a
    link are on a row per link below the devices. A long schedule is shown at its beginning, in its middle and at its end.

    \b
    Examples:
      ppopt plot best.json -o best.png
      ppopt plot best.json 1f1b.json -o both.pdf --memory
      ppopt order zb-h1 -d 4 -m 8 | ppopt plot - -o zb-h1.svg
    """
    from ppopt.pictures.figure import check_suffix
    from ppopt.pictures.plot import plot as draw

    try:
        check_suffix(output)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-o") from None
    if files.count("-") > 1:
        raise click.UsageError("standard input can be read once only")
    model = given.read() if given.path is not None else None
    draw(files, output, memory=memory, width=width, model=model, change=given.change)
