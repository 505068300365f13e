"""Which device runs what, and where weights live: backwards that run elsewhere than their forwards, weights that are fetched.

*Backwards elsewhere.* A stage's backward (``B``, or ``I`` and ``W``) may run on another device than its forward. What the forward
leaves behind is sent there, and held there: from the start of the forward to the end of the backward.

*Weights elsewhere.* A device that runs a stage whose weights live on another one fetches them. ``F``, ``B`` and ``I`` need them,
``W`` does not. A fetch is a part of the operation: the device waits for it. Or weights are kept for the whole step: then a device
fetches all that it lacks, one stage after the other, before its first operation.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ppopt.op import Kind
from ppopt.pipeline.parts import PipelineError, Value, plain
from ppopt.pipeline.routes import Routes, explicit_routes, routes_of
from ppopt.pipeline.tables import once_each

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

OPERATION, STEP = "operation", "step"
KEPT = (OPERATION, STEP)
"""For how long fetched weights are kept (``memory.weights_kept``): while the operation runs that needs them, or the step."""
PLACED = ("placement", "chunks", "routes", "recompute", "backward_routes", "memory")
"""The fields of a pipeline that say where what runs, and what is read with them."""
BACK, HOMES = "pipeline.backward_routes", "memory.weights_on"
"""The keys of a map beside the routes."""
NEEDS_WEIGHTS = (Kind.F, Kind.B, Kind.I)
"""The kinds of operations that read the weights of their stage."""

ByKind: TypeAlias = list[list[list[Fraction]]]
"""``[route][kind][stage]``."""


class WorkMap(NamedTuple):
    """The devices of all work: routes, and which microbatch takes which; of the backwards and weights, where these are others."""

    routes: Routes
    route_of_microbatch: tuple[int, ...]
    backward_routes: Routes = ()
    weights_on: Routes | None = None

    def of(self, pipeline: Pipeline) -> bool:
        """Whether a pipeline has this map, however its routes are numbered."""
        return not isinstance(pipeline.microbatches, tuple) and self._taken() == _map_of(pipeline)._taken()

    def _taken(self) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        back, kept = self.backward_routes or self.routes, self.weights_on or self.routes
        return [(self.routes[r], back[r], kept[r]) for r in self.route_of_microbatch]


def _map_of(pipeline: Pipeline) -> WorkMap:
    kept = pipeline.memory.weights_on
    return WorkMap(pipeline.routes, pipeline.route_of_microbatch, pipeline.backward_routes, kept)


def mapped(pipeline: Pipeline, there: WorkMap) -> Pipeline:
    """The pipeline with the same stages and another map; the very same where it has that map.

    Costs per stage stay what they are, and so does what stages hold; costs per device become what :meth:`Pipeline.rerouted` says.
    Of all that is held always (``memory.static``) a device has the part of the stages whose weights it keeps.

    Raises:
        PipelineError: as :meth:`Pipeline.rerouted`, or something is said of which it is not known what it means there.
    """
    from ppopt.pipeline.amounts import copies

    if there.of(pipeline):
        return pipeline
    if there.backward_routes or there.weights_on:
        _check_beside(pipeline, BACK if there.backward_routes else HOMES)
    if pipeline.costs.per == "stage" and pipeline.layers is None:
        moved = pipeline.changed(routes=there.routes, route_of_microbatch=there.route_of_microbatch)
    else:
        moved = pipeline.rerouted(there.routes, there.route_of_microbatch)
    memory, static = moved.memory, pipeline.memory.static
    whole = sum(static, Fraction(0)) if isinstance(static, tuple) else static * pipeline.devices
    if whole:
        kept: list[set[int]] = [set() for _ in range(pipeline.devices)]
        for row in there.weights_on or there.routes:
            for stage, device in enumerate(row):
                kept[device].add(stage)
        parts = (whole * len(own) / pipeline.stages / copies(moved, d) for d, own in enumerate(kept))
        memory = dataclasses.replace(memory, static=tuple(parts))
    return moved.changed(
        backward_routes=there.backward_routes,
        memory=dataclasses.replace(memory, weights_on=there.weights_on),
        route_of_microbatch=there.route_of_microbatch,
    )


class Fetch(NamedTuple):
    """The weights of a stage that a device takes from another one, once."""

    stage: int
    home: int
    device: int


def read_stages_on(key: str, value: Any, routes: Routes, devices: int) -> Routes:
    """One device per stage and route, such as ``pipeline.backward_routes``; empty where it says what ``routes`` say, or nothing.

    Raises:
        PipelineError: there is not one for each stage of each route, or one of them is no device.
    """
    if value is None or (isinstance(value, list | tuple) and not value):
        return ()
    if not _is_table(value):
        raise PipelineError(key, f"expected one list of devices per route, such as [[0, 1], [1, 0]], got {value!r}")
    if len(value) != len(routes):
        raise PipelineError(key, f"expected one list per route ({len(routes)}), got {len(value)}")
    for r, row in enumerate(value):
        if len(row) != len(routes[r]):
            raise PipelineError(f"{key}[{r}]", f"expected one device per stage ({len(routes[r])}), got {len(row)}")
        for s, device in enumerate(row):
            if isinstance(device, bool) or not isinstance(device, int) or not 0 <= device < devices:
                raise PipelineError(f"{key}[{r}][{s}]", f"expected a device 0..{devices - 1}, got {device!r}")
    read = tuple(tuple(row) for row in value)
    return () if read == routes else read


def read_places(pipeline: Pipeline) -> dict[str, Any]:
    """The fields that say where what runs: routes, their placement and chunks, the devices of the backwards and of the weights.

    Raises:
        PipelineError: they do not fit each other, or some device does nothing.
    """
    routes, back, kept = pipeline.routes, pipeline.backward_routes, pipeline.memory.weights_on
    placement, devices = "routes" if routes else pipeline.placement, pipeline.devices
    if not routes:
        routes = routes_of(placement, devices, pipeline.chunks)
    if back:  # as far as that goes before the routes are known to be right: a device may run backwards alone
        back = read_stages_on(BACK, back, routes if _is_table(routes) else (), devices)
    if placement == "routes":
        routes = explicit_routes(routes, devices, back)
    fields: dict[str, Any] = {"routes": routes, "backward_routes": back, "placement": placement}
    if kept is not None:
        kept = read_stages_on(HOMES, kept, routes, devices) or None
        fields["memory"] = dataclasses.replace(pipeline.memory, weights_on=kept)
    if back or kept or placement == "routes":
        chunks = max(1, len(routes[0]) // devices)
        if pipeline.chunks not in (1, chunks):
            problem = f"the routes have {len(routes[0])} stages on {devices} devices, got {pipeline.chunks}"
            raise PipelineError("pipeline.chunks", problem)
        fields |= {"placement": "routes", "chunks": chunks}
    return fields


def without_map(pipeline: Pipeline, changes: dict[str, Any]) -> dict[str, Any]:
    """Changes of the fields of a pipeline. On other routes backwards run where the forwards do, and weights live there, unless
    these say otherwise."""
    if not changes.keys() & {"routes", "placement", "chunks", "devices"}:
        return changes
    memory = changes.get("memory", pipeline.memory)
    if memory.weights_on is not None and memory.weights_on == pipeline.memory.weights_on:
        changes = {**changes, "memory": dataclasses.replace(memory, weights_on=None)}
    return {"backward_routes": (), **changes}


def _is_table(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(row, list | tuple) for row in value)


def check_map(pipeline: Pipeline) -> None:
    """Raise where something is said of a pipeline of which it is not known what it means with such a map.

    Raises:
        PipelineError: something is; the message names the key.
    """
    links, memory = pipeline.links, pipeline.memory
    elsewhere = bool(pipeline.backward_routes)
    if elsewhere:
        key = BACK
        occupancy = links.occupancy if isinstance(links.occupancy, tuple) else ((links.occupancy,),)
        if any(map(any, occupancy)):
            problem = "activations that are sent to another device's backward hold no link; give links.latency, not occupancy"
            raise PipelineError("links.occupancy", f"{problem}, beside {key}")
        exchange = pipeline.data_parallel
        for name in ("all_gather", "reduce_scatter"):
            value = getattr(exchange, name)
            if any(value) if isinstance(value, tuple) else value:
                problem = f"what a device exchanges whose backwards run elsewhere is not known; leave it out beside {key}"
                raise PipelineError(f"data_parallel.{name}", problem)
        if pipeline.runtime:
            raise PipelineError(key, "PyTorch runs a stage's backward where its forward was; leave it out for this runtime")
    if elsewhere or memory.weights_on:
        key = BACK if elsewhere else HOMES
        for open_key in set(pipeline.open) & {"pipeline.partition", "pipeline.recompute"}:
            raise PipelineError(key, f"belongs to one pipeline, and {open_key} is left open")
        if pipeline.costs.overlap is not None and links.weights:
            problem = (
                "what an overlapped pair takes with weights that are fetched is not known; leave it out beside links.weights"
            )
            raise PipelineError("costs.overlap", problem)
        _check_beside(pipeline, key)


def _check_beside(pipeline: Pipeline, key: str) -> None:
    """Raise where something is said beside ``key`` of which it is not known what it means with such a map.

    Raises:
        PipelineError: something is; the message names the key.
    """
    mix = pipeline.mix
    if mix.differs:
        names = "microbatch_costs", "microbatch_activations", "lengths", "pieces"
        problem = f"what microbatches that differ take with {key} is not known; expected one of these two keys, got both"
        raise PipelineError(f"pipeline.{next(name for name in names if getattr(mix, name))}", problem)
    if pipeline.offload is not None:
        raise PipelineError("offload", f"whose engines copy what is not known with {key}; leave the table out")
    if pipeline.data_parallel.per_pass:
        problem = f"which device gathers what for a pass is not known with {key}; expected false, got true"
        raise PipelineError("data_parallel.per_pass", problem)
    working = pipeline.memory.working
    if key == BACK and working is not None and (any(working) if isinstance(working, tuple) else working):
        given = list(map(plain, working)) if isinstance(working, tuple) else plain(working)
        problem = f"which device has it where backwards run elsewhere is not known; expected 0 beside {key}, got {given}"
        raise PipelineError("memory.working", problem)


def homes(pipeline: Pipeline) -> Routes:
    """``[route][stage]``: the device that keeps the stage's weights."""
    return pipeline.memory.weights_on or pipeline.routes


def devices_by_kind(pipeline: Pipeline) -> list[list[tuple[int, ...]]]:
    """``[route][kind]``: the devices of the stages."""
    back = pipeline.backward_routes or pipeline.routes
    return once_each(lambda on, other: [on if kind == Kind.F else other for kind in Kind], pipeline.routes, back)


def fetches(pipeline: Pipeline) -> list[list[list[Fetch | None]]]:
    """``[route][kind][stage]``: what an operation needs that its device does not keep; ``None``: nothing."""
    kept = homes(pipeline)
    return [
        [
            [
                Fetch(stage, kept[route][stage], device) if kind in NEEDS_WEIGHTS and device != kept[route][stage] else None
                for stage, device in enumerate(on)
            ]
            for kind, on in zip(Kind, by_kind, strict=True)
        ]
        for route, by_kind in enumerate(devices_by_kind(pipeline))
    ]


def fetched(pipeline: Pipeline) -> list[list[Fetch]]:
    """``[device]``: the weights that it takes from others at some time, each once, by stage; of routes that are taken."""
    found: list[set[Fetch]] = [set() for _ in range(pipeline.devices)]
    for route, by_kind in enumerate(fetches(pipeline)):
        if route in pipeline.route_of_microbatch:
            for kind in (Kind.F, Kind.B):
                for fetch in by_kind[kind]:
                    if fetch is not None:
                        found[fetch.device].add(fetch)
    return [sorted(of_device) for of_device in found]


def time_of(pipeline: Pipeline, fetch: Fetch) -> Fraction:
    """What a fetch takes (``links.weights``), in the user's unit."""
    table = pipeline.links.weights
    if table is None:
        return Fraction(0)
    return table[fetch.home][fetch.device] if isinstance(table, tuple) else table


def waits_for_weights(pipeline: Pipeline) -> ByKind | None:
    """By how much operations are longer because of what they fetch, in the user's unit; ``None``: none is."""
    if not pipeline.links.weights or pipeline.memory.weights_kept == STEP:
        return None
    return [
        [[Fraction(0) if fetch is None else time_of(pipeline, fetch) for fetch in row] for row in by_kind]
        for by_kind in fetches(pipeline)
    ]


def before_the_step(pipeline: Pipeline) -> list[Fraction]:
    """Per device, how long it fetches before its first operation what it keeps for the whole step, in the user's unit."""
    if not pipeline.links.weights or pipeline.memory.weights_kept != STEP:
        return [Fraction(0)] * pipeline.devices
    return [sum((time_of(pipeline, fetch) for fetch in of_device), Fraction(0)) for of_device in fetched(pipeline)]


def stored(pipeline: Pipeline) -> list[set[int]]:
    """``[device]``: the stages whose weights it keeps, for whatever route."""
    kept: list[set[int]] = [set() for _ in range(pipeline.devices)]
    for row in homes(pipeline):
        for stage, device in enumerate(row):
            kept[device].add(stage)
    return kept


def room_for_weights(pipeline: Pipeline, each: Value | None) -> list[Fraction]:
    """Per device, what it holds of weights throughout: those that it keeps, and room for what it fetches. That is the largest
    stage that it fetches, or all of them where they are kept for the step. ``each``: the weights of a stage."""
    if each is None:
        return [Fraction(0)] * pipeline.devices
    of = each if isinstance(each, tuple) else (each,) * pipeline.stages
    room = []
    for kept, others in zip(stored(pipeline), fetched(pipeline), strict=True):
        amounts = [of[fetch.stage] for fetch in others]
        copies = sum(amounts, Fraction(0)) if pipeline.memory.weights_kept == STEP else max(amounts, default=Fraction(0))
        room.append(sum((of[stage] for stage in kept), Fraction(0)) + copies)
    return room


class WeightUse(NamedTuple):
    """What a device does with weights in a step; times and amounts in the user's units."""

    stages_stored: int
    """How many stages' weights it keeps."""
    weights_stored: Fraction
    fetches: int
    """How often it fetches a stage's weights."""
    weights_fetched: Fraction
    """What that is together."""
    fetch_time: Fraction
    """How long it waits for that."""


def weight_use(pipeline: Pipeline, counts: list[list[list[int]]], each: Value | None) -> list[WeightUse]:
    """Per device. ``counts``: ``[route][kind][stage]``, how many operations are run; ``each``: the weights of a stage."""
    of = each if isinstance(each, tuple) else (each or Fraction(0),) * pipeline.stages
    made: list[list[Fetch]] = [[] for _ in range(pipeline.devices)]
    if pipeline.memory.weights_kept == STEP:
        made = fetched(pipeline)
    else:
        table = fetches(pipeline)
        for route, kind in product(range(len(table)), Kind):
            for stage, fetch in enumerate(table[route][kind]):
                if fetch is not None:
                    made[fetch.device] += [fetch] * counts[route][kind][stage]
    return [
        WeightUse(
            stages_stored=len(kept),
            weights_stored=sum((of[stage] for stage in kept), Fraction(0)),
            fetches=len(own),
            weights_fetched=sum((of[fetch.stage] for fetch in own), Fraction(0)),
            fetch_time=sum((time_of(pipeline, fetch) for fetch in own), Fraction(0)),
        )
        for kept, own in zip(stored(pipeline), made, strict=True)
    ]
