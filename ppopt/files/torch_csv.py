"""PyTorch's schedule files: rows of actions, one row per rank; read strictly, written exactly (docs/torch.md).

A file is either compute only (``F``, ``B``, ``I``, ``W`` and overlapped pairs) or lists every communication as well.
Source of the format: torch/distributed/pipelining/schedules.py of PyTorch 2.13.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ppopt.files.inferred import infer_pipeline
from ppopt.files.text import FileError, read_text, source_of
from ppopt.op import Op, Pair, parse
from ppopt.pipeline import MAX_MICROBATCHES, MAX_STAGES, Pipeline
from ppopt.schedule import Order

TRANSFERS = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")
"""Carry the microbatch's activation (F) to the next stage, or its gradient (B) to the stage before."""
ONCE_PER_STAGE = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
"""Have no microbatch."""


class Comm(NamedTuple):
    """A communication of one stage: ``2SEND_F1`` (stage 2 sends its output of microbatch 1), ``2REDUCE_GRAD``."""

    stage: int
    verb: str
    """One of :data:`TRANSFERS` or :data:`ONCE_PER_STAGE`."""
    microbatch: int | None = None

    def __str__(self) -> str:
        return f"{self.stage}{self.verb}{'' if self.microbatch is None else self.microbatch}"


Action: TypeAlias = Op | Pair | Comm
Rows: TypeAlias = Sequence[Sequence[Action]]


class CsvError(ValueError):
    """A file that is not a schedule file; says where, what came and what was expected."""


_NUMBER = "(?:0|[1-9][0-9]{0,8})"
_SINGLE = re.compile(rf"{_NUMBER}(?:[FBIW]{_NUMBER}|W{_NUMBER}\.{_NUMBER})")
_COMM = re.compile(rf"({_NUMBER})(?:({'|'.join(TRANSFERS)})({_NUMBER})|({'|'.join(ONCE_PER_STAGE)}))")
_PAIR = re.compile(rf"\( *{_NUMBER}[FB]{_NUMBER} *; *{_NUMBER}[FB]{_NUMBER} *\)OVERLAP_F_B")


def parse_action(text: str) -> Action:
    """Read one cell.

    Raises:
        ValueError: it is not exactly an action; PyTorch's own reader takes ``0F0xyz`` for ``0F0``.
    """
    if _SINGLE.fullmatch(text) or _PAIR.fullmatch(text):
        return parse(text)
    comm = _COMM.fullmatch(text)
    if comm is None:
        shown = text if len(text) <= 60 else text[:60] + " …"
        raise ValueError(f"expected an action such as 2F0, (0F3;7B1)OVERLAP_F_B or 2SEND_F0, got {shown!r}")
    stage, verb, microbatch, once = comm.groups()
    return Comm(int(stage), once) if once else Comm(int(stage), verb, int(microbatch))


def has_comms(rows: Rows) -> bool:
    """Whether the file lists communication."""
    return any(isinstance(action, Comm) for row in rows for action in row)


def compute_only(rows: Rows) -> list[list[Op | Pair]]:
    """The rows without their communication."""
    return [[action for action in row if not isinstance(action, Comm)] for row in rows]


# --- text --------------------------------------------------------------------------------------------------------


def read_csv(path: str) -> list[list[Action]]:
    """The rows of a file; ``-`` is standard input.

    Raises:
        CsvError: the file cannot be read or is not a schedule file.
    """
    try:
        text = read_text(path)
    except FileError as error:
        raise CsvError(f"{source_of(path)}: {error}") from None
    return rows_of_text(text, source_of(path))


def rows_of_text(text: str, source: str) -> list[list[Action]]:
    """The rows of a text; ``source`` names it in messages. Empty cells of a compute-only file are idle marks and are dropped.

    Raises:
        CsvError: a cell is no action, a row has none (a blank last line counts as one more rank for PyTorch), or a file
            with communication has empty cells (PyTorch refuses these).
    """
    rows: list[list[Action]] = []
    empty: tuple[int, int] | None = None
    lines = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        for rank, cells in enumerate(lines):
            row: list[Action] = []
            for column, cell in enumerate(cells):
                stripped = cell.strip(" ")
                if stripped:
                    row.append(_action(stripped, source, rank, column))
                elif empty is None:
                    empty = rank, column
            if not any(not isinstance(action, Comm) for action in row):
                raise CsvError(f"{source}: row {rank} computes nothing; every row is a rank, and every rank has a stage")
            rows.append(row)
    except csv.Error as error:
        raise CsvError(f"{source}: line {lines.line_num}: {error}") from None
    if not rows:
        raise CsvError(f"{source}: empty; expected a row of actions for every rank")
    if empty is not None and has_comms(rows):
        raise CsvError(f"{source}: row {empty[0]}, column {empty[1]}: an empty cell in a file that lists communication")
    return rows


def _action(cell: str, source: str, rank: int, column: int) -> Action:
    try:
        action = parse_action(cell)
    except ValueError as error:
        raise CsvError(f"{source}: row {rank}, column {column}: {error}") from None
    for part in parts_of(action):
        if part.stage >= MAX_STAGES or (part.microbatch or 0) >= MAX_MICROBATCHES:
            limits = f"at most {MAX_STAGES} stages and {MAX_MICROBATCHES} microbatches are supported"
            raise CsvError(f"{source}: row {rank}, column {column}: {limits}, got {cell}")
    return action


def parts_of(action: Action) -> tuple[Op | Comm, ...]:
    """The action itself, or the halves of a pair."""
    return (action.forward, action.backward) if isinstance(action, Pair) else (action,)


def lines_of(rows: Iterable[Iterable[Action]]) -> Iterator[str]:
    """The lines of the file, each with its line end."""
    for row in rows:
        yield ",".join(map(str, row)) + "\n"


def read_order(path: str) -> tuple[Pipeline, Order]:
    """The order in a file, and the pipeline that it is for as far as the file says (unit costs); communication is left out.

    Raises:
        CsvError: the file cannot be read or is not a schedule file.
    """
    rows = compute_only(read_csv(path))
    try:
        pipeline = infer_pipeline(rows)
    except FileError as error:
        raise CsvError(f"{source_of(path)}: {error}") from None
    return pipeline, Order.of(pipeline, rows)
