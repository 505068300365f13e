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
from ppopt.transformer.states import optimizer_bytes
from ppopt.transformer.traffic import Network


@dataclass(frozen=True)
class Seconds:
    """Times of one layer and one microbatch in seconds; below, those of a step.

    ``selective`` and ``full`` are what the backward takes longer where the layer recomputes.
    """

    forward: float
    backward_input: float
    backward_weight: float
    selective: float = 0.0
    full: float = 0.0
    all_gather: float = 0.0
    """Of the weights, once a step (ZeRO-1 and 2)."""
    reduce_scatter: float = 0.0
    """Of the gradients, once a step; without ZeRO the whole all-reduce."""
    optimizer: float = 0.0
    """The step of the optimizer."""


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
        """Bytes read or written at full bandwidth."""
        return float(size) / (self.cluster.gpu.needed("bandwidth", "what is bound by memory") * 1e9) if size else 0.0

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
        forward = self.compute(flops.forward) + moved + sent + max(0.0, ring - core) + launch
        exposed_back = max(0.0, 2 * ring - flops.core_backward * core)
        backward = self.compute(flops.backward_input) + moved_back + sent + exposed_back + launch
        weight = self.compute(flops.backward_weight) + launch
        return self.with_step(Seconds(forward, backward, weight, again, forward), parameters)

    def embedding(self, parameters: Parameters) -> Seconds:
        """The embedding: rows are read and written in F, and added to gradients in W."""
        state = self._state()
        launch, gradients = self.cluster.gpu.launch, 4.0 * tokens(self.training, self.parallel) * self.sizes.hidden
        forward = self.memory(2 * state) + self.network.tensor(state) + launch
        return self.with_step(Seconds(forward, 0.0, self.memory(2 * state + gradients) + launch), parameters)

    def head(self, flops: Flops, kept: Kept, parameters: Parameters) -> Seconds:
        """The head with the loss: the softmax passes over the logits twice in F and once in I."""
        logits, launch = float(kept.held["logits"]), self.cluster.gpu.launch
        moved, moved_back = self._passes(float(kept.held["last norm"]))
        product = self.compute(flops.linear)
        sums = 3 * self.network.tensor(4.0 * tokens(self.training, self.parallel))
        forward = product + moved + self.memory(2 * logits) + sums + launch
        backward = product + moved_back + self.memory(logits) + self.network.tensor(self._state()) + launch
        return self.with_step(Seconds(forward, backward, product + launch), parameters)

    def prediction(self, layer: Seconds, head: Seconds, projection: float, norms: float, parameters: Parameters) -> Seconds:
        """A module of multi-token prediction: a layer, a head, and the projection of ``projection`` FLOPs with its norms of
        ``norms`` bytes."""
        product = self.compute(projection)
        moved, moved_back = self._passes(norms)
        return self.with_step(
            Seconds(
                layer.forward + head.forward + product + moved,
                layer.backward_input + head.backward_input + product + moved_back,
                layer.backward_weight + head.backward_weight + product,
                layer.selective,
                layer.full,
            ),
            parameters,
        )

    def with_step(self, seconds: Seconds, parameters: Parameters) -> Seconds:
        """With what happens to the layer's parameters: once a step or, with ZeRO-2 and 3, for each microbatch beside
        computation."""
        zero = self.parallel.zero
        gather = self.network.weights(parameters, self.training.number_bytes)
        scatter = self.network.gradients(parameters, self.training.dtype)
        forward, backward, weight = seconds.forward, seconds.backward_input, seconds.backward_weight
        if zero == 3:
            forward, backward = max(forward, gather), max(backward, gather) if backward else 0.0
        if zero >= 2:
            weight = max(weight, scatter)
        return Seconds(
            forward,
            backward,
            weight,
            seconds.selective,
            seconds.full,
            gather if zero in (1, 2) else 0.0,
            2 * scatter if zero == 0 else scatter if zero == 1 else 0.0,
            self.memory(optimizer_bytes(parameters, self.parallel)),
        )
