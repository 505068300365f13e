"""Arrays of integers, and of the numbers of operations."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.op import Kind, OpIndex

IntArray: TypeAlias = npt.NDArray[np.int64]


def pairs(index: OpIndex, forward: IntArray, backward: IntArray) -> IntArray:
    """The numbers of the pairs of forwards and backwards."""
    slots = index.stages * index.microbatches
    return index.size + forward * slots + backward - int(Kind.B) * slots


def halves(index: OpIndex, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Two arrays of single operations: the operation itself, or a pair's forward; and a pair's backward, else -1."""
    slots = index.stages * index.microbatches
    paired = numbers >= index.size
    forward, backward = np.divmod(numbers - index.size, slots)
    return np.where(paired, forward, numbers), np.where(paired, backward + int(Kind.B) * slots, -1)
