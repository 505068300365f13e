"""The combinations of sizes that a plan chooses among, and the pipeline of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ppopt.layouts.runnable import has_group, has_place
from ppopt.pipeline import CHOOSE, Layers, Links, Memory, Pipeline
from ppopt.pipeline.choices import placements_of, read_chunks
from ppopt.pipeline.runtimes import INTERLEAVED, MEGATRON, TORCHTITAN, as_run
from ppopt.study.planning.floors import Floors, Rows
from ppopt.study.planning.question import Question
from ppopt.transformer import Cluster, Estimate, EstimateError, Parallel, Training, estimate, state_bytes
from ppopt.transformer.pipelines import (
    GIGABYTE,
    figures_of,
    layers_of,
    links_of,
    memory_of,
    memory_places,
    pipeline_of,
    time_places,
)
from ppopt.transformer.settings import check_sizes

MOST = 10**5
"""Combinations of a plan."""


@dataclass(frozen=True)
class Combination:
    """Sizes, and sequences of a microbatch, on so many GPUs."""

    cluster: Cluster
    parallel: Parallel
    microbatch: int

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes by their names in results."""
        parallel = self.parallel
        names = ("tensor", "data", "pipeline", "context", "expert")
        return {**{name: getattr(parallel, name) for name in names}, "microbatch": self.microbatch, "zero": parallel.zero}

    def __str__(self) -> str:
        shown = [f"{name} {value}" for name, value in self.sizes.items() if value > 1 or name in ("tensor", "pipeline")]
        return ", ".join(shown)


@dataclass
class Cases:
    """Every combination that is possible: those that may fit the memory, and those whose weights alone are too much."""

    possible: list[Case] = field(default_factory=list)
    heavy: list[Heavy] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.possible) + len(self.heavy)


class Heavy(NamedTuple):
    """A combination whose weights, gradients and optimizer state do not fit; a device lacks at least ``missing`` GB."""

    combination: Combination
    missing: float


def cases_of(question: Question) -> Cases:
    """Every combination that is possible, in a fixed order.

    The sizes divide the GPUs, and what they cut. ``tensor x context`` is inside a node unless they are listed. The microbatches
    of all replicas together divide the batch. Where no replicas share weights, ZeRO stages are all the same: the first is taken.

    Raises:
        EstimateError: none is possible; the cluster lacks a number.
    """
    found = Cases()
    refused: EstimateError | None = None
    for cluster in question.clusters:
        for parallel in _parallels(question, cluster):
            missing = None
            for microbatch in _microbatches(question, parallel):
                combination = Combination(cluster, parallel, microbatch)
                try:
                    _check_launch(question.search.runtime, parallel)
                    check_sizes(question.sizes, replace(question.training, microbatch=microbatch), parallel)
                    missing = _missing(question, combination) if missing is None else missing
                    if missing > 0:
                        found.heavy.append(Heavy(combination, missing))
                    elif (case := Case.of(question, combination)).places or not question.search.runtime:
                        found.possible.append(case)
                    else:
                        refused = EstimateError("search.runtime", _no_place(question))
                except EstimateError as error:
                    if error.key.startswith("cluster."):
                        raise
                    refused = error
                if found.count > MOST:
                    raise EstimateError("search", f"more than {MOST} combinations; list fewer sizes")
    if not found.count:
        problem = "no combination is possible: the sizes have to divide the GPUs, and the microbatches of all replicas the batch"
        raise refused or EstimateError("search", problem)
    return found


def _check_launch(runtime: str, parallel: Parallel) -> None:
    """Raise where a runtime cannot be started with these sizes.

    Raises:
        EstimateError: it cannot.
    """
    if runtime in (MEGATRON, INTERLEAVED) and parallel.zero > 1:
        raise EstimateError("search.runtime", f"the distributed optimizer of Megatron is ZeRO-1; got ZeRO stage {parallel.zero}")
    if runtime == TORCHTITAN and parallel.tensor > 1 and not parallel.sequence_parallel:
        raise EstimateError(
            "search.runtime", "TorchTitan cuts along the sequence beside tensor > 1; parallel.sequence_parallel is false"
        )


def _no_place(question: Question) -> str:
    search = question.search
    if search.runtime == TORCHTITAN and question.sizes.mtp:
        return f"TorchTitan has no multi-token prediction; the model has transformer.mtp = {question.sizes.mtp}"
    chunks = ", ".join(map(str, search.chunks))
    return f"{search.runtime} runs none of these placements: {search.placement} with {chunks} chunks, for these sizes"


ROUNDING = 5e-4
"""Of the room for it, how much less a layer may have after rounding, where it is rounded at all roughly: amounts have four digits
of a layer's activation, and one of these has to fit."""


def _missing(question: Question, combination: Combination) -> float:
    """GB by which the weights are more than a device has room for, if all devices share them; no layer of any rounding fits
    then."""
    cluster, parallel = combination.cluster, combination.parallel
    if cluster.gpu.memory is None:
        return -math.inf
    room = cluster.gpu.memory * (1 - cluster.reserve)
    layers = question.sizes.layers + question.sizes.mtp + 2
    whole = state_bytes(question.sizes, question.training.dtype, parallel) / GIGABYTE / parallel.pipeline
    return whole - room * (1 + ROUNDING * layers / parallel.pipeline)


def _divisors(n: int) -> list[int]:
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return sorted({*small, *(n // k for k in small)})


def _sizes(listed: Sequence[int] | None, of: int) -> list[int]:
    return [size for size in _divisors(of) if listed is None or size in listed]


def _parallels(question: Question, cluster: Cluster) -> Iterator[Parallel]:
    search, gpus = question.search, cluster.gpus or 1
    layers = question.sizes.layers + question.sizes.mtp + 2
    for tensor in _sizes(search.tensor, gpus):
        for context in _sizes(search.context, gpus // tensor):
            asked = search.tensor is not None and search.context is not None
            if tensor * context > cluster.gpus_per_node and not asked and not _asked(search, tensor, context, cluster):
                continue
            for pipeline in _sizes(search.pipeline, gpus // (tensor * context)):
                data = gpus // (tensor * context * pipeline)
                if pipeline > layers or (search.data is not None and data not in search.data):
                    continue
                yield from _with_experts(question, Parallel(tensor, pipeline, data, context))


def _asked(search: Any, tensor: int, context: int, cluster: Cluster) -> bool:
    """Whether that much in a group beyond a node was listed, and nothing beside it is larger than 1 that was not."""
    listed = [size for size, sizes in ((tensor, search.tensor), (context, search.context)) if sizes is not None]
    others = [size for size, sizes in ((tensor, search.tensor), (context, search.context)) if sizes is None]
    return any(size > cluster.gpus_per_node for size in listed) and all(size == 1 for size in others)


def _with_experts(question: Question, parallel: Parallel) -> Iterator[Parallel]:
    search, several = question.search, question.sizes.experts > 0
    fields: dict[str, Any] = {"sequence_parallel": question.sequence_parallel}
    for expert in _sizes(search.expert, parallel.width) if several or search.expert is not None else [1]:
        for cut in search.expert_tensor or (parallel.tensor,):
            for i, zero in enumerate(question.zero):
                try:
                    one = replace(parallel, expert=expert, expert_tensor=cut, zero=zero, **fields)
                except EstimateError:
                    continue
                if i == 0 or one.replicas > 1 or (several and one.expert_replicas > 1):
                    yield one


def _microbatches(question: Question, parallel: Parallel) -> list[int]:
    batch = question.training.global_batch or 1
    return [] if batch % parallel.data else _sizes(question.microbatches, batch // parallel.data)


@dataclass(frozen=True)
class Case:
    """The pipeline of a combination, with what it was estimated from."""

    question: Question
    combination: Combination
    estimate: Estimate

    @classmethod
    def of(cls, question: Question, combination: Combination) -> Case:
        """The case of a combination.

        Raises:
            EstimateError: the transformer cannot be cut like that.
        """
        training: Training = replace(question.training, microbatch=combination.microbatch)
        return cls(question, combination, estimate(question.sizes, training, combination.parallel, combination.cluster))

    @cached_property
    def layers(self) -> Layers:
        """Its layers, in ms and GB."""
        return layers_of(self.estimate)

    @cached_property
    def links(self) -> Links:
        """Its links, in ms."""
        return links_of(self.estimate)

    @cached_property
    def memory(self) -> Memory:
        """The memory of its devices, in GB."""
        return memory_of(self.estimate)

    @property
    def microbatches(self) -> int:
        """Microbatches of a pipeline in a step."""
        return self.estimate.microbatches or 1

    @property
    def places(self) -> list[tuple[str, int]]:
        """The placements, each with its number of chunks, that its layers suffice for; on one device they are all the same."""
        search, devices = self.question.search, self.combination.parallel.pipeline
        runtime = search.runtime
        if runtime == TORCHTITAN and self.question.sizes.mtp:
            return []
        if devices == 1:
            return [("linear", 1)] if runtime != INTERLEAVED else []
        if runtime == INTERLEAVED and not has_group(devices, devices, self.microbatches):
            return []
        found = placements_of(search.placement, read_chunks(search.placement, list(search.chunks), False))
        unlike = dict.fromkeys((place, chunks) if chunks > 1 else ("linear", 1) for place, chunks in found)
        layers = sum(group.count for group in self.estimate.layers)
        return [place for place in unlike if devices * place[1] <= layers and has_place(runtime, *place)]

    def pipeline(self, placement: str, chunks: int, **fields: Any) -> Pipeline:
        """Its pipeline on a placement, the partition left open, with the costs that it has on the runtime.

        Raises:
            PipelineError: it is too large.
        """
        place = {"placement": placement, "chunks": chunks, "name": self.question.name, "layers": self.layers}
        return as_run(pipeline_of(self.estimate, **{**place, **fields}), self.question.search.runtime)

    @cached_property
    def floors(self) -> Floors:
        """Its lower bounds in closed form."""
        memory, latency = self.memory, self.links.latency
        assert isinstance(memory.static, Fraction)
        room = None if memory.limit is None else float(memory.limit) - float(memory.static)  # type: ignore[arg-type]
        least = latency if isinstance(latency, Fraction) else min(row[i + 1] for i, row in enumerate(latency[:-1]))
        return Floors(self._rows, self.combination.parallel.pipeline, self.microbatches, room, float(least))

    @property
    def _rows(self) -> Rows:
        """What the layers take and hold: as :meth:`Rows.of` of :attr:`layers`, which take longer to make."""
        time, memory = time_places(self.estimate), memory_places(self.estimate)
        chosen = self.estimate.training.recompute
        group, rows = [], []
        for number, of in enumerate(self.estimate.layers):
            one = figures_of(of, time, memory)
            levels = [(0.0, one.activation), *((longer, held) for _, longer, held in one.levels)]
            if chosen != CHOOSE:
                named = dict(zip(("none", *(name for name, *_ in one.levels)), levels, strict=True))
                levels = [named.get(chosen, levels[0])]
            levels += [levels[-1]] * ((3 if chosen == CHOOSE else 1) - len(levels))
            times = (one.forward, one.backward_input, one.backward_weight)
            once = (one.weights, one.all_gather, one.reduce_scatter + one.optimizer)
            group += [number] * of.count
            rows += [(*times, *once, one.retained, *(x for level in levels for x in level))] * of.count
        forward, gradient, rest, weights, gather, after, retained, *levelled = np.array(rows).T
        again, keeps = np.array(levelled[::2]).T, np.array(levelled[1::2]).T
        kept = np.minimum(keeps, retained[:, None])
        return Rows(np.array(group), forward, gradient, rest, weights, gather, after, again, keeps, kept)

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return (self.question.training.global_batch or 1) * self.question.training.sequence
