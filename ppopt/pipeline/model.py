"""The problem: a pipeline with its placement, costs, links and memory. Frozen, validated, hashable."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ppopt.op import OpIndex
from ppopt.pipeline import choices, rewriting
from ppopt.pipeline.amounts import Amounts, amounts_of, check_limit
from ppopt.pipeline.arrays import IntArray, by_row
from ppopt.pipeline.checks import check_activation, check_lengths, check_open_placement, check_passes, check_recompute
from ppopt.pipeline.choices import placements_of, read_chunks, read_counts
from ppopt.pipeline.cutting import check_step, counts_of, exchange_of, flat, given_parts, parts_of, read_levels, recomputing_of
from ppopt.pipeline.layers import Layers
from ppopt.pipeline.mix import Mix
from ppopt.pipeline.mix_routes import apart, check_mix, own_split
from ppopt.pipeline.moving import is_uneven, moved
from ppopt.pipeline.offload import Engine, Offload, check_settled, engines_of
from ppopt.pipeline.part_classes import check_parts
from ppopt.pipeline.partitions import BEST, Counts, check_stages, read_partition
from ppopt.pipeline.parts import Costs, Links, Memory, PipelineError, plain, whole
from ppopt.pipeline.recompute import CHOOSE, Recompute, read_recompute
from ppopt.pipeline.routes import Routes, read_split
from ppopt.pipeline.runtimes import check_routes, read_runtime
from ppopt.pipeline.scaling import check_quadratic
from ppopt.pipeline.ticks import Ticks, check_horizon, lines_of, ticks_of, work_of
from ppopt.pipeline.traffic import DataParallel
from ppopt.pipeline.units import Units
from ppopt.pipeline.work_map import PLACED, check_map, devices_by_kind, read_places, without_map

MAX_DEVICES = 1024
MAX_MICROBATCHES = 2**18


@dataclass(frozen=True)
class Pipeline:
    """D devices, M microbatches, the routes that these take, and what everything costs.

    ``routes`` are the devices of the stages, route by route; left empty they follow from ``placement`` and ``chunks`` (given,
    ``placement`` is ``"routes"``). ``backward_routes``: of backwards that run elsewhere (:mod:`ppopt.pipeline.work_map`).
    ``route_of_microbatch`` is by default the first half on route 0, the second on route 1. ``recompute`` says which stages
    recompute their activations: ``"none"``, ``"all"`` or a list of stages; durations and amounts are those of this choice.

    With ``layers``, costs and activations are those of the stages into which ``partition`` cuts them: ``"even"`` (the largest
    group of layers dealt equally), ``"balanced"`` (the least largest work of a device), ``"best"`` (left open, the default), or
    the number of layers of each stage. ``costs`` then has the optimizer alone, ``memory`` the limit and what is held beside the
    weights of the layers; ``recompute`` is a word, the name of a level, or one table per stage: ``{"decoder": {"full": 3}}``.

    A pipeline may leave choices *open*: ``placement="any"``, a list of ``chunks``, ``partition="best"``, ``recompute="choose"``;
    and it may ask for several ``microbatches``. :attr:`open` names them. A solver settles them; until then there are no stages
    and no times (:meth:`placements`, :meth:`cut`, :meth:`resolved` and :meth:`changed` give pipelines that have them). ``any``
    is linear once, loop and wave for each number of chunks above 1. ``chunks`` is by default 2 for loop, wave and any, else 1.
    ``name`` and ``units`` are labels and take no part in comparisons; nor does ``origin``, the tables of a model file from which
    the layers were estimated (:mod:`ppopt.transformer`). ``runtime="torch"``: operations take and hold what PyTorch makes of
    these costs (:mod:`ppopt.pipeline.runtimes`). ``mix``: how microbatches differ; then there are more ``routes`` than
    :attr:`ways` through the devices. ``offload``: what of the activations may be on the host between forward and backward.

    Raises:
        PipelineError: something is missing, out of range, of the wrong length, or cannot be satisfied by any schedule.
    """

    devices: int
    microbatches: int
    """A tuple, ascending, where several numbers are asked for."""
    placement: str = "linear"
    chunks: int = field(default=None)  # type: ignore[assignment]
    """A tuple where a list was given."""
    routes: Routes = ()
    route_of_microbatch: tuple[int, ...] = ()
    costs: Costs = field(default_factory=Costs)
    links: Links = field(default_factory=Links)
    memory: Memory = field(default_factory=Memory)
    name: str = field(default="", compare=False)
    units: Units = field(default_factory=Units, compare=False)
    recompute: Recompute = "none"
    data_parallel: DataParallel = field(default_factory=DataParallel)
    layers: Layers | None = None
    partition: str | Counts = ""
    origin: Mapping[str, Any] = field(default_factory=dict, compare=False)
    runtime: str = ""
    backward_routes: Routes = ()
    mix: Mix = field(default_factory=Mix)
    offload: Offload | None = None

    if TYPE_CHECKING:  # what may be given is more than what a settled pipeline has

        def __init__(
            self,
            devices: int,
            microbatches: int | Sequence[int],
            placement: str = "linear",
            chunks: int | Sequence[int] | None = None,
            routes: Sequence[Sequence[int]] = (),
            route_of_microbatch: Sequence[int] = (),
            costs: Costs = ...,
            links: Links = ...,
            memory: Memory = ...,
            name: str = "",
            units: Units = ...,
            recompute: str | Sequence[int] | Sequence[Mapping[str, Mapping[str, int]]] = "none",
            data_parallel: DataParallel = ...,
            layers: Layers | None = None,
            partition: str | Sequence[int] = "",
            origin: Mapping[str, Any] = ...,
            runtime: str = "",
            backward_routes: Sequence[Sequence[int]] = (),
            mix: Mix = ...,
            offload: Offload | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        self._set(
            devices=whole("pipeline.devices", self.devices, MAX_DEVICES),
            microbatches=read_counts("pipeline.microbatches", self.microbatches, MAX_MICROBATCHES),
            chunks=read_chunks(self.placement, self.chunks, bool(self.routes)),
            partition=read_partition(self.partition, self.layers),
            runtime=read_runtime(self.runtime),
        )
        check_parts(self)
        check_mix(self)
        if isinstance(self.chunks, tuple):
            check_open_placement(self)
            self._set(recompute=self.placements()[0].recompute)
        elif isinstance(self.microbatches, tuple):
            self._read_as_one()
        else:
            self._read_routes()
            self._read_parts()

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _read_as_one(self) -> None:
        """Take the fields of the pipelines that each have one of the numbers of microbatches."""
        if self.route_of_microbatch:
            raise PipelineError("pipeline.route_of_microbatch", "belongs to one number of microbatches; several are asked for")
        for microbatches in self.microbatches[0], self.microbatches[-1]:  # type: ignore[index]
            one = self.changed(microbatches=microbatches)
        self._set(**{name: getattr(one, name) for name in PLACED})

    def _read_routes(self) -> None:
        self._set(**read_places(self))
        check_map(self)
        self._set(route_of_microbatch=read_split(self.route_of_microbatch, self.microbatches, len(self.routes)))
        self._set(**apart(self))
        check_routes(self)

    def _read_parts(self) -> None:
        self.links.validate(self.devices)
        check_passes(self)
        if self.layers is not None:
            self._read_layers(self.layers)
        check_lengths(self)
        if self.partition == BEST:
            check_settled(self)
            return
        if self.layers is None:
            self._set(recompute=read_recompute(self.recompute, self.stages))
        check_activation(self)
        check_quadratic(self)
        check_recompute(self)
        if self.offload is not None:
            self.offload.validate(self)
        if self.recompute == CHOOSE:
            choices.saving_most(self)  # it has to fit
        else:
            check_limit(self)
            check_horizon(self)

    def _read_layers(self, layers: Layers) -> None:
        if isinstance(self.partition, tuple) and len(self.partition) != self.stages:
            problem = f"expected one number per stage ({self.stages}), got {len(self.partition)}"
            raise PipelineError("pipeline.partition", problem)
        if not isinstance(self.partition, tuple):
            check_stages(layers, self.stages)
        check_step(self, layers)
        counts = None if self.partition == BEST else self.counts
        self._set(recompute=read_levels(self.recompute, layers, counts, self.stages))
        if counts is not None:
            costs, memory = parts_of(self)
            self._set(costs=costs, memory=memory, data_parallel=exchange_of(self))

    # --- what is left open, and other choices ---

    @property
    def open(self) -> tuple[str, ...]:
        """The keys of the model file that leave something open: placement, chunks, partition, recompute, microbatches."""
        return choices.left_open(self)

    def settled(self) -> Pipeline:
        """The pipeline itself, once it is certain that it leaves nothing open.

        Raises:
            PipelineError: it leaves something open; names the key.
        """
        for key in self.open:
            raise choices.problem(self, key)
        return self

    def _with_routes(self) -> Pipeline:
        """As :meth:`settled`; but which stages recompute may be open."""
        return self if self.routes and not isinstance(self.microbatches, tuple) else self.settled()

    def _with_costs(self) -> Pipeline:
        """As :meth:`_with_routes`; but not the partition."""
        if self.partition == BEST:
            raise choices.problem(self, "pipeline.partition")
        return self._with_routes()

    def placements(self) -> tuple[Pipeline, ...]:
        """The pipelines among which ``placement`` and ``chunks`` leave the choice; just this one where they leave none."""
        return self._closed if isinstance(self.chunks, tuple) else (self,)

    @cached_property
    def _closed(self) -> tuple[Pipeline, ...]:
        places = placements_of(self.placement, self.chunks)
        if self.layers is not None:  # without those that have more stages than there are layers
            fit = [(placement, chunks) for placement, chunks in places if self.devices * chunks <= len(self.layers)]
            places = fit or places[:1]
        split = self.route_of_microbatch
        return tuple(self.changed(placement=placement, chunks=chunks, route_of_microbatch=split) for placement, chunks in places)

    def cut(self) -> Pipeline:
        """The same pipeline with a balanced partition where its partition is left open."""
        split = self.route_of_microbatch
        return self.changed(partition="balanced", route_of_microbatch=split) if self.partition == BEST else self

    def changed(self, **changes: Any) -> Pipeline:
        """A copy with other fields; what follows from them is derived anew. With other costs layers become costs per stage."""
        if self.layers is not None:
            if "costs" not in changes:
                changes = {**given_parts(self), **changes}
            elif "layers" not in changes:
                changes = {**flat(self, changes.pop("memory", None)), **changes}
        derived = {"microbatches", "routes", "placement", "chunks", "devices"}
        changes = own_split(self, changes, derived)
        if changes.keys() & derived and "route_of_microbatch" not in changes:
            changes["route_of_microbatch"] = ()
        changes = without_map(self, changes)
        if "routes" not in changes and (self.placement != "routes" or "placement" in changes):
            changes["routes"] = ()  # they follow from the placement, which keeps its name
        return dataclasses.replace(self, **changes)

    def resolved(self, recompute: Recompute | Iterable[int]) -> Pipeline:
        """The same pipeline with another choice of the stages that recompute.

        Raises:
            PipelineError: the memory limit is too low for it, or there is no such stage.
        """
        stages = recompute if isinstance(recompute, str) else tuple(recompute)
        return self.changed(recompute=stages, route_of_microbatch=self.route_of_microbatch)

    def placed(self, placement: str, chunks: int | Sequence[int] = 1) -> Pipeline:
        """The same devices with another placement (``"any"`` leaves it open) and the same work per device.

        A device spends on a microbatch there, and holds for it, the average over all microbatches of what it spends and holds
        here: on all its stages of the microbatch's route, nothing where the route does not visit it. Costs and activations given
        per stage thus become those of the device. Of its weights (``memory.static``) it keeps the share of microbatches that
        visit it here. Where some stages recompute, this is part of the costs from then on. Data-parallel traffic per stage
        becomes that of the device. On the same routes nothing changes but the name of the placement.

        Raises:
            PipelineError: there is no such placement, the memory limit is too low on it, or there is data-parallel traffic and
                some microbatch does not visit every device; or several numbers of microbatches share several routes here.
        """
        if self.placement == placement and self.chunks == chunks:
            return self
        return moved(self._somewhere(), {"placement": placement, "chunks": chunks})

    def rerouted(self, routes: Routes, route_of_microbatch: tuple[int, ...] = ()) -> Pipeline:
        """The same devices on routes that are written out, with the same work per device (:meth:`placed`).
        Where a route there visits only some of the devices, fewer microbatches visit each, and each of them costs more.

        Raises:
            PipelineError: as :meth:`placed`, the routes are not valid, or a device that works here is not visited there.
        """
        split = {"route_of_microbatch": route_of_microbatch} if route_of_microbatch else {}
        return moved(self._somewhere(), {"routes": routes, **split})

    def _somewhere(self) -> Pipeline:
        """On one of its placements, where that is open: costs are per device then."""
        return self if self.routes else self.placements()[0]

    def per_stage(self) -> Pipeline:
        """:func:`ppopt.pipeline.rewriting.per_stage`."""
        return rewriting.per_stage(self)

    def written_out(self) -> Pipeline:
        """The same durations and amounts, but no stage recomputes: its time and its memory are part of the costs and the memory.
        :class:`PipelineError`: as :meth:`per_stage`, if stages recompute; or which stages do is left open."""
        return rewriting.written_out(self)

    def flat(self) -> Pipeline:
        """The same pipeline with costs and memory per stage in place of layers."""
        return self if self.layers is None else self.changed(costs=self.costs)

    # --- stages, routes and operations ---

    @cached_property
    def counts(self) -> Counts:
        """The number of layers of each stage, of a pipeline of layers; :class:`PipelineError` where the partition is open."""
        return counts_of(self)

    @property
    def ways(self) -> Routes:
        """The ways through the devices: :attr:`routes`, but one for those on which microbatches merely differ."""
        return tuple(dict.fromkeys(self.routes)) if self.mix.differs else self.routes

    @cached_property
    def stages(self) -> int:
        """S, the number of stages of a route."""
        return len(self._with_routes().routes[0])

    @cached_property
    def index(self) -> OpIndex:
        """Numbers for this pipeline's operations."""
        self._with_routes()
        return OpIndex(self.stages, self.microbatches, self.costs.weight_pieces)

    @cached_property
    def route_by_microbatch(self) -> IntArray:
        """:attr:`route_of_microbatch` as an array."""
        return np.asarray(self.route_of_microbatch, dtype=np.int64)

    @cached_property
    def microbatches_of(self) -> tuple[IntArray, ...]:
        """For each route its microbatches, ascending."""
        return tuple(np.flatnonzero(self.route_by_microbatch == r) for r in range(len(self.routes)))

    @cached_property
    def device_of(self) -> IntArray:
        """``[route, stage]`` -> device."""
        return np.asarray(self._with_routes().routes, dtype=np.int64)

    @cached_property
    def device_by_kind(self) -> IntArray:
        """``[route, row, stage]`` -> device; rows as in :attr:`Ticks.duration`."""
        return by_row(self, np.asarray(devices_by_kind(self._with_routes()), dtype=np.int64))

    @property
    def places(self) -> tuple[Routes, Routes, tuple[int, ...]]:
        """The devices of forwards and backwards, and where routes differ who takes which: with the same, the same orders fit."""
        return self.routes, self.backward_routes, self.route_of_microbatch if len(self.ways) > 1 else ()

    @property
    def recomputing(self) -> frozenset[int]:
        """The stages that recompute.

        Raises:
            PipelineError: that is left open.
        """
        return recomputing_of(self)

    # --- times and amounts ---

    @cached_property
    def ticks(self) -> Ticks:
        """Durations, latencies and occupancies as integers."""
        return ticks_of(self._with_costs())

    @cached_property
    def amounts(self) -> Amounts:
        """Memory as integers."""
        return amounts_of(self._with_costs())

    @cached_property
    def lines(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The links that transfers hold, each as the pairs of devices ``(from, to)`` that send over it; shared links first."""
        return lines_of(self)

    @cached_property
    def engines(self) -> tuple[Engine, ...]:
        """The engines that make copies to the host and back."""
        return engines_of(self)

    @cached_property
    def work(self) -> IntArray:
        """``[device]``: the least work in ticks, every backward run the cheaper way; without overlapped pairs."""
        return work_of(self)

    @cached_property
    def uneven(self) -> bool:
        """Whether devices or stages differ in their costs or activations (:func:`ppopt.pipeline.moving.is_uneven`)."""
        return is_uneven(self)

    def time(self, ticks: int) -> int | float:
        """Ticks in the user's unit: an integer where whole, else the nearest double."""
        return plain(Fraction(int(ticks), self.ticks.per_unit))

    def amount(self, units: int) -> int | float:
        """An integer amount of memory (:attr:`amounts`) in the user's unit."""
        return plain(Fraction(int(units), self.amounts.per_unit))
