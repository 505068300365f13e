"""What layers hold, and what recomputing saves of that and takes where it is open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ppopt.bounds.filling import Held
from ppopt.bounds.savings import Savings
from ppopt.pipeline import CHOOSE, Layers, Pipeline
from ppopt.pipeline.layers import Level
from ppopt.search.cut_ticks import CutTicks, scale_of_amounts


def amounts_of(layers: Layers, recompute: Any) -> tuple[list[Fraction], list[Fraction], list[Fraction]]:
    """Per group, what a layer holds of a microbatch, what is left of that between ``I`` and ``W``, and its weights.

    If it recomputes as is said; where that is open, or said of stages alone, if it does not.
    """
    activation, retained, weights = (layers.each(name) for name in ("activation", "retained", "weights"))
    alike = isinstance(recompute, str) and recompute != CHOOSE
    saved = [saved_by(layers, g, recompute) if alike else Fraction(0) for g in range(len(activation))]
    held = [(value or Fraction(0)) - less for value, less in zip(activation, saved, strict=True)]
    return held, _kept(held, retained), [value or Fraction(0) for value in weights]


def least_amounts(layers: Layers, recompute: Any) -> tuple[list[Fraction], list[Fraction], list[Fraction]]:
    """As :func:`amounts_of`; where it is open what recomputes, if each layer recomputes as is best for what it holds."""
    held, kept, weights = amounts_of(layers, recompute)
    if isinstance(recompute, str) and recompute != CHOOSE:
        return held, kept, weights
    held = [value - saved_by(layers, g, recompute) for g, value in enumerate(held)]
    return held, _kept(held, layers.each("retained")), weights


def _kept(held: list[Fraction], retained: tuple[Fraction | None, ...]) -> list[Fraction]:
    return [own if value is None else min(own, value) for own, value in zip(held, retained, strict=True)]


def levels_of(layers: Layers, group: int) -> tuple[Level, ...]:
    """The ways in which a layer of a group can recompute: none without a backward."""
    return layers.groups[group].recompute if layers.has_backward(group) else ()


def saved_by(layers: Layers, group: int, recompute: Any) -> Fraction:
    """What a layer of a group holds less at most, where it recomputes as is said, or as is best for it."""
    if recompute == CHOOSE or not isinstance(recompute, str):
        return max((level.saved for level in levels_of(layers, group)), default=Fraction(0))
    level = layers.level_of(group, recompute)
    return Fraction(0) if level is None else level.saved


def whole_amounts(pipeline: Pipeline, ticks: CutTicks) -> Held | None:
    """What each layer holds, in whole amounts; ``None``: there is no limit, or there are several ways.

    Where microbatches differ, of the largest sequence. Where they are alike and it is open what recomputes, with what that saves
    and takes; else what is held at least.
    """
    layers, limit, recompute = pipeline.layers, pipeline.memory.limit, pipeline.recompute
    if limit is None or len(pipeline.ways) > 1:
        return None
    assert layers is not None
    opened = recompute == CHOOSE and not pipeline.mix.differs
    held, kept, own = (amounts_of if opened else least_amounts)(layers, recompute)
    most, least_kept = pipeline.mix.most_held(pipeline.microbatches), least_amounts(layers, recompute)[1]
    levels = [levels_of(layers, g) if opened else () for g in range(len(layers.groups))]
    limits, static = (
        value if isinstance(value, tuple) else (value,) * pipeline.devices for value in (limit, pipeline.memory.static)
    )
    each = [*held, *kept, *least_kept, *(level.saved for of in levels for level in of)]
    scale = scale_of_amounts([*(value * most for value in each), *own], [*limits, *static], pipeline.microbatches)

    def whole(of: Sequence[Fraction]) -> list[int]:  # rounded, so that more fits
        return [math.floor(of[g] * scale) for g in layers.group_of]

    room = [math.ceil((have - always) * scale) for have, always in zip(limits, static, strict=True)]
    found = Held(whole([value * most for value in held]), whole([value * most for value in kept]), whole(own), room)
    if not any(level.saved for of in levels for level in of):
        return found
    rows = [tuple((ticks.longer(level), math.ceil(level.saved * most * scale)) for level in of) for of in levels]
    unkept = [a - b for a, b in zip(found.kept, whole([value * most for value in least_kept]), strict=True)]
    return replace(found, savings=Savings([rows[g] for g in layers.group_of], unkept, ticks.again))
