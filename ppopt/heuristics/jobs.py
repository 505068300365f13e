"""The jobs of a list scheduler: what the words leave to be run, on which machine, for how long, and behind what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from ppopt.constraints import (
    Capacity,
    Exclusive,
    Lead,
    OneOf,
    Pairable,
    Precede,
    Tail,
    Together,
    Turns,
    Word,
    chosen,
    expand,
    instances,
    operations,
    select,
    sends,
    without_links,
)
from ppopt.heuristics.claims import Claims, lasting, tightest
from ppopt.heuristics.features import Features
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline, splitting_takes_memory
from ppopt.schedule import durations, halves


class Jobs:
    """The jobs of a pipeline under some words. A job is an operation or an overlapped pair.

    ``links``: whether a transfer that holds a link is a job of that link. Without, a transfer is a lag.

    ``run``: the numbers (:class:`~ppopt.op.OpIndex`) of the single operations that are run. By default these are what the words
    leave. Where a backward may be run either way, each stage takes the cheaper way, and splits the backward where both cost the
    same; but where that takes more memory, which is limited, it runs the backward whole. ``pairs``: the numbers of the overlapped
    pairs among them, by default those that the words demand.

    ``duration`` and ``lag`` may be replaced by those of a coarser grid before the jobs are run
    (:func:`~ppopt.heuristics.list_scheduling.run_jobs`).

    Raises:
        ValueError: the words contradict each other, or choose between other things than the ways to run a backward.
        TypeError: a word that is not known here.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        words: Iterable[Word],
        run: IntArray | None = None,
        pairs: IntArray | None = None,
        *,
        links: bool = False,
    ) -> None:
        words = tightest(words if links else without_links(pipeline, words))
        if run is None:
            run = _cheapest(pipeline, words)
        for word in words:
            if not isinstance(word, Precede | Exclusive | Capacity | Together | Pairable | OneOf | Lead | Tail | Turns):
                raise TypeError(f"the list scheduler does not know the word {word!r}")
        machine = _machines(pipeline, select(words, Exclusive))
        if pairs is None:
            pairs = _demanded(pipeline, select(words, Together))
        self.pipeline = pipeline
        self.numbers = _with_pairs(pipeline, run, pairs)
        """Per job, the number of its operation or pair."""
        first, second = halves(pipeline.index, self.numbers)
        self.of_operation: IntArray = np.full(pipeline.index.size, -1, dtype=np.int64)
        """By the number of a single operation its job; -1: it is not run."""
        self.of_operation[first] = np.arange(len(first))
        self.of_operation[second[second >= 0]] = np.flatnonzero(second >= 0)
        self.duration = durations(pipeline, self.numbers)
        """Per job, in ticks."""
        self.machine = machine[first]
        """Per job, the machine that it occupies: the devices come first, then the links."""
        before, after, lag = expand(pipeline, select(words, Precede))
        before, after = self.of_operation[before], self.of_operation[after]
        both = (before >= 0) & (after >= 0)
        self.before, self.after, self.lag = before[both], after[both], lag[both]
        """Job ``after[i]`` starts at least ``lag[i]`` ticks after the end of job ``before[i]``."""
        self._capacities = tuple(map(lasting, select(words, Capacity)))

    @cached_property
    def features(self) -> Features:
        """What priority rules look at."""
        return Features.of(self.pipeline, self.numbers)

    @cached_property
    def claims(self) -> Claims:
        """What the jobs claim and give back of the memories.

        Raises:
            ValueError: a device has two memories that hold different things.
        """
        return Claims.of(self.pipeline, self._capacities, self.of_operation, self.features)


def _machines(pipeline: Pipeline, words: Iterable[Exclusive]) -> IntArray:
    """By the number of a single operation its machine; -1: none."""
    machine: IntArray = np.full(pipeline.index.size, -1, dtype=np.int64)
    machines = 0
    for word in words:
        if not word.computes and not all(map(sends, word.streams)):
            continue  # that transfers block their ends is known from the links
        for stream in word.streams:
            ops = operations(pipeline, stream)
            if (machine[ops] >= 0).any():
                raise ValueError(f"{stream} is in two Exclusive words: an operation runs on one device")
            machine[ops] = machines
        machines += 1
    return machine


def _demanded(pipeline: Pipeline, words: Iterable[Together]) -> IntArray:
    """The numbers of the pairs that these words demand."""
    pair = pipeline.index.pair
    columns = (zip(*(half.tolist() for half in instances(pipeline, word)), strict=True) for word in words)
    return np.array([pair(first, second) for column in columns for first, second in column], dtype=np.int64)


def _with_pairs(pipeline: Pipeline, run: IntArray, pairs: IntArray) -> IntArray:
    """The single operations that are in no pair, then the pairs."""
    if not len(pairs):
        return run
    return np.concatenate((np.setdiff1d(run, np.concatenate(halves(pipeline.index, pairs))), pairs))


def _cheapest(pipeline: Pipeline, words: Sequence[Word]) -> IntArray:
    """The single operations that are run, every free backward the cheaper way."""
    forced, free = chosen(pipeline, words)
    if not len(free):
        return forced
    family, microbatch = np.divmod(free, pipeline.microbatches)
    if (family < pipeline.stages * Kind.B).any():
        raise ValueError("the list scheduler chooses between B and I, W only")
    duration = pipeline.ticks.duration
    fused = duration[:, Kind.B] < duration[:, Kind.I] + pipeline.ticks.weight
    if splitting_takes_memory(pipeline):
        fused |= pipeline.amounts.rebuilt > 0
    split = [~fused] * (pipeline.index.rows - 2)
    cheaper = np.stack([fused, fused, *split], axis=1).reshape(len(fused), -1)  # by route and family
    ran = np.zeros(pipeline.index.size, dtype=bool)
    ran[forced] = True
    ran[free[cheaper[pipeline.route_by_microbatch[microbatch], family]]] = True
    return np.flatnonzero(ran)
