"""Streams and words expanded to the operations of a finite pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ppopt.clock import check_time
from ppopt.constraints.words import Dealt, Family, Lead, Listed, Maybe, OneOf, Precede, Stream, Tail, Together, Word, select
from ppopt.pipeline import IntArray, Pipeline, halves


def operations(pipeline: Pipeline, stream: Stream) -> IntArray:
    """The numbers (:class:`~ppopt.op.OpIndex`) of the stream's operations, in its order.

    Raises:
        TypeError: it is no stream.
    """
    if isinstance(stream, Family):
        pipeline.index.check_piece(stream, stream.kind, stream.piece)
        base = pipeline.index.family(stream.stage, stream.kind, stream.piece)
        return pipeline.microbatches_of[stream.route] + base
    if isinstance(stream, Dealt):
        columns = [_strided(operations(pipeline, family), stream.stride) for family in stream.families]
        step = -1 if stream.descending else 1
        length = max((len(column) for column in columns), default=0)
        hands = [column[k : k + stream.group][::step] for k in range(0, length, stream.group) for column in columns]
        return np.concatenate([np.empty(0, dtype=np.int64), *hands])
    if isinstance(stream, Listed):
        check_time()
        return stream.numbers(pipeline.index)
    raise TypeError(f"unknown stream {stream!r}")


def _strided(column: IntArray, stride: int) -> IntArray:
    return column if stride == 1 else np.concatenate([column[first::stride] for first in range(stride)])


def shifted(first: IntArray, second: IntArray, shift: int) -> tuple[IntArray, IntArray]:
    """All ``(first(k - shift), second(k))`` where both exist."""
    low, high = max(0, shift), min(len(second), len(first) + shift)
    if high <= low:
        return first[:0], second[:0]
    return first[low - shift : high - shift], second[low:high]


def instances(pipeline: Pipeline, word: Precede | Together) -> tuple[IntArray, IntArray]:
    """The single operations that a word relates: before and after, or the first and second halves of the pairs.

    What comes before or after a pair comes before or after both of its halves.
    """
    if isinstance(word, Together):
        return shifted(operations(pipeline, word.first), operations(pipeline, word.second), -word.shift)
    before, after = shifted(operations(pipeline, word.before), operations(pipeline, word.after), word.shift)
    size = pipeline.index.size
    if (before < size).all() and (after < size).all():
        return before, after
    columns = [
        (a[both], b[both])
        for a in halves(pipeline.index, before)
        for b in halves(pipeline.index, after)
        for both in [(a >= 0) & (b >= 0)]
    ]
    first, second = (np.concatenate(column) for column in zip(*columns, strict=True))
    return first, second


def expand(pipeline: Pipeline, words: Iterable[Word]) -> tuple[IntArray, IntArray, IntArray]:
    """All instances of the ``Precede`` words among ``words``: the numbers of before and after, and the lags."""
    columns: list[tuple[IntArray, IntArray, IntArray]] = []
    families: list[tuple[Family, Family, int, int]] = []
    for word in select(words, Precede):
        before, after = word.before, word.after
        if isinstance(before, Family) and isinstance(after, Family):
            families.append((before, after, word.shift, word.lag))
        else:
            first, second = instances(pipeline, word)
            columns.append((first, second, np.full(len(first), word.lag, dtype=np.int64)))
    if families:
        columns.append(_of_families(pipeline, families))
    if not columns:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    before_, after_, lag = (np.concatenate(column) for column in zip(*columns, strict=True))
    return before_, after_, lag


def _of_families(pipeline: Pipeline, words: Sequence[tuple[Family, Family, int, int]]) -> tuple[IntArray, IntArray, IntArray]:
    """All instances of words ``(before, after, shift, lag)`` at once: where microbatches differ there are very many."""
    many = np.array([len(microbatches) for microbatches in pipeline.microbatches_of])
    begin, microbatches = np.cumsum(many) - many, np.concatenate(pipeline.microbatches_of)
    for family in {(family.kind, family.piece): family for word in words for family in word[:2]}.values():
        pipeline.index.check_piece(family, family.kind, family.piece)
    rows = [(a.row * pipeline.stages + a.stage, a.route, b.row * pipeline.stages + b.stage, b.route, *of) for a, b, *of in words]
    first, on, second, other, shift, lag = np.array(rows, dtype=np.int64).T
    low = np.maximum(shift, 0)
    count = np.maximum(np.minimum(many[other], many[on] + shift) - low, 0)
    word = np.repeat(np.arange(len(rows)), count)
    k = np.arange(len(word)) - np.repeat(np.cumsum(count) - count, count) + low[word]  # of after; of before it is k - shift
    size = pipeline.microbatches
    before = first[word] * size + microbatches[begin[on[word]] + k - shift[word]]
    after = second[word] * size + microbatches[begin[other[word]] + k]
    return before, after, lag[word]


def margins(pipeline: Pipeline, words: Iterable[Word], numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Ticks by which the device of each of these operations begins before it, and ends after it; of a pair the larger halves'."""
    words = tuple(words)
    first, second = halves(pipeline.index, numbers)

    def of(margins: Iterable[Lead | Tail]) -> IntArray:
        ticks = np.zeros(pipeline.index.size, dtype=np.int64)
        for word in margins:
            ticks[operations(pipeline, word.family)] = word.ticks
        return np.maximum(ticks[first], np.where(second >= 0, ticks[second], 0))

    return of(select(words, Lead)), of(select(words, Tail))


def chosen(pipeline: Pipeline, words: Sequence[Word]) -> tuple[IntArray, IntArray]:
    """Which operations the ``OneOf`` words leave: numbers of those always run, and of those run or not (a choice).

    The two halves of a pair that ``Together`` asks for are always run.

    Raises:
        ValueError: two words leave no alternative for an operation.
    """
    size = pipeline.index.size
    possible = np.zeros(size, dtype=bool)  # named by some word, and by every word that names its choice
    excluded = np.zeros(size, dtype=bool)
    forced = np.zeros(size, dtype=bool)
    choices: list[list[list[IntArray]]] = []
    for together in select(words, Together):
        for column in instances(pipeline, together):
            forced[column] = True
    for word in select(words, OneOf):
        columns = [[operations(pipeline, stream) for stream in streams] for streams in word.alternatives]
        for column in (column for alternative in columns for column in alternative):
            (forced if len(columns) == 1 else possible)[column] = True
        if len(columns) > 1:
            choices.append(columns)
    for maybe in select(words, Maybe):
        for stream in maybe.streams:
            possible[operations(pipeline, stream)] = True
    known = -1
    while known < (known := int(forced.sum() + excluded.sum())):  # what one word settles may settle another
        for columns in choices:
            for a, alternative in enumerate(columns):
                taken = np.any([forced[column] for column in alternative], axis=0)
                gone = np.any([excluded[column] for column in alternative], axis=0)
                others = columns[:a] + columns[a + 1 :]
                for column in (column for other in others for column in other):
                    excluded[column[taken]] = True
                for column in alternative:
                    forced[column[taken]] = True
                    excluded[column[gone]] = True
                if len(columns) == 2:
                    for column in others[0]:
                        forced[column[gone]] = True
    if (forced & excluded).any():
        op = pipeline.index.op(int(np.flatnonzero(forced & excluded)[0]))
        raise ValueError(f"{op} is both required and excluded")
    return np.flatnonzero(forced), np.flatnonzero(possible & ~forced & ~excluded)
