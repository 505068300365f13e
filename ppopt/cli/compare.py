"""``ppopt compare``: all named schedules side by side."""

from __future__ import annotations

import click

from ppopt.cli.options import Given, json_option, model_options
from ppopt.cli.verified import verified
from ppopt.files import json_text, result_dict
from ppopt.named import compare as compare_named


@click.command(short_help="All named schedules on this hardware, side by side.")
@model_options(own_chunks=True)
@json_option
def compare(given: Given, as_json: bool) -> None:
    """All named schedules on this hardware, timed and checked side by side; no solver runs.

    Each schedule has its own placement on the same devices and the same costs per device. Those that do not apply are listed
    with the reason.

    \b
    Examples:
      ppopt compare -d 4 -m 8
      ppopt compare models/gpt-1.5b.toml --chunks 2,4 --memory-limit 6
      ppopt compare -d 4 -m 8 --set costs.forward=100 --set costs.backward=200 --set links.latency=16
    """
    model = given.read()
    rows = compare_named(model.pipeline, given.chunks)
    for row in rows:
        if row.schedule is not None:
            verified(row.schedule, row.name)
    if as_json:
        click.echo(json_text(result_dict(model, named=rows)), nl=False)
        return
    from ppopt.cli.render import heading, show_named

    show_named(model.pipeline, rows, heading(model.pipeline), model.schedule)
