"""Single operations as a stream: where there are many, their numbers say which."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from ppopt.op import Kind, Op, OpIndex, Pair
from ppopt.pipeline import IntArray


class Listed:
    """Operations one by one, for orders that follow no rule. A pair in it stands for both of its halves.

    It never changes. Two are equal where they list the same operations.
    """

    def __init__(self, ops: Iterable[Op | Pair]) -> None:
        self._ops: tuple[Op | Pair, ...] | None = tuple(ops)
        self._numbered: tuple[OpIndex, IntArray] | None = None

    @classmethod
    def of(cls, index: OpIndex, numbers: IntArray) -> Listed:
        """The operations and pairs that have these numbers in ``index``: for long lists, in which each costs next to nothing."""
        made = cls.__new__(cls)
        numbers = numbers.view()
        numbers.flags.writeable = False
        made._ops, made._numbered = None, (index, numbers)
        return made

    @property
    def ops(self) -> tuple[Op | Pair, ...]:
        """The operations and pairs."""
        if self._ops is None:
            assert self._numbered is not None
            index, numbers = self._numbered
            self._ops = tuple(map(index.op, numbers.tolist()))
        return self._ops

    def numbers(self, index: OpIndex) -> IntArray:
        """Their numbers in ``index``, not to be changed.

        Raises:
            ValueError: a stage or a microbatch is outside.
        """
        if self._numbered is None or self._numbered[0] != index:
            numbers = _numbers(index, self.ops)
            numbers.flags.writeable = False
            self._numbered = index, numbers
        return self._numbered[1]

    def __len__(self) -> int:
        if self._ops is not None:
            return len(self._ops)
        assert self._numbered is not None
        return len(self._numbered[1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Listed):
            return NotImplemented
        one, two = self._numbered, other._numbered
        if self is other:
            return True
        if one is not None and two is not None and one[0] == two[0]:
            return np.array_equal(one[1], two[1])
        return len(self) == len(other) and self.ops == other.ops

    def __hash__(self) -> int:
        count = len(self)
        return hash((count, *(self._at(place) for place in {0, count // 2, count - 1} if count)))

    def _at(self, place: int) -> Op | Pair:
        if self._ops is not None:
            return self._ops[place]
        assert self._numbered is not None
        index, numbers = self._numbered
        return index.op(int(numbers[place]))

    def __repr__(self) -> str:
        return f"Listed(ops={self.ops!r})"

    def __str__(self) -> str:
        shown = " ".join(str(self._at(place)) for place in range(min(4, len(self))))
        return f"({shown}{' …' if len(self) > 4 else ''})"


def _numbers(index: OpIndex, ops: Iterable[Op | Pair]) -> IntArray:
    """The numbers of operations; all at once where none of them is a pair and all are in the pipeline."""
    ops = tuple(ops)
    if not any(issubclass(of, Pair) for of in set(map(type, ops))):
        stage, kind, microbatch, piece = np.fromiter(chain.from_iterable(ops), np.int64, 4 * len(ops)).reshape(-1, 4).T
        fit = (piece < 0).all() and (index.pieces == 1 or (kind != Kind.W).all())
        if fit and ((stage >= 0) & (stage < index.stages) & (microbatch >= 0) & (microbatch < index.microbatches)).all():
            numbers: IntArray = (kind * index.stages + stage) * index.microbatches + microbatch
            return numbers
    return np.array([index.number(op) for op in ops], dtype=np.int64)
