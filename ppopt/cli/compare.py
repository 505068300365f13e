"""``ppopt compare``: all named schedules side by side."""

from __future__ import annotations

import click

from ppopt.cli.options import Given, columns_option, json_option, model_options
from ppopt.files import document, json_text
from ppopt.files.exported import row_in
from ppopt.named import compare as compare_named


@click.command(short_help="All named schedules on this hardware, side by side.")
@model_options(own_chunks=True)
@click.option(
    "--with", "files", multiple=True, metavar="FILE", help="Show this order too: a CSV in PyTorch's notation, or a result (JSON)."
)
@click.option("--maps", is_flag=True, help="Also maps of work and weights: ddp, fsdp, looped-pp, fslpp, cuckoo.")
@columns_option
@json_option
def compare(given: Given, files: tuple[str, ...], maps: bool, columns: tuple[str, ...] | None, as_json: bool) -> None:
    """All named schedules on this hardware, timed and checked side by side; no solver runs.

    Each schedule has its own placement on the same devices and the same costs per device, orders in a FILE too. Those that do
    not apply are listed with the reason. Schedules that are maps of work and weights to devices are shown with --maps, or where
    the model says something of weights (memory.weights, memory.weights_on, links.weights).

    \b
    Examples:
      ppopt compare -d 4 -m 8
      ppopt compare models/gpt-1.5b.toml --chunks 2,4 --memory-limit 6
      ppopt compare -d 4 -m 8 --columns makespan,speed-up,relative-efficiency
      ppopt compare models/gpt-1.5b.toml --with mine.csv --with best.json
      ppopt compare -d 4 -m 8 --set costs.forward=100 --set costs.backward=200 --set links.latency=16
    """
    if (given.path, *files).count("-") > 1:
        raise click.UsageError("standard input can be read once only")
    model = given.read()
    with_files = [row_in(file, model.pipeline) for file in files]
    table = compare_named(model, given.chunks, own=with_files, maps=maps)
    if as_json:
        click.echo(json_text(document(model, named=table)), nl=False)
        return
    from ppopt.cli.render import styled, width
    from ppopt.text import heading, wrapped

    best = table.best_elsewhere()
    if best:
        click.echo(wrapped(best, width()))
    click.echo(table.text(wrapped(heading(model.pipeline), width()), width(), styled=styled(), columns=columns))
