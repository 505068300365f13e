"""Bytes that GPUs send for a layer, and the time of collectives on a ring."""

from __future__ import annotations

from dataclasses import dataclass

from ppopt.transformer.flops import over, tokens
from ppopt.transformer.hardware import GPU
from ppopt.transformer.parameters import Parameters
from ppopt.transformer.settings import Cluster, Parallel, Training
from ppopt.transformer.sizes import Transformer
from ppopt.transformer.states import GRADIENT, local


def boundary(sizes: Transformer, training: Training, parallel: Parallel) -> int | float:
    """Bytes from a stage to the next one for one microbatch, on one GPU: ``w n h``, cut by ``T`` with sequence parallelism."""
    size = training.number_bytes * tokens(training, parallel) * sizes.hidden
    return over(size, parallel.tensor if parallel.sequence_parallel else 1)


def hidden_state(sizes: Transformer, training: Training, parallel: Parallel) -> int:
    """Bytes of the whole hidden state of a microbatch on one GPU: ``w n h``; what an all-reduce of tensor parallelism sums up."""
    return training.number_bytes * tokens(training, parallel) * sizes.hidden


def to_experts(sizes: Transformer, training: Training, parallel: Parallel) -> int | float:
    """Bytes that a GPU sends to the experts of other GPUs for a microbatch: ``w n k h (X - 1) / X``, and as many come back."""
    size = hidden_state(sizes, training, parallel) * sizes.experts_per_token * (parallel.expert_tensor or 1)
    return over(size * (parallel.expert - 1), parallel.expert * parallel.tensor)


def around_context(sizes: Transformer, training: Training, parallel: Parallel) -> int | float:
    """Bytes of keys and values that a GPU sends around the ring of context parallelism in F: ``(C - 1) 2 w n kv / T``."""
    if sizes.kv_latent is not None:
        width = sizes.heads * (sizes.scored + sizes.valued)
    else:
        width = 2 * max(sizes.kv_heads or 0, parallel.tensor) * (sizes.head_size or 0)
    size = training.number_bytes * tokens(training, parallel) * width
    return over((parallel.context - 1) * size, parallel.tensor)


@dataclass(frozen=True)
class Network:
    """The links between the GPUs of a training. Ranks of tensor parallelism are next to each other, then context, data, pipeline.

    Times are in seconds, sizes in bytes.
    """

    cluster: Cluster
    parallel: Parallel

    @property
    def gpu(self) -> GPU:
        """The GPU."""
        return self.cluster.gpu

    def speed(self, span: int, why: str) -> float:
        """Bytes per second in a group of GPUs whose ranks lie within ``span`` of each other: of the node's links, or the
        network's.

        Raises:
            EstimateError: that bandwidth is not known.
        """
        name = "intra" if span <= self.cluster.gpus_per_node else "network"
        return self.gpu.needed(name, why) * 1e9 * self.gpu.link_efficiency

    def all_reduce(self, size: float, ranks: int, span: int, why: str) -> float:
        """``2 (p - 1) / p`` of the bytes, and as many messages."""
        return 2 * self.gather(size, ranks, span, why)

    def gather(self, size: float, ranks: int, span: int, why: str) -> float:
        """An all-gather, a reduce-scatter or an all-to-all: ``(p - 1) / p`` of the bytes."""
        if ranks == 1:
            return 0.0
        return (ranks - 1) / ranks * size / self.speed(span, why) + (ranks - 1) * self.gpu.latency

    def tensor(self, size: float) -> float:
        """An all-reduce of tensor parallelism; with sequence parallelism an all-gather and a reduce-scatter, which take as
        long."""
        return self.all_reduce(size, self.parallel.tensor, self.parallel.tensor, "tensor parallelism")

    def experts(self, size: float) -> float:
        """One exchange with the experts of other GPUs: ``size`` bytes leave the GPU."""
        if self.parallel.expert == 1:
            return 0.0
        span = self.parallel.expert * (self.parallel.expert_tensor or 1)
        return size / self.speed(span, "expert parallelism") + (self.parallel.expert - 1) * self.gpu.latency

    def context(self, size: float) -> float:
        """Keys and values around the ring."""
        if self.parallel.context == 1:
            return 0.0
        span = self.parallel.tensor * self.parallel.context
        return size / self.speed(span, "context parallelism") + (self.parallel.context - 1) * self.gpu.latency

    def neighbour(self, size: float, device: int) -> float:
        """From pipeline device ``device`` to the next one."""
        width, per_node = self.parallel.width, self.cluster.gpus_per_node
        first, last = device * width, (device + 2) * width - 1
        span = 1 if first // per_node == last // per_node else per_node + 1
        return size / self.speed(span, "the pipeline") + self.gpu.latency

    def _replicas(self, parameters: Parameters) -> tuple[tuple[float, int, int], ...]:
        """Local parameters with their replicas, and how far these are apart."""
        dense, experts = local(parameters, self.parallel)
        groups = ((float(dense), self.parallel.replicas), (float(experts), self.parallel.expert_replicas))
        return tuple((size, ranks, self.parallel.width) for size, ranks in groups if size and ranks > 1)

    def weights(self, parameters: Parameters, number_bytes: int) -> float:
        """An all-gather of a layer's weights over the replicas."""
        return sum(self.gather(size * number_bytes, ranks, span, _DATA) for size, ranks, span in self._replicas(parameters))

    def gradients(self, parameters: Parameters, dtype: str) -> float:
        """A reduce-scatter of a layer's gradients over the replicas."""
        return sum(self.gather(size * GRADIENT[dtype], ranks, span, _DATA) for size, ranks, span in self._replicas(parameters))


_DATA = "data parallelism"
