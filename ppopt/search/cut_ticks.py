"""The times of layers and microbatches as integers, for the models over all cuts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import chain
from typing import Any

from ppopt.bounds.margins import given_once
from ppopt.bounds.ways import Part
from ppopt.op import Kind
from ppopt.pipeline import CHOOSE, Layers, Pipeline, Ticks
from ppopt.pipeline.layer_times import (
    InParts,
    Times,
    first_parts_of_layers,
    first_times_of_layers,
    parts_of_layers,
    times_of_layers,
    work_of_all,
)
from ppopt.pipeline.layers import PARTS, STEP, TIMES, Level
from ppopt.pipeline.parts import Table
from ppopt.pipeline.scaling import sizes_of
from ppopt.pipeline.tables import common_denominator

KINDS = (Kind.F, Kind.I, Kind.W)
MOST = 2**44
"""Ticks of all work, and of a way through all stages, where times are rounded: the solver has room for sums of several such."""

MOST_HELD = Fraction(2**40)
"""What any layer holds of all microbatches, where amounts are rounded: the solver has room for sums of many of these."""


def scale_of_amounts(of_layers: Sequence[Fraction], of_devices: Sequence[Fraction], microbatches: int) -> Fraction:
    """By what amounts of memory are multiplied to be whole; by less where that is too much, and then they are to be rounded.

    ``of_layers``: what each layer holds of a microbatch, or always; ``of_devices``: what each device has room for.
    """
    whole, largest = Fraction(common_denominator([(*of_layers, *of_devices)])), max(of_layers) * microbatches
    return min(whole, MOST_HELD / largest) if largest else whole


def most_ticks(pipeline: Pipeline, numbers: Sequence[Fraction]) -> int:
    """The most ticks in a unit of time that the models over all cuts have room for; ``numbers``: of any layer or link."""
    work = work_of_all(pipeline) + _most_again(pipeline)
    return math.ceil(MOST / max(work, 2 * pipeline.stages * max(numbers), Fraction(1)))


def _most_again(pipeline: Pipeline) -> Fraction:
    """What all layers may take longer where it is open, or said of each stage, what recomputes."""
    layers, mix, recompute = pipeline.layers, pipeline.mix, pipeline.recompute
    if layers is None or (isinstance(recompute, str) and recompute != CHOOSE):
        return Fraction(0)
    each = sum((group.count * max((level.time for level in group.recompute), default=0) for group in layers.groups), Fraction(0))
    scales = (mix.scale(m, 0) for m in range(pipeline.microbatches))
    return each * sum((max(by.linear, by.square) for by in scales), Fraction(0))


class CutTicks:
    """What each layer takes, in ticks, and by which factors the sizes of microbatches differ.

    Of a pipeline whose partition is open; ``some``: the ticks of one with its placement and links, and with margins as far as
    these are the same on every cut. Makespans of all cuts are whole ticks.
    Where there is no such tick that is coarse enough, durations are rounded down, so that bounds hold.
    """

    def __init__(self, pipeline: Pipeline, some: Ticks) -> None:
        layers = pipeline.layers
        assert layers is not None
        parts, first = self._parts(pipeline, layers), self._first_parts(pipeline, layers)
        again = _again(layers, pipeline.recompute, pipeline.stages)
        sizes = [scales[0] for scales in sizes_of(pipeline).scales]
        fixed = [Fraction(int(x), some.per_unit) for x in (*some.lead.flat, *some.tail.flat, *some.sending.flat)]
        fixed += [*_entries(pipeline.links.latency), *_entries(pipeline.links.occupancy)]
        of_layers = chain(*parts.linear, *parts.square, *first.linear, *first.square)
        numbers = [*of_layers, *chain(*again), *fixed, *_all_times(pipeline, layers)]
        unit, factor = common_denominator([numbers]), common_denominator([by[:2] for by in sizes])
        most = most_ticks(pipeline, numbers)
        self.exact = unit * factor <= most
        """Whether no time is rounded."""
        if not self.exact:
            unit = min(unit, math.isqrt(most))
            factor = min(factor, most // unit)
        self.per_unit = unit * factor

        def by_kind(times: Sequence[Times]) -> dict[Kind, list[int]]:
            return {kind: [int(value * unit) for value in of] for kind, of in zip(KINDS, zip(*times, strict=True), strict=True)}

        first_kind = Kind.W if pipeline.runtime and layers.split else Kind.I
        self.again = (first_kind, *[Kind.I] * (pipeline.stages - 1))
        """Of each stage the operation that takes longer where it recomputes."""
        longer = {
            Part(self.again[stage], stage, size): int((linear * by.linear + square * by.square) * self.per_unit)
            for stage, (linear, square) in enumerate(again)
            for size, by in enumerate(sizes)
        }
        self.arguments: dict[str, Any] = {
            "times": by_kind(parts.linear),
            "stages": pipeline.stages,
            "first": by_kind(first.linear) if first.linear else None,
            "more": longer,
            "squares": by_kind(parts.square) if any(chain(*parts.square)) else None,
            "first_squares": by_kind(first.square) if any(chain(*first.square)) else None,
            "once": {
                once: [int((of[group] or 0) * self.per_unit) for group in layers.group_of]
                for once in sorted(given_once(pipeline))
                for of in [layers.each(once.field)]
            },
            "sizes": [(int(by.linear * factor), int(by.square * factor)) for by in sizes],
        }
        """Those of a :class:`~ppopt.bounds.cuts.CutModel`."""

    def longer(self, level: Level) -> int:
        """What a layer takes longer at a level for a microbatch, where these are alike, in ticks: rounded down."""
        return math.floor(level.time * self.per_unit)

    def least(self, bound: Fraction | float) -> int:
        """The ticks of the model that nothing with this bound is below."""
        return math.ceil(bound * self.per_unit) if self.exact else math.floor(bound * self.per_unit)

    @staticmethod
    def _parts(pipeline: Pipeline, layers: Layers) -> InParts:
        if pipeline.mix.lengths:
            return parts_of_layers(layers, pipeline.recompute)
        return InParts(times_of_layers(layers, pipeline.recompute), ())

    @staticmethod
    def _first_parts(pipeline: Pipeline, layers: Layers) -> InParts:
        """Of layers in the first stage, if they take something else there."""
        if not pipeline.runtime:
            return InParts((), ())
        if pipeline.mix.lengths:
            return first_parts_of_layers(layers, pipeline.recompute)
        return InParts(first_times_of_layers(layers, pipeline.recompute), ())


def _all_times(pipeline: Pipeline, layers: Layers) -> list[Fraction]:
    """What may count in the makespan of some cut."""
    pieces, levels = pipeline.costs.weight_pieces, [level for group in layers.groups for level in group.recompute]
    each = [value / pieces for name in (*TIMES, *PARTS) for value in layers.each(name) if value is not None]
    if pipeline.recompute == CHOOSE:
        each += [value / pieces for level in levels for value in (level.time, level.quadratic)]
    return each + [value for name in STEP for value in layers.each(name) if value is not None]


def _again(layers: Layers, recompute: Any, stages: int) -> list[tuple[Fraction, Fraction]]:
    """Per stage, what the layers that are said to recompute in it take longer, whatever the cut: what grows with the tokens, and
    what grows with the squares of lengths."""
    if isinstance(recompute, str):
        return [(Fraction(0), Fraction(0))] * stages
    number = {group.name: g for g, group in enumerate(layers.groups)}
    found = []
    for chosen in recompute:
        levels = [(layers.level_of(number[group], level), n) for group, level, n in chosen]
        known = [(level, n) for level, n in levels if level is not None]
        square = sum((n * level.quadratic for level, n in known), Fraction(0))
        found.append((sum((n * level.time for level, n in known), Fraction(0)) - square, square))
    return found


def _entries(table: Table) -> list[Fraction]:
    return [table] if isinstance(table, Fraction) else [value for row in table for value in row]
