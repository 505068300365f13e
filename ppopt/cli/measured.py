"""``ppopt measured``: a step of a real run, drawn and summed up, beside its plan."""

from __future__ import annotations

import click

from ppopt.cli.options import Given, json_option
from ppopt.cli.profile import format_options
from ppopt.cli.values import Seconds
from ppopt.files import json_text, setting
from ppopt.runs import beside, document, read_run, schedule_of
from ppopt.runs.clocks import How
from ppopt.schedule import Schedule

TOP = 10
"""Rows of the table of what came late."""


@click.command(short_help="A step of a real run, drawn and summed up, beside its plan.")
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--against", metavar="RESULT", help="The plan: a result (JSON), or an order (CSV) with --model.")
@click.option("--model", metavar="MODEL", help="Model file of the plan, instead of a result's own or unit costs.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the plan's model, such as units.time=ms."
)
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Which step. Default: the one of median length.")
@click.option(
    "--skip", type=click.IntRange(min=0), default=1, show_default=True, metavar="N", help="Steps to leave out at the beginning."
)
@click.option(
    "--clocks",
    type=click.Choice(["auto", "recorded", "fitted"]),
    default="auto",
    show_default=True,
    help="Of the ranks: as recorded, or fitted to the messages; auto fits where the files have no common clock.",
)
@format_options
@click.option("-o", "--output", metavar="PICTURE", help="Draw it: png, svg, pdf or html by suffix.")
@click.option("--memory", is_flag=True, help="Show what each device holds over time too; how much is the plan's.")
@click.option("--full", is_flag=True, help="Show all of the time of a long step, not three parts of it.")
@click.option("--begin", type=Seconds(), metavar="TIME", help="Show the step from this time on.")
@click.option("--end", type=Seconds(positive=True), metavar="TIME", help="Show the step up to this time.")
@click.option("--width", type=Seconds(least=4, most=100), metavar="INCHES", help="By default as wide as the numbers need.")
@click.option("--top", type=click.IntRange(min=0), default=TOP, show_default=True, metavar="N", help="Rows of what came late.")
@json_option
def measured(
    files: tuple[str, ...],
    against: str | None,
    model: str | None,
    settings: tuple[str, ...],
    step: int | None,
    skip: int,
    clocks: How,
    placement: str | None,
    group_size: int | None,
    output: str | None,
    memory: bool,
    full: bool,
    begin: float | None,
    end: float | None,
    width: float | None,
    top: int,
    as_json: bool,
) -> None:
    """Sum up a step of a real run from the FILE… of its ranks, in any format that `ppopt profile` reads: where each device's time
    went, and beside the plan what took longer, what came later, and what it waited for.

    \b
    Examples:
      ppopt measured trace-*.json.gz
      ppopt measured timing-*.json --against best.json -o step.png
      ppopt measured pp_data/*.json --placement wave --against best.json --json
    """
    if against is None and (model is not None or settings):
        raise click.UsageError("--model and --set are about the plan; give it with --against")
    if output is not None:
        _check_output(output)
    run = read_run(files, step=step, skip=skip, clocks=clocks, placement=placement, group_size=group_size)
    plan = None if against is None else _plan(against, model, settings)
    found = None if plan is None else beside(run, plan)
    schedule = schedule_of(run) if found is None else found.measured
    for warning in (*run.warnings, *(found.notes if found else ())):
        click.echo(f"Note: {warning}.", err=True)
    if as_json:
        click.echo(json_text(document(run, schedule, found)), nl=False)
    else:
        from ppopt.cli.measuring import report

        click.echo(report(run, schedule, found, top))
    if output is not None:
        from ppopt.pictures.measured import draw

        draw(run, schedule, found, output, memory=memory, width=width, full=full, begin=begin, end=end)


def _plan(path: str, model: str | None, settings: tuple[str, ...]) -> Schedule:
    from ppopt.files.exported import schedule_in
    from ppopt.files.text import source_of

    given = Given(model, tuple(setting(text) for text in settings))
    read = given.read() if model is not None else None
    return schedule_in(path, read, lambda inside: given.change(inside, source_of(path)))


def _check_output(path: str) -> None:
    from ppopt.pictures.layout import PAGE, PICTURES, check_suffix

    try:
        check_suffix(path, (*PICTURES, PAGE))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-o") from None
