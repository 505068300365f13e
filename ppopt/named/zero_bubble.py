"""Zero-bubble schedules on one stage per device: the backward is split, and W fills what would be idle."""

from __future__ import annotations

from collections.abc import Iterable

from ppopt.constraints import Family, Precede, Word, chain
from ppopt.named.definition import (
    Definition,
    Parameter,
    Parameters,
    Restriction,
    alternating,
    deferred,
    filled_greedily,
    fused,
    split,
)
from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def zb_h1(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """1F1B with ``I`` for ``B``, and ``W(m)`` right after ``I(m + d)``.

    The variant ``fused-adjacent`` runs ``B`` on device 0, where each ``W`` directly follows its ``I``.

    Raises:
        Restriction: fewer microbatches than devices.
    """
    devices, microbatches = pipeline.devices, pipeline.microbatches
    if microbatches < devices:
        raise Restriction(f"zb-h1: microbatches must be >= devices ({devices}), got {microbatches}")
    for d in range(devices):
        forward, full, input_, weight = (Family(d, kind) for kind in Kind)
        if d == 0 and params.get("variant") == "fused-adjacent":
            yield from fused([d])
            yield from alternating(forward, full, devices - 1, microbatches)
            continue
        yield from split([d])
        yield from alternating(forward, input_, devices - 1 - d, microbatches)
        yield from deferred(input_, weight, d)
        yield Precede(weight, forward, shift=devices)


def zb_h2(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """A warm-up of ``2 (D - 1 - d)`` forwards, then F and I in turn, and ``W(m)`` right after ``I(m + 2d)``.

    The variant ``heuristic`` pins F and I, and of W only its order and the peak: ``W(m) < F(m + 2D - 1)``.

    Raises:
        Restriction: fewer than ``2 D - 1`` microbatches.
    """
    devices, microbatches = pipeline.devices, pipeline.microbatches
    if microbatches < 2 * devices - 1:
        raise Restriction(f"zb-h2: microbatches must be >= 2*devices - 1 ({2 * devices - 1}), got {microbatches}")
    for d in range(devices):
        forward, _, input_, weight = (Family(d, kind) for kind in Kind)
        yield from split([d])
        yield from alternating(forward, input_, 2 * (devices - 1 - d), microbatches)
        if params.get("variant") == "heuristic":
            yield chain(weight)
        else:
            yield from deferred(input_, weight, 2 * d)
        yield Precede(weight, forward, shift=2 * devices - 1)


DEFINITIONS = (
    Definition(
        name="zb-h1",
        summary="1F1B with the backward split; device d keeps d weight gradients pending, memory as 1F1B",
        source="Qi et al. 2023, arXiv 2401.10241; sail-sg/zero-bubble-pipeline-parallelism",
        placement="linear",
        constrain=zb_h1,
        aliases=("zb1p", "zbh1"),
        split=True,
        parameters=(Parameter("variant", "fused-adjacent: B where I and W are adjacent", "none", choices=("fused-adjacent",)),),
        needs="M >= D",
        peak="D",
        idle="(D-1)max(T_F, T_I, T_F+T_I-T_W)",
    ),
    Definition(
        name="zb-h2",
        summary="twice ZB-H1's warm-up and memory, for a device span without idle time at equal costs",
        source="Qi et al. 2023, arXiv 2401.10241; sail-sg/zero-bubble-pipeline-parallelism (branch arxiv) efficiency.py",
        placement="linear",
        constrain=zb_h2,
        aliases=("zb2p", "zbh2"),
        split=True,
        parameters=(Parameter("variant", "heuristic: only the order of F and I is pinned", "none", choices=("heuristic",)),),
        needs="M >= 2D-1",
        peak="2D - 1",
        idle="(D-1)max(T_F, T_I-T_F, T_F+T_I-2T_W); of the device span (D-1)max(0, T_I-T_F, T_F+T_I-2T_W)",
        open_rule="variant = heuristic: W where the device would be idle, or where the peak of 2D - 1 asks for it",
        fill=filled_greedily,
        fills_gaps=True,
    ),
)
