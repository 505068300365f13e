"""Several stages per device in a loop: Megatron's interleaved 1F1B."""

from __future__ import annotations

from collections.abc import Iterable

from ppopt.constraints import Dealt, Family, Word
from ppopt.named.definition import Definition, Parameter, Parameters, alternating, fused
from ppopt.op import Kind
from ppopt.pipeline import Pipeline

GROUP_SIZE = Parameter("group_size", "microbatches that a chunk takes in a row (N)", "the number of devices")


def tables(pipeline: Pipeline, device: int, group: int, backward: Kind = Kind.B) -> tuple[Dealt, Dealt]:
    """The forwards and the backwards of a device: groups of microbatches, chunk by chunk, the backwards from the last chunk."""
    stages = range(device, pipeline.stages, pipeline.devices)
    forwards = tuple(Family(stage, Kind.F) for stage in stages)
    backwards = tuple(Family(stage, backward) for stage in reversed(stages))
    return Dealt(forwards, group), Dealt(backwards, group)


def interleaved_1f1b(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """1F1B on the tables of each device, with a warm-up of ``2 (D - 1 - d) + (v - 1) N`` forwards."""
    group = params.get("group_size", pipeline.devices)
    for d in range(pipeline.devices):
        forwards, backwards = tables(pipeline, d, group)
        warmup = 2 * (pipeline.devices - 1 - d) + (pipeline.chunks - 1) * group
        yield from fused(range(d, pipeline.stages, pipeline.devices))
        yield from alternating(forwards, backwards, warmup, pipeline.chunks * pipeline.microbatches)


DEFINITIONS = (
    Definition(
        name="interleaved-1f1b",
        summary="1F1B with v chunks per device, dealt in groups of N microbatches",
        source="Narayanan et al. 2021, arXiv 2104.04473; NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py",
        placement="loop",
        constrain=interleaved_1f1b,
        aliases=("interleaved", "interleave", "megatron-interleaved", "virtual-pipeline"),
        least_chunks=2,
        parameters=(GROUP_SIZE,),
        needs="an order without deadlock: M mod N = 0 or >= D, and N >= D, always has one",
        peak="min(vM, (v-1)N + 2(D-1-d) + 1)",
        idle="(D-1)(T_F+T_B)",
    ),
)
