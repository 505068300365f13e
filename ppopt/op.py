"""Operations of a pipeline, in the notation of PyTorch: ``2F0`` is stage 2, forward, microbatch 0.

Where weight gradients come in pieces, ``2W0.1`` is the second piece of ``2W0``; pieces are counted from 0, too.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple


class Kind(enum.IntEnum):
    """What an operation computes."""

    F = 0
    """Forward."""
    B = 1
    """Full (fused) backward: ``I`` and ``W`` in one operation."""
    I = 2  # noqa: E741 - the field's own letter
    """Gradient of the stage's input."""
    W = 3
    """Gradient of the stage's weights."""


class Send(enum.IntEnum):
    """What a transfer carries: to the neighbouring stage, over a link; or between a device and its host, by a copy engine.

    A transfer that holds a link, or an engine, is an operation of that.
    """

    SEND_F = 4
    """The result of a forward, to the next stage."""
    SEND_B = 5
    """The gradient of a stage's input, to the stage before."""
    OFFLOAD = 6
    """A copy of an activation from the device to the host."""
    RELOAD = 7
    """The copy of it back to the device."""


HOPS = (Send.SEND_F, Send.SEND_B)
"""The transfers between stages."""
COPIES = (Send.OFFLOAD, Send.RELOAD)
"""The copies between a device and its host."""


WHOLE = -1
"""In place of the number of a piece: all of an operation."""
_ROWS = len(Kind) + len(Send)
"""Rows of tables by kind, but for those of further pieces."""


def row_of(kind: int, piece: int = WHOLE) -> int:
    """The row that operations of a kind have in tables by kind; of the first piece of a ``W`` it is that of a whole one."""
    return kind if piece < 1 else _ROWS - 1 + piece


@cache
def _by_row(pieces: int) -> dict[int, tuple[Kind | Send, int]]:
    """By row of tables by kind, which kind it is, and of a ``W`` in so many pieces which piece."""
    found: dict[int, tuple[Kind | Send, int]] = {int(kind): (kind, WHOLE) for kind in (*Kind, *Send)}
    return found if pieces == 1 else found | {row_of(Kind.W, piece): (Kind.W, piece) for piece in range(pieces)}


class Op(NamedTuple):
    """One computation, or one transfer of a stage: the stage, a kind and a microbatch, all counted from 0.

    ``piece``: of a ``W`` that comes in pieces the number of one.
    """

    stage: int
    kind: Kind | Send
    microbatch: int
    piece: int = WHOLE

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.name}{self.microbatch}" + (f".{self.piece}" if self.piece >= 0 else "")


class Pair(NamedTuple):
    """A forward and a full backward of one device that run as one operation.

    It starts when the inputs of both halves are there; both results exist at its end only.
    """

    forward: Op
    backward: Op

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"


_OP = re.compile(r"(\d+)(?:([FBI])(\d+)|(W)(\d+)(?:\.(\d+))?)", re.ASCII)
_TRANSFER = re.compile(r"(\d+)(SEND_[FB]|OFFLOAD|RELOAD)(\d+)", re.ASCII)
_PAIR = re.compile(r"\(\s*(\d+[A-Z]\d+)\s*;\s*(\d+[A-Z]\d+)\s*\)\s*OVERLAP_F_B", re.ASCII)


def parse(text: str) -> Op | Pair:
    """Read ``2F0``, ``2W0.1`` or ``(0F3;7B1)OVERLAP_F_B``; the two halves of a pair may come in either order.

    Raises:
        ValueError: ``text`` is anything else.
    """
    single = _OP.fullmatch(text)
    if single:
        stage, other, of_other, weight, of_weight, piece = single.groups()
        return Op(int(stage), Kind[other or weight], int(of_other or of_weight), WHOLE if piece is None else int(piece))
    pair = _PAIR.fullmatch(text)
    if pair:
        halves = [parse(half) for half in pair.groups()]
        halves.sort(key=lambda half: half[1])
        first, second = halves
        if isinstance(first, Op) and isinstance(second, Op) and (first.kind, second.kind) == (Kind.F, Kind.B):
            return Pair(first, second)
        raise ValueError(f"an overlapped pair is one F and one B, got {text!r}")
    raise ValueError(f"expected an operation such as 2F0 or (0F3;7B1)OVERLAP_F_B, got {text!r}")


def parse_transfer(text: str) -> Op:
    """Read ``0SEND_F3``, the transfer of the forward's result of microbatch 3 from stage 0 to stage 1; or ``0OFFLOAD3``,
    ``0RELOAD3``, the copies of what that forward has left to the host and back.

    Raises:
        ValueError: ``text`` is anything else.
    """
    found = _TRANSFER.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a transfer such as 0SEND_F3, 1SEND_B3, 0OFFLOAD3 or 0RELOAD3, got {text!r}")
    stage, kind, microbatch = found.groups()
    return Op(int(stage), Send[kind], int(microbatch))


class OpIndex(NamedTuple):
    """Numbers for all operations of a pipeline with S stages and M microbatches.

    A single operation has the number ``(row * S + stage) * M + microbatch``, where the row is its kind: computations are below
    ``4 * S * M``, transfers below ``8 * S * M``. Of a ``W`` in ``pieces`` the first has the row of its kind; the others have rows
    of their own behind the transfers (:func:`row_of`). :attr:`size` is the number behind all these. A pair has
    ``size + f * S * M + b`` with ``f`` and ``b`` the numbers ``stage * M + microbatch`` of its halves.
    Arrays of these numbers (``int64``) are how orders are stored and timed.
    """

    stages: int
    microbatches: int
    pieces: int = 1

    @property
    def rows(self) -> int:
        """How many rows tables by kind have: those of the kinds alone, or up to the last piece, transfers between them."""
        return len(Kind) if self.pieces == 1 else row_of(Kind.W, self.pieces - 1) + 1

    @property
    def kinds(self) -> tuple[Kind | Send, ...]:
        """By row its kind."""
        return (*Kind, *Send, *(Kind.W,) * (self.pieces - 1))

    @property
    def weights(self) -> tuple[int, ...]:
        """The rows of ``W``: of all its pieces in their order."""
        return tuple(row_of(Kind.W, piece) for piece in range(self.pieces))

    @property
    def size(self) -> int:
        """How many single operations there are, of all kinds together, transfers included."""
        return (_ROWS + self.pieces - 1) * self.stages * self.microbatches

    @property
    def computations(self) -> int:
        """How many single computations there are."""
        return (len(Kind) + self.pieces - 1) * self.stages * self.microbatches

    def sends(self, number: int) -> bool:
        """Whether this is the number of a transfer."""
        return len(Kind) <= number // (self.stages * self.microbatches) < len(Kind) + len(Send)

    def number(self, op: Op | Pair) -> int:
        """The number of ``op``.

        Raises:
            ValueError: its stage or microbatch is outside the pipeline; or it is a piece where there are none, or the other way.
        """
        if isinstance(op, Pair):
            return self.pair(self.number(op.forward), self.number(op.backward))
        if not 0 <= op.stage < self.stages:
            raise ValueError(f"{op}: there is no stage {op.stage}; stages are 0..{self.stages - 1}")
        if not 0 <= op.microbatch < self.microbatches:
            raise ValueError(f"{op}: there is no microbatch {op.microbatch}; microbatches are 0..{self.microbatches - 1}")
        self.check_piece(op, op.kind, op.piece)
        return (row_of(op.kind, op.piece) * self.stages + op.stage) * self.microbatches + op.microbatch

    def check_piece(self, shown: object, kind: Kind | Send, piece: int) -> None:
        """Nothing, where operations of a kind have such a piece.

        Raises:
            ValueError: they have not; ``shown`` is what the message is about.
        """
        pieces = self.pieces if kind == Kind.W else 1
        if pieces == 1 and piece != WHOLE:
            what = "weight gradients are whole" if kind == Kind.W else f"{kind.name} has no pieces"
            raise ValueError(f"{shown}: there is no piece {piece}; {what}")
        if pieces > 1 and not 0 <= piece < pieces:
            problem = f"there is no piece {piece}" if piece != WHOLE else "expected one of its pieces"
            raise ValueError(f"{shown}: {problem}; pieces of W are 0..{pieces - 1}")

    def family(self, stage: int, kind: Kind | Send, piece: int = WHOLE) -> int:
        """The number of a stage's operation of this kind (of its first piece) for microbatch 0; those for the others follow."""
        return (row_of(kind, piece) * self.stages + stage) * self.microbatches

    def pair(self, forward: int, backward: int) -> int:
        """The number of the pair of the operations with these numbers."""
        slots = self.stages * self.microbatches
        return self.size + forward * slots + backward - int(Kind.B) * slots

    def op(self, number: int) -> Op | Pair:
        """The operation with this number."""
        if number >= self.size:
            slots = self.stages * self.microbatches
            forward, backward = divmod(number - self.size, slots)
            return Pair(self._single(forward), self._single(backward + int(Kind.B) * slots))
        return self._single(number)

    def texts(self, numbers: Iterable[int]) -> list[str]:
        """The operations with these numbers in PyTorch's notation; each stage's name of a kind is put together once."""
        around: dict[int, list[str]] = {}
        texts, size = [], self.size
        for number in numbers:
            if number >= size:
                texts.append(str(self.op(number)))
                continue
            family, microbatch = divmod(number, self.microbatches)
            if family not in around:
                op = self._single(number)
                around[family] = str(op._replace(microbatch=0)).split(f"{op.kind.name}0", 1)
                around[family][0] += op.kind.name
            before, behind = around[family]
            texts.append(f"{before}{microbatch}{behind}")
        return texts

    def _single(self, number: int) -> Op:
        family, microbatch = divmod(number, self.microbatches)
        row, stage = divmod(family, self.stages)
        found = _by_row(self.pieces).get(row)
        if found is None:
            raise ValueError(f"there is no operation number {number}")
        kind, piece = found
        return Op(stage, kind, microbatch, piece)
