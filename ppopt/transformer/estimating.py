"""Estimates: what the layers of a transformer take and hold, from their sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from ppopt.transformer import activations, flops, parameters, states, traffic
from ppopt.transformer.activations import Kept
from ppopt.transformer.checked import EstimateError
from ppopt.transformer.flops import Flops, tokens
from ppopt.transformer.parameters import Counts, Parameters
from ppopt.transformer.settings import Cluster, Parallel, Training, check_sizes
from ppopt.transformer.sizes import Transformer
from ppopt.transformer.times import Clock, Seconds

if TYPE_CHECKING:
    from ppopt.pipeline import Layers, Links

EMBEDDING, DECODER, PREDICTION, HEAD = "embedding", "decoder", "mtp", "head"


@dataclass(frozen=True)
class LayerEstimate:
    """A group of ``count`` alike layers in a row; the numbers are those of one layer, one microbatch and one GPU.

    ``kind`` is ``embedding``, ``decoder``, ``mtp`` or ``head``. ``parameters`` alone are those of the whole layer, tied weights
    of the head left out. ``state`` are the bytes of weights, gradients and optimizer, ``seconds`` the times (``None``: nothing
    says how fast the machine is).
    """

    name: str
    count: int
    kind: str
    parameters: Parameters
    flops: Flops
    kept: Kept
    state: int | float
    seconds: Seconds | None = None
    experts: bool = False
    """Whether it is a mixture of experts."""
    window: int | None = None


@dataclass(frozen=True)
class Estimate:
    """What a transformer takes and holds, layer by layer: FLOPs and bytes for one microbatch on one GPU, times in seconds.

    ``layers`` are groups in data-flow order: embedding, decoder layers, modules of multi-token prediction, head. ``boundary``
    are the bytes that go from a stage to the next one.
    """

    sizes: Transformer
    training: Training
    parallel: Parallel
    cluster: Cluster | None
    layers: tuple[LayerEstimate, ...]
    counts: Counts
    boundary: int | float

    @property
    def flops_per_token(self) -> float:
        """Model FLOPs of a token in the whole model, F and backward: three times F, without what is computed again."""
        done = sum(group.count * group.flops.model for group in self.layers) * self.parallel.tensor
        return done / tokens(self.training, self.parallel)

    @property
    def boundary_seconds(self) -> tuple[float, ...]:
        """Time of a transfer from each pipeline device to the next one; empty without a cluster or with one device.

        Raises:
            EstimateError: the cluster lacks the bandwidth.
        """
        if self.cluster is None:
            return ()
        network = traffic.Network(self.cluster, self.parallel)
        return tuple(network.neighbour(float(self.boundary), device) for device in range(self.parallel.pipeline - 1))

    @property
    def microbatches(self) -> int | None:
        """Microbatches of a pipeline in a step; ``None``: the batch is not said."""
        batch = self.training.global_batch
        return None if batch is None else batch // (self.parallel.data * self.training.microbatch)

    def traffic(self, group: LayerEstimate) -> dict[str, int | float]:
        """Bytes of one layer that go to other GPUs: in F of one microbatch what tensor parallelism sums up (``tensor``), what
        goes to experts and comes back (``experts``), keys and values around the ring (``context``); once a step ``gradients``
        and ``weights`` that the replicas exchange. I sends what F does, but twice around the ring; W nothing.
        """
        cut, decoder = self.parallel, group.kind in (DECODER, PREDICTION)
        whole = traffic.hidden_state(self.sizes, self.training, cut)
        sums = {DECODER: 2, PREDICTION: 2, EMBEDDING: 1, HEAD: 0}[group.kind] if cut.tensor > 1 else 0
        dense, experts = states.local(group.parameters, cut)
        shared = (dense if cut.replicas > 1 else 0) + (experts if cut.expert_replicas > 1 else 0)
        return {
            "tensor": sums * whole,
            "experts": 2 * traffic.to_experts(self.sizes, self.training, cut) if group.parameters.experts else 0,
            "context": traffic.around_context(self.sizes, self.training, cut) if decoder else 0,
            "gradients": shared * states.GRADIENT[self.training.dtype],
            "weights": shared * self.training.number_bytes if cut.zero else 0,
        }

    def working(self, *, recompute: bool) -> float:
        """Bytes that a device needs once, beside its layers: a layer's activations while it is computed again (``recompute``),
        the weights of two layers that are gathered with ZeRO-3."""
        decoders = [group for group in self.layers if group.kind in (DECODER, PREDICTION)]
        again = max((float(group.kept.none - group.kept.full) for group in decoders), default=0.0) if recompute else 0.0
        held = max(states.gathered(group.parameters, self.parallel, self.training.number_bytes) for group in self.layers)
        return again + 2 * held

    def static(self, *, recompute: bool | None = None) -> float:
        """Bytes that a device needs beside its layers: the cluster's reserve, and what :meth:`working` says; ``recompute`` is
        by default whether the training may recompute whole layers.

        Raises:
            EstimateError: nothing says how much memory the GPU has.
        """
        if self.cluster is None:
            raise EstimateError("cluster.gpu", "missing; the reserve is a part of its memory")
        again = self.training.recompute in ("full", "choose") if recompute is None else recompute
        reserved = self.cluster.reserve and self.cluster.reserve * 1e9 * self.cluster.gpu.needed("memory", "the reserve")
        return reserved + self.working(recompute=again)

    def to_layers(self, digits: int = 3) -> Layers:
        """The layers for a pipeline (:class:`ppopt.pipeline.Layers`): times in ms, memory in GB (1e9 bytes).

        Times are rounded to ``digits`` digits of the longest of a decoder layer, amounts of memory to a digit more of its
        activation. Levels of recomputing are ``selective`` and ``full``.

        Raises:
            EstimateError: there are no times.
        """
        from ppopt.transformer.pipelines import layers_of

        return layers_of(self, digits)

    def to_links(self, digits: int = 3, *, occupied: bool = False) -> Links:
        """The links of the pipeline (:class:`ppopt.pipeline.Links`) in ms, as a table where some go through the network and
        others do not.

        A transfer is a latency; where links are ``occupied``, it holds its link and only ``cluster.latency`` is a latency.

        Raises:
            EstimateError: there are no times.
        """
        from ppopt.transformer.pipelines import links_of

        return links_of(self, digits, occupied=occupied)


@dataclass(frozen=True)
class _Run:
    """Alike decoder layers in a row."""

    first: int
    count: int
    experts: bool
    window: int | None


def _runs(sizes: Transformer) -> list[_Run]:
    kinds = [(sizes.has_experts(i), sizes.window_of(i)) for i in range(sizes.layers)]
    runs, first = [], 0
    for (experts, window), layers in groupby(kinds):
        count = len(list(layers))
        runs.append(_Run(first, count, experts, window))
        first += count
    return runs


def _names(runs: Sequence[_Run]) -> Iterator[str]:
    """``decoder``; ``dense`` and ``moe`` where there are both; ``sliding`` before those with a window where others have none.
    Kinds that come back have the numbers of their layers behind their names."""
    mixed, windows = len({run.experts for run in runs}) > 1, len({run.window for run in runs}) > 1
    names = []
    for run in runs:
        name = ("moe" if run.experts else "dense") if mixed else DECODER
        names.append(f"sliding {name}" if windows and run.window is not None else name)
    for name, run in zip(names, runs, strict=True):
        last = run.first + run.count - 1
        numbers = f"{run.first}" if run.count == 1 else f"{run.first}-{last}"
        yield name if names.count(name) == 1 else f"{name} {numbers}"


@dataclass
class _Estimating:
    sizes: Transformer
    training: Training
    parallel: Parallel
    cluster: Cluster | None
    clock: Clock | None = field(init=False)

    def __post_init__(self) -> None:
        self.clock = None
        if self.cluster is not None:
            self.clock = Clock(self.sizes, self.training, self.parallel, self.cluster)

    def _made(self, name: str, kind: str, of: Parameters, work: Flops, kept: Kept, seconds: Seconds | None) -> LayerEstimate:
        state = states.state(self.held(kind, of), self.parallel, self.training.dtype)
        return LayerEstimate(name, 1, kind, of, work, kept, state, seconds)

    def held(self, kind: str, of: Parameters) -> Parameters:
        """What a device holds for a layer that it has."""
        if kind == HEAD and self.sizes.tied and self.parallel.pipeline > 1:  # the last device has a copy of the embedding
            return of + Parameters(cut=self.sizes.vocabulary * self.sizes.hidden)
        return of

    def decoder(self, experts: bool, window: int | None) -> LayerEstimate:
        of = parameters.decoder(self.sizes, experts)
        work = flops.decoder(self.sizes, self.training, self.parallel, experts, window)
        kept = activations.decoder(self.sizes, self.training, self.parallel, experts)
        seconds = None if self.clock is None else self.clock.decoder(work, kept, of, experts)
        return self._made(DECODER, DECODER, of, work, kept, seconds)

    def embedding(self) -> LayerEstimate:
        of, kept = parameters.embedding(self.sizes), activations.embedding(self.sizes, self.training, self.parallel)
        seconds = None if self.clock is None else self.clock.embedding(of)
        return self._made(EMBEDDING, EMBEDDING, of, Flops(), kept, seconds)

    def head(self) -> LayerEstimate:
        of, work = parameters.head(self.sizes), flops.head(self.sizes, self.training, self.parallel)
        kept = activations.head(self.sizes, self.training, self.parallel)
        seconds = None if self.clock is None else self.clock.head(work, kept, of)
        return self._made(HEAD, HEAD, of, work, kept, seconds)

    def prediction(self, head: LayerEstimate) -> LayerEstimate:
        last = self.sizes.layers - 1
        layer = self.decoder(self.sizes.has_experts(last), self.sizes.window_of(last))
        of, work = parameters.prediction(self.sizes), flops.prediction(self.sizes, self.training, self.parallel)
        kept = activations.prediction(self.sizes, self.training, self.parallel)
        seconds = None
        if self.clock is not None and layer.seconds is not None and head.seconds is not None:
            projection = work.linear - layer.flops.linear - head.flops.linear
            norms = float(kept.held["norms of the projection"])
            seconds = self.clock.prediction(layer.seconds, head.seconds, projection, norms, of)
        return self._made(PREDICTION, PREDICTION, of, work, kept, seconds)


def state_bytes(transformer: Transformer, dtype: str, parallel: Parallel) -> float:
    """Bytes of weights, gradients and optimizer state of all layers, each on the GPU that holds it; no estimate is needed."""
    making = _Estimating(transformer, Training(1, dtype=dtype), parallel, None)
    head = making.held(HEAD, parameters.head(transformer))
    each = [(parameters.embedding(transformer), 1), (head, 1), (parameters.prediction(transformer), transformer.mtp)]
    kinds = Counter(transformer.has_experts(layer) for layer in range(transformer.layers))
    each += [(parameters.decoder(transformer, experts), count) for experts, count in kinds.items()]
    return float(sum(count * states.state(of, parallel, dtype) for of, count in each if count))


def estimate(
    transformer: Transformer, training: Training, parallel: Parallel | None = None, cluster: Cluster | None = None
) -> Estimate:
    """What the layers of a transformer take and hold, for one microbatch on one GPU.

    Without ``parallel`` it is on one GPU; without ``cluster`` there are no times.

    Raises:
        EstimateError: the sizes cannot be cut like that, or the cluster lacks a number that is needed.
    """
    parallel = parallel or Parallel()
    check_sizes(transformer, training, parallel)
    making = _Estimating(transformer, training, parallel, cluster)
    kinds: dict[tuple[bool, int | None], LayerEstimate] = {}
    head = making.head()
    groups = [making.embedding()]
    runs = _runs(transformer)
    for name, run in zip(_names(runs), runs, strict=True):
        kind = (run.experts, run.window)
        if kind not in kinds:
            kinds[kind] = making.decoder(*kind)
        one = kinds[kind]
        groups.append(
            LayerEstimate(
                name, run.count, DECODER, one.parameters, one.flops, one.kept, one.state, one.seconds, run.experts, run.window
            )
        )
    if transformer.mtp:
        one = making.prediction(head)
        groups.append(
            LayerEstimate(PREDICTION, transformer.mtp, PREDICTION, one.parameters, one.flops, one.kept, one.state, one.seconds)
        )
    groups.append(head)
    return Estimate(
        transformer,
        training,
        parallel,
        cluster,
        tuple(groups),
        parameters.counts(transformer),
        traffic.boundary(transformer, training, parallel),
    )
