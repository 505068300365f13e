"""DualPipe and DualPipeV: microbatches enter from both ends, and a forward overlaps a backward of the other direction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ppopt.constraints import Listed, Together, Word, chain, run
from ppopt.named.definition import Definition, Parameters, Restriction
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline, halves, pairs


def dualpipe(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """The eight steps on every device; phases 0 and 1 are routes 0 and 1, swapped on the upper half of the devices.

    Raises:
        Restriction: an odd number of devices or microbatches, too few microbatches, or routes with unequal shares of them.
    """
    devices, microbatches = pipeline.devices, pipeline.microbatches
    if devices % 2:
        raise Restriction(f"dualpipe: devices must be even, got {devices}")
    if microbatches % 2:
        raise Restriction(f"dualpipe: microbatches must be even, got {microbatches}")
    if microbatches < 2 * devices:
        raise Restriction(f"dualpipe: microbatches must be >= 2*devices ({2 * devices}), got {microbatches}")
    on_routes = pipeline.microbatches_of
    if len(on_routes[0]) != len(on_routes[1]):
        raise Restriction(f"dualpipe: each route needs half of the microbatches, got {len(on_routes[0])} and {len(on_routes[1])}")
    half = devices // 2
    for d in range(devices):
        routes = (0, 1) if d < half else (1, 0)
        phases = [Phase(pipeline.routes[route].index(d), on_routes[route]) for route in routes]
        yield from _pinned(pipeline, eight_steps(half, min(d, devices - 1 - d), microbatches // 2), phases)


def dualpipe_v(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """The eight steps on a V: phase 0 is the stage on the way down, phase 1 the one on the way back.

    Raises:
        Restriction: other than two chunks per device, or fewer than two microbatches per device.
    """
    devices, microbatches = pipeline.devices, pipeline.microbatches
    if pipeline.chunks != 2:
        raise Restriction(f"dualpipe-v: chunks must be 2, got {pipeline.chunks}")
    if microbatches < 2 * devices:
        raise Restriction(f"dualpipe-v: microbatches must be >= 2*devices ({2 * devices}), got {microbatches}")
    every = np.arange(microbatches)
    for d in range(devices):
        phases = [Phase(d, every), Phase(2 * devices - 1 - d, every)]
        yield from _pinned(pipeline, eight_steps(devices, d, microbatches), phases)


@dataclass(frozen=True)
class Phase:
    """One direction of a device: its stage, and its microbatches in order."""

    stage: int
    microbatches: IntArray


NONE = -1
"""No phase."""


def eight_steps(half: int, h: int, count: int) -> IntArray:
    """What a device runs that is ``h`` away from its end, ``half`` devices up to the middle, ``count`` microbatches each way.

    By turn the phase of its forward and that of its backward, ``NONE`` without, and the backward's kind; with both they are a
    pair. A weight gradient has no phase: it is that of the input gradient which comes first of those without one.
    """
    forward = [(phase, NONE, Kind.F) for phase in (0, 1)]
    whole, split = ([(NONE, phase, kind) for phase in (0, 1)] for kind in (Kind.B, Kind.I))
    weight = (NONE, NONE, Kind.W)
    both = [(phase, 1 - phase, Kind.B) for phase in (0, 1)]  # a forward of the phase and a backward of the other
    outer, inner = half - h - 1, h + 1
    steps = [
        (forward[:1], 2 * outer),
        (forward, inner),
        ([split[1], weight, forward[1]], outer),
        ([forward[0], whole[1], both[1]] if h == half - 1 else both, 1),
        (both, count - 2 * half + inner - 1),
        ([whole[1], both[1]], outer),
        ([(whole if i < inner else split)[1 - i % 2] for i in range(2 * inner)], 1),
        ([weight, split[0]], outer),
        ([weight], inner),
    ]
    return np.concatenate([np.tile(np.array(turns, dtype=np.int64), (times, 1)) for turns, times in steps])


def _pinned(pipeline: Pipeline, row: IntArray, phases: list[Phase]) -> Iterable[Word]:
    """This order, its pairs, and the kinds that it runs."""
    index, ahead, back, kind = pipeline.index, *row.T
    forward, backward = np.full((2, len(row)), -1, dtype=np.int64)
    for phase, of in enumerate(phases):
        turns = np.flatnonzero(ahead == phase)
        forward[turns] = index.family(of.stage, Kind.F) + of.microbatches[: len(turns)]
        turns = np.flatnonzero(back == phase)
        first = np.array([index.family(of.stage, each) for each in Kind])
        backward[turns] = first[kind[turns]] + of.microbatches[: len(turns)]
    backward[kind == Kind.W] = backward[kind == Kind.I] + index.family(0, Kind.W) - index.family(0, Kind.I)
    paired = (forward >= 0) & (backward >= 0)
    numbers = np.where(paired, pairs(index, forward, backward), np.maximum(forward, backward))
    forwards, backwards = (Listed.of(index, half) for half in halves(index, numbers[paired]))
    yield from run([Listed.of(index, numbers[~paired]), forwards, backwards])
    yield Together(forwards, backwards)
    yield chain(Listed.of(index, numbers))


DEFINITIONS = (
    Definition(
        name="dualpipe",
        summary="two directions with a copy of the weights each; steady state of overlapped pairs",
        source="DeepSeek-V3 2024, arXiv 2412.19437; deepseek-ai/DualPipe dualpipe/dualpipe.py",
        placement="bidirectional",
        constrain=dualpipe,
        split=True,
        needs="D even, M even, M >= 2D",
        peak="D + 1 (weights twice)",
        idle="(D/2-1)(2T_F+T_I-T_W) if T_O = T_F+T_B, T_W <= T_I <= T_F",
    ),
    Definition(
        name="dualpipe-v",
        summary="DualPipe folded into a V: two chunks per device, one copy of the weights",
        source="deepseek-ai/DualPipe dualpipe/dualpipev.py; PyTorch ScheduleDualPipeV",
        placement="wave",
        constrain=dualpipe_v,
        aliases=("dualpipe_v", "dualpipev"),
        split=True,
        least_chunks=2,
        needs="M >= 2D",
        peak="2D + 1",
        idle="(D-1)(2T_F+T_I-T_W) under DualPipe's conditions",
    ),
)
