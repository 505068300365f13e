"""Times of F, I and W of one layer.

``F = flops / (peak e) + kappa A / bandwidth + collectives``; I likewise with its FLOPs; ``W = flops / (peak e)``. A are the bytes
that the layer keeps without recomputing: what lies between the matrix products reads and writes them several times over. One
efficiency for all would miss W by a third, which is all matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass

from ppopt.transformer import traffic
from ppopt.transformer.activations import CORE, Kept
from ppopt.transformer.flops import Flops, tokens
from ppopt.transformer.parameters import Parameters
from ppopt.transformer.settings import Cluster, Parallel, Training
from ppopt.transformer.sizes import Transformer
from ppopt.transformer.states import GRADIENT, optimizer_bytes
from ppopt.transformer.traffic import Network


@dataclass(frozen=True)
class Parts:
    """What the time of an operation is made of, in seconds: matrix products and attention (``compute``), what is bound by memory,
    and what is sent and not hidden, with the start of kernels where the GPU says what that takes."""

    compute: float = 0.0
    memory: float = 0.0
    transfers: float = 0.0

    @property
    def total(self) -> float:
        """All three."""
        return self.compute + self.memory + self.transfers

    def __add__(self, other: Parts) -> Parts:
        return Parts(self.compute + other.compute, self.memory + other.memory, self.transfers + other.transfers)

    def at_least(self, seconds: float) -> Parts:
        """Beside a transfer of that many seconds: what it takes longer than all of it is not hidden."""
        return Parts(self.compute, self.memory, self.transfers + max(0.0, seconds - self.total))


@dataclass(frozen=True)
class Seconds:
    """Times of one layer and one microbatch in seconds; ``parts`` says what those of F, I and W are made of.

    ``selective`` and ``full`` are what the backward takes longer where the layer recomputes. The last three are times of a step.
    """

    parts: tuple[Parts, Parts, Parts]
    selective: float = 0.0
    full: float = 0.0
    all_gather: float = 0.0
    """Of the weights, once a step (ZeRO-1 and 2)."""
    reduce_scatter: float = 0.0
    """Of the gradients, once a step; without ZeRO the whole all-reduce. With it the sum of tied weights' gradients over their
    copies."""
    optimizer: float = 0.0
    """The step of the optimizer."""

    @property
    def forward(self) -> float:
        """F."""
        return self.parts[0].total

    @property
    def backward_input(self) -> float:
        """I."""
        return self.parts[1].total

    @property
    def backward_weight(self) -> float:
        """W."""
        return self.parts[2].total


@dataclass(frozen=True)
class Clock:
    """How long the layers of a transformer take on a cluster.

    Raises:
        EstimateError: the cluster lacks a number that is needed.
    """

    sizes: Transformer
    training: Training
    parallel: Parallel
    cluster: Cluster

    @property
    def network(self) -> Network:
        """The links between the GPUs."""
        return Network(self.cluster, self.parallel)

    def compute(self, flops: float) -> float:
        """FLOPs of matrix products, and of attention."""
        return float(flops) / (self.cluster.gpu.flops * self.cluster.gpu.efficiency)

    def memory(self, size: float) -> float:
        """Bytes read or written at full bandwidth; nothing where a GPU has no bandwidth and no passes, and FLOPs alone count."""
        gpu = self.cluster.gpu
        if not size or (gpu.bandwidth is None and gpu.passes == 0):
            return 0.0
        return float(size) / (gpu.needed("bandwidth", "what is bound by memory (all but FLOPs, unless passes = 0)") * 1e9)

    def _passes(self, size: float) -> tuple[float, float]:
        gpu = self.cluster.gpu
        backward = gpu.passes if gpu.passes_backward is None else gpu.passes_backward
        return self.memory(gpu.passes * size), self.memory(backward * size)

    def _state(self) -> float:
        return float(traffic.hidden_state(self.sizes, self.training, self.parallel))

    def decoder(self, flops: Flops, kept: Kept, parameters: Parameters, experts: bool) -> Seconds:
        """One decoder layer; its transfers are not hidden but for those around the ring of context parallelism."""
        launch = self.cluster.gpu.launch
        moved, moved_back = self._passes(kept.none)
        sent = 2 * self.network.tensor(self._state())
        if experts:
            sent += 2 * self.network.experts(traffic.to_experts(self.sizes, self.training, self.parallel))
        ring = self.network.context(traffic.around_context(self.sizes, self.training, self.parallel))
        core = self.compute(flops.core)
        again = core + self.memory(self.cluster.gpu.passes * sum(float(kept.held.get(name, 0)) for name in CORE))
        forward = Parts(self.compute(flops.forward), moved, sent + max(0.0, ring - core) + launch)
        exposed_back = max(0.0, 2 * ring - flops.core_backward * core)
        backward = Parts(self.compute(flops.backward_input), moved_back, sent + exposed_back + launch)
        weight = Parts(self.compute(flops.backward_weight), 0.0, launch)
        return self.with_step(Seconds((forward, backward, weight), again, forward.total), parameters)

    def embedding(self, parameters: Parameters) -> Seconds:
        """The embedding: rows are read and written in F, and added to gradients in W."""
        state = self._state()
        launch, gradients = self.cluster.gpu.launch, 4.0 * tokens(self.training, self.parallel) * self.sizes.hidden
        forward = Parts(0.0, self.memory(2 * state), self.network.tensor(state) + launch)
        weight = Parts(0.0, self.memory(2 * state + gradients), launch)
        return self.with_step(Seconds((forward, Parts(), weight)), parameters, tied=True)

    def head(self, flops: Flops, kept: Kept, parameters: Parameters) -> Seconds:
        """The head with the loss: the softmax passes over the logits twice in F and once in I."""
        logits, launch = float(kept.held["logits"]), self.cluster.gpu.launch
        moved, moved_back = self._passes(float(kept.held["last norm"]))
        product = self.compute(flops.linear)
        sums = 3 * self.network.tensor(4.0 * tokens(self.training, self.parallel))
        forward = Parts(product, moved + self.memory(2 * logits), sums + launch)
        backward = Parts(product, moved_back + self.memory(logits), self.network.tensor(self._state()) + launch)
        return self.with_step(Seconds((forward, backward, Parts(product, 0.0, launch))), parameters, tied=True)

    def prediction(self, layer: Seconds, head: Seconds, projection: float, norms: float, parameters: Parameters) -> Seconds:
        """A module of multi-token prediction: a layer, a head, and the projection of ``projection`` FLOPs with its norms of
        ``norms`` bytes."""
        product = self.compute(projection)
        more = [Parts(product, moved) for moved in (*self._passes(norms), 0.0)]
        parts = tuple(a + b + c for a, b, c in zip(layer.parts, head.parts, more, strict=True))
        return self.with_step(Seconds(parts, layer.selective, layer.full), parameters)  # type: ignore[arg-type]

    def _copies(self) -> float:
        """The sum of the gradients of tied weights over the first and the last device of a pipeline, once a step."""
        if not self.sizes.tied or self.parallel.pipeline == 1:
            return 0.0
        size = GRADIENT[self.training.dtype] * self.sizes.vocabulary * self.sizes.hidden / self.parallel.tensor
        return self.network.all_reduce(size, 2, self.parallel.gpus, "tied weights")

    def with_step(self, seconds: Seconds, parameters: Parameters, *, tied: bool = False) -> Seconds:
        """With what happens to the layer's parameters: once a step or, with ZeRO-2 and 3, for each microbatch beside
        computation."""
        zero = self.parallel.zero
        gather = self.network.weights(parameters, self.training.number_bytes)
        scatter = self.network.gradients(parameters, self.training.dtype)
        forward, backward, weight = seconds.parts
        if zero == 3:
            forward, backward = forward.at_least(gather), backward.at_least(gather if backward.total else 0.0)
        if zero >= 2:
            weight = weight.at_least(scatter)
        return Seconds(
            (forward, backward, weight),
            seconds.selective,
            seconds.full,
            gather if zero in (1, 2) else 0.0,
            (2 * scatter if zero == 0 else scatter if zero == 1 else 0.0) + (self._copies() if tied else 0.0),
            self.memory(optimizer_bytes(parameters, self.parallel)),
        )
