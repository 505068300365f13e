"""Which forward may run with which backward, one by one, as far as the words do not exclude it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import product
from typing import NamedTuple

from ppopt.constraints import Family, OneOf, Pairable, Word, operations, select
from ppopt.constraints.shifts import Shifts
from ppopt.pipeline import Pipeline


class Couple(NamedTuple):
    """Two operations that may run as one, by number, and the ticks that this takes."""

    forward: int
    backward: int
    overlap: int


def couples(pipeline: Pipeline, words: Iterable[Word], run: Collection[int]) -> list[Couple]:
    """All couples of the ``Pairable`` words among operations in ``run``.

    Left out is what the other words make wait for each other: a backward waits for all forwards of its microbatch, and so,
    where a stage runs its forwards in order, for all earlier ones; and what follows from words between families.
    """
    words = tuple(words)
    forced = [word.alternatives[0][0] for word in select(words, OneOf) if len(word.alternatives) == 1]
    shifts = Shifts(words, [stream for stream in forced if isinstance(stream, Family)])
    found = []
    for word in select(words, Pairable):
        for forward, backward in product(word.forwards, word.backwards):
            chained = shifts(forward, forward) == 1
            overlap = int(pipeline.ticks.overlap[forward.route, forward.stage])
            columns = (operations(pipeline, family).tolist() for family in (forward, backward))
            for (i, f), (j, b) in product(*map(enumerate, columns)):
                if forward.route == backward.route and (i == j or (chained and _apart(shifts, forward, backward, i - j))):
                    continue
                if f in run and b in run:
                    found.append(Couple(f, b, overlap))
    return found


def _apart(shifts: Shifts, forward: Family, backward: Family, ahead: int) -> bool:
    """Whether a forward that is ``ahead`` microbatches ahead of a backward surely runs before or after it."""
    return ahead <= 0 or -ahead >= shifts(forward, backward) or ahead >= shifts(backward, forward)
