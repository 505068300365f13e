"""Arrays of integers, and of the numbers of operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.op import Kind, OpIndex, Send

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


def by_row(pipeline: Pipeline, table: IntArray) -> IntArray:
    """``[route, row, stage]`` of a table ``[route, kind, stage]``: the same where weight gradients are whole. Else every piece
    has what its kind has, and a transfer what the kind has whose result it carries."""
    return table if pipeline.index.pieces == 1 else every_row(pipeline, table)


def every_row(pipeline: Pipeline, table: IntArray) -> IntArray:
    """``[route, row, stage]`` of a table ``[route, kind, stage]``, with rows of transfers (:func:`by_row`) in any case."""
    kinds = [int(_KIND_OF_SEND[kind] if isinstance(kind, Send) else kind) for kind in pipeline.index.kinds]
    found: IntArray = table[:, kinds]
    return found


_KIND_OF_SEND = {Send.SEND_F: Kind.F, Send.SEND_B: Kind.B, Send.OFFLOAD: Kind.F, Send.RELOAD: Kind.F}


def kind_of(index: OpIndex, row: IntArray) -> IntArray:
    """The kinds of rows of tables by kind: of each piece that of a ``W``."""
    return row if index.pieces == 1 else np.where(row < len(Kind) + len(Send), row, int(Kind.W))


def computed(index: OpIndex, numbers: IntArray) -> BoolArray:
    """Whether these are numbers of computations, pairs among them, and not of transfers."""
    slots = index.stages * index.microbatches
    found: BoolArray = (numbers < len(Kind) * slots) | (numbers >= (len(Kind) + len(Send)) * slots)
    return found


def in_pieces(pieces: OpIndex, numbers: IntArray) -> IntArray:
    """Numbers of operations that ``pieces`` has whole, as its numbers: each ``W`` as its pieces, one after the other."""
    if pieces.pieces == 1:
        return numbers
    slots = pieces.stages * pieces.microbatches
    whole = pieces._replace(pieces=1)
    weight = (numbers >= Kind.W * slots) & (numbers < whole.computations)
    times = np.where(weight, pieces.pieces, 1)
    renumbered = np.where(numbers >= whole.size, numbers + (pieces.size - whole.size), numbers)
    found: IntArray = np.repeat(renumbered, times)
    first = np.cumsum(times) - times
    rows = np.array(pieces.weights, dtype=np.int64) - int(Kind.W)
    place = first[weight][:, None] + np.arange(pieces.pieces)
    found[place] += rows * slots
    return found


def pairs(index: OpIndex, forward: IntArray, backward: IntArray) -> IntArray:
    """The numbers of the pairs of forwards and backwards."""
    slots = index.stages * index.microbatches
    return index.size + forward * slots + backward - int(Kind.B) * slots


def by_operation(pipeline: Pipeline, table: IntArray, numbers: IntArray) -> IntArray:
    """What of a table ``[route, row, stage]`` each of these single operations has (:class:`~ppopt.op.OpIndex`)."""
    by_family = table.reshape(len(table), -1)
    if len(by_family) == 1:
        alone: IntArray = by_family[0].take(numbers // pipeline.microbatches)
        return alone
    family = numbers // pipeline.microbatches
    microbatch = numbers - family * pipeline.microbatches
    found: IntArray = by_family.ravel().take(pipeline.route_by_microbatch[microbatch] * by_family.shape[1] + family)
    return found


def halves(index: OpIndex, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Two arrays of single operations: the operation itself, or a pair's forward; and a pair's backward, else -1."""
    if not len(numbers) or int(numbers.max()) < index.size:
        return numbers, np.full(len(numbers), -1, dtype=np.int64)
    slots = index.stages * index.microbatches
    paired = numbers >= index.size
    forward, backward = np.divmod(numbers - index.size, slots)
    return np.where(paired, forward, numbers), np.where(paired, backward + int(Kind.B) * slots, -1)
