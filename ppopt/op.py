"""Operations of a pipeline, in the notation of PyTorch: ``2F0`` is stage 2, forward, microbatch 0."""

from __future__ import annotations

import enum
import re
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
    """What a transfer carries to the neighbouring stage. A transfer that holds a link is an operation of that link."""

    SEND_F = 4
    """The result of a forward, to the next stage."""
    SEND_B = 5
    """The gradient of a stage's input, to the stage before."""


class Op(NamedTuple):
    """One computation, or one transfer from a stage: the stage, a kind and a microbatch, all counted from 0."""

    stage: int
    kind: Kind | Send
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.name}{self.microbatch}"


class Pair(NamedTuple):
    """A forward and a full backward of one device that run as one operation.

    It starts when the inputs of both halves are there; both results exist at its end only.
    """

    forward: Op
    backward: Op

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"


_OP = re.compile(r"(\d+)([FBIW])(\d+)", re.ASCII)
_TRANSFER = re.compile(r"(\d+)(SEND_[FB])(\d+)", re.ASCII)
_PAIR = re.compile(r"\(\s*(\d+[A-Z]\d+)\s*;\s*(\d+[A-Z]\d+)\s*\)\s*OVERLAP_F_B", re.ASCII)


def parse(text: str) -> Op | Pair:
    """Read ``2F0`` or ``(0F3;7B1)OVERLAP_F_B``; the two halves of a pair may come in either order.

    Raises:
        ValueError: ``text`` is anything else.
    """
    single = _OP.fullmatch(text)
    if single:
        stage, kind, microbatch = single.groups()
        return Op(int(stage), Kind[kind], int(microbatch))
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
    """Read ``0SEND_F3``, the transfer of the forward's result of microbatch 3 from stage 0 to stage 1.

    Raises:
        ValueError: ``text`` is anything else.
    """
    found = _TRANSFER.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a transfer such as 0SEND_F3 or 1SEND_B3, got {text!r}")
    stage, kind, microbatch = found.groups()
    return Op(int(stage), Send[kind], int(microbatch))


class OpIndex(NamedTuple):
    """Numbers for all operations of a pipeline with S stages and M microbatches.

    A single operation has the number ``(kind * S + stage) * M + microbatch``: computations are below ``4 * S * M``, transfers
    below ``6 * S * M``. A pair has ``6 * S * M + f * S * M + b`` with ``f`` and ``b`` the numbers ``stage * M + microbatch``
    of its halves.
    Arrays of these numbers (``int64``) are how orders are stored and timed.
    """

    stages: int
    microbatches: int

    @property
    def size(self) -> int:
        """How many single operations there are, of all kinds together, transfers included."""
        return 6 * self.stages * self.microbatches

    @property
    def computations(self) -> int:
        """How many single computations there are; their numbers are the smallest."""
        return 4 * self.stages * self.microbatches

    def number(self, op: Op | Pair) -> int:
        """The number of ``op``.

        Raises:
            ValueError: its stage or microbatch is outside the pipeline.
        """
        if isinstance(op, Pair):
            return self.pair(self.number(op.forward), self.number(op.backward))
        if not 0 <= op.stage < self.stages:
            raise ValueError(f"{op}: there is no stage {op.stage}; stages are 0..{self.stages - 1}")
        if not 0 <= op.microbatch < self.microbatches:
            raise ValueError(f"{op}: there is no microbatch {op.microbatch}; microbatches are 0..{self.microbatches - 1}")
        return (op.kind * self.stages + op.stage) * self.microbatches + op.microbatch

    def family(self, stage: int, kind: Kind | Send) -> int:
        """The number of a stage's operation of this kind for microbatch 0; those for the others follow."""
        return (kind * self.stages + stage) * self.microbatches

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

    def _single(self, number: int) -> Op:
        family, microbatch = divmod(number, self.microbatches)
        kind, stage = divmod(family, self.stages)
        return Op(stage, Kind(kind) if kind < len(Kind) else Send(kind), microbatch)
