"""A schedule is a set of ordering constraints; this is their vocabulary.

Microbatches are alike, so a rule is said once, over *streams* of operations, and not once per microbatch. The k-th
operation of a stream is written ``X(k)``. The words are data: solvers and the list scheduler compile them, and one
that meets a word it does not know raises. :func:`operations` is the one place where a stream is expanded to the
operations of a finite pipeline, and :func:`instances` the one where a word's relation is; :func:`expand` does many at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import IntArray, Pipeline, halves

# --- streams -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """All operations of one stage, kind and route: ``X(k)`` is that of the route's k-th microbatch."""

    stage: int
    kind: Kind
    route: int = 0

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.name}" + (f"@{self.route}" if self.route else "")


@dataclass(frozen=True)
class Dealt:
    """Families taken in turn, ``group`` operations of each at a time (the last round takes what is left).

    For chunks 0 and 4 and groups of 2: ``0F0 0F1 4F0 4F1 0F2 0F3 4F2 4F3 …``, the table of interleaved schedules.
    ``descending`` takes the operations of each group from the last to the first. With a ``stride`` of 2 each family gives
    its operations 0, 2, 4, … first and 1, 3, 5, … then.
    """

    families: tuple[Family, ...]
    group: int
    descending: bool = False
    stride: int = 1

    def __str__(self) -> str:
        return f"[{' '.join(map(str, self.families))}] by {self.group}"


@dataclass(frozen=True)
class Listed:
    """Operations one by one, for orders that follow no rule. A pair in it stands for both of its halves."""

    ops: tuple[Op | Pair, ...]

    def __str__(self) -> str:
        shown = " ".join(map(str, self.ops[:4]))
        return f"({shown}{' …' if len(self.ops) > 4 else ''})"


Stream: TypeAlias = Family | Dealt | Listed


# --- words -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Precede:
    """For every k: ``start(after(k)) >= end(before(k - shift)) + lag``, where both are run.

    ``Precede(X, X, shift=1)`` keeps a stream in its own order. ``lag`` is in ticks.
    """

    before: Stream
    after: Stream
    shift: int = 0
    lag: int = 0

    def __str__(self) -> str:
        lag = f" + {self.lag}" if self.lag else ""
        index = f"k{-self.shift:+d}" if self.shift else "k"
        return f"{self.before}({index}){lag} < {self.after}(k)"


@dataclass(frozen=True)
class Exclusive:
    """No two operations of these streams run at once: they share a device."""

    streams: tuple[Stream, ...]


@dataclass(frozen=True)
class Hold:
    """``amount(s)`` held from the start of ``claim(k)`` to the end of whichever of ``release(k)`` is run."""

    claim: Family
    release: tuple[Family, ...]
    amount: int


@dataclass(frozen=True)
class Capacity:
    """At any time the sum of what ``holds`` hold is at most ``limit``; releases at a time come before claims at that time."""

    holds: tuple[Hold, ...]
    limit: int


@dataclass(frozen=True)
class Together:
    """For every k: ``first(k + shift)`` and ``second(k)`` are one overlapped pair, where both exist."""

    first: Stream
    second: Stream
    shift: int = 0


@dataclass(frozen=True)
class OneOf:
    """For every k exactly one alternative is run: all of its streams' operations ``X(k)``, and none of the others'.

    ``OneOf(((X,),))`` with one alternative: ``X`` is run.
    """

    alternatives: tuple[tuple[Stream, ...], ...]


Word: TypeAlias = Precede | Exclusive | Capacity | Together | OneOf


def chain(stream: Stream) -> Precede:
    """The stream runs in its own order."""
    return Precede(stream, stream, shift=1)


# --- expansion ---------------------------------------------------------------------------------------------------


def operations(pipeline: Pipeline, stream: Stream) -> IntArray:
    """The numbers (:class:`~ppopt.op.OpIndex`) of the stream's operations, in its order."""
    if isinstance(stream, Family):
        base = (stream.kind * pipeline.stages + stream.stage) * pipeline.microbatches
        return pipeline.microbatches_of[stream.route] + base
    if isinstance(stream, Dealt):
        columns = [_strided(operations(pipeline, family), stream.stride) for family in stream.families]
        step = -1 if stream.descending else 1
        length = max((len(column) for column in columns), default=0)
        return np.concatenate(
            [column[k : k + stream.group][::step] for k in range(0, length, stream.group) for column in columns]
        )
    if isinstance(stream, Listed):
        return np.array([pipeline.index.number(op) for op in stream.ops], dtype=np.int64)
    raise TypeError(f"unknown stream {stream!r}")


def _strided(column: IntArray, stride: int) -> IntArray:
    return column if stride == 1 else np.concatenate([column[first::stride] for first in range(stride)])


def shifted(first: IntArray, second: IntArray, shift: int) -> tuple[IntArray, IntArray]:
    """All ``(first(k - shift), second(k))`` where both exist."""
    low, high = max(0, shift), min(len(second), len(first) + shift)
    if high <= low:
        return first[:0], second[:0]
    return first[low - shift : high - shift], second[low:high]


def instances(pipeline: Pipeline, word: Precede | Together) -> tuple[IntArray, IntArray]:
    """The single operations that a word relates: before and after, or the first and second halves of the pairs.

    What comes before or after a pair comes before or after both of its halves.
    """
    if isinstance(word, Together):
        return shifted(operations(pipeline, word.first), operations(pipeline, word.second), -word.shift)
    before, after = shifted(operations(pipeline, word.before), operations(pipeline, word.after), word.shift)
    size = pipeline.index.size
    if (before < size).all() and (after < size).all():
        return before, after
    columns = [
        (a[both], b[both])
        for a in halves(pipeline.index, before)
        for b in halves(pipeline.index, after)
        for both in [(a >= 0) & (b >= 0)]
    ]
    first, second = (np.concatenate(column) for column in zip(*columns, strict=True))
    return first, second


def expand(pipeline: Pipeline, words: Iterable[Word]) -> tuple[IntArray, IntArray, IntArray]:
    """All instances of the ``Precede`` words among ``words``: the numbers of before and after, and the lags."""
    columns: list[tuple[IntArray, IntArray, IntArray]] = []
    plain: dict[int, list[tuple[int, int, int]]] = {}  # by route: first numbers of both families, and the lag
    size = pipeline.microbatches
    for word in words:
        if not isinstance(word, Precede):
            continue
        before, after = word.before, word.after
        if isinstance(before, Family) and isinstance(after, Family) and before.route == after.route and not word.shift:
            bases = ((family.kind * pipeline.stages + family.stage) * size for family in (before, after))
            plain.setdefault(before.route, []).append((*bases, word.lag))  # type: ignore[arg-type]
        else:
            first, second = instances(pipeline, word)
            columns.append((first, second, np.full(len(first), word.lag, dtype=np.int64)))
    for route, rows in plain.items():
        table = np.array(rows, dtype=np.int64)
        microbatches = pipeline.microbatches_of[route]
        first, second = ((table[:, i, None] + microbatches).ravel() for i in (0, 1))
        columns.append((first, second, np.repeat(table[:, 2], len(microbatches))))
    if not columns:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    before_, after_, lag = (np.concatenate(column) for column in zip(*columns, strict=True))
    return before_, after_, lag


# --- what every schedule must obey -------------------------------------------------------------------------------


def rules_of(pipeline: Pipeline) -> tuple[Word, ...]:
    """The rules of any schedule of this pipeline; a few per stage, whatever the number of microbatches.

    Every microbatch runs forward through its route and back; a backward is run as ``B``, or as ``I`` and ``W`` where the
    costs have them; results travel over links; a device runs one operation at a time and stays within its memory.
    """
    rules: list[Word] = [*data_of(pipeline)]
    rules += [Exclusive(streams) for streams in _streams_of_devices(pipeline)]
    rules += memory_of(pipeline)
    return tuple(rules)


def data_of(pipeline: Pipeline) -> tuple[Word, ...]:
    """The rules about data: what is run, and what it waits for."""
    return tuple(rule for route in range(len(pipeline.routes)) for rule in _data_of_route(pipeline, route))


def backward_kinds(pipeline: Pipeline) -> tuple[Kind, ...]:
    """The kinds that hand a gradient upstream: ``B``, and ``I`` where the costs have it."""
    return (Kind.B, Kind.I) if pipeline.costs.split else (Kind.B,)


def _data_of_route(pipeline: Pipeline, route: int) -> list[Word]:
    devices, latency = pipeline.routes[route], pipeline.ticks.latency
    kinds = backward_kinds(pipeline)
    rules: list[Word] = []
    for stage, device in enumerate(devices):
        forward = Family(stage, Kind.F, route)
        alternatives: list[tuple[Stream, ...]] = [(Family(stage, Kind.B, route),)]
        rules.append(OneOf(((forward,),)))
        if Kind.I in kinds:
            alternatives.append((Family(stage, Kind.I, route), Family(stage, Kind.W, route)))
            rules.append(Precede(Family(stage, Kind.I, route), Family(stage, Kind.W, route)))
        rules.append(OneOf(tuple(alternatives)))
        if stage:
            lag = int(latency[devices[stage - 1], device])
            rules.append(Precede(Family(stage - 1, Kind.F, route), forward, lag=lag))
        if stage == len(devices) - 1:
            rules += [Precede(forward, Family(stage, kind, route)) for kind in kinds]
        else:
            lag = int(latency[devices[stage + 1], device])
            rules += [
                Precede(Family(stage + 1, upstream, route), Family(stage, kind, route), lag=lag)
                for upstream in kinds
                for kind in kinds
            ]
    return rules


def _streams_of_devices(pipeline: Pipeline) -> list[tuple[Stream, ...]]:
    kinds = tuple(Kind) if pipeline.costs.split else (Kind.F, Kind.B)
    streams: list[list[Stream]] = [[] for _ in range(pipeline.devices)]
    for route, devices in enumerate(pipeline.routes):
        for stage, device in enumerate(devices):
            streams[device] += [Family(stage, kind, route) for kind in kinds]
    return [tuple(of_device) for of_device in streams]


def memory_of(pipeline: Pipeline) -> tuple[Capacity, ...]:
    """The memory limit of every device, static memory taken off; nothing where there is no limit."""
    amounts = pipeline.amounts
    if amounts.limit is None:
        return ()
    capacities = []
    for device in range(pipeline.devices):
        holds: list[Hold] = []
        for route, devices in enumerate(pipeline.routes):
            for stage, held_on in enumerate(devices):
                if held_on == device:
                    holds += _holds_of(pipeline, route, stage)
        capacities.append(Capacity(tuple(holds), int(amounts.limit[device] - amounts.static[device])))
    return tuple(capacities)


def _holds_of(pipeline: Pipeline, route: int, stage: int) -> list[Hold]:
    activation = int(pipeline.amounts.activation[route, stage])
    retained = int(pipeline.amounts.retained[route, stage])
    forward, full, input_, weight = (Family(stage, kind, route) for kind in Kind)
    if not pipeline.costs.split:
        holds = [Hold(forward, (full,), activation)]
    else:
        holds = [Hold(forward, (full, input_), activation - retained), Hold(forward, (full, weight), retained)]
    return [hold for hold in holds if hold.amount]


def always_split(pipeline: Pipeline) -> tuple[OneOf, ...]:
    """Every backward is run as ``I`` and ``W``.

    Valid, as a restriction that keeps the optimum, where ``I`` + ``W`` takes no longer than ``B`` on every stage: a ``B``
    can then be replaced by its ``I`` followed by its ``W``, and everybody has its gradient no later.
    """
    return tuple(
        OneOf(((Family(stage, Kind.I, route), Family(stage, Kind.W, route)),))
        for route in range(len(pipeline.routes))
        for stage in range(pipeline.stages)
    )


def splitting_is_free(pipeline: Pipeline) -> bool:
    """Whether ``I`` + ``W`` takes no longer than ``B`` on every stage: the condition of :func:`always_split`."""
    duration = pipeline.ticks.duration
    return pipeline.costs.split and bool((duration[:, Kind.I] + duration[:, Kind.W] <= duration[:, Kind.B]).all())


def run(streams: Iterable[Stream]) -> tuple[OneOf, ...]:
    """These operations are run."""
    return tuple(OneOf(((stream,),)) for stream in streams)


def chosen(pipeline: Pipeline, words: Sequence[Word]) -> tuple[IntArray, IntArray]:
    """Which operations the ``OneOf`` words leave: numbers of those always run, and of those run or not (a choice).

    Raises:
        ValueError: two words leave no alternative for an operation.
    """
    size = pipeline.index.size
    possible = np.zeros(size, dtype=bool)  # named by some word, and by every word that names its choice
    excluded = np.zeros(size, dtype=bool)
    forced = np.zeros(size, dtype=bool)
    for word in words:
        if not isinstance(word, OneOf):
            continue
        columns = [[operations(pipeline, stream) for stream in streams] for streams in word.alternatives]
        if len(columns) == 1:
            for column in columns[0]:
                forced[column] = True
        else:
            for alternative in columns:
                for column in alternative:
                    possible[column] = True
    for word in words:
        if isinstance(word, OneOf) and len(word.alternatives) > 1:
            columns = [[operations(pipeline, stream) for stream in streams] for streams in word.alternatives]
            for a, alternative in enumerate(columns):
                taken = np.any([forced[column] for column in alternative], axis=0)
                for other in columns[:a] + columns[a + 1 :]:
                    for column in other:
                        excluded[column[taken]] = True
                for column in alternative:
                    forced[column[taken]] = True
    if (forced & excluded).any():
        op = pipeline.index.op(int(np.flatnonzero(forced & excluded)[0]))
        raise ValueError(f"{op} is both required and excluded")
    return np.flatnonzero(forced), np.flatnonzero(possible & ~forced & ~excluded)


# --- cuts: redundant, or breaking symmetry -----------------------------------------------------------------------


def cuts_of(pipeline: Pipeline, extra: Sequence[Word] = ()) -> tuple[Precede, ...]:
    """Words that keep the optimum and make it easier to find: :func:`in_order` and :func:`room_in_order`.

    Both need microbatches that can be renumbered; nothing is cut where ``extra``, the words beside the rules, could tell
    them apart (:func:`alike`).
    """
    return (*in_order(pipeline), *room_in_order(pipeline)) if alike(extra) else ()


def alike(extra: Sequence[Word]) -> bool:
    """Whether these words, beside the rules, treat all microbatches of a route alike: only choices over whole families do."""
    return all(
        isinstance(word, OneOf) and all(isinstance(stream, Family) for streams in word.alternatives for stream in streams)
        for word in extra
    )


def in_order(pipeline: Pipeline) -> tuple[Precede, ...]:
    """Every stage runs each kind in the order of the microbatches, route by route.

    Valid where the microbatches of a route are alike. Renumber the operations of each kind and stage by their starts: the
    devices stay as busy as they were; whatever starts as the (n+1)-th of its kind had n+1 predecessors that ended in time, so
    the (n+1)-th of these did; and memory depends on counts alone. Where a backward may be run either way, ``B`` and ``I``
    are one sequence: the n-th of them, whichever it is, hands on the n-th gradient.
    """
    backward = backward_kinds(pipeline)
    orders = [(Kind.F, Kind.F), *((a, b) for a in backward for b in backward)]
    if pipeline.costs.split:
        orders.append((Kind.W, Kind.W))
    return tuple(
        Precede(Family(stage, before, route), Family(stage, after, route), shift=1)
        for route in range(len(pipeline.routes))
        for stage in range(pipeline.stages)
        for before, after in orders
    )


def room_in_order(pipeline: Pipeline) -> tuple[Precede, ...]:
    """What the memory limit says about microbatches that run in order (valid with :func:`in_order` only).

    On one device and route let ``a`` be the activation of a stage and ``r`` what it retains, ``A`` the sum of ``a`` over the
    device's stages up to this one, ``L`` the limit less static memory.

    - ``F(n + c)`` waits for the backward of n, ``c = L // A``: else n..n+c hold ``A`` each.
    - ``F(n + c)`` waits for ``W(n)``, ``c = (L - a) // r + 1``: else n..n+c-1 hold ``r`` each, and ``a`` is claimed.
    - ``F(n + c)`` of an earlier stage waits for ``F(n)`` of a later one: when the latter starts, the microbatches from n on
      that have begun the earlier stage hold its ``A`` each, and n holds the stages between; ``c`` is how many fit.
    """
    amounts = pipeline.amounts
    if amounts.limit is None:
        return ()
    cuts: list[Precede] = []
    for route, devices in enumerate(pipeline.routes):
        activation, retained = amounts.activation[route].tolist(), amounts.retained[route].tolist()
        for device in sorted(set(devices)):
            room = int(amounts.limit[device] - amounts.static[device])
            stages = [stage for stage, held_on in enumerate(devices) if held_on == device]
            total = 0
            for i, stage in enumerate(stages):
                total += activation[stage]
                forward = Family(stage, Kind.F, route)
                if total:
                    backward = [Family(stage, kind, route) for kind in backward_kinds(pipeline)]
                    cuts += [Precede(family, forward, shift=room // total) for family in backward]
                if pipeline.costs.split and retained[stage]:
                    shift = (room - activation[stage]) // retained[stage] + 1
                    cuts.append(Precede(Family(stage, Kind.W, route), forward, shift=shift))
                between = 0
                for later in stages[i + 1 :]:
                    if total:
                        shift = (room - between - activation[later]) // total
                        cuts.append(Precede(Family(later, Kind.F, route), forward, shift=shift))
                    between += activation[later]
    return tuple(cut for cut in cuts if cut.shift < len(pipeline.microbatches_of[cut.after.route]))  # type: ignore[union-attr]
