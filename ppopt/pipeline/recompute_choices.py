"""What each stage may recompute, where that is left open: its options, each with more time for less memory."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ppopt.pipeline.cutting import groups_of

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

Choice: TypeAlias = tuple[int, ...]
"""Per stage the number of its option."""


class Option(NamedTuple):
    """What a stage recomputes: the time that takes for a microbatch, what it holds less, and how it is said."""

    time: Fraction
    saved: Fraction
    chosen: Any = ()


class RecomputeChoices:
    """The options of every stage of a pipeline whose ``recompute`` is open.

    They are those that no other one beats, in time and in memory, in ascending order of both; the first takes no time.

    Raises:
        PipelineError: the stages have other costs on another route.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.options = _of_layers(pipeline) if pipeline.layers is not None else _of_stages(pipeline.per_stage())
        self.lowest: Choice = (0,) * len(self.options)
        self.highest: Choice = tuple(len(options) - 1 for options in self.options)

    def resolved(self, choice: Sequence[int]) -> Pipeline:
        """The pipeline with this choice.

        Raises:
            PipelineError: the memory limit is too low for it.
        """
        if self.pipeline.layers is None:
            return self.pipeline.resolved([stage for stage, number in enumerate(choice) if number])
        chosen = [options[number].chosen for options, number in zip(self.options, choice, strict=True)]
        return self.pipeline.resolved(chosen if any(chosen) else "none")

    def relaxed(self, low: Sequence[int], high: Sequence[int]) -> Pipeline:
        """A pipeline on which every stage takes the time of one choice and the memory of another: its options are between them.

        Nothing that any choice between ``low`` and ``high`` allows takes less on it. Take a schedule of such a choice and keep
        every start. On this pipeline each operation is as long or shorter, so whatever waited for it still finds it ended, and no
        two operations of a device overlap. Let a stage hold ``a`` and retain ``r`` by that choice, ``a'`` and ``r'`` here. Then
        ``a' <= a`` and ``r' <= r``. From F on the stage holds ``a'``, no more than ``a``; while I runs ``max(a', r')``, no more
        than ``max(a, r)``; from then on ``r'``, no more than ``r``; and nothing after W or B, which end as early or earlier. So
        at any time a device holds as much or less, although I may take more here than there, where F has taken it before. The
        schedule is thus one of this pipeline, and no operation ends later: neither its makespan nor a device's span has grown.

        Raises:
            PipelineError: the memory limit does not even leave room for one microbatch.
        """
        most = self.resolved(high)
        each = most.flat() if most.layers is not None else most.per_stage()
        times = tuple(options[number].time for options, number in zip(self.options, low, strict=True))
        if each.costs.recompute is None:
            return each
        return each.changed(costs=dataclasses.replace(each.costs, recompute=times), route_of_microbatch=each.route_of_microbatch)

    def time(self, stage: int, number: int) -> Fraction:
        """What an option of a stage takes longer than to keep everything."""
        return self.options[stage][number].time


def _of_stages(each: Pipeline) -> list[list[Option]]:
    """Of a pipeline with costs per stage: to keep everything, or to recompute."""
    time, saved = each.costs.recompute, each.memory.recompute_saved

    def entry(value: Any, stage: int) -> Fraction:
        return value[stage] if isinstance(value, tuple) else value or Fraction(0)

    return [
        [Option(Fraction(0), Fraction(0)), Option(entry(time, stage), entry(saved, stage), True)] for stage in range(each.stages)
    ]


def _of_layers(pipeline: Pipeline) -> list[list[Option]]:
    """Of each group in a stage, so many layers at each level."""
    layers = pipeline.layers
    assert layers is not None
    found = []
    for row in groups_of(layers, pipeline.counts):
        options = [Option(Fraction(0), Fraction(0))]
        for group, count in enumerate(row):
            ways = [Option(Fraction(0), Fraction(0))]
            for level in layers.groups[group].recompute if layers.has_backward(group) else ():
                name = layers.groups[group].name
                more = range(count + 1)
                ways = [
                    Option(way.time + n * level.time, way.saved + n * level.saved, (*way.chosen, (name, level.name, n)))
                    if n
                    else way
                    for way in ways
                    for n in more
                    if sum(k for *_, k in way.chosen) + n <= count
                ]
            both = itertools.product(options, _unbeaten(ways))
            options = _unbeaten(Option(a.time + b.time, a.saved + b.saved, (*a.chosen, *b.chosen)) for a, b in both)
        found.append(options)
    return found


def _unbeaten(options: Iterable[Option]) -> list[Option]:
    """Those that no other one beats in time and memory, ascending."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda option: (option.time, -option.saved, len(option.chosen))):
        if not kept or option.saved > kept[-1].saved:
            kept.append(option)
    return kept
