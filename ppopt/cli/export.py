"""``ppopt export``: a schedule as a file for PyTorch, for a trace viewer, or as the options of another runtime."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from ppopt.cli.options import Given, model_options
from ppopt.files import FileError
from ppopt.files.exported import schedule_in
from ppopt.files.layout_export import RUNTIMES, cut_lines, written_for
from ppopt.layouts import AUTOMODEL, ModuleNames, OptionError
from ppopt.named.verified import verified
from ppopt.schedule import Schedule

FORMATS = ("torch-csv", "torch-csv-comms", "chrome-trace", *RUNTIMES)
KNOWN = {"torchtitan": ModuleNames(), "automodel": AUTOMODEL}
"""``--names`` by a word."""
MODULES = ("embedding", "layer", "norm", "head")


def _names(ctx: click.Context, param: click.Parameter, text: str | None) -> ModuleNames | None:
    """``layer=model.layers.{i},head=output``, or a word."""
    if text is None or text in KNOWN:
        return None if text is None else KNOWN[text]
    found: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, name = (piece.strip() for piece in part.partition("="))
        if key not in MODULES or key in found or not equals or not name:
            expected = f"{', '.join(KNOWN)}, or KEY=NAME with commas between, of {', '.join(MODULES)}"
            raise click.BadParameter(f"expected {expected} (layer=model.layers.{{i}}); got {part.strip()!r}")
        found[key] = name
    try:
        return ModuleNames(**found)
    except OptionError as error:
        raise click.BadParameter(str(error)) from None


@click.command(short_help="A schedule as a file for PyTorch, Perfetto or other runtimes.")
@click.argument("file")
@model_options()
@click.option("--to", "target", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("--names", callback=_names, metavar="NAMES", help="Modules for torchtitan: automodel, or layer=model.layers.{i},…")
@click.option("-o", "--output", type=click.Path(dir_okay=False), default="-", metavar="FILE", help="Default: standard output.")
def export(file: str, given: Given, target: str, names: ModuleNames | None, output: str) -> None:
    """Write the schedule in FILE, a result (JSON) or an order (CSV in PyTorch's notation), in another format.

    torch-csv and torch-csv-comms are the files that PyTorch's _PipelineScheduleRuntime loads, without and with the
    communication (docs/torch.md); how to load them is shown on standard error. chrome-trace opens in Perfetto. The others are the
    options with which a runtime cuts the layers of the model like this: what it cannot say is refused, and standard error says
    what its own order takes. An order has unit costs unless MODEL, a model file, gives others.

    \b
    Examples:
      ppopt export best.json --to torch-csv-comms -o schedule.csv
      ppopt order zb-h1 -d 4 -m 8 | ppopt export - --to torch-csv
      ppopt export best.json --to chrome-trace -o trace.json
      ppopt export cut.json --to torchtitan --names automodel
    """
    if names is not None and target != "torchtitan":
        raise click.UsageError("--names are those of modules in lists: it needs --to torchtitan")
    model = given.read() if given.path is not None else None
    schedule = schedule_in(file, model, lambda inside: given.change(inside, file))
    verified(schedule, file)
    if target in RUNTIMES:
        lines = _options(schedule, target, names)
    else:
        lines = _trace(schedule) if target == "chrome-trace" else _torch(schedule, comms=target == "torch-csv-comms")
    if output == "-":
        for line in lines:
            click.echo(line, nl=False)
        return
    try:
        with click.open_file(output, "w", encoding="utf-8", atomic=True) as out:
            out.writelines(lines)
    except OSError as error:
        raise FileError(f"{output}: cannot be written: {error.strerror or error}") from None


def _trace(schedule: Schedule) -> Iterable[str]:
    from ppopt.files.chrome_trace import trace_lines
    from ppopt.pipeline import microseconds

    if microseconds(schedule.pipeline.units.time) is None:
        click.echo("The model has no unit of time: 1 is shown as 1 us (--set units.time=ms says otherwise).", err=True)
    return trace_lines(schedule)


def _torch(schedule: Schedule, comms: bool) -> Iterable[str]:
    from ppopt.files.torch_check import violations
    from ppopt.files.torch_csv import lines_of
    from ppopt.files.torch_export import actions_of, for_torch, settings, with_comms
    from ppopt.files.torch_recompute import twice

    runnable = for_torch(schedule)
    verified(runnable.schedule, "the schedule as PyTorch runs it")
    rows = with_comms(runnable.schedule) if comms else actions_of(runnable.schedule)
    found = violations(rows, schedule.pipeline.microbatches)
    if found:  # a mistake of the program
        raise RuntimeError(f"the file for PyTorch would be wrong: {found[0]}")
    notes = (*runnable.notes, *twice(runnable.schedule))
    for line in (*cut_lines(schedule.pipeline), *notes, *settings(runnable.schedule.pipeline, comms)):
        click.echo(line, err=True)
    return lines_of(rows)


def _options(schedule: Schedule, runtime: str, names: ModuleNames | None) -> Iterable[str]:
    written = written_for(runtime, schedule, names)
    for note in written.notes:
        click.echo(note, err=True)
    return [written.text]
