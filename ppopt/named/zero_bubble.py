"""Zero-bubble schedules on one stage per device: the backward is split, and W fills what would be idle."""

from __future__ import annotations

from collections.abc import Iterable

from ppopt.constraints import Family, Precede, Word, chain
from ppopt.named.definition import Definition, Parameter, Parameters, Restriction, alternating, fused, split
from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def zb_h1(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """1F1B with ``I`` for ``B``, and ``W(m)`` right after ``I(m + d)``.

    The variant ``fused-adjacent`` runs ``B`` on device 0, where each ``W`` directly follows its ``I``.
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


def deferred(input_: Family, weight: Family, by: int) -> tuple[Precede, ...]:
    """``I(m + by) < W(m) < I(m + by + 1)``: each W directly follows the I ``by`` microbatches later."""
    return (chain(weight), Precede(input_, weight, shift=-by), Precede(weight, input_, shift=by + 1))


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
)
