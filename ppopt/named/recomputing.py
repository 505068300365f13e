"""Named schedules where it is open which stages recompute: each with the stages that suit it best under the memory limit.

*An order that the constraints pin*, and a user's own, is the same whichever stages recompute. Then more recomputing makes no
operation start or end earlier and no device hold more (:class:`~ppopt.timing.recomputed.Recomputed`). So only those sets of
stages count of which none can be left out, and what an order takes with the stages that are settled, and no other, is a lower
bound for all sets that have them. Branch and bound over the stages is thus exact, as long as its budget of timings lasts. A
device span may get shorter where recomputing elsewhere delays the device's start: its bound takes the latest start, and sets that
fit are divided on until that bound is reached.

*An order that is made from costs* is another for each set, and nothing is monotonic. Nor is anything where transfers hold links:
an operation that takes longer may let another transfer go first. Then it is a local search, which need not find the best set.

All budgets are numbers of timings and of orders, so that the answer is always the same.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ppopt.named.definition import Definition, Restriction
from ppopt.named.registry import NAMED, each, shown_chunks
from ppopt.named.row import Row
from ppopt.op import Kind
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.schedule import Order, Schedule
from ppopt.timing import OrderError, time_order
from ppopt.timing.recomputed import BoolArray, Need, Recomputed, needs_of

Objective: TypeAlias = Literal["makespan", "span"]
Key: TypeAlias = tuple[Fraction | int, int, int]
"""The objective, what recomputing adds to the work, and how many stages recompute: the smaller, the better."""

TIMINGS, TIMED = 512, 2**22
"""Most timings of an order that is pinned, and most times of single operations in them."""
TOGETHER = 32
"""How many sets branch and bound goes on from at once."""
MADE, MADE_LIMITED, RETIMED = 5, 8, 5
"""Most orders that a local search looks at: of a schedule whose order is made from the costs, from the costs and the memory
limit, and of an order that is pinned where transfers hold links."""
LARGE = 2**12
"""Operations beyond which it looks at three only."""


def compare_freely(
    pipeline: Pipeline,
    chunks: Sequence[int] = (),
    params: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    objective: Objective = "makespan",
) -> list[Row]:
    """The rows of :func:`ppopt.named.compare` for a pipeline that leaves open which stages recompute, one for each schedule and
    number of chunks: with the stages of its own placement that make the objective smallest among those that fit the memory
    limit, and of equal ones those that add the least work.

    Where its constraints pin the order, that is exact, up to ``TIMINGS`` timings of it (fewer where it has more than ``TIMED /
    TIMINGS`` operations); beyond them, it is the best set found, the most promising having been tried first. Where the order is
    made from the costs, or transfers hold links, it is the best that a local search finds (in at most ``MADE``,
    ``MADE_LIMITED`` or ``RETIMED`` orders), and no worse than without recomputing or with it everywhere. If no set fits that was
    looked at, every stage recomputes, over the limit.

    Raises:
        ValueError: the pipeline does not leave it open.
        Restriction: a parameter is unknown or out of range.
    """
    _check_open(pipeline)
    chunks = chunks or shown_chunks(pipeline)
    pipeline = pipeline.placements()[0]
    read = {name: NAMED[name].read(given) for name, given in params.items()}
    rows = []
    for definition, v in each(chunks):
        try:
            schedule = _best_of(definition, pipeline, v, read.get(definition.name, {}), objective)
        except Restriction as restriction:
            rows.append(Row(definition.name, definition.placement, v or definition.least_chunks, None, str(restriction)))
        else:
            rows.append(_row(pipeline, definition.name, definition.placement, schedule))
    return rows


def of_order_freely(pipeline: Pipeline, order: Order, name: str, objective: Objective = "makespan") -> Row:
    """A user's own order as a row beside those of :func:`compare_freely`, with the stages that suit it best likewise; one that
    cannot be timed is excluded, with the reason.

    Raises:
        ValueError: the pipeline does not leave it open which stages recompute.
    """
    _check_open(pipeline)
    try:
        time_order(pipeline.resolved("all"), order)  # or it cannot run
        return _row(pipeline, name, pipeline.placement, _with_order(pipeline, order, objective))
    except (OrderError, PipelineError) as error:
        return Row(name, pipeline.placement, pipeline.chunks, None, f"{name}: {error}")


def _check_open(pipeline: Pipeline) -> None:
    if pipeline.recompute != CHOOSE:
        raise ValueError(f'pipeline.recompute: expected "choose", got {pipeline.recompute!r}')


def _row(pipeline: Pipeline, name: str, placement: str, schedule: Schedule) -> Row:
    chosen = schedule.pipeline.recompute
    assert chosen != CHOOSE
    return dataclasses.replace(Row.beside(pipeline, name, placement, schedule), recompute=chosen)


def _best_of(
    definition: Definition, pipeline: Pipeline, chunks: int | None, params: Mapping[str, Any], objective: Objective
) -> Schedule:
    """A named schedule with the stages that suit it best.

    Raises:
        Restriction: as :meth:`~ppopt.named.definition.Definition.schedule`.
    """
    placed = definition.place(pipeline, chunks, **params)
    try:
        none, every = _ends(placed)
        order = definition.pinned([none, every], **params)
        if order is not None:
            return _with_order(placed, order, objective)
        made = lambda each: definition.schedule(each, each.chunks, **params)  # noqa: E731
        orders = MADE_LIMITED if definition.keeps_limit else MADE
        return _Search(placed, made, objective, orders, both_ways=definition.keeps_limit).best()
    except PipelineError as error:
        raise Restriction(f"{definition.name}: {error}") from error


def _with_order(pipeline: Pipeline, order: Order, objective: Objective) -> Schedule:
    """An order that can run, with the stages that suit it best."""
    none, every = _ends(pipeline)
    if none.lines:
        return _Search(pipeline, lambda each: time_order(each, order), objective, RETIMED, both_ways=True).best()
    stages = _best_stages(none, every, order, objective)
    return time_order(every if stages is None else pipeline.resolved(stages), order)


def _ends(pipeline: Pipeline) -> tuple[Pipeline, Pipeline]:
    """Without recomputing and without a limit, which it might be too low for; and with recomputing everywhere."""
    memory = dataclasses.replace(pipeline.memory, limit=None)
    free = pipeline.changed(memory=memory, route_of_microbatch=pipeline.route_of_microbatch)
    return free.resolved("none"), pipeline.resolved("all")


def _work_added(none: Pipeline, every: Pipeline) -> list[int]:
    """``[stage]``: how much more the devices have to do where the stage recomputes, in some unit."""
    per_unit = math.lcm(none.ticks.per_unit, every.ticks.per_unit)

    def totals(pipeline: Pipeline) -> list[int]:
        backward = pipeline.ticks.duration[:, Kind.B].tolist()
        microbatches = [len(of) for of in pipeline.microbatches_of]
        scale = per_unit // pipeline.ticks.per_unit
        return [sum(b * of for b, of in zip(column, microbatches, strict=True)) * scale for column in zip(*backward, strict=True)]

    return [a - b for a, b in zip(totals(every), totals(none), strict=True)]


def _bits(stages: Iterable[int]) -> int:
    return sum(1 << stage for stage in stages)


def _stages(bits: int) -> list[int]:
    return [stage for stage in range(bits.bit_length()) if bits >> stage & 1]


# --- what fits the memory limit ------------------------------------------------------------------------------------


class _State(NamedTuple):
    """What the settled stages of a device leave to its others."""

    fits: bool
    """Whether it keeps its limit if none of the others recomputes."""
    forced: int
    """Those of the others without which its limit cannot be kept."""
    more: int
    """At least so many of the others have to recompute."""


class _Device:
    """A device that exceeds its limit unless some of its stages recompute. Sets of stages are the bits of an integer."""

    def __init__(self, need: Need) -> None:
        self.need = need
        self.mask = _bits(need.stages)
        self._known: dict[tuple[int, int], _State | None] = {}

    def state(self, yes: int, no: int) -> _State | None:
        """Where the stages of ``yes`` recompute and those of ``no`` do not; ``None``: its limit cannot be kept."""
        key = yes & self.mask, no & self.mask
        if key not in self._known:
            self._known[key] = self._state(*key)
        return self._known[key]

    def _state(self, yes: int, no: int) -> _State | None:
        stages, missing, saved = self.need
        missing = missing - saved[:, [bool(yes >> stage & 1) for stage in stages]].sum(axis=1)
        others = [stage for stage in stages if not (yes | no) >> stage & 1]
        could = saved[:, [stage in others for stage in stages]]
        spare = could.sum(axis=1) - missing
        if (spare < 0).any():
            return None
        if not (missing > 0).any():
            return _State(True, 0, 0)
        forced = (could > spare[:, None]).any(axis=0).tolist()
        most = np.cumsum(-np.sort(-could, axis=1), axis=1)  # what those save that save most
        more = int((most < missing[:, None]).sum(axis=1).max()) + 1
        return _State(False, _bits(stage for stage, needed in zip(others, forced, strict=True) if needed), more)


class _Node(NamedTuple):
    """The sets of stages that have all of ``yes`` and none of ``no``."""

    yes: int
    no: int
    added: int
    """What recomputing adds to the work in each of them at least."""
    size: int
    """How many stages recompute in each of them at least."""
    lacking: int
    """Stages that are not settled, of devices that do not keep their limits yet."""


class _Limits:
    """The sets of stages with which an order fits the memory limit."""

    def __init__(self, needs: Sequence[Need], added: Sequence[int]) -> None:
        self.devices = [_Device(need) for need in needs]
        self.added = added
        self.every = (1 << len(added)) - 1

    def fits(self, stages: int) -> bool:
        """Whether exactly these recompute within the limit."""
        return all(device.state(stages, self.every & ~stages) is not None for device in self.devices)

    def fewest(self) -> int | None:
        """A set of which none can be left out, those that add the most work having been left out first; ``None``: none fits."""
        kept = self.every
        if not self.fits(kept):
            return None
        for stage in sorted(_stages(kept), key=lambda stage: (self.added[stage], stage), reverse=True):
            if self.fits(kept & ~(1 << stage)):
                kept &= ~(1 << stage)
        return kept

    def node(self, yes: int, no: int) -> _Node | None:
        """The sets that have these and not those, with all that follows; ``None``: none of them fits."""
        while True:
            states = [device.state(yes, no) for device in self.devices]
            forced = 0
            for state in states:
                if state is None:
                    return None
                forced |= state.forced
            if not forced & ~yes:
                break
            yes |= forced
        added, size, lacking, counted = sum(self.added[s] for s in _stages(yes)), yes.bit_count(), 0, 0
        for device, state in zip(self.devices, states, strict=True):
            if state is not None and not state.fits:
                others = device.mask & ~(yes | no)
                lacking |= others
                if not others & counted:  # stages that two devices share count once
                    counted |= others
                    added += sum(sorted(self.added[s] for s in _stages(others))[: state.more])
                    size += state.more
        return _Node(yes, no, added, size, lacking)


# --- an order that is pinned: branch and bound ---------------------------------------------------------------------


def _best_stages(none: Pipeline, every: Pipeline, order: Order, objective: Objective) -> list[int] | None:
    """The best set of stages for an order (:func:`compare_freely`); ``None``: no set fits."""
    timed, added = Recomputed(none, every, order), _work_added(none, every)
    limits = _Limits(timed.needs, added)
    root, fewest = limits.node(0, 0), limits.fewest()
    if root is None or fewest is None:
        return None
    if not root.lacking and objective == "makespan":  # whatever fits has these stages, and more take no less
        return _stages(root.yes)
    timings = min(TIMINGS, TIMED // timed.operations)
    return _stages(fewest if timings < 4 else _Tree(timed, limits, objective, timings).best(root, fewest))


class _Tree:
    """Branch and bound over the stages that recompute: the sets with the smallest bound are divided first."""

    def __init__(self, timed: Recomputed, limits: _Limits, objective: Objective, timings: int) -> None:
        self.timed, self.limits, self.objective, self.left = timed, limits, objective, timings
        self.values: dict[int, tuple[int, int]] = {}
        """By the stages that recompute: the objective, and a bound of it for all sets that have these stages."""
        self.latest = timed.spans(self._choices([limits.every])).first
        """When the devices start at the latest."""

    def best(self, root: _Node, fewest: int) -> int:
        """The best set that fits, as far as the timings last."""
        limits = self.limits
        starts = [fewest, limits.every]
        self._time([*starts, root.yes])
        best, found = min((self._key(stages), stages) for stages in starts)
        heap: list[tuple[Key, int, _Node]] = []
        count = itertools.count()
        nodes = [root]
        while (nodes or heap) and self.left > 0:
            self._time([node.yes for node in nodes])
            for node in nodes:
                if node.yes in self.values and limits.fits(node.yes):
                    best, found = min((best, found), (self._key(node.yes), node.yes))
            for node in nodes:
                if node.yes in self.values and self._bound(node) < best:
                    heapq.heappush(heap, (self._bound(node), -next(count), node))  # of equal ones the latest: it has settled most
            chosen = [heapq.heappop(heap)[-1] for _ in range(min(TOGETHER, len(heap)))]
            nodes = [child for node in chosen if self._bound(node) < best for child in self._divided(node)]
        return found

    def _divided(self, node: _Node) -> Iterator[_Node]:
        """With and without one more stage recomputing."""
        added = self.limits.added
        open_ = _stages(node.lacking or self.limits.every & ~(node.yes | node.no))
        if open_:
            stage = 1 << max(open_, key=lambda stage: (added[stage], -stage))
            for yes, no in ((node.yes | stage, node.no), (node.yes, node.no | stage)):
                child = self.limits.node(yes, no)
                if child is not None:
                    yield child

    def _time(self, sets: Iterable[int]) -> None:
        """Time the order with these stages, as long as there are timings left."""
        new = list(dict.fromkeys(stages for stages in sets if stages not in self.values))[: self.left]
        if not new:
            return
        self.left -= len(new)
        first, last = self.timed.spans(self._choices(new))
        makespans = last.max(axis=1).tolist()
        values, bounds = makespans, makespans
        if self.objective == "span":
            values, bounds = (last - first).max(axis=1).tolist(), (last - self.latest).max(axis=1).tolist()
        self.values.update(zip(new, zip(values, bounds, strict=True), strict=True))

    def _choices(self, sets: Sequence[int]) -> BoolArray:
        return np.array([[stages >> stage & 1 for stage in range(self.timed.stages)] for stages in sets], dtype=np.bool_)

    def _key(self, stages: int) -> Key:
        return self.values[stages][0], sum(self.limits.added[s] for s in _stages(stages)), stages.bit_count()

    def _bound(self, node: _Node) -> Key:
        return self.values[node.yes][1], node.added, node.size


# --- an order that is made from costs: local search ----------------------------------------------------------------


class _Search:
    """A schedule whose order may be another for each set of stages: what ``made`` makes of a pipeline with that set."""

    def __init__(
        self, pipeline: Pipeline, made: Callable[[Pipeline], Schedule], objective: Objective, orders: int, both_ways: bool
    ) -> None:
        """``orders``: how many may be made. ``both_ways``: whether more recomputing may make the schedule shorter, because its
        rule keeps the memory limit or transfers come in another order."""
        self.pipeline, self.made, self.objective, self.both_ways = pipeline, made, objective, both_ways
        alone = pipeline.changed(links=pipeline.links.uncontended(), route_of_microbatch=pipeline.route_of_microbatch)
        self.ends = _ends(alone)
        self.added = _work_added(*self.ends)
        operations = 3 * pipeline.stages * pipeline.microbatches
        self.left = orders if operations <= LARGE else 3
        self.tried: set[int] = set()
        self.found: tuple[Key, int, Schedule] | None = None

    def best(self) -> Schedule:
        """The best schedule found that fits; if none does, that with recomputing everywhere.

        Raises:
            Restriction: that is not possible either.
        """
        all_ = (1 << self.pipeline.stages) - 1
        made = [self._try(0), self._try(all_)]
        if self.found is not None and self.found[1] == 0 and not self.both_ways:
            return self.found[-1]
        for schedule in made:
            for stages in () if schedule is None else self._suited(schedule):
                self._try(stages)
        while self.found is not None and self.left > 0:
            best, stages, schedule = self.found
            own = sorted(_stages(all_), key=lambda stage: (self.added[stage], stage))
            fewer = [stages & ~(1 << stage) for stage in reversed(own) if stages >> stage & 1]
            more = [stages | 1 << stage for stage in own if self.both_ways and not stages >> stage & 1]
            for other in (*self._suited(schedule), *fewer, *more):
                self._try(other)
                if self.found[0] < best:
                    break
            else:
                break
        if self.found is not None:
            return self.found[-1]
        return made[1] or self.made(self.pipeline.resolved("all"))

    def _suited(self, schedule: Schedule) -> Iterator[int]:
        """The stages that suit the order of a schedule best, if no transfer waits for another; and those that add the least work,
        nearly."""
        best = _best_stages(*self.ends, schedule.order, self.objective)
        if best is not None:
            yield _bits(best)
            fewest = _Limits(needs_of(*self.ends, schedule.order), self.added).fewest()
            if fewest is not None:
                yield fewest

    def _try(self, stages: int) -> Schedule | None:
        """The schedule where these stages recompute, if it is worth the making; each once, while there are orders left."""
        if stages in self.tried or self.left <= 0:
            return None
        self.tried.add(stages)
        added = sum(self.added[s] for s in _stages(stages))
        try:
            pipeline = self.pipeline.resolved(_stages(stages))
            if self.found is not None:
                work = Fraction(int(pipeline.work.max()), pipeline.ticks.per_unit)  # nothing takes less
                if (work, added, stages.bit_count()) >= self.found[0]:
                    return None
            self.left -= 1
            schedule = self.made(pipeline)
        except (PipelineError, Restriction):
            return None
        value = Fraction(schedule.objective(self.objective), pipeline.ticks.per_unit)
        key: Key = (value, added, stages.bit_count())
        if schedule.within_memory and (self.found is None or key < self.found[0]):
            self.found = key, stages, schedule
        return schedule
