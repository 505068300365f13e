"""What layers hold at least, however they recompute where that is open."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ppopt.pipeline import CHOOSE, Layers


def least_amounts(layers: Layers, recompute: Any) -> tuple[list[Fraction], list[Fraction], list[Fraction]]:
    """Per group, what a layer holds of a microbatch, what is left of that between ``I`` and ``W``, and its weights.

    If it recomputes as is said, or as is best for it where that is open.
    """
    activation, retained, weights = (layers.each(name) for name in ("activation", "retained", "weights"))
    held = [(value or Fraction(0)) - saved_by(layers, g, recompute) for g, value in enumerate(activation)]
    kept = [own if value is None else min(own, value) for own, value in zip(held, retained, strict=True)]
    return held, kept, [value or Fraction(0) for value in weights]


def saved_by(layers: Layers, group: int, recompute: Any) -> Fraction:
    """What a layer of a group holds less at most, where it recomputes as is said, or as is best for it."""
    if recompute == CHOOSE or not isinstance(recompute, str):
        levels = layers.groups[group].recompute if layers.has_backward(group) else ()
        return max((level.saved for level in levels), default=Fraction(0))
    level = layers.level_of(group, recompute)
    return Fraction(0) if level is None else level.saved
