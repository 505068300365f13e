"""Cuts of layers: the pipeline of one, what it is at its fastest, those near it, and how it is shown."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from fractions import Fraction

from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.pipeline.partitions import Counts
from ppopt.pipeline.parts import TooFine


class CutPipelines:
    """The pipeline of each cut of one whose partition is open."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._refused: set[Counts] = set()
        """Cuts on which there is no room for a microbatch."""

    def __call__(self, counts: Counts) -> Pipeline | None:
        """That of a cut; ``None``: the memory limit is too low for it.

        Raises:
            TooFine: its times or amounts need too many digits.
        """
        if counts in self._refused:
            return None
        try:
            return self.pipeline.changed(partition=counts, route_of_microbatch=self.pipeline.route_of_microbatch)
        except TooFine:
            raise
        except PipelineError:
            self._refused.add(counts)
            return None

    def fastest(self, counts: Counts) -> Pipeline | None:
        """That of a cut at its fastest, whatever recomputes (:func:`fastest`)."""
        pipeline = self(counts)
        return None if pipeline is None else fastest(pipeline)


def fastest(pipeline: Pipeline) -> Pipeline:
    """The pipeline without recomputing, where that is open: no choice takes less time; its memory may not be enough."""
    if pipeline.recompute != CHOOSE:
        return pipeline
    memory = dataclasses.replace(pipeline.memory, limit=None)
    return pipeline.changed(recompute="none", memory=memory, route_of_microbatch=pipeline.route_of_microbatch)


def without_an_answer(pipeline: Pipeline) -> Pipeline:
    """The balanced cut, where nothing recomputes that would have to be on every cut."""
    free = fastest(pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=None)))
    return (free if isinstance(free.recompute, str) else free.changed(recompute="none")).cut()


def plain(bound: Fraction | float) -> str:
    """A time in the user's unit, in words."""
    return f"{float(bound):.6g}"


def shown(counts: Counts) -> str:
    """The number of layers of each stage, in words."""
    return ",".join(map(str, counts))


def moved(counts: Counts) -> Iterator[Counts]:
    """Cuts in which one end, or two that follow each other, lie one or two layers elsewhere."""
    for length, by in itertools.product((1, 2), (-1, 1, -2, 2)):
        for first in range(len(counts) - length):
            other = list(counts)
            other[first] += by
            other[first + length] -= by
            if min(other[first], other[first + length]) > 0:
                yield tuple(other)
