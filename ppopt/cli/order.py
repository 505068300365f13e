"""``ppopt order``: one named schedule."""

from __future__ import annotations

from typing import Any

import click

from ppopt.cli.options import Given, find_schedule, json_option, model_options, parameters_option
from ppopt.files import document, json_text
from ppopt.files.torch_csv import lines_of
from ppopt.named import Model
from ppopt.named.verified import excess, verified
from ppopt.schedule import Schedule


@click.command(short_help="One named schedule's order, as CSV in PyTorch's notation.")
@click.argument("schedule")
@model_options(own_chunks=True)
@parameters_option
@json_option
def order(schedule: str, given: Given, params: dict[str, Any], as_json: bool) -> None:
    """The order of the named SCHEDULE on its own placement, as CSV in PyTorch's notation: a row per device.

    Only the order is printed, as PyTorch reads it; --json has the times too.

    \b
    Examples:
      ppopt order 1f1b -d 4 -m 8
      ppopt order interleaved-1f1b models/gpt-1.5b.toml --chunks 4 --json
      ppopt order interleaved-1f1b -d 4 -m 16 --param group_size=8
    """
    model, timed = named_schedule(schedule, given, params)
    if as_json:
        click.echo(json_text(document(model, schedule=timed)), nl=False)
        return
    if timed.pipeline.backward_routes:
        click.echo("Note: backwards run on other devices than their forwards; PyTorch has no such placement.", err=True)
    elif len(timed.pipeline.ways) > 2:
        click.echo(f"Note: this order has {len(timed.pipeline.ways)} routes; PyTorch has no such placement.", err=True)
    elif len(timed.pipeline.ways) > 1:
        click.echo("Note: this order has two routes (two copies of the weights); PyTorch has no such placement.", err=True)
    for line in lines_of(timed.order.ops(device) for device in range(timed.pipeline.devices)):
        click.echo(line, nl=False)


def named_schedule(name: str, given: Given, params: dict[str, Any]) -> tuple[Model, Schedule]:
    """A named schedule on its own placement, checked, and the model that it is for; over the memory limit with a warning.

    Raises:
        UsageError: several numbers of chunks are given.
    """
    if len(given.chunks) > 1:
        raise click.UsageError("one schedule is shown: expected a single number of chunks")
    definition = find_schedule(name)
    model = given.read()
    own = model.params if model.schedule == definition.name else {}
    read = definition.read({**own, **params})
    timed = definition.schedule(model.pipeline.settled(), given.chunks[0] if given.chunks else None, **read)
    verified(timed, definition.name)
    if not timed.within_memory:
        click.echo(f"Warning: {definition.name} exceeds the memory limit: {excess(timed)}", err=True)
    return Model(timed.pipeline, definition.name, read), timed
