"""An order, timed: every operation starts as early as its device's order, the data and the links allow.

An order says nothing about transfers; those that hold a link are run first come, first served (:mod:`ppopt.timing.links`). Nor
does it of copies to the host and back (:mod:`ppopt.timing.copies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from ppopt.clock import check_time
from ppopt.constraints import Family, Precede, Word, data_of, data_of_route, expand, select
from ppopt.op import Kind, OpIndex
from ppopt.pipeline import BoolArray, DataParallel, IntArray, Pipeline
from ppopt.schedule import Order, Schedule, durations, halves, of_stages
from ppopt.timing.copies import with_copies
from ppopt.timing.demands import NO_DEMANDS, Demands, between_devices, demands_of, settled, when
from ppopt.timing.links import begun, first_come, in_turn
from ppopt.timing.loops import FINE, NOT_RUN, enter, sweep
from ppopt.timing.turns import between_turns


class OrderError(ValueError):
    """An order that no times can be given to."""


class CyclicOrder(OrderError):
    """An order in which operations wait for each other. ``cycle`` lists them, each waiting for the next."""

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(f"the order deadlocks: {' waits for '.join([*cycle, cycle[0]])}")
        self.cycle = cycle


def time_order(
    pipeline: Pipeline,
    order: Order,
    guess: Sequence[IntArray] | None = None,
    *,
    words: Iterable[Word] = (),
    demands: Demands = NO_DEMANDS,
) -> Schedule:
    """The earliest times of an order, transfers first come, first served. Linear in the number of operations.

    ``words`` bind beside the rules: their waits between devices and of some length are waited for. Where they say more than an
    order and waits can (an ``Exclusive`` or a ``Capacity`` between devices), who goes first is taken from the times without that.
    So all these words hold, but for those about one device alone, which the order itself keeps or not. ``demands`` are further
    waits.

    ``guess``: starts, a row per device, that may well be the earliest; whether they are is found out many times faster (where
    no transfer holds a link; else the guess is not looked at).

    Raises:
        OrderError: an operation is missing, run twice, or on another device than its stage.
        CyclicOrder: operations wait for each other.
    """
    words = tuple(words)
    if words:
        demands += demands_of(pipeline, words)
        schedule = time_order(pipeline, order, guess, demands=demands)
        between = between_devices(pipeline, words)
        more = settled(pipeline, between, *when(schedule)) if between else NO_DEMANDS
        return time_order(pipeline, order, demands=demands + more) if more else schedule
    numbers, offsets = _flat(pipeline, order)
    check_time(sweep.seconds * len(numbers))
    if not pipeline.lines:
        demands += between_turns(pipeline, order.rows)
    if guess is not None and not pipeline.engines and _are_earliest(pipeline, numbers, offsets, np.concatenate(guess), demands):
        return Schedule(pipeline, order, tuple(guess))
    times = swept(pipeline, numbers, offsets, demands)
    if isinstance(times, Swept):
        if pipeline.lines:
            schedule = first_come(pipeline, order, _positions(pipeline, numbers, _devices(offsets)), demands)
        else:
            schedule = Schedule(pipeline, order, tuple(times.start[a:b] for a, b in pairwise(offsets)))
        return with_copies(schedule, demands) if pipeline.engines else schedule
    raise _impossible(pipeline, numbers, offsets, demands)


def exposed_traffic(schedule: Schedule) -> int:
    """By how many ticks the devices' all-gathers and reduce-scatters lengthen the makespan of a schedule's own orders."""
    pipeline = schedule.pipeline
    if not pipeline.ticks.margins:
        return 0
    alone = pipeline.flat()  # layers would bring theirs again
    without = alone.changed(data_parallel=DataParallel(), route_of_microbatch=pipeline.route_of_microbatch)
    order = schedule.order
    other = in_turn(without, order, begun(schedule)) if pipeline.lines else time_order(without, order)
    return schedule.makespan - int(Fraction(other.makespan, without.ticks.per_unit) * pipeline.ticks.per_unit)


class Waits(NamedTuple):
    """``after`` starts at least ``lag`` after ``before`` ends; places in the concatenation of all devices' rows."""

    before: IntArray
    after: IntArray
    lag: IntArray


def _flat(pipeline: Pipeline, order: Order) -> tuple[IntArray, IntArray]:
    """All operations in one array, and where the row of each device begins in it."""
    if order.index != pipeline.index or len(order.rows) != pipeline.devices:
        given = (len(order.rows), *order.index)
        expected = (pipeline.devices, *pipeline.index)
        raise OrderError(f"the order is for (devices, stages, microbatches) = {given}; the pipeline has {expected}")
    return np.concatenate(order.rows), np.cumsum([0, *map(len, order.rows)])


def _positions(pipeline: Pipeline, numbers: IntArray, device: IntArray) -> IntArray:
    """For the number of each single operation its place in ``numbers``, -1 where it is not run."""
    index = pipeline.index
    places = np.arange(len(numbers))
    first, second = halves(index, numbers)
    paired = second >= 0
    ops, places = np.concatenate((first, second[paired])), np.concatenate((places, places[paired]))
    position = np.full(index.size, -1, dtype=np.int64)
    position[ops] = places
    twice = position[ops] != places
    if twice.any():
        raise OrderError(f"{index.op(int(ops[twice][0]))} is run twice")
    table = position.reshape(-1, index.stages, index.microbatches)[: index.rows]
    present = table >= 0
    split = present[Kind.I] | present[list(index.weights)].any(axis=0)
    for row, missing in (
        (Kind.F, ~present[Kind.F]),
        (Kind.B, ~present[Kind.B] & ~split),
        (Kind.I, split & ~present[Kind.I]),
        *((weight, split & ~present[weight]) for weight in index.weights),
    ):
        if missing.any():
            raise OrderError(f"{_text(index, row, missing)} is missing")
    if (present[Kind.B] & split).any():
        stage, microbatch = map(int, np.argwhere(present[Kind.B] & split)[0])
        raise OrderError(f"the backward {stage}B{microbatch} is also run as {stage}I{microbatch} and {stage}W{microbatch}")
    if split.any() and not pipeline.costs.split:
        stage, microbatch = map(int, np.argwhere(split)[0])
        raise OrderError(f"{stage}I{microbatch}: the costs have a fused backward only (backward alone is given)")
    expected = pipeline.device_by_kind[pipeline.route_by_microbatch].transpose(1, 2, 0)
    wrong = present & (device[table] != expected)
    if wrong.any():
        row, stage, microbatch = map(int, np.argwhere(wrong)[0])
        found, op = device[table[row, stage, microbatch]], _text(index, row, wrong[row])
        what = "its stage" if not pipeline.backward_routes or row == Kind.F else "the backward of its stage"
        raise OrderError(f"{op} is on device {found}; {what} is on device {expected[row, stage, microbatch]}")
    return position


def _text(index: OpIndex, row: int, some: BoolArray) -> str:
    """The first of some operations of a row, ``[stage, microbatch]``."""
    return str(index.op(row * index.stages * index.microbatches + int(np.flatnonzero(some)[0])))


def _waits(pipeline: Pipeline, position: IntArray, demands: Demands) -> Waits:
    """The data dependencies between the operations that are run, transfers taken as lags, and what else is asked for."""
    before, after, lag = map(np.concatenate, zip(expand(pipeline, data_of(pipeline, links=False)), demands, strict=True))
    before, after = position[before], position[after]
    run = (before >= 0) & (after >= 0)
    return Waits(before[run], after[run], lag[run])


def _are_earliest(pipeline: Pipeline, numbers: IntArray, offsets: IntArray, start: IntArray, demands: Demands) -> bool:
    """Whether every operation starts when the last thing that it waits for is there; nothing else does, as all take time."""
    duration = durations(pipeline, numbers)
    if pipeline.lines or pipeline.ticks.lead.any() or len(start) != len(duration) or (duration <= 0).any():
        return False
    device = _devices(offsets)
    waits = _waits(pipeline, _positions(pipeline, numbers, device), demands)
    end = start + duration
    ready = np.concatenate(([0], end[:-1]))
    ready[offsets[:-1][offsets[:-1] < len(end)]] = 0
    np.maximum.at(ready, waits.after, end[waits.before] + waits.lag)
    return bool((ready == start).all())


Further: TypeAlias = tuple[IntArray, IntArray, IntArray, IntArray]
"""Waits beside the data, as :func:`~ppopt.timing.loops.sweep` has them."""


class Swept(NamedTuple):
    """The earliest times of an order, by the places in the rows of all devices.

    ``sequence``: all places, each behind what it waits for; empty where it was not asked for.
    """

    start: IntArray
    duration: IntArray
    sequence: IntArray


def swept(
    pipeline: Pipeline, numbers: IntArray, offsets: IntArray, demands: Demands = NO_DEMANDS, *, traced: bool = False
) -> Swept | int:
    """The times of an order whose transfers are lags; or why it has none (:data:`~ppopt.timing.loops.MALFORMED`, ``CYCLIC``).

    ``numbers``: the rows of all devices, ``offsets``: where each begins. ``traced``: with the ``sequence``.
    """
    ticks = pipeline.ticks
    lead, further = of_stages(pipeline, numbers, ticks.lead), _further(pipeline.index.size, demands)
    longest = int(max(ticks.duration.max(), ticks.overlap.max(), 0)) * 2 + int(ticks.lag.max()) + int(demands.lag.max(initial=0))
    most = (len(numbers) + 1) * longest + int(ticks.lead.max())
    entered = Entered.of(pipeline, numbers, offsets, most)
    if isinstance(entered, int):
        return entered
    sequence = np.empty(len(numbers) if traced else 0, np.int64)
    found = entered.sweep(lead, entered.duration, further, entered.end, sequence)
    return Swept(lead, entered.duration, sequence) if found == FINE else found


class Entered(NamedTuple):
    """An order that is whole, to be timed once or with several durations (the arguments of :func:`~ppopt.timing.loops.sweep`)."""

    most: int
    """No time is later, in ticks."""
    order: tuple[IntArray, IntArray, int, int, int]
    place: tuple[IntArray, IntArray]
    needs: tuple[IntArray, IntArray, IntArray]
    duration: IntArray
    end: IntArray

    @classmethod
    def of(cls, pipeline: Pipeline, numbers: IntArray, offsets: IntArray, most: int, scale: int = 1) -> Entered | int:
        """An order, with ``scale`` ticks for each of the pipeline's; or :data:`~ppopt.timing.loops.MALFORMED`: it is not whole.

        ``numbers``: the rows of all devices, ``offsets``: where each begins.
        """
        count, ticks = len(numbers), pipeline.ticks
        order = numbers, offsets, pipeline.stages * pipeline.microbatches, pipeline.microbatches, pipeline.index.pieces
        place = pipeline.route_by_microbatch, pipeline.device_by_kind.ravel()
        duration, end = np.empty(count, np.int64), np.full(pipeline.index.size, NOT_RUN, np.int64)
        found: int = enter(count, most, order, place, ticks.duration.ravel(), ticks.overlap.ravel(), end, duration)
        first, before, lag = needs_of(pipeline)
        return cls(most, order, place, (first, before, lag * scale), duration * scale, end) if found == FINE else found

    def sweep(self, start: IntArray, duration: IntArray, further: Further, end: IntArray, sequence: IntArray) -> int:
        """Write the starts with these durations; :data:`~ppopt.timing.loops.FINE`, or ``CYCLIC``. ``end``: :attr:`end`, or a copy
        where it is asked for again."""
        count = len(start)
        found: int = sweep(count, self.most, self.order, self.place, duration, self.needs, further, start, end, sequence)
        return found


@lru_cache(maxsize=4)  # every order of a pipeline asks for the same
def needs_of(pipeline: Pipeline) -> tuple[IntArray, IntArray, IntArray]:
    """What each family waits for, as :func:`~ppopt.timing.loops.sweep` has it; transfers are lags."""
    families = pipeline.index.rows * pipeline.stages
    sending, back = pipeline.ticks.sending, pipeline.backward_routes or pipeline.routes
    known: dict[tuple[tuple[int, ...], tuple[int, ...], bytes], IntArray] = {}
    rows = list[IntArray]()
    for route, key in enumerate(zip(pipeline.routes, back, map(np.ndarray.tobytes, sending), strict=True)):
        if key not in known:
            known[key] = _needs_of_route(pipeline, route)
        rows.append(known[key] + (route * families, 0, 0))
    after, before, lag = np.concatenate(rows).T
    return np.searchsorted(after, np.arange(families * len(rows) + 1)), before.copy(), lag.copy()


def _needs_of_route(pipeline: Pipeline, route: int) -> IntArray:
    """``[wait]``: the family that waits, the one that it waits for, and the lag; by the former.

    They follow from the devices of the route and from what its transfers take.
    """
    stages, rows = pipeline.stages, list[tuple[int, int, int]]()
    for word in select(data_of_route(pipeline, route, links=False), Precede):
        before, after = word.before, word.after
        assert isinstance(before, Family)
        assert isinstance(after, Family)
        assert (word.shift, before.route) == (0, after.route)
        rows.append((after.row * stages + after.stage, before.row * stages + before.stage, word.lag))
    return np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)


def _further(size: int, demands: Demands) -> Further:
    """Further waits as :func:`~ppopt.timing.loops.sweep` has them."""
    count = len(demands.before)
    by_after = np.argsort(demands.after, kind="stable")
    before, after, lag = (column[by_after] for column in demands)
    first, following = np.full(size if count else 0, -1, np.int64), np.full(count, -1, np.int64)
    if count:
        new = np.concatenate(([True], after[1:] != after[:-1]))
        first[after[new]] = np.flatnonzero(new)
        following[:-1] = np.where(new[1:], -1, np.arange(1, count))
    return first, following, before, lag


def _devices(offsets: IntArray) -> IntArray:
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _impossible(pipeline: Pipeline, numbers: IntArray, offsets: IntArray, demands: Demands) -> OrderError:
    """Why an order has no times: something is missing, run twice or elsewhere (which is raised), or waits for itself."""
    device = _devices(offsets)
    waits = _waits(pipeline, _positions(pipeline, numbers, device), demands)
    late = (device[waits.before] == device[waits.after]) & (waits.before >= waits.after)
    if late.any():
        first = int(np.flatnonzero(late)[0])
        return CyclicOrder(_texts(pipeline, numbers, (int(waits.after[first]), int(waits.before[first]))))
    return CyclicOrder(_texts(pipeline, numbers, _cycle(offsets, waits)))


def _cycle(offsets: IntArray, waits: Waits) -> list[int]:
    """A cycle of places, each waiting for the next: its predecessor on the device, or a result."""
    size = int(offsets[-1])
    need: list[list[int]] = [[] for _ in range(size)]
    for after, before in zip(waits.after.tolist(), waits.before.tolist(), strict=True):
        need[after].append(before)
    first = set(offsets[:-1].tolist())
    color = [0] * size  # 0 new, 1 on the path, 2 done
    path: list[int] = []
    stack = [(place, False) for place in reversed(range(size))]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            color[node] = 2
            path.pop()
            continue
        if color[node] == 1:
            return path[path.index(node) :]
        if color[node] == 2:
            continue
        color[node] = 1
        path.append(node)
        stack.append((node, True))
        before = [*need[node], *([] if node in first else [node - 1])]
        stack += [(needed, False) for needed in before if color[needed] != 2]
    raise AssertionError("an order that cannot run has a cycle")


def _texts(pipeline: Pipeline, numbers: IntArray, places: Iterable[int]) -> list[str]:
    return [str(pipeline.index.op(int(numbers[place]))) for place in places]
