"""What layers hold, and what recomputing saves of that and takes where it is open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

from ppopt.bounds.filling import Held
from ppopt.bounds.savings import Savings
from ppopt.pipeline import CHOOSE, Layers, Pipeline
from ppopt.pipeline.layers import Level
from ppopt.search.cut_ticks import CutTicks, scale_of_amounts


def _amounts(layers: Layers, saved: Sequence[Fraction]) -> tuple[list[Fraction], list[Fraction], list[Fraction]]:
    """Per group, what a layer holds of a microbatch, what is left of that between ``I`` and ``W``, and its weights.

    ``saved``: per group, what a layer holds less.
    """
    activation, retained, weights = (layers.each(name) for name in ("activation", "retained", "weights"))
    held = [(value or Fraction(0)) - less for value, less in zip(activation, saved, strict=True)]
    kept = [own if value is None else min(own, value) for own, value in zip(held, retained, strict=True)]
    return held, kept, [value or Fraction(0) for value in weights]


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
    opened, groups = recompute == CHOOSE and not pipeline.mix.differs, range(len(layers.groups))
    least = _amounts(layers, [saved_by(layers, g, recompute) for g in groups])
    amounts = _amounts(layers, [Fraction(0) for _ in groups]) if opened else least
    most = pipeline.mix.most_held(pipeline.microbatches)
    held, kept, least_kept = ([value * most for value in of] for of in (*amounts[:2], least[1]))
    own, levels = amounts[2], [levels_of(layers, g) if opened else () for g in groups]
    saved = [[level.saved * most for level in of] for of in levels]
    limits, static = (
        value if isinstance(value, tuple) else (value,) * pipeline.devices for value in (limit, pipeline.memory.static)
    )
    scale = scale_of_amounts([*held, *kept, *least_kept, *chain(*saved), *own], [*limits, *static], pipeline.microbatches)

    def whole(of: Sequence[Fraction]) -> list[int]:  # rounded, so that more fits
        return [math.floor(of[g] * scale) for g in layers.group_of]

    room = [math.ceil((have - always) * scale) for have, always in zip(limits, static, strict=True)]
    found = Held(whole(held), whole(kept), whole(own), room)
    if not any(chain(*saved)):
        return found
    rows = [
        tuple((ticks.longer(level), math.ceil(less * scale)) for level, less in zip(of, each, strict=True))
        for of, each in zip(levels, saved, strict=True)
    ]
    unkept = [a - b for a, b in zip(found.kept, whole(least_kept), strict=True)]
    return replace(found, savings=Savings([rows[g] for g in layers.group_of], unkept, ticks.again))
