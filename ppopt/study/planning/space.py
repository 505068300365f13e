"""The combinations of sizes that a plan chooses among, and the pipeline of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from ppopt.pipeline import Layers, Links, Memory, Pipeline
from ppopt.pipeline.choices import placements_of, read_chunks
from ppopt.study.planning.floors import Floors
from ppopt.study.planning.question import Question
from ppopt.transformer import Cluster, Estimate, EstimateError, Parallel, Training, estimate
from ppopt.transformer.pipelines import layers_of, links_of, memory_of, pipeline_of

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


def cases_of(question: Question) -> list[Case]:
    """Every combination that is possible, in a fixed order.

    The sizes divide the GPUs, and what they cut. ``tensor x context`` is inside a node unless they are listed. The microbatches
    of all replicas together divide the batch. Where no replicas share weights, ZeRO stages are all the same: the first is taken.

    Raises:
        EstimateError: none is possible; the cluster lacks a number.
    """
    found: list[Case] = []
    refused: EstimateError | None = None
    for cluster in question.clusters:
        for parallel in _parallels(question, cluster):
            for microbatch in _microbatches(question, parallel):
                try:
                    found.append(Case.of(question, Combination(cluster, parallel, microbatch)))
                except EstimateError as error:
                    if error.key.startswith("cluster."):
                        raise
                    refused = error
                if len(found) > MOST:
                    raise EstimateError("search", f"more than {MOST} combinations; list fewer sizes")
    if not found:
        problem = "no combination is possible: the sizes have to divide the GPUs, and the microbatches of all replicas the batch"
        raise refused or EstimateError("search", problem)
    return found


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
        if devices == 1:
            return [("linear", 1)]
        found = placements_of(search.placement, read_chunks(search.placement, list(search.chunks), False))
        unlike = dict.fromkeys((place, chunks) if chunks > 1 else ("linear", 1) for place, chunks in found)
        return [(place, chunks) for place, chunks in unlike if devices * chunks <= len(self.layers)]

    def pipeline(self, placement: str, chunks: int, **fields: Any) -> Pipeline:
        """Its pipeline on a placement, the partition left open.

        Raises:
            PipelineError: it is too large.
        """
        return pipeline_of(
            self.estimate,
            **{"placement": placement, "chunks": chunks, "name": self.question.name, "layers": self.layers, **fields},
        )

    @cached_property
    def floors(self) -> Floors:
        """Its lower bounds in closed form."""
        memory, latency = self.memory, self.links.latency
        assert isinstance(memory.static, Fraction)
        room = None if memory.limit is None else float(memory.limit) - float(memory.static)  # type: ignore[arg-type]
        least = latency if isinstance(latency, Fraction) else min(row[i + 1] for i, row in enumerate(latency[:-1]))
        training, devices = self.estimate.training, self.combination.parallel.pipeline
        return Floors(self.layers, training.recompute, devices, self.microbatches, room, float(least))

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return (self.question.training.global_batch or 1) * self.question.training.sequence
