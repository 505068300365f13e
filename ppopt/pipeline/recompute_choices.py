"""What each stage may recompute, where that is left open: its options, each with more time for less memory."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ppopt.pipeline.cutting import groups_of
from ppopt.pipeline.layers import Layers, Level

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

Choice: TypeAlias = tuple[int, ...]
"""Per stage the number of its option."""


class Option(NamedTuple):
    """What a stage recomputes: the time that takes for a microbatch, what it holds less, and how it is said."""

    time: Fraction
    saved: Fraction
    chosen: Any = ()
    quadratic: Fraction = Fraction(0)
    """The part of the time that grows with the squares of lengths."""
    unkept: Fraction = Fraction(0)
    """What is retained less between ``I`` and ``W``."""

    def both(self, other: Option) -> Option:
        """What layers recompute together."""
        return Option(*(a + b for a, b in zip(self, other, strict=True)))


class Unbeaten:
    """Which options no other one beats: in time, whatever the microbatch, and in what is held and retained.

    A time per token grows with the ratio of squares to tokens, by its quadratic part. So an option takes no longer than another
    one for every microbatch where that holds for the least and for the largest ratio.
    """

    def __init__(self, ratios: Iterable[Fraction]) -> None:
        ratios = list(ratios)
        self._ratios = sorted({min(ratios), max(ratios)})

    def times(self, option: Option) -> tuple[Fraction, ...]:
        """What it takes per token, where microbatches have the least ratio, and where they have the largest one."""
        return tuple(option.time + option.quadratic * (ratio - 1) for ratio in self._ratios)

    def of(self, options: Iterable[Option]) -> list[Option]:
        """Those that are left, by what they save, ascending."""
        kept: list[tuple[tuple[Fraction, ...], Option]] = []
        for option in sorted(options, key=lambda option: (self.times(option), -option.saved, -option.unkept, len(option.chosen))):
            rank = (*self.times(option), -option.saved, -option.unkept)
            if not any(all(a <= b for a, b in zip(other, rank, strict=True)) for other, _ in reversed(kept)):
                kept.append((rank, option))
        return [option for _, option in sorted(kept, key=lambda pair: (pair[1].saved, pair[0]))]

    def least(self, options: Sequence[Option]) -> tuple[Fraction, Fraction]:
        """A time, and its quadratic part, that no microbatch takes less than with any of some options."""
        times = list(map(self.times, options))
        best = min(range(len(options)), key=times.__getitem__)
        if all(a <= b for other in times for a, b in zip(times[best], other, strict=True)):
            return options[best].time, options[best].quadratic
        square = min(option.quadratic for option in options)
        return min(option.time - option.quadratic for option in options) + square, square


_NOTHING = Option(Fraction(0), Fraction(0))


class RecomputeChoices:
    """The options of every stage of a pipeline whose ``recompute`` is open.

    They are those that no other one beats (:class:`Unbeaten`), by what they save, ascending; the first takes no time. Where
    microbatches are alike, and all layers retain what they hold, those that save more take longer.

    Raises:
        PipelineError: the stages have other costs on another route.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        each = [pipeline.mix.scale(m, 0) for m in range(pipeline.microbatches)] if pipeline.mix.lengths else []
        self._unbeaten = Unbeaten([by.square / by.linear for by in each] or [Fraction(1)])
        self.options = self._of_layers() if pipeline.layers is not None else _of_stages(pipeline.per_stage())
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
        if each.costs.recompute is None:
            return each
        between = [options[a : b + 1] for options, a, b in zip(self.options, low, high, strict=True)]
        times, squares = zip(*map(self._unbeaten.least, between), strict=True)
        costs = dataclasses.replace(each.costs, recompute=times, recompute_quadratic=squares if any(squares) else None)
        memory, more = each.memory, [max(option.unkept for option in some) - some[-1].unkept for some in between]
        if any(more):
            assert isinstance(memory.retained, tuple), "some layers give it"
            memory = dataclasses.replace(memory, retained=tuple(a - b for a, b in zip(memory.retained, more, strict=True)))
        return each.changed(costs=costs, memory=memory, route_of_microbatch=each.route_of_microbatch)

    def time(self, stage: int, number: int) -> Fraction:
        """What an option of a stage takes longer than to keep everything."""
        return self.options[stage][number].time

    def _of_layers(self) -> list[list[Option]]:
        """Of each group in a stage, so many layers at each level."""
        layers = self.pipeline.layers
        assert layers is not None
        found = []
        for row in groups_of(layers, self.pipeline.counts):
            options = [_NOTHING]
            for group, count in enumerate(row):
                ways = self._unbeaten.of(_of_group(layers, group, count))
                options = self._unbeaten.of(a.both(b) for a, b in itertools.product(options, ways))
            found.append(options)
        return found


def _of_stages(each: Pipeline) -> list[list[Option]]:
    """Of a pipeline with costs per stage: to keep everything, or to recompute."""
    time, square, saved = each.costs.recompute, each.costs.recompute_quadratic, each.memory.recompute_saved

    def entry(value: Any, stage: int) -> Fraction:
        return value[stage] if isinstance(value, tuple) else value or Fraction(0)

    return [
        [_NOTHING, Option(entry(time, stage), entry(saved, stage), True, entry(square, stage))] for stage in range(each.stages)
    ]


def _of_group(layers: Layers, group: int, count: int) -> list[Option]:
    """So many of ``count`` layers of a group at each level."""
    name, keeps_all = layers.groups[group].name, layers.each("retained")[group] is None
    ways = [_NOTHING]
    for level in layers.groups[group].recompute if layers.has_backward(group) else ():

        def at(n: int, level: Level = level) -> Option:
            chosen = ((name, level.name, n),) if n else ()
            return Option(n * level.time, n * level.saved, chosen, n * level.quadratic, n * level.saved * keeps_all)

        ways = [way.both(at(n)) for way in ways for n in range(count + 1) if sum(k for *_, k in way.chosen) + n <= count]
    return ways
