"""Several stages per device in a loop: breadth-first, Megatron's interleaved 1F1B and what grew from it."""

from __future__ import annotations

from collections.abc import Iterable

from ppopt.constraints import Dealt, Family, Precede, Word, chain
from ppopt.named.definition import (
    Definition,
    Parameter,
    Parameters,
    Restriction,
    alternating,
    deferred,
    fused,
    overlapping,
    split,
)
from ppopt.op import Kind
from ppopt.pipeline import Pipeline

GROUP_SIZE = Parameter("group_size", "microbatches that a chunk takes in a row (N)", "the number of devices")


def stages_of(pipeline: Pipeline, device: int) -> range:
    """The stages of a device of the loop."""
    return range(device, pipeline.stages, pipeline.devices)


def table(stages: Iterable[int], kind: Kind, group: int, *, descending: bool = False) -> Dealt:
    """Groups of microbatches, stage by stage."""
    return Dealt(tuple(Family(stage, kind) for stage in stages), group, descending)


def whole_groups(pipeline: Pipeline, params: Parameters) -> str:
    """What keeps groups of microbatches from a deadlock."""
    group = params.get("group_size", pipeline.devices)
    if group < pipeline.devices:
        return f"group_size must be >= devices ({pipeline.devices}), got {group}"
    if pipeline.microbatches % group:
        return f"microbatches must be a multiple of group_size ({group}), got {pipeline.microbatches}"
    return ""


def looped_bfs(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """All forwards chunk by chunk, then all backwards from the last chunk; the backwards of a chunk in either direction.

    With k rounds the same for microbatches j, j + k, j + 2k, …, for j = 0 to k - 1.

    Raises:
        Restriction: the microbatches are no multiple of the rounds, or several rounds with backwards in descending order.
    """
    microbatches, rounds = pipeline.microbatches, params.get("rounds", 1)
    descending = params.get("backward_microbatches", "ascending") == "descending"
    if microbatches % rounds:
        raise Restriction(f"looped-bfs: microbatches must be a multiple of rounds ({rounds}), got {microbatches}")
    if rounds > 1 and descending:
        raise Restriction(f"looped-bfs: rounds ({rounds}) needs backward_microbatches = ascending, got descending")
    for d in range(pipeline.devices):
        stages = stages_of(pipeline, d)
        yield from fused(stages)
        if rounds == 1:
            forwards = table(stages, Kind.F, microbatches)
            backwards = table(reversed(stages), Kind.B, microbatches, descending=descending)
            yield from (chain(forwards), chain(backwards))
            yield Precede(forwards, backwards, shift=1 - len(stages) * microbatches)
        else:
            turns = [Family(stage, Kind.F) for stage in stages] + [Family(stage, Kind.B) for stage in reversed(stages)]
            yield chain(Dealt(tuple(turns), microbatches // rounds, stride=rounds))


def interleaved_1f1b(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """1F1B on the tables of each device, with a warm-up of ``2 (D - 1 - d) + (v - 1) N`` forwards."""
    group = params.get("group_size", pipeline.devices)
    for d in range(pipeline.devices):
        stages = stages_of(pipeline, d)
        warmup = 2 * (pipeline.devices - 1 - d) + (pipeline.chunks - 1) * group
        forwards, backwards = table(stages, Kind.F, group), table(reversed(stages), Kind.B, group)
        yield from fused(stages)
        yield from alternating(forwards, backwards, warmup, pipeline.chunks * pipeline.microbatches)


def interleaved_1f1b_overlap(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """As :func:`interleaved_1f1b` with one forward more of warm-up, and then pairs ``(F(k + w); B(k))``."""
    group = params.get("group_size", pipeline.devices)
    for d in range(pipeline.devices):
        stages = stages_of(pipeline, d)
        warmup = 2 * (pipeline.devices - 1 - d) + (pipeline.chunks - 1) * group + 1
        forwards, backwards = table(stages, Kind.F, group), table(reversed(stages), Kind.B, group)
        yield from fused(stages)
        yield from overlapping(forwards, backwards, warmup, pipeline.chunks * pipeline.microbatches)


def interleaved_zb(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """A warm-up of ``(D - 1 - d) + (v - 1) D`` forwards, then F, I and W in turn: ``W(k)`` right after ``I(k + d)``.

    Raises:
        Restriction: the microbatches are no multiple of the devices.
    """
    devices, chunks = pipeline.devices, pipeline.chunks
    if pipeline.microbatches % devices:
        raise Restriction(f"interleaved-zb: microbatches must be a multiple of devices ({devices}), got {pipeline.microbatches}")
    for d in range(devices):
        stages = stages_of(pipeline, d)
        forwards = table(stages, Kind.F, devices)
        inputs, weights = (table(reversed(stages), kind, devices) for kind in (Kind.I, Kind.W))
        yield from split(stages)
        yield from alternating(forwards, inputs, chunks * devices - 1 - d, chunks * pipeline.microbatches)
        yield from deferred(inputs, weights, d)
        yield Precede(weights, forwards, shift=chunks * devices)


DEFINITIONS = (
    Definition(
        name="looped-bfs",
        summary="breadth first: all forwards chunk by chunk, then all backwards chunk by chunk",
        source="Lamy-Poirier 2022, arXiv 2211.05953; ServiceNow/Fast-LLM fast_llm/engine/schedule/schedule.py",
        placement="loop",
        constrain=looped_bfs,
        aliases=("bfs", "breadth-first", "loopedbfs"),
        least_chunks=2,
        any_chunks=True,
        parameters=(
            Parameter("backward_microbatches", "order of a chunk's backwards", "ascending", choices=("ascending", "descending")),
            Parameter("rounds", "rounds over every k-th microbatch (k); needs ascending backwards", "1"),
        ),
        needs="M mod rounds = 0",
        peak="vM (vM/k in k rounds)",
        idle="(D-1)(T_F+T_B) for M >= D; (vD+M-1-vM)(T_F+T_B) below (one round)",
    ),
    Definition(
        name="interleaved-1f1b",
        summary="1F1B with v chunks per device, dealt in groups of N microbatches",
        source="Narayanan et al. 2021, arXiv 2104.04473; NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py",
        placement="loop",
        constrain=interleaved_1f1b,
        aliases=("interleaved", "interleave", "megatron-interleaved", "virtual-pipeline"),
        least_chunks=2,
        any_chunks=True,
        parameters=(GROUP_SIZE,),
        advice=whole_groups,
        needs="an order without deadlock: M mod N = 0 or >= D, and N >= D, always has one",
        peak="min(vM, (v-1)N + 2(D-1-d) + 1)",
        idle="(D-1)(T_F+T_B)",
    ),
    Definition(
        name="interleaved-1f1b-overlap",
        summary="interleaved 1F1B whose steady state is overlapped pairs of one forward and one backward",
        source="NVIDIA/Megatron-LM megatron/core/pipeline_parallel/combined_1f1b.py; Victarry/PP-Schedule-Visualization",
        placement="loop",
        constrain=interleaved_1f1b_overlap,
        aliases=("1f1b_interleave_overlap", "1f1b_interleaved_overlap", "interleaved-overlap"),
        least_chunks=2,
        any_chunks=True,
        parameters=(GROUP_SIZE,),
        advice=whole_groups,
        needs="an order without deadlock: M mod N = 0 and N >= D always has one",
        peak="min(vM, (v-1)N + 2(D-1-d) + 2)",
        idle="(D-1)(T_F+T_B) at T_O = T_F+T_B",
    ),
    Definition(
        name="interleaved-zb",
        summary="interleaved with the backward split: shorter warm-up, d weight gradients pending on device d",
        source="PyTorch ScheduleInterleavedZeroBubble; Qi et al. 2023, arXiv 2401.10241 (ZB1P, looped)",
        placement="loop",
        constrain=interleaved_zb,
        aliases=("interleaved-zero-bubble", "interleavedzerobubble"),
        split=True,
        least_chunks=2,
        any_chunks=True,
        needs="M mod D = 0",
        peak="vD",
        idle="(D-1)max(T_F, T_I, T_F+T_I-T_W)",
    ),
)
