"""The pauses between what a device runs in turns: waits that follow from its order alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ppopt.constraints import Turns, operations, turns_of
from ppopt.pipeline import IntArray, Pipeline, halves
from ppopt.timing.demands import NO_DEMANDS, Demands


def between_turns(pipeline: Pipeline, rows: Sequence[IntArray]) -> Demands:
    """What the first operation of each pass waits for: the end of the pass before it, and what is exchanged between the two.

    ``rows``: the numbers of the operations of every device, in the order in which it runs them.
    """
    return pauses(pipeline, turns_of(pipeline), rows) if pipeline.ticks.pauses else NO_DEMANDS


def pauses(pipeline: Pipeline, words: Iterable[Turns], rows: Sequence[IntArray]) -> Demands:
    """The waits between operations that follow each other, and are of different turns."""
    index = pipeline.index
    halves_of = [halves(index, row) for row in rows]
    found: list[Demands] = [NO_DEMANDS]
    for word in words:
        turn = np.full(index.size + 1, -1, dtype=np.int64)  # by operation; the last place is that of no operation
        for number, own in enumerate(word.turns):
            for family in own.families:
                turn[operations(pipeline, family)] = number
        before, after = (np.array([getattr(own, side) for own in word.turns], dtype=np.int64) for side in ("before", "after"))
        for first, second in halves_of:
            run = np.where(turn[first] >= 0, first, second)
            run = run[turn[run] >= 0]
            changes = np.flatnonzero(turn[run[1:]] != turn[run[:-1]])
            ended, begun = run[changes], run[changes + 1]
            found.append(Demands(ended, begun, after[turn[ended]] + before[turn[begun]]))
    return Demands(*map(np.concatenate, zip(*found, strict=True)))
