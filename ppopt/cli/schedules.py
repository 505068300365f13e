"""``ppopt schedules``: what the named schedules are."""

from __future__ import annotations

import contextlib
import json
import shutil
import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import click

from ppopt.cli.options import find_schedule, json_option
from ppopt.named import NAMED, Definition, Restriction
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule

PAGE = 100
"""Columns of the list where the output is no terminal."""
HEAD = (
    "Peak: activations of one chunk on device d. Idle: makespan - work in costs of one chunk, where these are equal on all "
    "stages and there is no latency; -: no simple form is known. Backward: B fused, or I and W. D devices, M microbatches, "
    "v chunks; other letters are parameters: ppopt schedules NAME."
)
SIZES = ((4, 8), (4, 4), (2, 4), (2, 2))
"""Devices and microbatches of the picture: the largest at which the schedule exists and fits on the screen."""


@click.command(short_help="The named schedules.")
@click.argument("name", required=False)
@json_option
def schedules(name: str | None, as_json: bool) -> None:
    """The named schedules: names, placement, restrictions, peak memory, idle time, source. With NAME one of them, with a picture.

    \b
    Examples:
      ppopt schedules
      ppopt schedules dualpipe
    """
    definitions = [find_schedule(name)] if name else list(NAMED.values())
    if as_json:
        click.echo(json.dumps({"schedules": [definition_dict(definition) for definition in definitions]}, indent=1))
    elif name:
        explain(definitions[0])
    else:
        listing(definitions)


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
        "package": NAMED.origin(definition.name),
        "parameters": parameters,
    }


def listing(definitions: list[Definition]) -> None:
    """A few lines per schedule, no wider than the screen; where there is none, than ``COLUMNS`` says, or 100."""
    width = max(60, shutil.get_terminal_size((PAGE, 24)).columns)
    indent = 2 + max(len(d.name) for d in definitions)
    click.echo(textwrap.fill(HEAD, width) + "\n")
    for d in definitions:
        name = d.name
        for line in facts_of(d):
            text = textwrap.wrap(line, width - indent, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            for part in text:
                click.echo(f"{name:{indent}}{part}")
                name = ""


def facts_of(d: Definition) -> Iterator[str]:
    """The lines of the list: what a schedule is, what it takes, and where it is from."""
    needs = "" if d.needs == "-" else f"; needs {d.needs}"
    yield f"{d.placement}; backward {'I, W' if d.split else 'B'}{needs}"
    if d.aliases:
        yield f"also called {', '.join(d.aliases)}"
    yield f"peak {d.peak or '-'}; idle {d.idle or '-'}"
    package = NAMED.origin(d.name)
    yield f"source {d.source or '-'}" + (f"; from {package}" if package else "")


def explain(definition: Definition) -> None:
    """All about one schedule."""
    from ppopt.cli.render import picture, say
    from ppopt.text import heading

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
        "package": NAMED.origin(d.name),
    }
    say(f"{d.name}: {d.summary}\n")
    for fact, text in facts.items():
        if text:
            click.echo(_fact(fact, text))
    for p in d.parameters:
        choices = f" ({', '.join(p.choices)})" if p.choices else ""
        click.echo(_fact("parameter", f"{p.name}{choices}: {p.meaning}; default: {p.default}"))
    shown = [(example, *picture(example)) for example in examples(d)]
    if not shown:
        sizes = ", ".join(f"{devices} and {microbatches}" for devices, microbatches in SIZES)
        say(f"\nNo picture: it does not exist at the sizes that are tried (devices and microbatches {sizes}).")
        return
    example, text, _ = next((entry for entry in shown if entry[2]), shown[-1])
    click.echo(f"\nAt unit costs, {heading(example.pipeline)}:\n\n{text}")


def _fact(name: str, text: str) -> str:
    """A line under its name, or several, no wider than the screen."""
    from ppopt.cli.render import width

    columns = width()
    if columns is None:
        return f"{name + ':':13}{text}"
    lines = textwrap.wrap(text, max(20, columns - 13), break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(f"{head:13}{line}" for head, line in zip_longest((f"{name}:",), lines, fillvalue=""))


def examples(definition: Definition) -> Iterator[Schedule]:
    """The schedule at unit costs, at those sizes of :data:`SIZES` that its definition allows."""
    for devices, microbatches in SIZES:
        with contextlib.suppress(Restriction):
            yield definition.schedule(Pipeline(devices, microbatches))
