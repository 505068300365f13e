"""Numbers, units and pipelines in words, as tables, pictures and messages show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ppopt.pipeline import BEST, Pipeline, in_words

if TYPE_CHECKING:
    from rich.table import Table


WIDE = 200
"""Columns of a table where the output is no terminal."""


def heading(pipeline: Pipeline) -> str:
    """A pipeline in a line."""
    details = _chunks(pipeline)
    name = f"{pipeline.name}: " if pipeline.name else ""
    if pipeline.layers is not None:
        details += f", {len(pipeline.layers)} layers" + (" in any partition" if pipeline.partition == BEST else "")
        if pipeline.recompute != "none":
            details += f", recompute {pipeline.recompute if isinstance(pipeline.recompute, str) else 'of some layers'}"
    elif isinstance(pipeline.recompute, tuple):
        several = "s" * (len(pipeline.recompute) > 1)
        details += f", recompute in stage{several} {in_words(pipeline.recompute)}"
    elif pipeline.recompute != "none":
        details += f", recompute {pipeline.recompute}"
    return f"{name}{sizes(pipeline)}, {pipeline.placement}{details}"


def _chunks(pipeline: Pipeline) -> str:
    if isinstance(pipeline.chunks, tuple):
        return f", {' or '.join(map(str, pipeline.chunks))} chunks"
    return f", {pipeline.chunks} chunks" if pipeline.chunks > 1 else ""


class Placed(Protocol):
    """What has a placement: a pipeline, a row."""

    @property
    def placement(self) -> str:
        """Its name."""

    @property
    def chunks(self) -> int:
        """Stages per device and route."""


def place(placed: Placed) -> str:
    """A placement and its chunks in words."""
    return placed.placement + (f" with {placed.chunks} chunks" if placed.chunks > 1 else "")


def brief(placed: Placed) -> str:
    """A placement and its chunks as short as can be."""
    return placed.placement + (f" v={placed.chunks}" if placed.chunks > 1 else "")


def sizes(pipeline: Pipeline) -> str:
    """How many devices and microbatches a pipeline has."""
    devices, several = pipeline.devices, pipeline.microbatches
    counts = ", ".join(map(str, several)) if isinstance(several, tuple) else str(several)
    return f"{devices} device{'s' * (devices > 1)}, {counts} microbatch{'es' * (counts != '1')}"


def number(value: int | float) -> str:
    """A figure with at most six significant digits after the point's side that matters; whole numbers as they are."""
    return str(value) if isinstance(value, int) else f"{value:.6g}" if abs(value) < 1e6 else f"{value:.1f}"


def percent(ratio: float) -> str:
    """A ratio in percent."""
    return f"{100 * ratio:.1f} %"


def unit(name: str, label: str) -> str:
    """The head of a column with its unit."""
    return f"{name} [{label}]" if label else name


def new_table(title: str | None, left: Sequence[str], right: Sequence[str], last: Sequence[str] = ()) -> Table:
    """A table without rows: columns of text, of figures, and of text again."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for names, justify in ((left, "left"), (right, "right"), (last, "left")):
        for name in names:
            table.add_column(name.replace("[", r"\["), overflow="fold", justify=justify)  # type: ignore[arg-type]
    return table


def rendered(table: Table, width: int | None = None) -> str:
    """A table as text, without the end of its last line; as wide as it needs, up to ``width`` columns."""
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    Console(file=text, width=width or WIDE, highlight=False, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip("\n").splitlines())
