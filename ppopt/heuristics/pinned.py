"""The order that constraints pin down: it is here because, as with heuristics, words become an order; the times come later.

On one device, streams that run in their own order are merged: the constraints say, for the k-th operation of a stream,
how many operations of each other stream come before it. Where these numbers, closed under transitivity, add up to
a place for each operation, the order is total; where two operations share a place, it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ppopt.clock import check_time
from ppopt.constraints import Pairable, Precede, Stream, Together, Word, chosen, operations, rules_of, select
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline, computed
from ppopt.schedule import Order, devices_of, halves
from ppopt.timing import CyclicOrder


def order_of(pipeline: Pipeline, words: Iterable[Word]) -> Order | None:
    """The only order of every device that ``words`` allow, or ``None`` where they leave something open.

    Streams that are to be merged need a chain (``Precede(X, X, shift=1)``), one device, and operations that no other one before
    them has; others are left aside, and so are words that relate operations of different devices.

    Raises:
        CyclicOrder: on some device operations wait for each other.
    """
    relations = list(select(words, Precede, Together))
    by_device: list[list[Stream]] = [[] for _ in range(pipeline.devices)]
    columns: dict[Stream, IntArray] = {}
    for stream in _chained(relations):
        check_time()
        columns[stream] = operations(pipeline, stream)
    place = np.full(pipeline.index.size, -1, dtype=np.int64)  # of each operation that is in a stream its place there
    for stream, column in columns.items():
        if not len(column):
            continue
        singles = np.concatenate(halves(pipeline.index, column))
        singles = singles[singles >= 0]
        on = devices_of(pipeline, singles)
        if (on != on[0]).any() or (place[singles] >= 0).any():
            continue
        place[singles] = once = np.arange(len(singles))
        if (place[singles] == once).all():
            by_device[int(on[0])].append(stream)
        else:
            place[singles] = -1
    related: dict[Stream, list[Precede | Together]] = {}
    for word in relations:
        for stream in {*_ends(word)}:
            related.setdefault(stream, []).append(word)
    rows = []
    for streams in by_device:
        check_time()
        of_device = dict.fromkeys(word for stream in streams for word in related[stream])
        row = _merge(pipeline, [columns[stream] for stream in streams], _inside(streams, of_device))
        if row is None:
            return None
        rows.append(row)
    return Order(pipeline.index, tuple(rows))


def covers(pipeline: Pipeline, words: Sequence[Word]) -> bool:
    """Whether every operation that ``words`` leave is in one of their chains, so that they can fix the order.

    Raises:
        ValueError: the words contradict each other.
    """
    forced, free = chosen(pipeline, (*rules_of(pipeline), *words))
    forced = forced[computed(pipeline.index, forced)]
    if len(free) or select(words, Pairable):
        return False
    chained = [operations(pipeline, stream) for stream in _chained(words)]
    first, second = halves(pipeline.index, np.concatenate(chained)) if chained else (forced[:0], forced[:0])
    return bool(np.isin(forced, np.concatenate((first, second))).all())


def _chained(words: Iterable[Word]) -> dict[Stream, None]:
    """The streams that run in their own order."""
    return {word.before: None for word in select(words, Precede) if word.before == word.after and word.shift == 1}


Relation = tuple[int, int, int]
"""``(i, j, shift)``: of streams i and j, ``i(k - shift)`` comes before ``j(k)``."""


def _ends(word: Precede | Together) -> tuple[Stream, Stream]:
    return (word.before, word.after) if isinstance(word, Precede) else (word.first, word.second)


def _inside(streams: Sequence[Stream], words: Iterable[Precede | Together]) -> tuple[list[Relation], list[Relation]]:
    """The relations between these streams; and ``(i, j, shift)`` of the pairs, ``i(k + shift)`` with ``j(k)``."""
    place = {stream: i for i, stream in enumerate(streams)}
    relations, pairs = [], []
    for word in words:
        first, second = (place.get(stream) for stream in _ends(word))
        if first is None or second is None:
            continue
        if isinstance(word, Precede):
            relations.append((first, second, word.shift))
        else:  # a pair stands in the order as its first half, directly followed by its second
            pairs.append((first, second, word.shift))
            relations += [(first, second, -word.shift), (second, first, word.shift + 1)]
    return relations, pairs


def _merge(pipeline: Pipeline, columns: list[IntArray], words: tuple[list[Relation], list[Relation]]) -> IntArray | None:
    relations, pairs = words
    size = sum(map(len, columns))
    before = _closed(columns, relations)
    places = [np.sum([row[j] for row in before], axis=0) for j in range(len(columns))]
    for j, column in enumerate(columns):
        looped = np.flatnonzero(before[j][j] > np.arange(len(column)))
        if len(looped):
            raise CyclicOrder([str(pipeline.index.op(int(column[looped[0]])))])
    row = np.full(size, -1, dtype=np.int64)
    for place, column in zip(places, columns, strict=True):
        row[place] = column
    if (row < 0).any():
        return None
    return _paired(pipeline, row, columns, places, pairs)


def _closed(columns: list[IntArray], relations: list[Relation]) -> list[list[IntArray]]:
    """``[i][j][k]``: how many operations of stream i come before the k-th of stream j."""
    n = len(columns)
    before = [[np.zeros(len(column), dtype=np.int64) for column in columns] for _ in range(n)]
    for i, column in enumerate(columns):
        before[i][i] = np.arange(len(column))
    for i, j, shift in relations:
        if i == j and shift == 1:
            continue
        low, high = max(0, shift), min(len(columns[j]), len(columns[i]) + shift)
        if high > low:
            before[i][j][low:high] = np.maximum(before[i][j][low:high], np.arange(low, high) - shift + 1)
            before[i][j][high:] = np.maximum(before[i][j][high:], high - shift)
    for via in range(n):
        for j in range(n):
            reached = before[via][j]
            some = reached > 0
            for i in range(n):
                if i != via and some.any():
                    more = before[i][via][reached[some] - 1]
                    before[i][j][some] = np.maximum(before[i][j][some], more)
    return before


def _paired(
    pipeline: Pipeline, row: IntArray, columns: list[IntArray], places: list[IntArray], pairs: list[Relation]
) -> IntArray:
    """``row`` with the two halves of each pair, which stand side by side, as one operation."""
    keep = np.ones(len(row), dtype=bool)
    slots = pipeline.index.stages * pipeline.index.microbatches
    for i, j, shift in pairs:
        low, high = max(0, -shift), min(len(columns[j]), len(columns[i]) - shift)
        if high <= low:
            continue
        first, second = places[i][low + shift : high + shift], places[j][low:high]
        row[first] = pipeline.index.size + row[first] * slots + row[second] - int(Kind.B) * slots
        keep[second] = False
    return row[keep]
