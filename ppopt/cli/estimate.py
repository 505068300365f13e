"""``ppopt estimate``: what the layers of a transformer take and hold, from their sizes."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import click

from ppopt.files import ModelError, setting, write_text
from ppopt.files.estimate_text import model_text
from ppopt.files.estimates import Source, read_source
from ppopt.transformer import Asked, EstimateError
from ppopt.transformer.calibration import calibrate
from ppopt.transformer.records import record_of


@click.command(short_help="A model file from a config.json or sizes, and hardware.")
@click.argument("config", metavar="CONFIG", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="MODEL", help="Write a model file with layers.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the file, such as transformer.sequence=8192."
)
@click.option(
    "--calibrate",
    "measured",
    type=click.Path(exists=True, dir_okay=False),
    metavar="PROFILE",
    help="Fit efficiency, passes and links to measured times: a table, or a model file with measured layers.",
)
@click.option(
    "--fit",
    "names",
    default="",
    metavar="NAME,…",
    help="What --calibrate fits. Default: what the times can tell; also launch, latency.",
)
@click.option(
    "--cross-check", is_flag=True, help="Count the same with the library transformers (extra hf); exit code 1 if it differs."
)
@click.option("--explain", is_flag=True, help="What parameters, FLOPs, bytes and times are made of, and what was assumed.")
@click.option("--json", "as_json", is_flag=True, help="Print parameters, FLOPs, bytes and seconds of each layer as JSON.")
def estimate(
    config: str,
    output: str | None,
    settings: tuple[str, ...],
    measured: str | None,
    names: str,
    cross_check: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Parameters, FLOPs, bytes and times of the layers of a transformer, for one microbatch on one GPU.

    CONFIG is a config.json of Hugging Face, or a TOML file with [transformer], [training], [cluster] and [parallel].

    \b
    Examples:
      ppopt estimate config.json --json
      ppopt estimate config.json --set transformer.sequence=4096 --set cluster.gpu=h100-sxm
      ppopt estimate training.toml -o model.toml
      ppopt estimate training.toml --calibrate measured.csv
    """
    source = read_source(config, [setting(text, example="transformer.sequence=8192") for text in settings])
    if cross_check:
        _cross_checked(source)
        return
    asked = source.asked()
    if measured is not None:
        asked = _calibrated(measured, names, source, asked, beside=as_json)
    if output is not None:
        write_text(output, model_text(source, asked))
    try:
        if as_json:
            click.echo(json.dumps(record_of(asked), indent=1))
        elif explain or (output is None and measured is None):
            from ppopt.cli.estimated import report
            from ppopt.cli.render import say

            say(report(source, asked, explain=explain))
    except EstimateError as error:
        raise source.error(error) from None


def _cross_checked(source: Source) -> None:
    """The counts of the library beside ours; ends with exit code 1 where they differ."""
    from ppopt.cli.estimated import cross_check_report
    from ppopt.transformer.cross_check import cross_check

    config = source.tables.get("transformer", {}).get("config")
    if config is None:
        raise ModelError(source.path, "transformer.config", "missing; the comparison is about a config.json")
    try:
        found = cross_check(config)
    except EstimateError as error:
        raise source.error(error) from None
    click.echo(cross_check_report(found))
    if any(count.library != count.here for count in found):
        click.get_current_context().exit(1)


def _calibrated(path: str, names: str, source: Source, asked: Asked, *, beside: bool) -> Asked:
    """What was asked for, on a GPU that is fitted to the measured times of a file. How well it fits is printed, ``beside`` other
    output on standard error."""
    from ppopt.cli.estimated import fit_report
    from ppopt.files.measured import read_measured

    rows = read_measured(path, source)
    try:
        found = calibrate(
            rows, f"fitted to {os.path.basename(path)}", [name.strip() for name in names.split(",") if name.strip()]
        )
    except EstimateError as error:
        raise ModelError(path, error.key, error.message) from None
    click.echo(fit_report(found), err=beside)
    assert asked.cluster is not None
    return replace(asked, cluster=replace(asked.cluster, gpu=found.gpu))
