"""The problem: a pipeline with its placement, costs, links and memory. Frozen, validated, hashable."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ppopt.op import Kind, OpIndex
from ppopt.pipeline import choices
from ppopt.pipeline.choices import ANY, placements_of, read_chunks, read_counts
from ppopt.pipeline.parts import (
    DURATIONS,
    Costs,
    DataParallel,
    Links,
    Memory,
    PipelineError,
    Table,
    Units,
    Value,
    check_length,
    plain,
    whole,
)
from ppopt.pipeline.recompute import CHOOSE, Recompute, read_recompute
from ppopt.pipeline.routes import MAX_STAGES, Routes, explicit_routes, routes_of, split_evenly

IntArray: TypeAlias = npt.NDArray[np.int64]
Rows: TypeAlias = Sequence[Sequence[Fraction | None]]

MAX_DEVICES = 1024
MAX_MICROBATCHES = 2**18
MAX_OPS = 10**7
"""Largest number of operations (three per stage and microbatch) that a pipeline may have."""


class Ticks(NamedTuple):
    """All times of a pipeline as integers: ``ticks = time * per_unit``. Arrays are int64; -1 = there is no such operation."""

    per_unit: int
    duration: IntArray
    """``[route, kind, stage]``."""
    overlap: IntArray
    """``[route, stage]``: duration of a pair whose forward is of that stage; -1 = forward + backward."""
    latency: IntArray
    """``[from, to]``, 0 on the diagonal: from the end of a transfer to the consumer's earliest start."""
    occupancy: IntArray
    """``[from, to]``, 0 on the diagonal: how long a transfer holds its link."""
    sending: IntArray
    """``[route, send, stage]``: how long a transfer from the stage holds its link, forward results first, then gradients;
    0: there is no transfer that holds a link."""
    gather: IntArray
    """``[route, stage]``: how long after the begin of its device's all-gather the stage's first operation may start."""
    scatter: IntArray
    """``[route, stage]``: how long after the stage's last operation its device's reduce-scatter ends at least."""

    @property
    def lag(self) -> IntArray:
        """``[from, to]``: from the producer's end to the consumer's earliest start where nobody else needs the link."""
        return self.latency + self.occupancy

    @property
    def traffic(self) -> bool:
        """Whether some device has an all-gather or a reduce-scatter."""
        return bool(self.gather.any() or self.scatter.any())


class Amounts(NamedTuple):
    """All amounts of memory of a pipeline as integers: ``amount = memory * per_unit``."""

    per_unit: int
    activation: IntArray
    """``[route, stage]``."""
    retained: IntArray
    """``[route, stage]``."""
    static: IntArray
    """``[device]``, all copies together."""
    limit: IntArray | None
    """``[device]``, or ``None``: unlimited."""


@dataclass(frozen=True)
class Pipeline:
    """D devices, M microbatches, the routes that these take, and what everything costs.

    ``routes`` are the devices of the stages, route by route; left empty they follow from ``placement`` and ``chunks``
    (given, ``placement`` is ``"routes"``). ``route_of_microbatch`` is by default the first half on route 0, the second on
    route 1. ``recompute`` says which stages recompute their activations: ``"none"``, ``"all"`` or a list of stages; durations and
    amounts are those of this choice.

    A pipeline may leave choices *open*: ``placement="any"``, a list of ``chunks``, ``recompute="choose"``; and it may ask for
    several ``microbatches``. :attr:`open` names them. A solver settles them; until then there are no stages and no times
    (:meth:`placements`, :meth:`resolved` and :meth:`changed` give pipelines that have them). ``any`` is linear once, loop and
    wave for each number of chunks above 1. ``chunks`` is by default 2 for loop, wave and any, else 1.
    ``name`` and ``units`` are labels and take no part in comparisons.

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
            recompute: str | Sequence[int] = "none",
            data_parallel: DataParallel = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "devices", whole("pipeline.devices", self.devices, MAX_DEVICES))
        set_(self, "microbatches", read_counts("pipeline.microbatches", self.microbatches, MAX_MICROBATCHES))
        set_(self, "chunks", read_chunks(self.placement, self.chunks, bool(self.routes)))
        stages = self.devices * (max(self.chunks) if isinstance(self.chunks, tuple) else self.chunks)
        if stages > MAX_STAGES:
            raise PipelineError("pipeline.chunks", f"at most {MAX_STAGES} stages are supported, got {stages}")
        if isinstance(self.chunks, tuple):
            self._check_placements()
            return
        if isinstance(self.microbatches, tuple):
            self._check_microbatches()
            return
        if self.routes:
            set_(self, "placement", "routes")
            set_(self, "routes", explicit_routes(self.routes, self.devices))
            stages = len(self.routes[0])
            if self.chunks != 1 and self.chunks != stages // self.devices:
                problem = f"the routes have {stages} stages on {self.devices} devices, got {self.chunks}"
                raise PipelineError("pipeline.chunks", problem)
            set_(self, "chunks", max(1, stages // self.devices))
        else:
            set_(self, "routes", routes_of(self.placement, self.devices, self.chunks))
        operations = 3 * self.stages * self.microbatches
        if operations > MAX_OPS:
            problem = f"at most {MAX_OPS} operations (3 x stages x microbatches) are supported, got {operations}"
            raise PipelineError("pipeline.microbatches", problem)
        set_(self, "route_of_microbatch", self._split_over_routes())
        self._check_lengths()
        self.links.validate(self.devices)
        set_(self, "recompute", read_recompute(self.recompute, self.stages))
        self._check_amounts()
        self._check_recompute()
        if self.recompute == CHOOSE:
            self.resolved("all")  # takes the longest and holds the least
            return
        self._check_limit()
        if self._horizon() >= 2**61:
            raise PipelineError("costs", "the times have no common tick that is coarse enough; give them with fewer digits")

    def _check_placements(self) -> None:
        """Raise where something cannot be said of several placements, or does not fit one of them."""
        if len(placements_of(self.placement, self.chunks)) > 1 or self.placement == ANY:
            problem = "belongs to one placement and number of chunks, and these are left open; "
            for table, per in (("costs", self.costs.per), ("data_parallel", self.data_parallel.per)):
                if per == "stage":
                    raise PipelineError(f"{table}.per", f'"stage" {problem}expected "device"')
            if not isinstance(self.recompute, str):
                raise PipelineError("pipeline.recompute", f'a list of stages {problem}expected "none", "all" or "choose"')
        object.__setattr__(self, "recompute", self.placements()[0].recompute)

    def _check_microbatches(self) -> None:
        """Raise where one of the numbers of microbatches is not possible."""
        if self.route_of_microbatch:
            raise PipelineError("pipeline.route_of_microbatch", "belongs to one number of microbatches; several are asked for")
        for microbatches in self.microbatches[0], self.microbatches[-1]:  # type: ignore[index]
            closed = self.changed(microbatches=microbatches)
        for name in ("placement", "chunks", "routes", "recompute"):
            object.__setattr__(self, name, getattr(closed, name))

    @property
    def open(self) -> tuple[str, ...]:
        """The keys of the model file that leave something open: pipeline.placement, .chunks, .recompute, .microbatches."""
        return choices.left_open(self)

    def settled(self) -> Pipeline:
        """The pipeline itself, once it is certain that it leaves nothing open.

        Raises:
            PipelineError: it leaves something open; names the key.
        """
        for key in self.open:
            raise choices.problem(self, key)
        return self

    def placements(self) -> tuple[Pipeline, ...]:
        """The pipelines among which ``placement`` and ``chunks`` leave the choice; just this one where they leave none."""
        return self._closed if isinstance(self.chunks, tuple) else (self,)

    @cached_property
    def _closed(self) -> tuple[Pipeline, ...]:
        return tuple(
            self.changed(placement=placement, chunks=chunks, route_of_microbatch=self.route_of_microbatch)
            for placement, chunks in placements_of(self.placement, self.chunks)
        )

    def _split_over_routes(self) -> tuple[int, ...]:
        given = self.route_of_microbatch
        if not given:
            return split_evenly(self.microbatches, len(self.routes))
        key = "pipeline.route_of_microbatch"
        if len(given) != self.microbatches:
            raise PipelineError(key, f"expected {self.microbatches} routes (one per microbatch), got {len(given)}")
        for m, route in enumerate(given):
            if isinstance(route, bool) or not isinstance(route, int) or not 0 <= route < len(self.routes):
                raise PipelineError(f"{key}[{m}]", f"expected a route 0..{len(self.routes) - 1}, got {route!r}")
        return tuple(given)

    def _check_lengths(self) -> None:
        per, length = self.costs.per, self.stages if self.costs.per == "stage" else self.devices
        for name in DURATIONS:
            check_length(f"costs.{name}", getattr(self.costs, name), length, per)
        check_length("memory.activation", self.memory.activation, length, per)
        check_length("memory.retained", self.memory.retained, length, per)
        check_length("memory.recompute_saved", self.memory.recompute_saved, length, per)
        check_length("memory.static", self.memory.static, self.devices, "device")
        check_length("memory.limit", self.memory.limit, self.devices, "device")
        per = self.data_parallel.per
        length = self.stages if per == "stage" else self.devices
        check_length("data_parallel.all_gather", self.data_parallel.all_gather, length, per)
        check_length("data_parallel.reduce_scatter", self.data_parallel.reduce_scatter, length, per)

    def _check_amounts(self) -> None:
        """Raise where a part of the activation is more than the activation."""
        activation = self._by_stage(self.memory.activation)
        for name, problem in (
            ("retained", "more is retained after the input gradient than the activation holds"),
            ("recompute_saved", "more is saved by recomputing than the activation holds"),
        ):
            given = getattr(self.memory, name)
            part = activation if given is None else self._by_stage(given)
            for route, rows in enumerate(zip(part, activation, strict=True)):
                for stage, (some, most) in enumerate(zip(*rows, strict=True)):
                    if some is not None and most is not None and some > most:
                        index = stage if self.costs.per == "stage" else self.routes[route][stage]
                        raise PipelineError(f"memory.{name}[{index}]" if isinstance(given, tuple) else f"memory.{name}", problem)

    def _check_recompute(self) -> None:
        """Raise where stages are to recompute, but what that takes and saves is not said."""
        if self.recompute == "none":
            return
        for key, value in (("costs.recompute", self.costs.recompute), ("memory.recompute_saved", self.memory.recompute_saved)):
            if value is None:
                raise PipelineError(key, "missing; pipeline.recompute needs it")
        if self.costs.overlap is not None:
            problem = "what an overlapped pair takes with recomputing is not known; leave it out (forward + backward)"
            raise PipelineError("costs.overlap", problem)

    def _check_limit(self) -> None:
        amounts = self.amounts
        if amounts.limit is None:
            return
        for device in range(self.devices):
            least = max(
                sum(int(amounts.activation[r, s]) for s in range(self.stages) if route[s] == device)
                for r, route in enumerate(self.routes)
                if r in self.route_of_microbatch
            ) + int(amounts.static[device])
            if least > amounts.limit[device]:
                key = f"memory.limit[{device}]" if isinstance(self.memory.limit, tuple) else "memory.limit"
                raise PipelineError(
                    key,
                    f"device {device} needs at least {plain(Fraction(least, amounts.per_unit))} (its static memory and one "
                    f"microbatch's activations), got {plain(Fraction(int(amounts.limit[device]), amounts.per_unit))}",
                )

    def _horizon(self) -> int:
        """No schedule that wastes no time is longer than this many ticks."""
        ticks = self.ticks
        per_microbatch = sum(int(max(ticks.duration[:, kind].sum(axis=1).max(), 0)) for kind in Kind)
        traffic = int(ticks.gather.max() + ticks.scatter.max())
        return self.microbatches * (per_microbatch + 2 * self.stages * int(ticks.lag.max())) + traffic + 1

    def changed(self, **changes: Any) -> Pipeline:
        """A copy with other fields; what follows from a changed field (routes, microbatches' routes) is derived anew."""
        derived = {"microbatches", "routes", "placement", "chunks", "devices"}
        if changes.keys() & derived and "route_of_microbatch" not in changes:
            changes["route_of_microbatch"] = ()
        if "routes" not in changes and (self.placement != "routes" or "placement" in changes):
            changes["routes"] = ()  # they follow from the placement, which keeps its name
        return dataclasses.replace(self, **changes)

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
        return self._moved({"placement": placement, "chunks": chunks})

    def rerouted(self, routes: Routes, route_of_microbatch: tuple[int, ...] = ()) -> Pipeline:
        """The same devices on routes that are written out, with the same work per device (:meth:`placed`).

        Where a route there visits only some devices, a microbatch that visits a device costs it as much more.

        Raises:
            PipelineError: as :meth:`placed`, the routes are none, or a device that works here is not visited there.
        """
        split = {"route_of_microbatch": route_of_microbatch} if route_of_microbatch else {}
        return self._moved({"routes": routes, **split})

    def _moved(self, place: dict[str, Any]) -> Pipeline:
        """The same devices in another place, which ``place`` gives as fields of a pipeline."""
        if isinstance(self.microbatches, tuple):
            if len(self.routes) > 1:
                problem = "several numbers of microbatches share the routes in different ways; expected one"
                raise PipelineError("pipeline.microbatches", problem)
            one = self.changed(microbatches=self.microbatches[0])._moved(place)
            return one.changed(microbatches=self.microbatches)
        routes, chunks, split = self._place(place)
        if routes == self.routes and not isinstance(chunks, tuple):
            return self.changed(**{"route_of_microbatch": self.route_of_microbatch, **place})
        visits = list(zip(self._visits, _visits(self.devices, routes, split), strict=True))
        unvisited = [device for device, (here, elsewhere) in enumerate(visits) if here and not elsewhere]
        if unvisited:
            raise PipelineError("pipeline.routes", f"device {unvisited[0]} would have no work: no microbatch visits it")
        everywhere = all(here == elsewhere == self.microbatches for here, elsewhere in visits)
        changes: dict[str, Any] = {**place, "chunks": chunks, "route_of_microbatch": split if "routes" in place else ()}
        if self.data_parallel.per == "stage":
            gather, scatter = (
                tuple(sum(part.values(), Fraction(0)) for part in self._exchanged(value)) for value in self._traffic
            )
            changes["data_parallel"] = dataclasses.replace(
                self.data_parallel, all_gather=gather, reduce_scatter=scatter, per="device"
            )
        if not everywhere and any(_largest([value if isinstance(value, tuple) else (value,)]) for value in self._traffic):
            problem = (
                "what a device exchanges on another placement is not known where microbatches visit only some of the devices"
            )
            raise PipelineError("data_parallel", problem)
        settled = isinstance(self.recompute, tuple)
        if everywhere and self.costs.per == "device" and not settled:
            return self.changed(**changes)

        def spread(table: Rows) -> Value | None:
            """The value per device there of which each microbatch has, on average, as much as of ``table[route][stage]`` here."""
            total = self._totals(table)
            if total is None:
                return None
            return _one_or_all([whole_ / (elsewhere or 1) for whole_, (_, elsewhere) in zip(total, visits, strict=True)])

        costs: dict[str, Rows] = {name: self._by_stage(getattr(self.costs, name)) for name in DURATIONS}
        parts = ("activation", "retained", "recompute_saved")
        memory: dict[str, Rows] = {name: self._by_stage(getattr(self.memory, name)) for name in parts}
        if settled:
            none: Rows = [[None] * self.stages for _ in self.routes]
            extras = self._if_recomputing(self.costs.recompute)
            for name in ("backward_input", "backward"):
                costs[name] = _added(costs[name], extras)
            costs["recompute"] = memory["recompute_saved"] = none
            memory["activation"], memory["retained"] = self._held()
            changes["recompute"] = "none"
        changes["costs"] = Costs(per="device", **{name: spread(table) for name, table in costs.items()})  # type: ignore[arg-type]
        held: dict[str, Any] = {name: spread(table) for name, table in memory.items()}
        if not everywhere:
            held["static"] = _one_or_all(
                [_at(self.memory.static, d) * here / (elsewhere or 1) for d, (here, elsewhere) in enumerate(visits)]
            )
        changes["memory"] = dataclasses.replace(self.memory, **held)
        return self.changed(**changes)

    def _place(self, place: dict[str, Any]) -> tuple[Routes, int | tuple[int, ...], tuple[int, ...]]:
        """The routes of a place, of the first where it leaves several open; its chunks; and the route of each microbatch."""
        if "routes" in place:
            routes = explicit_routes(place["routes"], self.devices)
            split = place.get("route_of_microbatch") or split_evenly(self.microbatches, len(routes))
            return routes, max(1, len(routes[0]) // self.devices), split
        placement, chunks = place["placement"], read_chunks(place["placement"], place["chunks"], False)
        first, count = placements_of(placement, chunks)[0]
        routes = routes_of(first, self.devices, count)
        return routes, chunks, split_evenly(self.microbatches, len(routes))

    @cached_property
    def _visits(self) -> tuple[int, ...]:
        """``[device]``: how many microbatches visit it."""
        return _visits(self.devices, self.routes, self.route_of_microbatch)

    def _totals(self, table: Rows) -> list[Fraction] | None:
        """``[device]``: the sum of ``table[route][stage]`` over microbatches and the device's stages; ``None``: there is none."""
        totals = [Fraction(0)] * self.devices
        for route, microbatches, row in zip(self.routes, self.microbatches_of, table, strict=True):
            for device, value in zip(route, row, strict=True):
                if value is None:
                    return None
                totals[device] += value * len(microbatches)
        return totals

    @cached_property
    def uneven(self) -> bool:
        """Whether devices or stages differ in their costs or activations.

        They do where a list of durations, or of what a microbatch holds, has different values, and where what the microbatches
        take of one device altogether differs from another's. Which stages recompute makes no difference.
        """
        for part, names in ((self.costs, DURATIONS), (self.memory, ("activation", "retained", "recompute_saved"))):
            for name in names:
                value = getattr(part, name)
                totals = self._totals(self._by_stage(value))
                if totals is not None and (len(set(totals)) > 1 or (isinstance(value, tuple) and len(set(value)) > 1)):
                    return True
        return False

    def resolved(self, recompute: Recompute | Iterable[int]) -> Pipeline:
        """The same pipeline with another choice of the stages that recompute.

        Raises:
            PipelineError: the memory limit is too low for it, or there is no such stage.
        """
        stages = recompute if isinstance(recompute, str) else tuple(recompute)
        return self.changed(recompute=stages, route_of_microbatch=self.route_of_microbatch)

    def per_stage(self) -> Pipeline:
        """The same pipeline with costs and activations per stage.

        Raises:
            PipelineError: a stage has other costs on another route, which cannot be said per stage.
        """
        if self.costs.per == "stage":
            return self

        def listed(key: str, value: Value | None) -> tuple[Fraction | None, ...] | None:
            rows = self._by_stage(value)
            if any(row != rows[0] for row in rows):
                raise PipelineError(
                    key, "the routes have different values for a stage; recompute of some stages needs equal ones"
                )
            return None if value is None else tuple(rows[0])

        costs: dict[str, Any] = {name: listed(f"costs.{name}", getattr(self.costs, name)) for name in DURATIONS}
        parts = ("activation", "retained", "recompute_saved")
        memory: dict[str, Any] = {name: listed(f"memory.{name}", getattr(self.memory, name)) for name in parts}
        return self.changed(
            costs=Costs(per="stage", **costs),
            memory=dataclasses.replace(self.memory, **memory),
            route_of_microbatch=self.route_of_microbatch,
        )

    def written_out(self) -> Pipeline:
        """The same durations and amounts, with nothing to recompute: what that takes and saves is in the costs and the memory.

        Raises:
            PipelineError: as :meth:`per_stage`, if stages recompute.
        """
        if self.recompute == "none":
            costs, memory = (
                dataclasses.replace(self.costs, recompute=None),
                dataclasses.replace(self.memory, recompute_saved=None),
            )
            return self.changed(costs=costs, memory=memory, route_of_microbatch=self.route_of_microbatch)
        each = self.per_stage()
        activation, retained = each._held()
        extra = each._if_recomputing(each.costs.recompute)[0]
        longer: dict[str, Any] = {
            name: tuple(
                value + longer_by
                for value, longer_by in zip(each._by_stage(getattr(each.costs, name))[0], extra, strict=True)
                if value is not None
            )
            for name in ("backward_input", "backward")
            if getattr(each.costs, name) is not None
        }
        return each.changed(
            recompute="none",
            costs=dataclasses.replace(each.costs, recompute=None, **longer),
            memory=dataclasses.replace(
                each.memory, activation=tuple(activation[0]), retained=tuple(retained[0]), recompute_saved=None
            ),
            route_of_microbatch=self.route_of_microbatch,
        )

    @property
    def recomputing(self) -> frozenset[int]:
        """The stages that recompute.

        Raises:
            PipelineError: that is left open.
        """
        if self.recompute == CHOOSE:
            raise PipelineError(
                "pipeline.recompute",
                '"choose" leaves open which stages recompute; only solve decides it, and compare shows none and all; '
                'expected "none", "all" or a list of stages here',
            )
        if self.recompute == "none":
            return frozenset()
        return frozenset(range(self.stages) if self.recompute == "all" else self.recompute)

    def _if_recomputing(self, value: Value | None) -> list[list[Fraction]]:
        """``[route][stage]``: the value where the stage recomputes, else 0."""
        chosen = self.recomputing
        table = self._by_stage(value)
        return [[x if x is not None and s in chosen else Fraction(0) for s, x in enumerate(row)] for row in table]

    def _held(self) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
        """``[route][stage]``: what is held from F to the backward, and what of it is retained until the weight gradient."""
        saved = self._if_recomputing(self.memory.recompute_saved)
        held, retained = [], []
        for whole_, kept, less in zip(
            self._by_stage(self.memory.activation), self._by_stage(self.memory.retained), saved, strict=True
        ):
            held.append([a - x for a, x in zip(whole_, less, strict=True) if a is not None])
            retained.append([h if r is None else min(r, h) for r, h in zip(kept, held[-1], strict=True)])
        return held, retained

    def _settled(self) -> Pipeline:
        """As :meth:`settled`; but which stages recompute may be open."""
        return self if self.routes and not isinstance(self.microbatches, tuple) else self.settled()

    @property
    def stages(self) -> int:
        """S, the number of stages of a route."""
        return len(self._settled().routes[0])

    @cached_property
    def index(self) -> OpIndex:
        """Numbers for this pipeline's operations."""
        self._settled()
        return OpIndex(self.stages, self.microbatches)

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
        self._settled()
        return np.asarray(self.routes, dtype=np.int64)

    @cached_property
    def ticks(self) -> Ticks:
        """Durations, latencies and occupancies as integers."""
        self._settled()
        costs = self.costs
        forward, weight = self._by_stage(costs.forward), self._by_stage(costs.backward_weight)
        input_ = self._by_stage(costs.backward_input)
        backward = _added(input_, weight) if costs.backward is None else self._by_stage(costs.backward)
        extras = self._if_recomputing(costs.recompute)
        backward, input_ = (_added(table, extras) for table in (backward, input_))
        overlap = self._by_stage(costs.overlap)
        latency, occupancy = (self._by_link(table) for table in (self.links.latency, self.links.occupancy))
        gather, scatter = (self._from_stage_down(value) for value in self._traffic)
        tables: Rows = [*forward, *backward, *input_, *weight, *overlap, *latency, *occupancy, *gather, *scatter]
        per_unit = _common_denominator(tables)
        if _largest(tables) * per_unit >= 2**61:
            raise PipelineError("costs", "the times have no common tick that is coarse enough; give them with fewer digits")
        by_kind = [[forward[r], backward[r], input_[r], weight[r]] for r in range(len(self.routes))]
        held = np.array([_scaled(row, per_unit) for row in occupancy], dtype=np.int64)
        device = self.device_of
        sending = np.zeros((len(self.routes), 2, self.stages), dtype=np.int64)
        sending[:, 0, :-1] = held[device[:, :-1], device[:, 1:]]
        sending[:, 1, 1:] = held[device[:, 1:], device[:, :-1]]
        return Ticks(
            per_unit,
            np.array([[_scaled(row, per_unit) for row in kinds] for kinds in by_kind], dtype=np.int64),
            np.array([_scaled(row, per_unit) for row in overlap], dtype=np.int64),
            np.array([_scaled(row, per_unit) for row in latency], dtype=np.int64),
            held,
            sending,
            np.array([_scaled(row, per_unit) for row in gather], dtype=np.int64),
            np.array([_scaled(row, per_unit) for row in scatter], dtype=np.int64),
        )

    @property
    def _traffic(self) -> tuple[Value, Value]:
        return self.data_parallel.all_gather, self.data_parallel.reduce_scatter

    def _exchanged(self, value: Value) -> list[dict[int, Fraction]]:
        """By device, and by each stage that it holds for some route, what it exchanges."""
        held = [{s for route in self.routes for s, device in enumerate(route) if device == d} for d in range(self.devices)]
        if self.data_parallel.per == "stage":
            return [{s: _at(value, s) for s in sorted(stages)} for stages in held]
        return [{s: _at(value, d) / len(stages) for s in sorted(stages)} for d, stages in enumerate(held)]

    def _from_stage_down(self, value: Value) -> list[list[Fraction]]:
        """``[route][stage]``: what the stage's device exchanges for this and earlier stages; for all of them without overlap."""
        exchanged = self._exchanged(value)
        overlap = self.data_parallel.overlap
        return [
            [
                sum((part for other, part in exchanged[device].items() if other <= stage or not overlap), Fraction(0))
                for stage, device in enumerate(route)
            ]
            for route in self.routes
        ]

    @cached_property
    def lines(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The links that transfers hold: the pairs of devices ``(from, to)`` of each that stages send over, shared ones first."""
        device, sending = self.device_of, self.ticks.sending
        used = {
            (int(device[route, stage]), int(device[route, stage + (-1 if send else 1)]))
            for route, send, stage in np.argwhere(sending > 0).tolist()
        }
        groups = [tuple(pair for pair in group if pair in used) for group in self.links.shared]
        alone = sorted(used.difference(*groups))
        return (*(group for group in groups if group), *((pair,) for pair in alone))

    def _by_link(self, table: Table) -> list[list[Fraction]]:
        """``[from][to]`` of a table, or of one number for all links."""
        if isinstance(table, Fraction):
            return [[table * (a != b) for b in range(self.devices)] for a in range(self.devices)]
        return [list(row) for row in table]

    @cached_property
    def amounts(self) -> Amounts:
        """Memory as integers."""
        self._settled()
        memory = self.memory
        activation, retained = self._held()
        static = [_at(memory.static, d) * self._copies(d) for d in range(self.devices)]
        limit = None if memory.limit is None else [_at(memory.limit, d) for d in range(self.devices)]
        tables: Rows = [*activation, *retained, static, limit or []]
        per_unit = _common_denominator(tables)
        if _largest(tables) * per_unit * self.stages * self.microbatches >= 2**62:
            raise PipelineError("memory", "the amounts have no common unit that is coarse enough; give them with fewer digits")
        return Amounts(
            per_unit,
            np.array([_scaled(row, per_unit) for row in activation], dtype=np.int64),
            np.array([_scaled(row, per_unit) for row in retained], dtype=np.int64),
            np.array(_scaled(static, per_unit), dtype=np.int64),
            None if limit is None else np.array(_scaled(limit, per_unit), dtype=np.int64),
        )

    @cached_property
    def work(self) -> IntArray:
        """``[device]``: the least work in ticks, every backward run the cheaper way; without overlapped pairs."""
        duration = self.ticks.duration
        split = np.where(duration[:, Kind.I] >= 0, duration[:, Kind.I] + duration[:, Kind.W], np.iinfo(np.int64).max)
        per_microbatch = duration[:, Kind.F] + np.minimum(duration[:, Kind.B], split)
        work = np.zeros(self.devices, dtype=np.int64)
        for route, microbatches in enumerate(self.microbatches_of):
            np.add.at(work, self.device_of[route], per_microbatch[route] * len(microbatches))
        return work

    def _by_stage(self, value: Value | None) -> list[list[Fraction | None]]:
        """``[route][stage]``: what one operation of the stage takes of a value given per device or per stage."""
        table: list[list[Fraction | None]] = []
        for route in self.routes:
            if value is None:
                table.append([None] * self.stages)
            elif self.costs.per == "stage":
                table.append([_at(value, s) for s in range(self.stages)])
            else:
                chunks = np.bincount(route, minlength=self.devices)
                table.append([_at(value, d) / int(chunks[d]) for d in route])
        return table

    def _copies(self, device: int) -> Fraction:
        """How many copies of its weights a device holds: its stages over all routes / most of its stages on one route."""
        held = [{s for s in range(self.stages) if route[s] == device} for route in self.routes]
        return Fraction(len(set().union(*held)), max(map(len, held)))

    def time(self, ticks: int) -> int | float:
        """Ticks in the user's unit: an integer where whole, else the nearest double."""
        return plain(Fraction(int(ticks), self.ticks.per_unit))

    def amount(self, units: int) -> int | float:
        """An integer amount of memory (:attr:`amounts`) in the user's unit."""
        return plain(Fraction(int(units), self.amounts.per_unit))


def halves(index: OpIndex, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Two arrays of single operations: the operation itself, or a pair's forward; and a pair's backward, else -1."""
    slots = index.stages * index.microbatches
    paired = numbers >= index.size
    forward, backward = np.divmod(numbers - index.size, slots)
    return np.where(paired, forward, numbers), np.where(paired, backward + int(Kind.B) * slots, -1)


def _visits(devices: int, routes: Routes, route_of_microbatch: Sequence[int]) -> tuple[int, ...]:
    visits = [0] * devices
    for route, microbatches in Counter(route_of_microbatch).items():
        for device in set(routes[route]):
            visits[device] += microbatches
    return tuple(visits)


def _at(value: Value, index: int) -> Fraction:
    return value[index] if isinstance(value, tuple) else value


def _sum(a: Fraction | None, b: Fraction | None) -> Fraction | None:
    return None if a is None or b is None else a + b


def _added(table: Rows, other: Rows) -> list[list[Fraction | None]]:
    return [[_sum(a, b) for a, b in zip(*rows, strict=True)] for rows in zip(table, other, strict=True)]


def _one_or_all(values: Sequence[Fraction]) -> Value:
    return values[0] if len(set(values)) == 1 else tuple(values)


def _common_denominator(rows: Rows) -> int:
    return math.lcm(*(value.denominator for row in rows for value in row if value is not None))


def _largest(rows: Rows) -> Fraction:
    return max(value for row in rows for value in row if value is not None)


def _scaled(row: Sequence[Fraction | None], per_unit: int) -> list[int]:
    return [-1 if value is None else int(value * per_unit) for value in row]
