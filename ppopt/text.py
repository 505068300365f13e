"""Numbers, units and pipelines in words, as tables, pictures and messages show them; and tables for terminals."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal, NamedTuple, Protocol, TypeAlias

from ppopt.pipeline import BEST, OPEN, Offload, Pipeline, in_words, plain

DIGITS = 5
"""Significant digits of figures in tables."""
NARROWEST = 16
"""Characters that a column of text has at least before others are left out for it."""
Style: TypeAlias = Literal["", "bold", "dim"]
_ESCAPES = {"bold": "\x1b[1m", "dim": "\x1b[2m"}


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
    if pipeline.offload is not None:
        details += f", {_offload(pipeline.offload)}"
    pieces = pipeline.costs.weight_pieces
    details += f", weight gradients in {pieces} pieces" if pieces > 1 else ""
    details += ", backwards on other devices" if pipeline.backward_routes else ""
    details += ", weights on other devices" if pipeline.memory.weights_on is not None else ""
    return f"{name}{sizes(pipeline)}, {pipeline.placement}{details}{_mix(pipeline)}"


def _mix(pipeline: Pipeline) -> str:
    """How microbatches differ, and who orders them."""
    mix = pipeline.mix
    if not mix.differs:
        return ""
    ordered = "in any order" if mix.microbatch_order == OPEN else "in the given order"
    pieces = ", pieces of sequences" * bool(mix.pieces)
    what = "sequences of several lengths" if mix.lengths else "microbatches that differ"
    return f", {what} {ordered}{pieces}"


def _offload(offload: Offload) -> str:
    """What of the activations moves to the host."""
    which = offload.stages
    if isinstance(which, str):
        return "offload" if which == "choose" else f"offload {which}"
    if isinstance(which, tuple):
        return f"offload {', '.join(number(plain(part)) for part in which)}"
    return f"offload {number(plain(which))}"


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


def figure(value: int | float) -> str:
    """A figure of a table: whole numbers as they are, others with :data:`DIGITS` significant digits."""
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    if not value or abs(value) < 1e-4:
        return f"{value:.{DIGITS}g}"
    text = f"{value:.{max(0, DIGITS - 1 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(ratio: float) -> str:
    """A ratio in percent."""
    return f"{100 * ratio:.1f} %"


def unit(name: str, label: str) -> str:
    """The head of a column with its unit."""
    return f"{name} [{label}]" if label else name


class Column(NamedTuple):
    """A column of a table."""

    name: str
    right: bool = False
    """Whether it has figures."""
    rank: int = 0
    """Where there is no room for all, those of the highest rank are left out first; those of rank 0 never are."""
    wrapped: bool = False
    """Whether its texts may go on in the next line, between words."""


@dataclass
class Table:
    """Rows of texts under heads. Names and figures are never broken; a table that is too wide has fewer columns."""

    title: str | None
    columns: tuple[Column, ...]
    rows: list[tuple[tuple[str, ...], Style]] = field(default_factory=list)

    def add_row(self, *cells: str, style: Style = "") -> None:
        """A row, a text for each column.

        Raises:
            ValueError: it has another number of cells.
        """
        if len(cells) != len(self.columns):
            raise ValueError(f"a row of {len(cells)} cells in a table of {len(self.columns)} columns")
        self.rows.append((cells, style))


def new_table(
    title: str | None, left: Sequence[str], right: Sequence[str], last: Sequence[str] = (), ranks: Mapping[str, int] | None = None
) -> Table:
    """A table without rows: columns of text, of figures, and of text again, which may be wrapped.

    ``ranks`` by the name of a column, with or without its unit: which are left out first where there is no room
    (:class:`Column`).
    """
    known = ranks or {}
    groups = ((left, False, False), (right, True, False), (last, False, True))
    columns = (
        Column(name, right, known.get(name, known.get(name.split(" [")[0], 0)), wrapped)
        for names, right, wrapped in groups
        for name in names
    )
    return Table(title, tuple(columns))


def rendered(table: Table, width: int | None = None, *, styled: bool = False) -> str:
    """A table as text, without the end of its last line.

    It is as wide as it needs to be, within ``width`` columns where that is given: then heads take several lines, texts that may
    be wrapped are, and columns of the highest rank are left out and named below. ``styled``: with escape sequences for terminals.
    """
    shown = list(range(len(table.columns)))
    while True:
        for gap, folded in ((3, False), (3, True), (2, True)):
            widths = _widths(table, shown, width, gap, folded, NARROWEST)
            if width is None or sum(widths) + gap * (len(widths) - 1) <= width:
                return _drawn(table, shown, widths, gap, width, styled)
        ranks = [(table.columns[c].rank, c) for c in shown]
        rank, place = max(ranks)
        if not rank:
            widths = _widths(table, shown, width, gap, folded, 0)
            return _drawn(table, shown, widths, gap, width, styled)
        shown.remove(place)


def _widths(table: Table, shown: Sequence[int], width: int | None, gap: int, folded: bool, narrowest: int) -> list[int]:
    """How wide each of the columns is; texts that may be wrapped, ``narrowest`` or their longest word, share what is left."""
    widths, flexible = [], []
    for place, c in enumerate(shown):
        column = table.columns[c]
        name = max(map(_cells, column.name.split()), default=0) if folded else _cells(column.name)
        texts = [cells[c] for cells, _ in table.rows]
        widths.append(max([name, *map(_cells, texts)]))
        if column.wrapped and width is not None:
            longest = max((_cells(word) for text in texts for word in text.split()), default=0)
            flexible.append((place, max(name, longest, min(narrowest, widths[-1]))))
    if width is not None:
        over = sum(widths) + gap * (len(widths) - 1) - width
        for place, least in reversed(flexible):
            less = max(0, min(over, widths[place] - least))
            widths[place] -= less
            over -= less
    return widths


def _drawn(table: Table, shown: Sequence[int], widths: Sequence[int], gap: int, width: int | None, styled: bool) -> str:
    columns = [table.columns[c] for c in shown]
    rule = "─" * (sum(widths) + gap * (len(widths) - 1))
    lines = [] if table.title is None else [table.title]
    heads = [_folded(column.name, size) for column, size in zip(columns, widths, strict=True)]
    tall = max(map(len, heads), default=0)
    lines += _lines([[""] * (tall - len(head)) + head for head in heads], columns, widths, gap)
    lines.append(rule)
    for cells, style in table.rows:
        parts = [
            _folded(cells[c], size) if table.columns[c].wrapped else [cells[c]] for c, size in zip(shown, widths, strict=True)
        ]
        for line in _lines(parts, columns, widths, gap):
            lines.append(f"{_ESCAPES[style]}{line}\x1b[0m" if styled and style else line)
    hidden = [column.name for c, column in enumerate(table.columns) if c not in shown]
    if hidden:
        lines.append(wrapped(f"not shown in {width} columns: {', '.join(hidden)}", width))
    return "\n".join(lines)


def wrapped(text: str, width: int | None) -> str:
    """A sentence in lines of at most so many columns, the later ones indented; no word is broken."""
    if width is None or _cells(text) <= width:
        return text
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return "\n".join(textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def _lines(parts: Sequence[Sequence[str]], columns: Sequence[Column], widths: Sequence[int], gap: int) -> list[str]:
    """The lines of one row, each of whose cells has one or more."""
    lines = []
    for texts in zip_longest(*parts, fillvalue=""):
        cells = []
        for text, column, size in zip(texts, columns, widths, strict=True):
            space = " " * (size - _cells(text))
            cells.append(space + text if column.right else text + space)
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def _folded(text: str, size: int) -> list[str]:
    """A text in lines of at most so many columns, as far as its words allow."""
    if _cells(text) <= size:
        return [text]
    return textwrap.wrap(text, size, break_long_words=False, break_on_hyphens=False) or [""]


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
