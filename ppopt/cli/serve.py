"""``ppopt serve``: the form in a browser."""

from __future__ import annotations

import asyncio

import click

from ppopt.cli.options import Given, model_options


@click.command(short_help="The form in a browser: schedules side by side, searches, plans.")
@model_options()
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="[default: one that is free]")
def serve(given: Given, port: int) -> None:
    """Serve a form on 127.0.0.1, where a browser on this machine finds it; Ctrl-C ends it.

    In the form a pipeline is written down, read from a model file or saved as one. It shows named schedules side by side,
    searches for the best one, and plans for a cluster. It begins with MODEL, or with a small pipeline.

    \b
    Examples:
      ppopt serve
      ppopt serve models/gpt-1.5b.toml --port 8000
    """
    from ppopt.files import model_dict
    from ppopt.pictures.page.document import check_installed

    check_installed("the form")
    from ppopt.live.form import EXAMPLE
    from ppopt.live.server import serve as answer

    tree = EXAMPLE if given.path is None and not given.changes else model_dict(given.read())
    try:
        asyncio.run(answer(tree, port, lambda address: click.echo(f"{address} (Ctrl-C ends it)")))
    except OSError as error:
        raise click.ClickException(f"--port {port}: cannot be had: {error.strerror or error}") from None
