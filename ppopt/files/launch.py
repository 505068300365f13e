"""What a launch needs beside the cut: sizes, batches and sequence of the training that the layers were estimated for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ppopt.layouts import NotExpressible
from ppopt.pipeline import Pipeline

Tables = Mapping[str, Mapping[str, Any]]


class Launch(NamedTuple):
    """The sizes of a training."""

    tensor: int
    context: int
    data: int
    expert: int
    expert_tensor: int
    zero: int
    sequence_parallel: bool
    sequence: int
    microbatch: int
    batch: int
    gpus: int


def launch_of(pipeline: Pipeline) -> Launch | None:
    """The sizes that the model of a pipeline has; ``None``: its layers were not estimated from a transformer."""
    tables: Tables = pipeline.origin
    if "parallel" not in tables or "sequence" not in tables.get("transformer", {}):
        return None
    parallel, training = tables["parallel"], tables["training"]
    tensor, data, context = (parallel.get(name, 1) for name in ("tensor", "data", "context"))
    return Launch(
        tensor,
        context,
        data,
        parallel.get("expert", 1),
        parallel.get("expert_tensor", tensor),
        parallel.get("zero", 0),
        parallel.get("sequence_parallel", tensor > 1),
        tables["transformer"]["sequence"],
        training.get("microbatch", 1),
        training.get("global_batch") or pipeline.microbatches * data * training.get("microbatch", 1),
        tensor * data * context * pipeline.devices,
    )


def megatron_flags(launch: Launch, experts: bool) -> list[str]:
    """The words of Megatron's command line; the data-parallel size follows there from the number of processes.

    Raises:
        NotExpressible: ZeRO-2 or 3.
    """
    if launch.zero > 1:
        raise NotExpressible("Megatron", f"its distributed optimizer is ZeRO-1; the model has ZeRO-{launch.zero}")
    words = ["--tensor-model-parallel-size", str(launch.tensor)]
    words += ["--sequence-parallel"] if launch.sequence_parallel and launch.tensor > 1 else []
    words += ["--context-parallel-size", str(launch.context)]
    if experts:
        words += ["--expert-model-parallel-size", str(launch.expert), "--expert-tensor-parallel-size", str(launch.expert_tensor)]
    words += ["--micro-batch-size", str(launch.microbatch), "--global-batch-size", str(launch.batch)]
    words += ["--seq-length", str(launch.sequence)]
    return words + (["--use-distributed-optimizer"] if launch.zero else [])


def torchtitan_tables(launch: Launch, experts: bool) -> dict[str, dict[str, Any]]:
    """The keys of TorchTitan's ``[training]`` and ``[parallelism]``.

    Raises:
        NotExpressible: sequence parallelism is off beside tensor parallelism, which has it there.
    """
    if launch.tensor > 1 and not launch.sequence_parallel:
        raise NotExpressible("TorchTitan", "its tensor parallelism cuts along the sequence too; the model does not")
    sharded = launch.zero > 0
    parallelism: dict[str, Any] = {
        "tensor_parallel_degree": launch.tensor,
        "context_parallel_degree": launch.context,
        "data_parallel_replicate_degree": 1 if sharded else launch.data,
        "data_parallel_shard_degree": launch.data if sharded else 1,
        "pipeline_parallel_microbatch_size": launch.microbatch,
    }
    if experts:
        parallelism |= {"expert_parallel_degree": launch.expert, "expert_tensor_parallel_degree": launch.expert_tensor}
    training = {
        "local_batch_size": launch.batch // launch.data,
        "global_batch_size": launch.batch,
        "seq_len": launch.sequence,
    }
    return {"training": training, "parallelism": parallelism}


def launch_note(launch: Launch, runtime: str) -> str:
    """In words, with the number of processes."""
    note = f"{runtime}: start {launch.gpus} processes; data-parallel size {launch.data}"
    if runtime == "TorchTitan" and launch.zero == 1:
        note += ", sharded by FSDP, whose state is ZeRO-2's where weights stay gathered (fsdp_reshard_after_forward never)"
    return note


def has_experts(pipeline: Pipeline) -> bool:
    """Whether the model has layers of experts."""
    return bool(pipeline.origin.get("transformer", {}).get("experts", 0))
