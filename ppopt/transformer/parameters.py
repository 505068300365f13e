"""How many parameters the layers of a transformer have."""

from __future__ import annotations

from dataclasses import dataclass

from ppopt.transformer.sizes import Transformer


@dataclass(frozen=True)
class Parameters:
    """Parameters of one layer by how they are spread over the GPUs of a pipeline device.

    ``cut`` are matrices that tensor parallelism cuts, ``whole`` what every GPU holds (norms, routers, the down-projections of
    latent attention), ``experts`` what expert parallelism spreads. ``active`` is what one token passes through.
    """

    cut: int = 0
    whole: int = 0
    experts: int = 0
    active: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.cut + self.whole + self.experts

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(
            self.cut + other.cut, self.whole + other.whole, self.experts + other.experts, self.active + other.active
        )


def _all(cut: int, whole: int) -> Parameters:
    return Parameters(cut, whole, 0, cut + whole)


def norm(sizes: Transformer) -> int:
    """One norm over the hidden width: ``h`` (RMS), ``2h`` (layer norm), or none."""
    return {"rms": 1, "layer": 2, "none": 0}[sizes.norm] * sizes.hidden


def attention(sizes: Transformer) -> Parameters:
    """MHA and GQA: ``h q + 2 h kv + q h`` with biases, sinks and Q/K norms; MLA: its projections down and up, and their norms."""
    h = sizes.hidden
    bias = h if sizes.output_bias else 0
    if sizes.kv_latent is not None:
        latent, heads = sizes.kv_latent, sizes.heads
        rope, nope, value = sizes.rope_size or 0, sizes.nope_size or 0, sizes.value_size or 0
        down = h * (latent + rope) + latent
        cut = latent * heads * (nope + value) + heads * value * h
        if sizes.q_latent is None:
            cut += h * sizes.query
        else:
            down += h * sizes.q_latent + sizes.q_latent
            cut += sizes.q_latent * sizes.query
        return _all(cut, down + bias)
    q, kv = sizes.query, (sizes.kv_heads or 0) * (sizes.head_size or 0)
    cut = 2 * h * q + 2 * h * kv
    cut += q + 2 * kv if sizes.qkv_bias else 0
    cut += sizes.heads if sizes.sinks else 0
    return _all(cut, bias + (2 * (sizes.head_size or 0) if sizes.qk_norm else 0))


def _mlp(sizes: Transformer, width: int) -> Parameters:
    """An MLP: ``3 h f`` if gated, else ``2 h f``; with biases ``f`` for each matrix up and ``h``."""
    up = 2 if sizes.gated else 1
    cut, bias = (up + 1) * sizes.hidden * width, sizes.ffn_bias and width > 0
    return _all(cut + (up * width if bias else 0), sizes.hidden if bias else 0)


def mixture(sizes: Transformer) -> Parameters:
    """A mixture of experts: router, experts, shared experts with their gate."""
    each = _mlp(sizes, sizes.expert_ffn or 0).total
    router = sizes.hidden * sizes.experts + (sizes.experts if sizes.router_bias else 0)
    router += sizes.hidden if sizes.shared_gate else 0
    routed = Parameters(0, router, sizes.experts * each, router + sizes.experts_per_token * each)
    return routed + _mlp(sizes, sizes.shared_ffn)


def decoder(sizes: Transformer, experts: bool) -> Parameters:
    """One decoder layer: attention, MLP or mixture of experts, norms."""
    width = mixture(sizes) if experts else _mlp(sizes, sizes.ffn or 0)
    return attention(sizes) + width + _all(0, sizes.norms * norm(sizes))


def embedding(sizes: Transformer) -> Parameters:
    """Token embedding ``V h``, and learned positions."""
    return _all(sizes.vocabulary * sizes.hidden, sizes.positions * sizes.hidden)


def head(sizes: Transformer) -> Parameters:
    """The last norm and the head ``V h``, which is the embedding where they are tied."""
    return _all(0 if sizes.tied else sizes.vocabulary * sizes.hidden, norm(sizes))


def prediction(sizes: Transformer) -> Parameters:
    """A module of multi-token prediction: a layer as the last one, a projection ``2h h``, three norms; it shares embedding and
    head."""
    layer = decoder(sizes, sizes.has_experts(sizes.layers - 1))
    return layer + _all(2 * sizes.hidden * sizes.hidden, 3 * norm(sizes))


@dataclass(frozen=True)
class Counts:
    """Parameters of a whole transformer; tied weights count once."""

    total: int
    """Without modules of multi-token prediction, as published figures are."""
    active: int
    """Of those, what one token passes through, embedding and head included."""
    embedding: int
    """Of those, the input embedding; published figures of active parameters mostly leave it out. 0 where it is the head as
    well."""
    prediction: int
    """In modules of multi-token prediction, beside ``total``."""


def counts(sizes: Transformer) -> Counts:
    """All parameters of a transformer."""
    mixed = sum(sizes.has_experts(layer) for layer in range(sizes.layers))
    total = active = 0
    for experts, number in ((True, mixed), (False, sizes.layers - mixed)):
        if number:
            of = decoder(sizes, experts)
            total, active = total + number * of.total, active + number * of.active
    ends = embedding(sizes).total + head(sizes).total
    first = 0 if sizes.tied else embedding(sizes).total
    more = sizes.mtp * prediction(sizes).total if sizes.mtp else 0
    return Counts(total + ends, active + ends, first, more)
