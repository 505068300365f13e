"""``ppopt check``: every rule that a schedule violates."""

from __future__ import annotations

import dataclasses
import json

import click

from ppopt.cli.options import Given, json_option, model_options
from ppopt.files.checked import check_file
from ppopt.files.text import source_of


@click.command(short_help="Every rule that a schedule violates.")
@click.argument("file")
@model_options()
@json_option
def check(file: str, given: Given, as_json: bool) -> None:
    """Check FILE, a result (JSON) or an order (CSV in PyTorch's notation), and print every violation with op, device and time.

    Without MODEL a result is held to the model inside it, an order to unit costs on the devices and the placement that the
    file itself shows. Recorded times, value, bound and metrics are derived anew. Exit code 1 where anything is violated.

    \b
    Examples:
      ppopt check best.json
      ppopt order zb-h1 -d 4 -m 8 | ppopt check - --memory-limit 4
    """
    model = given.read() if given.path is not None else None
    found = check_file(file, model, lambda inside: given.change(inside, source_of(file)))
    if as_json:
        click.echo(json.dumps({"violations": [dataclasses.asdict(violation) for violation in found]}, indent=1))
    elif found:
        for violation in found:
            click.echo(f"{violation.rule}: {violation.message}")
        click.echo(f"{len(found)} violation{'s' * (len(found) > 1)}")
    else:
        click.echo(f"{file}: no violation")
    click.get_current_context().exit(1 if found else 0)
