"""How a transformer is trained, and on how many GPUs: the tables ``[training]``, ``[parallel]`` and ``[cluster]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppopt.transformer.checked import EstimateError, flag, number, optional, whole, word
from ppopt.transformer.hardware import GPU, preset
from ppopt.transformer.sizes import Transformer

ATTENTION = ("flash", "unfused")
CAUSAL = ("half", "full")
MLP = ("fused", "unfused")
DTYPES = ("bf16", "fp16", "fp32")
RECOMPUTE = ("none", "selective", "full", "choose")


@dataclass(frozen=True)
class Training:
    """What one microbatch is, and with which kernels it is computed.

    ``sequence`` tokens a sequence, ``microbatch`` sequences a microbatch, ``global_batch`` sequences a step (``None``: not said).

    ``attention``: ``"flash"`` keeps no scores and computes them again in the backward; ``"unfused"`` keeps them. ``causal``:
    ``"half"`` where kernels skip what the mask hides, ``"full"`` where they do not; by default that of the attention. ``mlp``:
    ``"unfused"`` keeps the output of the activation function of a gated MLP too; by default as the attention. ``dropout``:
    whether the masks of dropout are kept; by default with unfused attention.

    ``dtype`` of weights and activations: ``"bf16"`` (gradients in fp32), ``"fp16"`` (gradients in fp16) or ``"fp32"``; Adam is in
    fp32. ``recompute``: which layers compute their activations again; ``"choose"`` leaves it open.

    Raises:
        EstimateError: a setting is out of range.
    """

    sequence: int
    microbatch: int = 1
    global_batch: int | None = None
    attention: str = "flash"
    causal: str | None = None
    mlp: str | None = None
    dropout: bool | None = None
    dtype: str = "bf16"
    recompute: str = "none"

    def __post_init__(self) -> None:
        whole("transformer.sequence", self.sequence)
        whole("training.microbatch", self.microbatch)
        optional("training.global_batch", self.global_batch)
        unfused = word("training.attention", self.attention, ATTENTION) == "unfused"
        for name, value in (
            ("causal", "full" if unfused else "half"),
            ("mlp", "unfused" if unfused else "fused"),
            ("dropout", unfused),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        word("training.causal", self.causal, CAUSAL)
        word("training.mlp", self.mlp, MLP)
        flag("training.dropout", self.dropout)
        word("training.dtype", self.dtype, DTYPES)
        word("training.recompute", self.recompute, RECOMPUTE)

    @property
    def number_bytes(self) -> int:
        """Bytes of a number of weights and activations."""
        return 4 if self.dtype == "fp32" else 2


@dataclass(frozen=True)
class Parallel:
    """Into how many parts a training is cut: ``pipeline * tensor * context * data`` GPUs.

    ``tensor`` cuts matrices, ``context`` sequences, ``data`` the batch; ``pipeline`` devices hold the layers. ``expert``: over
    how many GPUs the experts of a layer are spread, a divisor of the GPUs of a pipeline device; ``expert_tensor``: into how
    many parts each expert is cut (default ``tensor``). ``sequence_parallel``: what ``tensor`` does not cut is cut along the
    sequence; by default where ``tensor`` is above 1. ``zero``: the ZeRO stage of the optimizer, 0 to 3.

    Raises:
        EstimateError: a size is out of range, or the experts do not fit.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int | None = None
    zero: int = 0
    sequence_parallel: bool | None = None

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data", "context", "expert"):
            whole(f"parallel.{name}", getattr(self, name))
        optional("parallel.expert_tensor", self.expert_tensor)
        if self.expert_tensor is None:
            object.__setattr__(self, "expert_tensor", self.tensor)
        if self.sequence_parallel is None:
            object.__setattr__(self, "sequence_parallel", self.tensor > 1)
        flag("parallel.sequence_parallel", self.sequence_parallel)
        if whole("parallel.zero", self.zero, 0) > 3:
            raise EstimateError("parallel.zero", f"expected a ZeRO stage from 0 to 3, got {self.zero}")
        spread = self.expert * (self.expert_tensor or 1)
        if self.tensor % (self.expert_tensor or 1):
            expected = f"expected a divisor of parallel.tensor = {self.tensor}"
            raise EstimateError("parallel.expert_tensor", f"{expected}, got {self.expert_tensor}")
        if self.width % spread:
            problem = (
                f"experts in {spread} parts do not fit on the {self.width} GPUs (tensor x context x data) of a pipeline device"
            )
            raise EstimateError("parallel.expert", problem)

    @property
    def width(self) -> int:
        """GPUs of one pipeline device, with its replicas: ``tensor * context * data``."""
        return self.tensor * self.context * self.data

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.pipeline * self.width

    @property
    def replicas(self) -> int:
        """How many GPUs hold the same dense weights: ``data * context``."""
        return self.data * self.context

    @property
    def expert_replicas(self) -> int:
        """How many GPUs hold the same experts."""
        return self.width // (self.expert * (self.expert_tensor or 1))


@dataclass(frozen=True)
class Cluster:
    """The machine: its ``gpu`` (or the name of a preset), how many there are (``None``: as many as are used) and how many in a
    node.

    ``reserve`` is the part of the memory that no formula counts: fragmentation, communication buffers, workspaces.

    Raises:
        EstimateError: a number is out of range.
    """

    gpu: GPU
    gpus: int | None = None
    gpus_per_node: int = 8
    reserve: float = 0.08

    if TYPE_CHECKING:

        def __init__(self, gpu: GPU | str, gpus: int | None = None, gpus_per_node: int = 8, reserve: float = 0.08) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.gpu, GPU):
            object.__setattr__(self, "gpu", preset(self.gpu))
        optional("cluster.gpus", self.gpus)
        whole("cluster.gpus_per_node", self.gpus_per_node)
        object.__setattr__(self, "reserve", number("cluster.reserve", self.reserve, 0, 0.9, positive=False))


def check_sizes(transformer: Transformer, training: Training, parallel: Parallel) -> None:
    """Raise where a transformer cannot be cut like that.

    Raises:
        EstimateError: it cannot; the message names the size that does not divide.
    """

    def divides(key: str, parts: int, of: int, what: str) -> None:
        if of % parts:
            raise EstimateError(key, f"{parts} does not divide {what} {of}")

    tensor, experts = parallel.tensor, transformer.experts
    divides("parallel.tensor", tensor, transformer.heads, "transformer.heads =")
    kv_heads: Any = transformer.kv_heads
    if transformer.kv_latent is None and kv_heads % tensor and tensor % kv_heads:
        raise EstimateError(
            "parallel.tensor", f"{tensor} neither divides transformer.kv_heads = {kv_heads} nor is a multiple of it"
        )
    if transformer.ffn is not None and (not experts or transformer.dense):
        divides("parallel.tensor", tensor, transformer.ffn, "transformer.ffn =")
    if experts:
        divides("parallel.expert", parallel.expert, experts, "transformer.experts =")
        divides("parallel.expert_tensor", parallel.expert_tensor or 1, transformer.expert_ffn or 1, "transformer.expert_ffn =")
        divides("parallel.tensor", tensor, transformer.shared_ffn, "transformer.shared_ffn =")
    elif parallel.expert > 1:
        raise EstimateError("parallel.expert", "there are no experts to spread: transformer.experts is 0")
    divides("parallel.context", parallel.context, training.sequence, "transformer.sequence =")
    if training.global_batch is not None:
        per_step = parallel.data * training.microbatch
        if training.global_batch % per_step:
            what = f"{parallel.data} replicas x {training.microbatch} sequences a microbatch do not divide it"
            raise EstimateError("training.global_batch", f"{what}: {training.global_batch}")
