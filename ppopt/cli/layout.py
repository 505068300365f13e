"""``ppopt layout``: how a runtime reads a layout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count, groupby
from typing import Any

import click

from ppopt.layouts import RUNTIMES, Layout, OptionError, Reading, Refused, layers_in, read
from ppopt.layouts.layout import Item, Stage

COLUMNS = 8
"""Most chunks that have a column each; more are rows."""


@click.command(short_help="How a runtime cuts the layers of a model into stages.")
@click.argument("text", required=False)
@click.option("--runtime", type=click.Choice(list(RUNTIMES)), required=True, help="Who reads it.")
@click.option("-d", "--devices", type=int, help="Number of devices; the same as --option pp=N.")
@click.option("--layers", type=int, metavar="N", help="Decoder layers of the model; the same as --option num_layers=N.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another option of the runtime. VALUE is JSON (true, 4, [[...]]); what is not JSON is a string.",
)
@click.option("--json", "as_json", is_flag=True, help="Print valid, virtual, devices and reason as JSON.")
def layout(
    text: str | None, runtime: str, devices: int | None, layers: int | None, options: tuple[str, ...], as_json: bool
) -> None:
    """How a runtime reads the layout TEXT: the layers of each device and chunk, or why it is refused (exit code 1).

    TEXT is Megatron's layout string or list, its hybrid pattern (after -- where it begins with -), or TorchTitan's list of
    module names. Without it the options say how the model is cut.

    \b
    Examples:
      ppopt layout 'Et*2|(t*2|)*34,t*3|(t*2|)*3,tL' --runtime megatron -d 8 --layers 80
      ppopt layout --runtime megatron -d 8 --layers 94 --option first=10 --option last=12
      ppopt layout --runtime torchtitan -d 8 --layers 61 --option schedule=ZBVZeroBubble --json
    """
    given = {name: value_of(value) for name, value in map(_split, options)}
    if len(given) < len(options):
        raise click.UsageError("an option is given twice")
    own = RUNTIMES[runtime].options.GIVEN_AS
    flags: dict[str, tuple[str, Any]] = {
        "pp": ("-d/--devices", devices),
        "num_layers": ("--layers", layers),
        own: ("TEXT", text if text is None or not text.lstrip().startswith("[") else value_of(text)),
    }
    for name, (flag, value) in flags.items():
        if value is None:
            continue
        if name in given and given[name] != value:
            raise click.UsageError(f"{flag} and --option {name} say different things")
        given[name] = value
    try:
        reading = read(runtime, given)
    except Refused as error:
        refused = {"valid": False, "virtual": None, "devices": None, "reason": str(error)}
        click.echo(json.dumps(refused) if as_json else f"{runtime} refuses it: {error}")
        click.get_current_context().exit(1)
    _show(reading, runtime, as_json)


def value_of(text: str) -> Any:
    """JSON, or the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise OptionError(f"--option {text}: expected NAME=VALUE, such as virtual_stages=2")
    return name, value


def _show(reading: Reading, runtime: str, as_json: bool) -> None:
    """The layout on standard output, what should be known about it on standard error."""
    found = reading.layout
    for warning in reading.warnings:
        click.echo(f"Warning: {warning}.", err=True)
    if as_json:
        click.echo(json.dumps({"valid": True, "virtual": found.virtual, "devices": found.devices, "reason": None}))
        return
    chunks = f", {found.virtual} chunks on each" if found.virtual > 1 else ""
    devices = f"{len(found.devices)} device{'s' * (len(found.devices) > 1)}"
    click.echo(f"{runtime}: {sum(found.layers)} layers, {devices}{chunks}, {found.placement if chunks else 'linear'}")
    click.echo(_table(found))


def _table(found: Layout) -> str:
    from ppopt.cli.render import width
    from ppopt.text import new_table, rendered

    chunks = range(found.virtual)
    if found.virtual <= COLUMNS:
        heads = [f"chunk {c}" for c in chunks] if found.virtual > 1 else ["holds"]
        table = new_table(None, ["device", *heads], ["layers"])
        for d, held in enumerate(found.devices):
            table.add_row(str(d), *(shown(stage) for stage in held), str(sum(map(layers_in, held))))
    else:
        table = new_table(None, ["device", "chunk", "holds"], ["layers"])
        for d, held in enumerate(found.devices):
            for c, stage in enumerate(held):
                table.add_row(str(d), str(c), shown(stage), str(layers_in(stage)))
    return rendered(table, width())


def shown(stage: Stage) -> str:
    """What a stage holds: layers that follow each other as ``3-6``; in a pattern with their symbols before that."""
    parts = []
    following = count()
    for key, items in groupby(stage, lambda item: _number(item, next(following))):
        run = list(items)
        parts.append(_run(run) if key is not None else " ".join(map(str, run)))
    return " ".join(parts) or "empty"


def _number(item: Item, position: int) -> int | None:
    """The same for layers that follow each other; ``None`` for what is no layer."""
    if not layers_in((item,)):
        return None
    return (item if isinstance(item, int) else int(item[1:])) - position


def _run(items: Sequence[Item]) -> str:
    symbols = "".join(item[0] for item in items if isinstance(item, str))
    first, last = (item if isinstance(item, int) else int(item[1:]) for item in (items[0], items[-1]))
    return f"{symbols} ".lstrip() + (f"{first}-{last}" if last > first else str(first))
