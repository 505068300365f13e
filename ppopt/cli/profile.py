"""``ppopt profile``: a model file from a real run."""

from __future__ import annotations

import re
from typing import Literal

import click

from ppopt.cli.options import Command
from ppopt.cli.values import Counts
from ppopt.files import setting, write_text
from ppopt.files.blocks import BLOCK, NO_BLOCK
from ppopt.files.link_fit import said_of
from ppopt.files.profile import Profile, combine, model_text, spreads
from ppopt.files.profiled_layers import Grouping, ProfiledLayers, dealt_layers, named_layers
from ppopt.files.recorded import read_files


class Pattern(click.ParamType):  # type: ignore[type-arg]
    """A regular expression."""

    name = "pattern"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The expression as it is."""
        try:
            re.compile(value)
        except re.error as error:
            self.fail(f"expected a regular expression, got {value!r}: {error}", param, ctx)
        return value


def format_options(command: Command) -> Command:
    """What a file of a run may leave open."""
    placement_help = "Where the chunks of a Primus dump are: loop (default), or wave for its V schedules."
    group_help = "Group size of Megatron's interleaved order, where a Primus dump names no microbatches. Default: the devices."
    for option in (
        click.option("--group-size", type=click.IntRange(min=1), metavar="N", help=group_help),
        click.option("--placement", type=click.Choice(["loop", "wave"]), help=placement_help),
    ):
        command = option(command)
    return command


@click.command(short_help="A model file from a real run.")
@click.argument("traces", metavar="TRACE…", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="MODEL", help="Default: standard output.")
@click.option("--name", default="", help="Name of the model.")
@click.option(
    "--skip", type=click.IntRange(min=0), default=1, show_default=True, metavar="N", help="Steps to leave out at the beginning."
)
@click.option(
    "--layers",
    type=click.Choice(["alike", "names", "each", "none"]),
    help="What is a group of [[layers]], where a trace names them: neighbours of one name but for its number whose times agree "
    "(alike, the default), all neighbours of one name, each layer; none: times of stages.",
)
@click.option(
    "--blocks", type=Pattern(), metavar="REGEX", help="Which ranges of a trace are layers. Default: those without a colon."
)
@click.option(
    "--layers-per-stage",
    "dealt",
    type=Counts(),
    metavar="N,…",
    help="Divide each stage evenly over so many layers (8 or 4,4,5,3).",
)
@format_options
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the model file, such as links.latency=0.1."
)
def profile(
    traces: tuple[str, ...],
    output: str | None,
    name: str,
    skip: int,
    layers: Grouping | Literal["none"] | None,
    blocks: str | None,
    dealt: tuple[int, ...] | None,
    placement: str | None,
    group_size: int | None,
    settings: tuple[str, ...],
) -> None:
    """Make a model file of TRACE files, one per rank: of PyTorch's profiler (.json or .json.gz), timing records, event times of
    Megatron, or dumps of Primus with their config.json.

    Records are written by ppopt.files.torch_timing.StageTimer in the training script and hold sizes and links too; what the
    files do not hold is assumed, and the model file says so. Files of several runs go together, one with B and one with I and W.
    Where the forwards of a trace name layers (torch.profiler.record_function), the file has these layers.

    \b
    Examples:
      ppopt profile timing-*.json -o model.toml
      ppopt profile trace-*.json.gz --set links.latency=0.05 --set memory.limit=60 -o model.toml
      ppopt profile timing-*.json --layers-per-stage 4,4,5,3 -o model.toml
    """
    if dealt is not None and (layers is not None or blocks is not None):
        raise click.UsageError("--layers-per-stage divides the stages evenly; it takes neither --layers nor --blocks")
    if layers == "none" and blocks is not None:
        raise click.UsageError("--layers none writes the times of stages; it takes no --blocks")
    changes = [setting(text) for text in settings]
    pattern = NO_BLOCK if dealt is not None or layers == "none" else blocks or BLOCK
    measured = combine(read_files(traces, skip, pattern, placement=placement, group_size=group_size))
    found = _layers(measured, layers, blocks, dealt)
    text = model_text(measured, name, changes, found)
    for warning in measured.warnings:
        click.echo(f"Warning: {warning}.", err=True)
    if apart := spreads(measured):
        click.echo(f"Half of the samples lie within: {', '.join(apart)} of their median, in the widest stage.", err=True)
    if measured.occupied:
        click.echo(f"Links: {said_of(measured.links)}.", err=True)
    for note in found.notes if found else ():
        click.echo(f"{note[0].upper()}{note[1:]}.", err=True)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)


def _layers(
    profile: Profile, grouping: Grouping | Literal["none"] | None, blocks: str | None, dealt: tuple[int, ...] | None
) -> ProfiledLayers | None:
    """The layers that are asked for, or that a trace names; ``None``: the file has stages."""
    if dealt is not None:
        return dealt_layers(profile, dealt)
    if grouping == "none" or (not profile.blocks and grouping is None and blocks is None):
        return None
    return named_layers(profile, grouping or "alike")
