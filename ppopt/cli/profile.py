"""``ppopt profile``: a model file from a real run."""

from __future__ import annotations

import click

from ppopt.files import setting, write_text
from ppopt.files.profile import combine, model_text, read_recorded


@click.command(short_help="A model file from a real run in PyTorch.")
@click.argument("traces", metavar="TRACE…", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="MODEL", help="Default: standard output.")
@click.option("--name", default="", help="Name of the model.")
@click.option(
    "--skip", type=click.IntRange(min=0), default=1, show_default=True, metavar="N", help="Steps to leave out at the beginning."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the model file, such as links.latency=0.1."
)
def profile(traces: tuple[str, ...], output: str | None, name: str, skip: int, settings: tuple[str, ...]) -> None:
    """Make a model file of TRACE files, one per rank: of PyTorch's profiler (.json or .json.gz), or timing records.

    Records are written by ppopt.files.torch_timing.StageTimer in the training script and hold sizes and latencies too; what the
    files do not hold is assumed, and the model file says so. Files of several runs go together, one with B and one with I and W.

    \b
    Examples:
      ppopt profile timing-*.json -o model.toml
      ppopt profile trace-*.json.gz --set links.latency=0.05 --set memory.limit=60 -o model.toml
    """
    changes = [setting(text) for text in settings]
    text = model_text(combine([read_recorded(path, skip) for path in traces]), name, changes)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
