"""Estimates as the layers and links of a pipeline: times in ms, memory in GB."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from ppopt.pipeline import Layer, Layers, Level, Links, Memory, Pipeline, Units
from ppopt.transformer.checked import EstimateError
from ppopt.transformer.estimating import DECODER, PREDICTION, Estimate, LayerEstimate
from ppopt.transformer.tables import Asked, tables_of
from ppopt.transformer.times import Seconds

MILLISECONDS = 1000
GIGABYTE = 10**9


def rounded(value: float, places: int) -> Fraction:
    """``value`` to so many places behind the point (fewer than none: to tens, hundreds, …)."""
    return _exact(round(value, places))


def places(values: Iterable[float], digits: int) -> int:
    """Places behind the point that leave the largest value so many digits."""
    largest = max(values, default=0.0)
    return digits - 1 - math.floor(math.log10(largest)) if largest > 0 else digits


def _seconds(group: LayerEstimate) -> Seconds:
    if group.seconds is None:
        raise EstimateError("cluster.gpu", 'missing; times need a GPU, such as gpu = "h100-sxm", or cluster.flops')
    return group.seconds


DIGITS = 3
"""Digits of the longest time of a decoder layer: estimates are no closer, and solvers are quicker on coarse times."""


def time_places(estimate: Estimate, digits: int = DIGITS) -> int:
    """Places behind the point that the times of an estimate are rounded to, in ms."""
    times = (_seconds(group) for group in estimate.layers if group.kind == DECODER)
    return places((MILLISECONDS * max(of.forward, of.backward_input, of.backward_weight) for of in times), digits)


def memory_places(estimate: Estimate, digits: int = DIGITS) -> int:
    """Places behind the point that amounts of memory are rounded to, in GB: a digit more than times, as activations are added
    up."""
    kept = (max(float(group.kept.none), float(group.kept.between)) for group in estimate.layers if group.kind == DECODER)
    return places((size / GIGABYTE for size in kept), digits + 1)


def layers_of(estimate: Estimate, digits: int = DIGITS) -> Layers:
    """The layers of an estimate; see :meth:`Estimate.to_layers`.

    Raises:
        EstimateError: there are no times.
    """
    time, memory = time_places(estimate, digits), memory_places(estimate, digits)
    return Layers([_layer(group, time, memory) for group in estimate.layers])


class Figures(NamedTuple):
    """What one layer of a group takes and holds, rounded: times in ms, amounts in GB.

    ``levels``: of each way to recompute its name, what it takes longer, and what is held with it.
    """

    forward: float
    backward_input: float
    backward_weight: float
    activation: float
    retained: float
    weights: float
    all_gather: float
    reduce_scatter: float
    optimizer: float
    levels: tuple[tuple[str, float, float], ...]


def figures_of(group: LayerEstimate, time: int, memory: int) -> Figures:
    """Those of a layer, rounded to :func:`time_places` and :func:`memory_places`.

    Raises:
        EstimateError: there are no times.
    """
    seconds, kept = _seconds(group), group.kept

    def ms(value: float) -> float:
        return round(MILLISECONDS * value, time)

    def gb(value: float) -> float:
        return round(float(value) / GIGABYTE, memory)

    held = gb(kept.none)
    levels: tuple[tuple[str, float, float], ...] = ()
    if group.kind in (DECODER, PREDICTION):
        selective, full = (min(held, gb(of)) for of in (kept.selective, kept.full))
        levels = (("selective", ms(seconds.selective), selective), ("full", ms(seconds.full), full))
    return Figures(
        forward=ms(seconds.forward),
        backward_input=ms(seconds.backward_input),
        backward_weight=ms(seconds.backward_weight),
        activation=held,
        retained=gb(kept.between),
        weights=gb(group.state),
        all_gather=ms(seconds.all_gather),
        reduce_scatter=ms(seconds.reduce_scatter),
        optimizer=ms(seconds.optimizer),
        levels=levels,
    )


def _layer(group: LayerEstimate, time: int, memory: int) -> Layer:
    found = figures_of(group, time, memory)._asdict()
    levels = found.pop("levels")
    numbers: dict[str, Any] = {name: _exact(value) for name, value in found.items()}
    held = numbers["activation"]
    recompute = [Level(name, _exact(longer), held - _exact(least)) for name, longer, least in levels]
    return Layer(group.name, group.count, recompute=recompute, **numbers)


def _exact(value: float) -> Fraction:
    return Fraction(str(value))


def memory_of(estimate: Estimate, digits: int = DIGITS) -> Memory:
    """The memory of a device in GB: its limit, and what is held beside the layers.

    That is the reserve, and what a layer needs while it is computed again or gathered.

    Raises:
        EstimateError: there is no cluster.
    """
    if estimate.cluster is None:
        raise EstimateError("cluster.gpu", "missing; memory needs a machine")
    limit = estimate.cluster.gpu.memory
    whole = estimate.training.recompute in ("full", "choose")
    beside = estimate.static() if limit is not None else estimate.working(recompute=whole)
    static = rounded(beside / GIGABYTE, memory_places(estimate, digits))
    return Memory(static=static, limit=None if limit is None else Fraction(str(limit)))


def pipeline_of(estimate: Estimate, **fields: Any) -> Pipeline:
    """The pipeline of an estimate, in ms and GB; ``fields``: what it has beside, such as a name, or in place of it.

    Its placement and chunks are linear and 1 unless given; the partition is open.

    Raises:
        EstimateError: there are no times, or nothing says how many sequences a step has.
    """
    if estimate.microbatches is None:
        raise EstimateError("training.global_batch", "missing; expected the sequences of a step")
    given: dict[str, Any] = {
        "devices": estimate.parallel.pipeline,
        "microbatches": estimate.microbatches,
        "layers": layers_of(estimate),
        "links": links_of(estimate),
        "memory": memory_of(estimate),
        "units": Units("ms", "GB"),
        "recompute": estimate.training.recompute,
        "origin": tables_of(
            Asked(estimate.sizes, estimate.training, estimate.parallel, estimate.cluster, estimate.training.dtype)
        ),
    }
    return Pipeline(**{**given, **fields})


def links_of(estimate: Estimate, digits: int = DIGITS, *, occupied: bool = False) -> Links:
    """The links of an estimate's pipeline; see :meth:`Estimate.to_links`.

    Raises:
        EstimateError: there are no times.
    """
    if estimate.cluster is None:
        raise EstimateError("cluster.gpu", "missing; links need the bandwidths of a machine")
    between = estimate.boundary_seconds
    if not between:
        return Links()
    to = places([MILLISECONDS * max(between)], digits)
    message = estimate.cluster.gpu.latency if occupied else 0.0
    near, far = (rounded(MILLISECONDS * (seconds - message), to) for seconds in (min(between), max(between)))
    held = far if near == far else _by_node(estimate, near, far)
    return Links(latency=rounded(MILLISECONDS * message, to), occupancy=held) if occupied else Links(latency=held)


def _by_node(estimate: Estimate, near: Fraction, far: Fraction) -> list[list[Fraction]]:
    """A table of all pairs of devices: ``near`` where both are in one node as a whole, else ``far``."""
    assert estimate.cluster is not None
    width, per_node = estimate.parallel.width, estimate.cluster.gpus_per_node
    node = [{device * width // per_node, ((device + 1) * width - 1) // per_node} for device in range(estimate.parallel.pipeline)]
    return [[Fraction(0) if a is b else near if len(a | b) == 1 else far for b in node] for a in node]
