"""What layers take, whatever stages they are cut into: per layer, for one microbatch or for all."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ppopt.pipeline.layers import STEP, Layers

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

Times: TypeAlias = tuple[Fraction, Fraction, Fraction]
"""Of a layer: its forward, its input gradient (or fused backward), and the rest of its backward."""


def times_of_layers(layers: Layers, recompute: Any) -> tuple[tuple[Fraction, Fraction, Fraction], ...]:
    """Per layer, its forward, its input gradient (or fused backward), and the rest of its backward, run the cheaper way.

    ``recompute``: a level that all recompute at counts.
    """
    of_group = []
    times = [layers.each(name) for name in ("forward", "backward_input", "backward_weight", "backward")]
    for group, (forward, input_, weight, full) in enumerate(zip(*times, strict=True)):
        level = layers.level_of(group, recompute) if isinstance(recompute, str) else None
        again = Fraction(0) if level is None else level.time
        assert forward is not None
        if input_ is None or weight is None:
            assert full is not None
            of_group.append((forward, full + again, Fraction(0)))
        else:
            gradient, both = (x if full is None else min(x, full) for x in (input_, input_ + weight))
            of_group.append((forward, gradient + again, both - gradient))
    return tuple(of_group[group] for group in layers.group_of)


def fused_times_of_layers(layers: Layers, recompute: Any) -> tuple[tuple[Fraction, Fraction], ...]:
    """Per layer, its forward and its backward as one operation; ``recompute`` as in :func:`times_of_layers`."""
    of_group = []
    times = [layers.each(name) for name in ("forward", "backward_input", "backward_weight", "backward")]
    for group, (forward, input_, weight, full) in enumerate(zip(*times, strict=True)):
        level = layers.level_of(group, recompute) if isinstance(recompute, str) else None
        both = (input_ or Fraction(0)) + (weight or Fraction(0)) if full is None else full
        assert forward is not None
        of_group.append((forward, both + (Fraction(0) if level is None else level.time)))
    return tuple(of_group[group] for group in layers.group_of)


def first_times_of_layers(layers: Layers, recompute: Any) -> tuple[tuple[Fraction, Fraction, Fraction], ...]:
    """As :func:`times_of_layers`, of layers in the first stage as PyTorch runs them: the whole backward is in W."""
    if not layers.split:
        return times_of_layers(layers, recompute)
    return tuple((forward, Fraction(0), both) for forward, both in fused_times_of_layers(layers, recompute))


def work_of_layers(layers: Layers, recompute: Any) -> tuple[Fraction, ...]:
    """Per layer, its forward and its backward, run the cheaper way, for one microbatch; with a level that all recompute at."""
    return tuple(sum(times, Fraction(0)) for times in times_of_layers(layers, recompute))


class InParts(NamedTuple):
    """Per layer what grows with the tokens, and what grows with the squares of lengths."""

    linear: tuple[Times, ...]
    square: tuple[Times, ...]


def parts_of_layers(layers: Layers, recompute: Any) -> InParts:
    """As :func:`times_of_layers`, in parts; each part of a backward is that of the cheaper way, and none takes less."""
    of_group = []
    names = ("forward", "backward_input", "backward", "forward_quadratic", "backward_input_quadratic", "backward_quadratic")
    given = zip(*(layers.each(name) for name in (*names, "backward_weight")), strict=True)
    for group, (forward, input_, full, forward_square, input_square, full_square, weight) in enumerate(given):
        level = layers.level_of(group, recompute) if isinstance(recompute, str) else None
        again, again_square = (Fraction(0), Fraction(0)) if level is None else (level.time - level.quadratic, level.quadratic)
        assert forward is not None
        first = forward_square or Fraction(0)
        square = input_square or Fraction(0)
        if full_square is None:
            full_square = square
        if input_ is None or weight is None:
            assert full is not None
            linear = (forward - first, full - full_square + again, Fraction(0))
            of_group.append((linear, (first, full_square + again_square, Fraction(0))))
            continue
        gradient, both = input_ - square, input_ - square + weight
        if full is not None:
            gradient, both, square = min(gradient, full - full_square), min(both, full - full_square), min(square, full_square)
        linear = (forward - first, gradient + again, both - gradient)
        of_group.append((linear, (first, square + again_square, Fraction(0))))
    each = [of_group[group] for group in layers.group_of]
    return InParts(tuple(linear for linear, _ in each), tuple(square for _, square in each))


def first_parts_of_layers(layers: Layers, recompute: Any) -> InParts:
    """As :func:`first_times_of_layers`, in parts."""
    if not layers.split:
        return parts_of_layers(layers, recompute)
    fused = fused_times_of_layers(layers, recompute)
    names = ("forward_quadratic", "backward_input_quadratic", "backward_quadratic")
    of_group = []
    for group, (first, input_square, full_square) in enumerate(zip(*map(layers.each, names), strict=True)):
        level = layers.level_of(group, recompute) if isinstance(recompute, str) else None
        back = (input_square if full_square is None else full_square) or Fraction(0)
        of_group.append((first or Fraction(0), Fraction(0), back + (Fraction(0) if level is None else level.quadratic)))
    square = tuple(of_group[group] for group in layers.group_of)
    linear = tuple((f - a, Fraction(0), both - c) for (f, both), (a, _, c) in zip(fused, square, strict=True))
    return InParts(linear, square)


def work_of_all(pipeline: Pipeline) -> Fraction:
    """What all layers take for all microbatches at least, every backward run the cheaper way."""
    layers, mix = pipeline.layers, pipeline.mix
    assert layers is not None
    several, times = (pipeline.microbatches, 1) if mix.differs else (1, pipeline.microbatches)
    each = [mix.scale(m, 0) for m in range(several)]
    linear, square = (times * sum(of, Fraction(0)) for of in ((by.linear for by in each), (by.square for by in each)))
    if not mix.lengths:
        return sum(work_of_layers(layers, pipeline.recompute), Fraction(0)) * linear
    parts = parts_of_layers(layers, pipeline.recompute)
    return sum(chain(*parts.linear), Fraction(0)) * linear + sum(chain(*parts.square), Fraction(0)) * square


def shared_work(pipeline: Pipeline) -> Fraction:
    """What each device does at least where all share what the layers take, with what they take once per step."""
    layers = pipeline.layers
    assert layers is not None
    once = [value or Fraction(0) for name in STEP for value in map(layers.each(name).__getitem__, layers.group_of)]
    overlapped = pipeline.data_parallel.overlap
    return (work_of_all(pipeline) + (Fraction(0) if overlapped else sum(once, Fraction(0)))) / pipeline.devices
