"""What is known of all cuts of the layers: the cut with the least bound among those that are left."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from ppopt.bounds.certificates import Certificate, Reasons, certificates, durations_of, plain_certificates, work_certificates
from ppopt.bounds.cut_list import Listed, SomeCuts
from ppopt.bounds.filling import Filling, Held, fillings
from ppopt.bounds.halved_cuts import cuts_of_halves
from ppopt.bounds.listed_cuts import cuts_below
from ppopt.bounds.many_cuts import ManyCuts, counts_of, ends_of
from ppopt.bounds.margins import given_once
from ppopt.bounds.tight_lists import Solver, shave_listed, tighten
from ppopt.bounds.ways import Way
from ppopt.bounds.whole_layers import whole_layers
from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph
from ppopt.interrupt import uninterrupted
from ppopt.op import Kind
from ppopt.pipeline import CHOOSE, Costs, IntArray, Pipeline
from ppopt.pipeline.cutting import StageLevels
from ppopt.schedule import Objective
from ppopt.search.cut_ticks import CutTicks
from ppopt.search.layer_amounts import whole_amounts

if TYPE_CHECKING:
    from ppopt.bounds.scheduled_cuts import Box, FoundCut

Counts: TypeAlias = tuple[int, ...]
MOST = 2
"""Certificates learned from a cut. Measured: those of all devices slow the model down more than they tell."""


class OverCuts:
    """The cuts of a pipeline of layers that are left, with certificates in ticks of their own.

    ``bound``: a bound that is known to hold for all, in the user's unit.
    """

    def __init__(self, pipeline: Pipeline, objective: Objective, bound: Fraction) -> None:
        with uninterrupted():  # the solver is imported when it is used
            from ppopt.bounds.cuts import CutModel
        self.pipeline, self.objective = pipeline, objective
        some = self._unit_costs()
        self._ticks = CutTicks(pipeline, some.ticks)
        self.per_unit = self._ticks.per_unit
        self.model = CutModel(**self._ticks.arguments)
        self.bound: Fraction | float = bound
        """No cut that is left has less, in the user's unit; infinite once none is left."""
        self.none_left = False
        """Whether no cut is left at all."""
        self.settled = True
        """Whether the last question for a cut was answered in time."""
        self.seconds = 0.0
        self.boxes: list[Box] = []
        """Those left out; single cuts aside."""
        self._out: list[IntArray] = []
        """Single cuts left out, by their ends."""
        self.listed: Listed | None = None
        """All cuts that are left of little bound, once they are listed (:meth:`list_cuts`)."""
        self._known: set[Certificate] = set()
        self._fillings: list[Callable[[], None]] = []
        """What limits of memory say of each device, as far as the model does not know it yet."""
        self._some, self._amounts = some, whole_amounts(pipeline, self._ticks)
        self.many: ManyCuts | None = None
        """What is known of hundreds of cuts at once, where there are several of one route and alike microbatches."""
        self._within_memory(some)
        self._with_levels()
        for certificate in self._plain(some):
            self._learn(certificate, some.ticks.per_unit)
        self.bound = max(self.bound, self._whole_layers(some))

    @property
    def learned(self) -> int:
        """The number of certificates."""
        return len(self._known)

    @property
    def _scale(self) -> int:
        """Ticks here in one of the placement's own."""
        return self.per_unit // self._some.ticks.per_unit

    @property
    def limited(self) -> bool:
        """Whether there are several cuts, and a limit of memory says something of them."""
        return self.many is not None and self._amounts is not None

    def _unit_costs(self) -> Pipeline:
        """A pipeline of this placement whose operations all take the same. What layers take once per step is left out: it is no
        constant, but part of what certificates say of stages."""
        pipeline = self.pipeline
        assert pipeline.layers is not None
        layers = pipeline.layers.without_step()
        counts = (len(layers) - pipeline.stages + 1, *[1] * (pipeline.stages - 1))
        memory = dataclasses.replace(pipeline.memory, limit=None)
        split = {"backward_input": 1, "backward_weight": 1} if layers.split else {"backward": 1}
        costs = Costs(per="stage", forward=1, optimizer=pipeline.costs.optimizer, **split)
        cut = pipeline.changed(
            layers=layers, partition=counts, memory=memory, recompute="none", route_of_microbatch=pipeline.route_of_microbatch
        )
        return cut.changed(costs=costs, route_of_microbatch=pipeline.route_of_microbatch)

    def _plain(self, some: Pipeline) -> Sequence[Certificate]:
        once = given_once(self.pipeline)
        plain = list(plain_certificates(some, self.objective, once)) if len(some.routes) == 1 else []
        return plain + work_certificates(some, once) if once or not plain else plain

    def _within_memory(self, some: Pipeline) -> None:
        """Every device has room for its weights and the activations of one microbatch, and what that says of times."""
        alike = not self.pipeline.mix.differs and self.pipeline.stages > 1
        if self._amounts is None:
            if alike and len(some.routes) == 1:
                self.many = self._of_many([], 1)
            return
        held, kept, own = map(self.model.ends, (self._amounts.held, self._amounts.kept, self._amounts.own))
        if self._amounts.savings is not None:
            held, kept = self.model.recompute(self._amounts.savings, held, kept)
        room, scale = self._amounts.room, self._scale
        for device, most in enumerate(room):
            stages = [stage for stage, on in enumerate(self.pipeline.routes[0]) if on == device]
            self.model.hold([(held, stages), (own, stages)], most)
        if not self.pipeline.mix.differs:
            each = list(fillings(some, self.objective, given_once(self.pipeline)))
            if alike:
                self.many = self._of_many(each, scale)
            for filling in each:
                fill = functools.partial(self.model.fill, filling, held, kept, own, room[filling.device], scale)
                self._fillings.append(fill)

    def _of_many(self, each: Sequence[Filling], scale: int) -> ManyCuts:
        (times, first), of = self._of_microbatches, self._ticks.arguments
        nothing = [0] * len(times[Kind.F])
        held = self._amounts or Held(nothing, nothing, nothing, [0] * self.pipeline.devices)
        return ManyCuts(times, self.pipeline.routes[0], held, each, scale, first=first, more=of["more"], once=of["once"])

    @functools.cached_property
    def _of_microbatches(self) -> tuple[dict[Kind, list[int]], dict[Kind, list[int]] | None]:
        """What each layer takes for a microbatch, where they are alike, and in the first stage, if that is something else."""
        of = self._ticks.arguments
        factor, square = of["sizes"][0]

        def whole(times: str, squares: str) -> dict[Kind, list[int]]:
            more = of[squares] or {kind: [0] * len(row) for kind, row in of[times].items()}
            rows = ((kind, zip(row, more[kind], strict=True)) for kind, row in of[times].items())
            return {kind: [factor * x + square * y for x, y in row] for kind, row in rows}

        return whole("times", "squares"), None if of["first"] is None else whole("first", "first_squares")

    def _whole_layers(self, some: Pipeline) -> Fraction:
        """A bound of all cuts, as layers are whole; where microbatches are alike, of one route."""
        if len(some.routes) > 1 or self.pipeline.mix.differs:
            return Fraction(0)
        times, first = self._of_microbatches
        once = self._ticks.arguments["once"]
        return Fraction(whole_layers(self._known, times | once, some.routes[0], (first or times) | once), self.per_unit)

    def _with_levels(self) -> None:
        """Every stage has the layers that are said to recompute in it."""
        layers, recompute = self.pipeline.layers, cast("str | tuple[StageLevels, ...]", self.pipeline.recompute)
        assert layers is not None
        if isinstance(recompute, str):
            return
        for g, group in enumerate(layers.groups):
            ends = self.model.ends([int(of == g) for of in layers.group_of])
            for stage, chosen in enumerate(recompute):
                least = sum(n for name, _, n in chosen if name == group.name)
                if least:
                    self.model.have(ends, stage, least)

    def bound_of(self, pipeline: Pipeline) -> Fraction:
        """What is known of a cut, in the user's unit: its one-machine bound, and what limits of memory say of every cut
        (:mod:`ppopt.bounds.filling`)."""
        (best,) = certificates(pipeline, 1, self.objective)
        value = Fraction(best.value(durations_of(pipeline)), pipeline.ticks.per_unit)
        return max(value, self.known_of(pipeline.counts)) if self.limited else value

    def known_of(self, counts: Counts) -> Fraction:
        """The part of :meth:`bound_of` that is known of all cuts, and so to the model (where there is :attr:`many`)."""
        assert self.many is not None
        return Fraction(int(self.many.of(counts).max()), self.per_unit)

    def learn_from(self, pipeline: Pipeline) -> bool:
        """Learn the certificates of a cut; whether its bound is now larger than that of all cuts that are left."""
        assert given_once(pipeline) == given_once(self.pipeline), "else what one cut exchanges would count on all"
        known = 0 if self.many is None else self.many.learned
        found = certificates(pipeline, MOST if self.many is None else pipeline.devices + 1, self.objective)
        more = Fraction(found[0].value(durations_of(pipeline)), pipeline.ticks.per_unit) > self.bound
        new = [self._learn(certificate, pipeline.ticks.per_unit) for certificate in found[:MOST]]
        if self.many is not None:
            for certificate in found[MOST:]:
                self.many.learn(self._scaled(certificate, pipeline.ticks.per_unit))
            if self.listed is not None:
                self.listed.raised(self.many, known)
                self.bound = max(self.bound, Fraction(self.listed.bound, self.per_unit))
        return more and any(new)

    def _learn(self, certificate: Certificate, per_unit: int) -> bool:
        """Learn a certificate whose constants are in ticks of ``per_unit`` per unit; whether it is new."""
        own = self._scaled(certificate, per_unit)
        if own in self._known:
            return False
        self._known.add(own)
        self.model.learn(own)
        if self.many is not None:
            self.many.learn(own)
        return True

    def _scaled(self, certificate: Certificate, per_unit: int) -> Certificate:
        """A certificate whose constants are in ticks of ``per_unit`` per unit, with those of all cuts."""

        def scaled(way: Way) -> Way:
            return dataclasses.replace(way, constant=way.constant * self.per_unit // per_unit)

        return Certificate(tuple(map(scaled, certificate.heads)), scaled(certificate.work), tuple(map(scaled, certificate.tails)))

    # --- with the order ---

    @property
    def durations(self) -> Mapping[str, Any]:
        """What the layers take, in ticks of :attr:`per_unit`: the arguments of a :class:`~ppopt.bounds.cuts.CutModel`."""
        return self._ticks.arguments

    @property
    def joint(self) -> bool:
        """Whether there is a model of cut and order together (:mod:`ppopt.bounds.scheduled_cuts`): for the makespan of pipelines
        with one route, alike microbatches and whole weight gradients in which it is not open what recomputes, nor said stage by
        stage."""
        pipeline = self.pipeline
        alike = self.objective == "makespan" and len(self._some.routes) == 1 and not pipeline.mix.differs
        alike = alike and pipeline.costs.weight_pieces == 1 and self._ticks.exact
        return alike and isinstance(pipeline.recompute, str) and pipeline.recompute != CHOOSE

    @functools.cached_property
    def _reasons(self) -> Reasons:
        """Why operations cannot start earlier or end later on whatever cut (:attr:`joint`)."""
        return Reasons.of(self._some, given_once(self.pipeline))

    @property
    def graph(self) -> FamilyGraph:
        """That of all cuts, but for the durations (:attr:`joint`), with transfers as mere delays; one cut may lack families."""
        return self._reasons.graph

    def with_order(
        self, limits: Limits, lower: Fraction | float, below: Fraction | float, box: Box, only: IntArray | None = None
    ) -> FoundCut:
        """The best cut of a box and its order, below that much, as far as found, where no cut has less than ``lower``; ``only``:
        some cuts of the box, by their ends."""
        from ppopt.bounds.scheduled_cuts import Box, FoundCut, ScheduledCuts

        least, most = math.ceil(lower * self.per_unit), math.ceil(below * self.per_unit) - 1
        if least > most:
            return FoundCut(most + 1, none=True, settled=True)
        times, first = self._of_microbatches
        model = ScheduledCuts(
            times,
            self.pipeline.stages,
            self._reasons,
            box,
            scale=self._scale,
            lower=least,
            upper=most,
            memory=self._amounts,
            first=first,
            once=self._ticks.arguments["once"],
            only=only,
        )
        for certificate in self._known:
            model.learn(certificate)
        found = model.found(limits)
        if only is None and box == Box.all_of(model.layers, self.pipeline.stages):
            self.bound = max(self.bound, Fraction(found.bound, self.per_unit))
        return found

    def leave_out_box(self, box: Box | SomeCuts) -> None:
        """Give none of these cuts again."""
        if isinstance(box, SomeCuts):
            for ends in box.ends.tolist():
                self.model.leave_out_box(ends, ends)
            self._out.append(box.ends)
            self._unlist(box.ends, box.ends)
            return
        self.boxes.append(box)
        self.model.leave_out_box(box.low, box.high)
        self._unlist(np.array([box.low]), np.array([box.high]))

    def leave_out(self, counts: Counts) -> None:
        """Do not give this cut again."""
        self.leave_out_box(SomeCuts(np.array([ends_of(counts)], dtype=np.int64)))

    # --- one by one ---

    @property
    def listing(self) -> bool:
        """Whether there are listed cuts that are left (:meth:`list_cuts`)."""
        return self.listed is not None and len(self.listed.ends) > 0

    def list_cuts(self, below: Fraction, most: int, limits: Limits, learn: Callable[[Counts], bool], tightening: float) -> bool:
        """List all cuts that are left whose bound is below that much.

        ``False``: it takes too long, or they are more than ``most`` within a limit of memory; where there is none, only as many
        of the least bounds are listed. ``learn``: learns from a cut, if it has room. ``tightening``: seconds at most for edge
        finding on those that are listed.
        """
        assert self.many is not None
        many, clock, ticks = self.many, limits.clock, math.ceil(below * self.per_unit)
        if self.limited:
            found = cuts_below(many, ticks, most, clock)
        else:
            found = cuts_of_halves(many, ticks, most, clock, lambda at: learn(counts_of(at, many.layers)))
        if found is None:
            return False
        boxes = ((np.array([box.low]), np.array([box.high])) for box in self.boxes)
        for low, high in (*((ends, ends) for ends in self._out), *boxes):
            found.leave_out(low, high)
        if self.joint:
            tighten(found, many, self._reasons, self._scale, limits.slice(tightening))
        self.listed = found
        self.bound = max(self.bound, Fraction(found.bound, self.per_unit))
        return True

    def tighten_list(self, limits: Limits, solver: Solver | None = None) -> None:
        """Leave out listed cuts that edge finding or shaving refutes, the least bounds first; ``solver`` looks at others."""
        assert self.listed is not None
        assert self.many is not None
        given = self.listed, self.many, self._reasons, self._scale
        tighten(*given, limits.slice(limits.clock.left / 2))
        shave_listed(*given, limits, solver)
        self.bound = max(self.bound, Fraction(self.listed.bound, self.per_unit))

    def least_listed(self, below: Fraction | float) -> Counts | None:
        """The listed cut that is left of the least bound, below that much; ``None``: there is none."""
        listed = self.listed
        if listed is None or listed.bound >= below * self.per_unit or not self.listing:
            return None
        return counts_of(listed.ends[int(np.argmin(listed.bounds))], self.model.layers)

    def shorten_list(self, below: Fraction | float) -> None:
        """List no cuts any more whose bound is not below that much."""
        if self.listed is not None and below * self.per_unit < self.listed.below:
            self.listed.shorten(math.ceil(below * self.per_unit))

    def _unlist(self, low: IntArray, high: IntArray) -> None:
        if self.listed is not None:
            self.listed.leave_out(low, high)
            self.bound = max(self.bound, Fraction(self.listed.bound, self.per_unit))

    def least(self, limits: Limits, below: Fraction | float, hint: Counts | None) -> Counts | None:
        """A cut of little bound, below that much; ``None``: none is left, or none was found in time. Raises :attr:`bound`."""
        begun = time.monotonic()
        if below < math.inf:  # measured: without an end to the times, these make the model slow
            for fill in self._fillings:
                fill()
            self._fillings = []
        upper = math.ceil(below * self.per_unit) - 1 if below < math.inf else 2**49
        lower = self._ticks.least(self.bound) if self.bound < math.inf else upper + 1
        found = self.model.least(limits, lower, upper, hint)
        self.seconds += time.monotonic() - begun
        self.settled = found.settled
        self.none_left = found.none and below == math.inf
        self.bound = math.inf if self.none_left else max(self.bound, Fraction(found.bound, self.per_unit))
        return found.counts
