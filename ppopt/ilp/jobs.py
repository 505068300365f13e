"""The jobs of an integer program: the operations that run, or may run, and the pairs that must."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ppopt.constraints import Exclusive, Stream, Together, Word, chosen, instances, margins, operations
from ppopt.constraints.couples import Couple, couples
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import durations, halves


@dataclass(frozen=True, eq=False)
class Jobs:
    """A job is a single operation, or a pair that the words demand. Arrays and numbers are by job; times are in ticks."""

    pipeline: Pipeline
    numbers: IntArray
    """``[job]``: the number of its operation (:class:`~ppopt.op.OpIndex`)."""
    job: IntArray
    """``[operation]``: its job; -1: it is not run."""
    optional: tuple[int, ...]
    """The jobs that may be left out."""
    couples: tuple[Couple, ...]
    """The jobs that may run as a pair, and the time of the pair."""
    size: IntArray
    """``[job]``: its duration alone."""
    least: IntArray
    """``[job]``: its duration where that is smallest: alone or in a pair."""
    lead: IntArray
    """``[job]``: the time that its device needs before it, if it is the first."""
    tail: IntArray
    """``[job]``: the time that its device needs after it, if it is the last."""

    @property
    def count(self) -> int:
        """The number of jobs."""
        return len(self.numbers)

    @cached_property
    def always(self) -> npt.NDArray[np.bool_]:
        """``[job]``: whether it runs in every schedule."""
        always = np.ones(self.count, dtype=bool)
        always[list(self.optional)] = False
        return always

    def of(self, stream: Stream) -> list[int]:
        """The jobs of a stream's operations, in its order; -1 where the operation is not run."""
        jobs: list[int] = self.job[operations(self.pipeline, stream)].tolist()
        return jobs

    def on(self, word: Exclusive) -> list[int]:
        """The jobs that a device or a link runs, ascending."""
        return sorted({job for stream in word.streams for job in self.of(stream) if job >= 0})


def jobs_of(pipeline: Pipeline, words: Sequence[Word]) -> Jobs:
    """The jobs that ``words`` leave.

    Raises:
        ValueError: the words contradict each other.
    """
    forced, free = chosen(pipeline, words)
    run = np.concatenate((forced, free))
    partner = _partners(pipeline, words, run)
    single = run[~np.isin(run, [*partner, *partner.values()])]
    paired = [pipeline.index.pair(first, second) for first, second in partner.items()]
    numbers: IntArray = np.concatenate((single, np.array(paired, dtype=np.int64)))
    job: IntArray = np.full(pipeline.index.size, -1, dtype=np.int64)
    for half in halves(pipeline.index, numbers):
        job[half[half >= 0]] = np.flatnonzero(half >= 0)
    optional = job[np.setdiff1d(free, [*partner, *partner.values()])]
    possible = tuple(
        Couple(int(job[forward]), int(job[backward]), overlap)
        for forward, backward, overlap in couples(pipeline, words, set(single.tolist()))
    )
    size = durations(pipeline, numbers)
    least = size.copy()
    for forward, backward, overlap in possible:
        least[[forward, backward]] = np.minimum(least[[forward, backward]], overlap)
    lead, tail = margins(pipeline, words, numbers)
    return Jobs(pipeline, numbers, job, tuple(optional.tolist()), possible, size, least, lead, tail)


def _partners(pipeline: Pipeline, words: Sequence[Word], run: IntArray) -> dict[int, int]:
    """The second half of each pair that the words demand, by its first half."""
    pairs = [instances(pipeline, word) for word in words if isinstance(word, Together)]
    partner = {int(a): int(b) for first, second in pairs for a, b in zip(first, second, strict=True)}
    missing = sorted({*partner, *partner.values()}.difference(run.tolist()))
    if missing:
        raise ValueError(f"{pipeline.index.op(missing[0])} is one half of a pair, and left out by another word")
    return partner
