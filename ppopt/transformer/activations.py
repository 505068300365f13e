"""Bytes that one layer keeps of one microbatch on one GPU: from F to the backward, and from I to W.

The rule for the first: the tensors that the backward reads, each once. For the second: of every weight matrix its input and the
gradient of its output. Tensors have names, so that a sum can be taken apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ppopt.transformer.flops import over, tokens
from ppopt.transformer.settings import Parallel, Training
from ppopt.transformer.sizes import Transformer

Tensors: TypeAlias = dict[str, int | float]
"""Bytes by the name of the tensors."""
CORE = ("scores", "log-sum-exp")
"""What selective recomputing does not keep: it computes scores and values again."""


@dataclass(frozen=True)
class Kept:
    """What a layer keeps. ``held``: from F to the backward; ``retained``: from I to W; ``recomputed``: held with full
    recomputing."""

    held: Mapping[str, int | float] = field(hash=False)
    retained: Mapping[str, int | float] = field(hash=False)
    recomputed: Mapping[str, int | float] = field(hash=False)

    @property
    def none(self) -> int | float:
        """Bytes held without recomputing."""
        return sum(self.held.values())

    @property
    def selective(self) -> int | float:
        """Bytes held where scores and values are computed again."""
        return sum(size for name, size in self.held.items() if name not in CORE)

    @property
    def full(self) -> int | float:
        """Bytes held where the layer is computed again from its input."""
        return sum(self.recomputed.values())

    @property
    def between(self) -> int | float:
        """Bytes held between I and W."""
        return sum(self.retained.values())


class _Units:
    """Bytes of a tensor: ``cut`` by tensor parallelism, or ``wide``: cut along the sequence only, with sequence parallelism."""

    def __init__(self, training: Training, parallel: Parallel) -> None:
        self.n, self.bytes = tokens(training, parallel), training.number_bytes
        self.tensor = parallel.tensor
        self.along = parallel.tensor if parallel.sequence_parallel else 1

    def cut(self, width: int, size: int | None = None) -> int | float:
        return over(self.n * width * (size or self.bytes), self.tensor)

    def wide(self, width: int, size: int | None = None) -> int | float:
        return over(self.n * width * (size or self.bytes), self.along)


def _attention(sizes: Transformer, training: Training, units: _Units) -> tuple[Tensors, Tensors]:
    h, heads = sizes.hidden, sizes.heads
    held: Tensors = {}
    retained: Tensors = {"attention input": units.wide(h)}
    if sizes.kv_latent is not None:
        latent, rope = sizes.kv_latent, sizes.rope_size or 0
        down = (sizes.q_latent or 0) + latent + rope
        held["latents"] = units.n * units.bytes * down
        keys, values = units.cut(sizes.query), units.cut(heads * sizes.valued)
        retained["latents"] = units.n * units.bytes * ((sizes.q_latent or 0) + latent)
        retained["gradients of latents"] = held["latents"]
        made = units.cut(heads * ((sizes.nope_size or 0) + sizes.valued))
    else:
        width = max(sizes.kv_heads or 0, units.tensor) * (sizes.head_size or 0)  # copied where there are fewer heads than parts
        keys = values = units.cut(width)
        made = keys + values
    held |= {"queries": units.cut(sizes.query), "keys": keys, "values": values}
    held["attention output"] = units.cut(heads * sizes.valued)
    if training.attention == "flash":
        held["log-sum-exp"] = units.cut(heads, 4)
    else:
        each = 2 * units.bytes + 1 if training.dropout else units.bytes  # softmax; its mask and what the mask leaves
        held["scores"] = units.cut(heads * training.sequence, each)
    retained |= {"gradients of queries": held["queries"], "gradients of keys and values": made}
    retained |= {"attention output": held["attention output"], "gradient of attention's end": units.wide(h)}
    return held, retained


def _mlp(sizes: Transformer, training: Training, units: _Units, width: int, name: str) -> tuple[Tensors, Tensors]:
    up = 2 if sizes.gated else 1
    held = {name: units.cut((up + 1 + (sizes.gated and training.mlp == "unfused")) * width)}
    return held, {f"{name}: operands": units.cut((up + 1) * width)}


def _mixture(sizes: Transformer, training: Training, parallel: Parallel, units: _Units) -> tuple[Tensors, Tensors]:
    held, retained = _mlp(sizes, training, units, sizes.experts_per_token * (sizes.expert_ffn or 0), "experts")
    visits = (
        units.n * sizes.experts_per_token * (parallel.expert_tensor or 1)
    )  # tokens that come to a GPU, each as often as it has experts
    ends = over(visits * 2 * sizes.hidden * units.bytes, parallel.tensor)
    held["inputs and outputs of experts"] = retained["inputs of experts, gradients of outputs"] = ends
    held["router"] = retained["gradient of the router"] = units.wide(sizes.experts, 4)
    if sizes.shared_ffn:
        for mine, shared in zip((held, retained), _mlp(sizes, training, units, sizes.shared_ffn, "shared experts"), strict=True):
            mine |= shared
        retained["gradient of the MLP's end"] = units.wide(sizes.hidden)
    return held, retained


def decoder(sizes: Transformer, training: Training, parallel: Parallel, experts: bool) -> Kept:
    """One decoder layer."""
    units, h = _Units(training, parallel), sizes.hidden
    held: Tensors = {"norms": units.wide((2 + sizes.norms) * h)}
    if training.dropout:
        held["dropout masks"] = units.wide(2 * h, 1)
    attention, attention_retained = _attention(sizes, training, units)
    if experts:
        mlp, mlp_retained = _mixture(sizes, training, parallel, units)
    else:
        mlp, mlp_retained = _mlp(sizes, training, units, sizes.ffn or 0, "MLP")
        mlp_retained["gradient of the MLP's end"] = units.wide(h)
    mlp_retained["MLP input"] = units.wide(h)
    return Kept({**held, **attention, **mlp}, {**attention_retained, **mlp_retained}, {"layer input": units.wide(h)})


def embedding(sizes: Transformer, training: Training, parallel: Parallel) -> Kept:
    """The embedding: token numbers, the mask of its dropout; for W also the gradient of what it put out."""
    units = _Units(training, parallel)
    held: Tensors = {"token numbers": 8 * units.n}
    if training.dropout:
        held["dropout mask"] = units.wide(sizes.hidden, 1)
    retained = {"token numbers": 8 * units.n, "gradient of the embedding": units.wide(sizes.hidden)}
    return Kept(held, retained, held)


def head(sizes: Transformer, training: Training, parallel: Parallel) -> Kept:
    """The head: its norm and its input, logits in fp32 (softmax in place)."""
    units, h = _Units(training, parallel), sizes.hidden
    held: Tensors = {"last norm": units.wide(2 * h), "logits": units.cut(sizes.vocabulary, 4)}
    retained = {"head input": units.wide(h), "gradient of logits": units.cut(sizes.vocabulary)}
    return Kept(held, retained, held)


def prediction(sizes: Transformer, training: Training, parallel: Parallel) -> Kept:
    """A module of multi-token prediction: two norms, the projection, a layer as the last one, a head."""
    units, h = _Units(training, parallel), sizes.hidden
    layer = decoder(sizes, training, parallel, sizes.has_experts(sizes.layers - 1))
    last = head(sizes, training, parallel)
    ends: Tensors = {"norms of the projection": units.wide(4 * h), **last.held}
    retained = {"projection input": units.wide(2 * h), "gradient of the projection": units.wide(h), **last.retained}
    return Kept({**layer.held, **ends}, {**layer.retained, **retained}, {**layer.recomputed, **ends})
