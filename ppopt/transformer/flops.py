"""Floating-point operations of one layer, for one microbatch on one GPU; a multiply-add counts as two.

A matrix of ``in x out`` takes ``2 in out`` for each token in F, as much in I, as much in W. Scores and values of attention (the
core) have no weights: their backward is in I alone, twice F, or 2.5 times with FlashAttention, which computes the scores again.
Norms, rotary embeddings, activation functions and softmax count nothing: their time is that of memory traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

from ppopt.transformer.settings import Parallel, Training
from ppopt.transformer.sizes import Transformer


def over(value: int, parts: int) -> int | float:
    """``value / parts``: an integer where it is whole."""
    whole, rest = divmod(value, parts)
    return value / parts if rest else whole


def tokens(training: Training, parallel: Parallel) -> int:
    """Tokens of one microbatch on one GPU: ``b s / C``."""
    return training.microbatch * (training.sequence // parallel.context)


@dataclass(frozen=True)
class Flops:
    """FLOPs of one layer: of its matrices (``linear``, the same in F, I and W) and of attention's scores and values (``core``).

    ``core_backward`` is how many times the core's FLOPs its backward takes.
    """

    linear: int | float = 0
    core: int | float = 0
    core_backward: float = 2.0

    @property
    def forward(self) -> int | float:
        """F."""
        return self.linear + self.core

    @property
    def backward_input(self) -> int | float:
        """I."""
        return self.linear + (2 * self.core if self.core_backward == 2 else self.core_backward * self.core)

    @property
    def backward_weight(self) -> int | float:
        """W."""
        return self.linear

    @property
    def model(self) -> int | float:
        """F and the backward as model FLOPs have it: three times F, whatever is computed again."""
        return 3 * self.forward


def core(sizes: Transformer, training: Training, parallel: Parallel, window: int | None) -> int | float:
    """Scores and values: ``c 2 n s a (d_qk + d_v) / T``, with c = 1/2 where kernels skip what the mask hides.

    A window of u tokens leaves ``u - u (u - 1) / 2s`` keys for a query on average. Kernels that do not skip compute all s.
    """
    s, n = training.sequence, tokens(training, parallel)
    pairs = 2 * n * s  # twice the pairs of a query and a key
    if training.causal == "half":
        pairs = n * s
        if window is not None and window < s:
            rows = over(n, s)  # sequences on this GPU, a part of one with context parallelism
            pairs = min(pairs, int(2 * n * window - rows * window * (window - 1)))
    return over(pairs * sizes.heads * (sizes.scored + sizes.valued), parallel.tensor)


def attention_matrices(sizes: Transformer) -> int:
    """Weights of attention's matrices that a token passes through, biases left out."""
    h = sizes.hidden
    if sizes.kv_latent is not None:
        nope, value = sizes.nope_size or 0, sizes.value_size or 0
        query = h * sizes.query if sizes.q_latent is None else sizes.q_latent * (h + sizes.query)
        keys = h * (sizes.kv_latent + (sizes.rope_size or 0)) + sizes.kv_latent * sizes.heads * (nope + value)
        return query + keys + sizes.heads * value * h
    return 2 * h * sizes.query + 2 * h * (sizes.kv_heads or 0) * (sizes.head_size or 0)


def _spread(sizes: Transformer, parallel: Parallel) -> int:
    """How much more of K and V is computed where there are fewer of their heads than parts: those are copied."""
    copies = parallel.tensor // (sizes.kv_heads or 1) if sizes.kv_latent is None else 1
    return max(1, copies)


def decoder(sizes: Transformer, training: Training, parallel: Parallel, experts: bool, window: int | None) -> Flops:
    """One decoder layer. Experts are balanced: a GPU computes ``k / T`` of an expert for each of its tokens, wherever they
    are."""
    n, h, tensor = tokens(training, parallel), sizes.hidden, parallel.tensor
    extra = (_spread(sizes, parallel) - 1) * 2 * h * (sizes.kv_heads or 0) * (sizes.head_size or 0)
    cut = attention_matrices(sizes) + extra
    matrices = 3 if sizes.gated else 2
    router = 0
    if experts:
        router = h * sizes.experts + (h if sizes.shared_gate else 0)
        cut += matrices * h * (sizes.experts_per_token * (sizes.expert_ffn or 0) + sizes.shared_ffn)
    else:
        cut += matrices * h * (sizes.ffn or 0)
    routing = over(2 * n * router, tensor if parallel.sequence_parallel else 1)
    return Flops(
        over(2 * n * cut, tensor) + routing,
        core(sizes, training, parallel, window),
        2.5 if training.attention == "flash" else 2.0,
    )


def head(sizes: Transformer, training: Training, parallel: Parallel) -> Flops:
    """The head: ``2 n h V / T``."""
    return Flops(over(2 * tokens(training, parallel) * sizes.hidden * sizes.vocabulary, parallel.tensor))


def prediction(sizes: Transformer, training: Training, parallel: Parallel) -> Flops:
    """A module of multi-token prediction: a layer as the last one, the projection ``2 n 2h h / T``, a head."""
    last = sizes.layers - 1
    layer = decoder(sizes, training, parallel, sizes.has_experts(last), sizes.window_of(last))
    projection = over(4 * tokens(training, parallel) * sizes.hidden**2, parallel.tensor)
    return Flops(layer.linear + projection + head(sizes, training, parallel).linear, layer.core, layer.core_backward)
