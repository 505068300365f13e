"""Zero-bubble schedules on a V: device d holds stages d and 2D-1-d, and the backward is split."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from ppopt.constraints import Family, Listed, Word, chain, memory_of
from ppopt.heuristics.zero_bubble_v import best_on_v
from ppopt.named.definition import Definition, Parameter, Parameters, Restriction, limited, split
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Order, Schedule


def zb_v(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """The seven steps on every device, made for equal costs; or, adapted to the costs, only each kind in order and the peak.

    Raises:
        Restriction: a parameter of the other variant.
    """
    if params.get("variant") != "adapted":
        if "limit" in params:
            raise Restriction("zb-v: limit needs variant = adapted")
        yield from split(range(pipeline.stages))
        for d in range(pipeline.devices):
            yield chain(Listed.of(pipeline.index, seven_steps(pipeline, d, params.get("tail", "chunk0-first"))))
        return
    if "tail" in params:
        raise Restriction("zb-v: tail is for the pinned order; variant = adapted has its own")
    yield from in_order(pipeline)
    yield from memory_of(limited(pipeline, _activations(pipeline, params)))


def in_order(pipeline: Pipeline) -> Iterable[Word]:
    """The backward is split, and each kind of a stage runs in order."""
    yield from split(range(pipeline.stages))
    for stage in range(pipeline.stages):
        yield from (chain(Family(stage, kind)) for kind in (Kind.F, Kind.I, Kind.W))


def _activations(pipeline: Pipeline, params: Parameters) -> Fraction:
    """How many activations of a microbatch the adapted variant may hold: by default D, which are 2D of a chunk."""
    limit = params.get("limit", pipeline.devices)
    if limit < pipeline.devices:
        raise Restriction(f"zb-v: limit must be >= devices ({pipeline.devices}), got {limit}")
    return Fraction(limit)


def adapted(pipeline: Pipeline, words: tuple[Word, ...], params: Parameters) -> Schedule:
    """The best of the heuristic that adapts to the costs, and of the pinned order."""
    pinned = Order(pipeline.index, tuple(seven_steps(pipeline, d, "chunk0-first") for d in range(pipeline.devices)))
    return best_on_v(pipeline, _activations(pipeline, params), pinned)


def seven_steps(pipeline: Pipeline, device: int, tail: str) -> IntArray:
    """The order of one device: written for at least 2D - 1 microbatches, those that do not exist left out.

    Numbers of operations (:class:`~ppopt.op.OpIndex`).
    """
    devices, microbatches, index = pipeline.devices, pipeline.microbatches, pipeline.index
    written, stages = max(microbatches, 2 * devices - 1), (device, 2 * devices - 1 - device)
    begun = 2 * devices - 1 - device  # forwards on the way out, before the first of the steady state
    steps = [
        ("F0", 2 * (devices - device) - 1),
        ("F1 F0", device),
        ("F1 I1 W1", devices - device),
        ("F0 I0 W0 F1 I1 W1", written - begun),
        ("I0 W0 F1 I1 W1", begun - devices),
        ("I0 I1", device),
        ("I0 W0", devices - device),
        *((f"W{chunk}", device) for chunk in ((0, 1) if tail == "chunk0-first" else (1, 0))),
    ]
    families = [(text[0], int(text[1])) for text in ("F0", "F1", "I0", "I1", "W0", "W1")]
    place = {f"{kind}{chunk}": at for at, (kind, chunk) in enumerate(families)}
    row = np.concatenate([np.tile([place[turn] for turn in text.split()], times) for text, times in steps]).astype(np.int64)
    numbers = np.empty(len(row), dtype=np.int64)
    kept = np.empty(len(row), dtype=bool)
    for at, (kind, chunk) in enumerate(families):
        of_family = np.flatnonzero(row == at)  # its turns: each runs the next microbatch
        numbers[of_family] = index.family(stages[chunk], Kind[kind]) + np.arange(len(of_family))
        kept[of_family] = np.arange(len(of_family)) < microbatches
    return numbers[kept]


DEFINITIONS = (
    Definition(
        name="zb-v",
        summary="a V whose devices never idle between their first and last operation at equal costs, memory as 1F1B",
        source="Qi et al. 2023, arXiv 2401.10241, section 6; PyTorch ScheduleZBVZeroBubble (tail chunk1-first)",
        placement="wave",
        constrain=zb_v,
        aliases=("zbv", "zbvzerobubble"),
        split=True,
        least_chunks=2,
        parameters=(
            Parameter("variant", "adapted: a heuristic that adapts to the costs, best of five", "none", choices=("adapted",)),
            Parameter("limit", "activations of a microbatch that a device may hold (adapted)", "D"),
            Parameter(
                "tail",
                "which chunk's leftover weight gradients come first",
                "chunk0-first",
                choices=("chunk0-first", "chunk1-first"),
            ),
        ),
        needs="- (closed forms: M >= 2D-1)",
        peak="2D",
        idle="(D-1)T_F, of the device span 0, at T_F = T_I = T_W",
        open_rule="variant = adapted: a greedy heuristic with two yes/no settings, or the pinned order where that is better",
        fill=adapted,
    ),
)
