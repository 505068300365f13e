"""A pipeline on another placement or on other routes: the same devices with the same work."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ppopt.pipeline.choices import placements_of, read_chunks
from ppopt.pipeline.offload import Offload, with_values
from ppopt.pipeline.partitions import BEST
from ppopt.pipeline.parts import DURATIONS, Costs, Memory, PipelineError, Value
from ppopt.pipeline.routes import Routes, explicit_routes, routes_of, split_evenly
from ppopt.pipeline.tables import Rows, by_stage, durations, entry, held, largest, totals
from ppopt.pipeline.traffic import DataParallel, both, exchanged

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline


def moved(pipeline: Pipeline, place: dict[str, Any]) -> Pipeline:
    """The pipeline elsewhere. ``place``: its new ``placement`` and ``chunks``, or ``routes`` and maybe ``route_of_microbatch``.

    Raises:
        PipelineError: as :meth:`~ppopt.pipeline.Pipeline.placed` and :meth:`~ppopt.pipeline.Pipeline.rerouted`.
    """
    if isinstance(pipeline.microbatches, tuple):
        if len(pipeline.ways) > 1:
            problem = "several numbers of microbatches share the routes in different ways; expected one"
            raise PipelineError("pipeline.microbatches", problem)
        one = moved(pipeline.changed(microbatches=pipeline.microbatches[0]), place)
        return one.changed(microbatches=pipeline.microbatches)
    there = _destination(pipeline, place)
    if pipeline.layers is not None:
        return _cut_elsewhere(pipeline, place, there)
    if there.routes == pipeline.ways and not isinstance(there.chunks, tuple):
        return pipeline.changed(**{"route_of_microbatch": pipeline.route_of_microbatch, **place})
    if pipeline.mix.by_stage:
        problem = "a table per stage belongs to the placement that it is for; expected one factor per microbatch"
        raise PipelineError("pipeline.microbatch_costs", problem)
    move = _Move(pipeline, there)
    written = there.route_of_microbatch if "routes" in place else ()
    changes = move.changes()
    if pipeline.memory.weights is not None:
        memory = changes.get("memory", pipeline.memory)
        changes["memory"] = dataclasses.replace(memory, weights=_weights(pipeline, len(there.routes[0])), weights_on=None)
    return pipeline.changed(**{**place, "chunks": there.chunks, "route_of_microbatch": written, **changes})


def _weights(pipeline: Pipeline, stages: int) -> Value | None:
    """What the weights of a stage are where there are so many stages: as now, or an equal part of the whole."""
    weights = pipeline.memory.weights
    if weights is None or stages == pipeline.stages:
        return weights
    return (sum(weights, Fraction(0)) if isinstance(weights, tuple) else weights * pipeline.stages) / stages


def is_uneven(pipeline: Pipeline) -> bool:
    """Whether devices or stages differ in their costs or activations.

    They do where a list of durations, or of what a microbatch holds, has different values, and where what the microbatches
    take of one device altogether differs from another's. Which stages recompute makes no difference. Layers can be cut anew on
    another placement, so that nothing has to be assumed about them.
    """
    if pipeline.layers is not None:
        return False
    for part, names in ((pipeline.costs, DURATIONS), (pipeline.memory, ("activation", "retained", "recompute_saved"))):
        for name in names:
            value = getattr(part, name)
            per_device = totals(pipeline, by_stage(pipeline, value))
            if per_device is not None and (len(set(per_device)) > 1 or (isinstance(value, tuple) and len(set(value)) > 1)):
                return True
    return False


def _cut_elsewhere(pipeline: Pipeline, place: dict[str, Any], there: _Destination) -> Pipeline:
    """A pipeline of layers elsewhere: these are cut anew, balanced unless the partition is even or left open.

    Raises:
        PipelineError: which layers recompute is said stage by stage.
    """
    assert pipeline.layers is not None
    if there.routes == pipeline.ways and not isinstance(there.chunks, tuple):
        return pipeline.changed(**{"route_of_microbatch": pipeline.route_of_microbatch, "partition": pipeline.partition, **place})
    if isinstance(pipeline.recompute, tuple):
        raise PipelineError("pipeline.recompute", "which layers recompute is said stage by stage, for another cut")
    partition = pipeline.partition if pipeline.partition in ("even", BEST) else "balanced"
    changes: dict[str, Any] = {"partition": partition}
    if pipeline.data_parallel.per == "stage" and not pipeline.layers.has("all_gather", "reduce_scatter"):
        changes["data_parallel"] = _Move(pipeline, there).traffic()
    return pipeline.changed(**{**place, "chunks": there.chunks, **changes})


@dataclass(frozen=True)
class _Destination:
    """The stages' devices elsewhere; of the first placement where several are possible."""

    routes: Routes
    chunks: int | tuple[int, ...]
    route_of_microbatch: tuple[int, ...]


def _destination(pipeline: Pipeline, place: dict[str, Any]) -> _Destination:
    if "routes" in place:
        routes = explicit_routes(place["routes"], pipeline.devices)
        split = place.get("route_of_microbatch") or split_evenly(pipeline.microbatches, len(routes))
        return _Destination(routes, max(1, len(routes[0]) // pipeline.devices), split)
    placement, chunks = place["placement"], read_chunks(place["placement"], place["chunks"], False)
    first, count = placements_of(placement, chunks)[0]
    routes = routes_of(first, pipeline.devices, count)
    return _Destination(routes, chunks, split_evenly(pipeline.microbatches, len(routes)))


class _Move:
    """What the costs, the memory and the traffic of a pipeline become per device at a destination.

    Raises:
        PipelineError: a device that works here is not visited there.
    """

    def __init__(self, pipeline: Pipeline, there: _Destination) -> None:
        self.pipeline = pipeline
        self.here = _visits(pipeline.devices, pipeline.routes, pipeline.route_of_microbatch)
        self.there = _visits(pipeline.devices, there.routes, there.route_of_microbatch)
        """``[device]``: the number of microbatches that visit it."""
        for device, (here, elsewhere) in enumerate(zip(self.here, self.there, strict=True)):
            if here and not elsewhere:
                raise PipelineError("pipeline.routes", f"device {device} would have no work: no microbatch visits it")
        self.everywhere = {*self.here, *self.there} == {pipeline.microbatches}
        """Whether every microbatch visits every device, here and there."""
        self.settled = isinstance(pipeline.recompute, tuple)
        """Whether single stages recompute; then this becomes part of the costs."""

    def changes(self) -> dict[str, Any]:
        """The fields of the pipeline that change.

        Raises:
            PipelineError: there is data-parallel traffic, and some microbatch does not visit every device.
        """
        changes: dict[str, Any] = {}
        if self.pipeline.data_parallel.per == "stage":
            changes["data_parallel"] = self.traffic()
        traffic = [value if isinstance(value, tuple) else (value,) for value in both(self.pipeline)]
        if not self.everywhere and largest(traffic):
            problem = (
                "what a device exchanges on another placement is not known where microbatches visit only some of the devices"
            )
            raise PipelineError("data_parallel", problem)
        if not self.everywhere or self.pipeline.costs.per == "stage" or self.settled:
            changes["costs"], changes["memory"] = self._costs(), self._memory()
            changes["offload"] = self._offload()
        if self.settled:
            changes["recompute"] = "none"
        return changes

    def traffic(self) -> DataParallel:
        """What each device exchanges for all its stages."""
        gather, scatter = (
            tuple(sum(part.values(), Fraction(0)) for part in exchanged(self.pipeline, value)) for value in both(self.pipeline)
        )
        return dataclasses.replace(self.pipeline.data_parallel, all_gather=gather, reduce_scatter=scatter, per="device")

    def _costs(self) -> Costs:
        pipeline = self.pipeline
        tables: dict[str, Rows]
        if self.settled:
            tables = {name: durations(pipeline, name) for name in DURATIONS if not name.startswith("recompute")}
        else:
            tables = {name: by_stage(pipeline, getattr(pipeline.costs, name)) for name in DURATIONS}
        spread: dict[str, Any] = {name: self._spread(table) for name, table in tables.items()}
        own = self.pipeline.costs
        return Costs(per="device", **spread, optimizer=own.optimizer, weight_pieces=own.weight_pieces)

    def _memory(self) -> Memory:
        pipeline, memory = self.pipeline, self.pipeline.memory
        activation, retained, saved = (
            by_stage(pipeline, value) for value in (memory.activation, memory.retained, memory.recompute_saved)
        )
        changes: dict[str, Any] = {"recompute_saved": None if self.settled else self._spread(saved)}
        holds, keeps = held(pipeline) if self.settled else (activation, retained)
        changes |= {"activation": self._spread(holds), "retained": self._spread(keeps)}
        if not self.everywhere:
            visits = zip(self.here, self.there, strict=True)
            static = [entry(memory.static, d) * here / (there or 1) for d, (here, there) in enumerate(visits)]
            changes["static"] = _one_or_all(static)
        return dataclasses.replace(memory, **changes)

    def _offload(self) -> Offload | None:
        offload = self.pipeline.offload
        return offload and with_values(offload, lambda _, value: self._spread(by_stage(self.pipeline, value)))

    def _spread(self, table: Rows) -> Value | None:
        """The value per device there, so that a microbatch has on average as much of it as of ``table[route][stage]`` here."""
        total = totals(self.pipeline, table)
        if total is None:
            return None
        return _one_or_all([whole / (there or 1) for whole, there in zip(total, self.there, strict=True)])


def _visits(devices: int, routes: Routes, route_of_microbatch: Sequence[int]) -> tuple[int, ...]:
    """``[device]``: the number of microbatches that visit it."""
    visits = [0] * devices
    for route, microbatches in Counter(route_of_microbatch).items():
        for device in set(routes[route]):
            visits[device] += microbatches
    return tuple(visits)


def _one_or_all(values: Sequence[Fraction]) -> Value:
    return values[0] if len(set(values)) == 1 else tuple(values)
