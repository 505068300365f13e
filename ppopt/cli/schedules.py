"""``ppopt schedules``: what the named schedules are."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import click

from ppopt.cli.options import json_option
from ppopt.named import NAMED, Definition, Restriction, find
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule

SIZES = ((4, 8), (4, 4), (2, 4), (2, 2))
"""Devices and microbatches of the picture: the largest at which the schedule exists and fits on the screen."""


@click.command(short_help="The named schedules.")
@click.argument("name", required=False)
@json_option
def schedules(name: str | None, as_json: bool) -> None:
    """The named schedules: placement, restrictions, source. With NAME one of them, with a small picture.

    \b
    Examples:
      ppopt schedules
      ppopt schedules dualpipe
    """
    definitions = [find(name)] if name else list(NAMED.values())
    if as_json:
        click.echo(json.dumps({"schedules": [definition_dict(definition) for definition in definitions]}, indent=1))
    elif name:
        explain(definitions[0])
    else:
        table(definitions)


def definition_dict(definition: Definition) -> dict[str, Any]:
    """A definition as JSON has it."""
    parameters = [
        {"name": p.name, "meaning": p.meaning, "default": p.default, "choices": list(p.choices)} for p in definition.parameters
    ]
    return {
        "name": definition.name,
        "aliases": list(definition.aliases),
        "summary": definition.summary,
        "placement": definition.placement,
        "split": definition.split,
        "needs": definition.needs,
        "peak": definition.peak,
        "idle": definition.idle,
        "open": definition.open_rule,
        "source": definition.source,
        "parameters": parameters,
    }


def table(definitions: list[Definition]) -> None:
    """One line per schedule."""
    from ppopt.cli.render import new_table, show

    lines = new_table(None, ["schedule", "also called", "placement", "backward", "needs", "source"], [])
    for d in definitions:
        lines.add_row(d.name, ", ".join(d.aliases), d.placement, "I, W" if d.split else "B", d.needs, d.source.split(";")[0])
    show(lines)


def explain(definition: Definition) -> None:
    """All about one schedule."""
    from ppopt.cli.render import heading, picture

    d = definition
    facts = {
        "also called": ", ".join(d.aliases),
        "placement": d.placement,
        "backward": "I and W (a split backward)" if d.split else "B (fused)",
        "needs": d.needs,
        "peak": d.peak and f"{d.peak} activations of one chunk on device d",
        "idle time": d.idle and f"{d.idle} in costs of one chunk, without latency",
        "left open": d.open_rule,
        "source": d.source,
    }
    click.echo(f"{d.name}: {d.summary}\n")
    for fact, text in facts.items():
        if text:
            click.echo(f"{fact + ':':13}{text}")
    for p in d.parameters:
        choices = f" ({', '.join(p.choices)})" if p.choices else ""
        click.echo(f"{'parameter:':13}{p.name}{choices}: {p.meaning}; default: {p.default}")
    shown = [(example, *picture(example)) for example in examples(d)]
    example, text, _ = next((entry for entry in shown if entry[2]), shown[-1])
    click.echo(f"\nAt unit costs, {heading(example.pipeline)}:\n\n{text}")


def examples(definition: Definition) -> Iterator[Schedule]:
    """The schedule at unit costs, at those sizes of :data:`SIZES` that its definition allows."""
    for devices, microbatches in SIZES:
        with contextlib.suppress(Restriction):
            yield definition.schedule(Pipeline(devices, microbatches))
