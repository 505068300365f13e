"""Which words a schedule keeps, told by whole arrays: of many operations it has to be said of few what breaks a word."""

from __future__ import annotations

import numpy as np

from ppopt.constraints import Family, Listed, OneOf, Precede, Stream, Word
from ppopt.op import Op
from ppopt.pipeline import IntArray
from ppopt.schedule import Schedule


class Kept:
    """What is known of a schedule without pairs and without transfers that hold links: of others, nothing."""

    def __init__(self, schedule: Schedule) -> None:
        self.pipeline = pipeline = schedule.pipeline
        self.known = not schedule.order.paired and not any(map(len, schedule.transfers.rows))
        self._start, self._end, self._machine, self._place = np.full((4, pipeline.index.size), -1, dtype=np.int64)
        if self.known:
            for machine, row in enumerate(schedule.order.rows):
                self._start[row], self._end[row] = schedule.start[machine], schedule.end[machine]
                self._machine[row], self._place[row] = machine, np.arange(len(row))

    def keeps(self, word: Word) -> bool | None:
        """Whether it keeps a word; ``None``: that is not told here."""
        if not self.known:
            return None
        if isinstance(word, Precede):
            return self._in_order(word)
        return self._one(word) if isinstance(word, OneOf) else None

    def _in_order(self, word: Precede) -> bool | None:
        before, after = self._column(word.before), self._column(word.after)
        if before is None or after is None:
            return None
        low, high = max(0, word.shift), min(len(after), len(before) + word.shift)
        if high <= low:
            return True
        before, after = before[low - word.shift : high - word.shift], after[low:high]
        run = (self._start[before] >= 0) & (self._start[after] >= 0)
        before, after = before[run], after[run]
        listed = (self._machine[before] != self._machine[after]) | (self._place[before] < self._place[after])
        return bool((listed & (self._start[after] >= self._end[before] + word.lag)).all())

    def _one(self, word: OneOf) -> bool | None:
        columns = [[self._column(stream) for stream in streams] for streams in word.alternatives]
        numbers = [column for alternative in columns for column in alternative if column is not None]
        if len(numbers) < sum(map(len, columns)) or len({len(column) for column in numbers}) != 1:
            return None
        if len(np.unique(np.concatenate(numbers))) < sum(map(len, numbers)):  # alternatives that share something
            return None
        run = [np.array([self._start[column] >= 0 for column in alternative]) for alternative in columns]
        whole, some = (np.array([of(each, axis=0) for each in run]) for of in (np.all, np.any))
        return bool(((whole.sum(axis=0) == 1) & (some.sum(axis=0) == 1)).all())

    def _column(self, stream: Stream) -> IntArray | None:
        """The numbers of a stream's operations; ``None``: it is not known here."""
        index = self.pipeline.index
        if isinstance(stream, Family) and 0 <= stream.stage < index.stages:
            return index.family(stream.stage, stream.kind, stream.piece) + np.flatnonzero(
                np.array(self.pipeline.route_of_microbatch) == stream.route
            )
        if isinstance(stream, Listed) and all(isinstance(op, Op) for op in stream.ops):
            try:
                return np.array([index.number(op) for op in stream.ops], dtype=np.int64)
            except ValueError:
                return None  # some are not in the pipeline
        return None
