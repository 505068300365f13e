"""The relaxed pipeline that every bound works on: families of operations, alike for all microbatches.

Of a pipeline only this is kept: per route and stage ``F``, ``I`` and ``W`` (with durations that no way of running the
backward undercuts), the transfers that hold a link, data edges with their latency, one device or link per family, which families
stop each other, and what a device may hold. Written as a graph over
families it is symmetric in time: :meth:`Flow.reversed` is again a flow, so tails are heads of the reversed flow and an
end window is a start window of it.

*Why it is a relaxation.* Let ``b``, ``i``, ``w`` be the durations of ``B``, ``I``, ``W`` of a stage. The flow has
``i' = min(i, b)`` and ``w' = min(i + w, b) - i'``. In any schedule put ``I'`` at the start of ``B`` and ``W'`` behind it, or
``I'`` at the start of ``I`` and ``W'`` at the start of ``W``: nothing overlaps, gradients arrive no later, memory is released
no later. A fused backward is an ``I'`` alone (labelled ``B``), and so is one with ``w' = 0``. An overlapped pair that takes at
least as long as its forward and ``i' + w'`` is covered the same way: ``F'`` at its start, ``I'`` and ``W'`` at its end.

*Pairs that save time* (:func:`shared`) are covered so once the durations are made smaller until ``f' + i' + w'`` is at most the
overlap, for every forward and every backward of the device: each operation then counts with a share that it has in any pair.
There are two ways to do that (the forward, or the backward, ``W`` first, gives way), and both are flows.

*Links.* A link is a machine like a device: its transfers run one at a time, each after what it carries, and ``latency`` before
what waits for it. Where transfers block, the computations of a device and its transfers over one link are a machine too: no two
of them run at once. Without links (``links=False``) a transfer is a delay between computations, which is a relaxation again.

*In order.* Microbatches of a route are alike, so the n-th operation of a family (by start) can be renumbered to belong
to the n-th microbatch: if the n + 1 earliest starts of a family are at most y, each has its own predecessor, so the n + 1
earliest starts of the predecessor are at most y - duration - latency. The intervals on devices and links stay, memory
depends on counts only. Every bound here uses ``start(n + 1) >= start(n) + duration`` within a family on that ground; it needs
equal durations and amounts over the microbatches of a route (a :class:`~ppopt.pipeline.Pipeline` has no others) and an
objective of device intervals alone (makespan and device span are).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from ppopt.constraints import pairs_of, pairs_save_time
from ppopt.op import Kind, Send
from ppopt.pipeline import IntArray, Pipeline

Line: TypeAlias = tuple[tuple[int, int], ...]
"""A link: its pairs of devices, from and to."""

FAR = 2**62
"""``-FAR`` is the head of an operation that nothing is known of; no horizon reaches ``FAR / 2``."""


class Edge(NamedTuple):
    """``after(n)`` starts at least ``lag`` after the end of ``before(n)``; both are families, by number."""

    before: int
    after: int
    lag: int


class Held(NamedTuple):
    """``amount`` is held from the start of ``first(n)`` to the end of ``last(n)``."""

    first: int
    last: int
    amount: int


class Arc(NamedTuple):
    """For lack of memory ``after(n)`` starts no earlier than the end of ``before(n - shift)``."""

    before: int
    after: int
    shift: int


class Turn(NamedTuple):
    """For lack of memory ``after(n)`` starts at least ``lag`` after the start of ``before(n - shift)``."""

    before: int
    after: int
    shift: int
    lag: int


@dataclass(frozen=True)
class Flow:
    """Families of operations in topological order of the data edges, numbered from 0. Times in ticks."""

    devices: int
    names: tuple[str, ...]
    """What the devices, the links and the machines of ``stopping`` are called."""
    routes: int
    """How many routes are taken."""
    label: tuple[str, ...]
    kind: tuple[Kind | Send, ...]
    duration: tuple[int, ...]
    device: tuple[int, ...]
    """Per family its device, or ``devices`` + its link."""
    stopping: tuple[tuple[int, ...], ...]
    """Where transfers block: families of a device and of a link of which no two run at once, in topological order."""
    count: tuple[int, ...]
    """Per family how many instances there are: the microbatches of its route."""
    edges: tuple[Edge, ...]
    held: tuple[Held, ...]
    arcs: tuple[Arc, ...]
    """Consequences of ``held`` and ``limit``."""
    turns: tuple[Turn, ...]
    """Others, where a device holds several stages of a route."""
    limit: tuple[int, ...] | None
    """Per device, static memory taken off; ``None`` is unlimited."""
    before: tuple[int, ...]
    """Per family, what its device has to do before its first instance: an all-gather."""
    after: tuple[int, ...]
    """Per family, what its device has to do after its last instance: a reduce-scatter."""

    def reversed(self) -> Flow:
        """The same flow with time running backwards; family ``o`` becomes family ``len - 1 - o``."""
        last = len(self.label) - 1
        return replace(
            self,
            label=self.label[::-1],
            kind=self.kind[::-1],
            duration=self.duration[::-1],
            device=self.device[::-1],
            stopping=tuple(tuple(last - o for o in reversed(families)) for families in self.stopping),
            count=self.count[::-1],
            edges=tuple(Edge(last - after, last - before, lag) for before, after, lag in self.edges),
            held=tuple(Held(last - end, last - first, amount) for first, end, amount in self.held),
            arcs=tuple(Arc(last - after, last - before, shift) for before, after, shift in self.arcs),
            turns=tuple(
                Turn(last - after, last - before, shift, lag + self.duration[before] - self.duration[after])
                for before, after, shift, lag in self.turns
            ),
            before=self.after[::-1],
            after=self.before[::-1],
        )

    def without(self, families: Collection[int]) -> Flow:
        """The same without some families that nothing waits for (weight gradients): a relaxation.

        What such a family would give back it gives back where it would start at the earliest: at the end of what it waits for.
        """
        assert not any(edge.before in families for edge in self.edges), "nothing waits for them"
        kept = [family for family in range(len(self.label)) if family not in families]
        number = {family: place for place, family in enumerate(kept)}
        last = number | {edge.after: number[edge.before] for edge in self.edges if edge.after in families}
        return replace(
            self,
            label=tuple(self.label[o] for o in kept),
            kind=tuple(self.kind[o] for o in kept),
            duration=tuple(self.duration[o] for o in kept),
            device=tuple(self.device[o] for o in kept),
            stopping=tuple(tuple(number[o] for o in machine if o in number) for machine in self.stopping),
            count=tuple(self.count[o] for o in kept),
            edges=tuple(Edge(number[a], number[b], lag) for a, b, lag in self.edges if b in number),
            held=tuple(Held(number[first], last[end], amount) for first, end, amount in self.held),
            arcs=tuple(Arc(number[a], number[b], shift) for a, b, shift in self.arcs if a in number),
            turns=tuple(Turn(number[a], number[b], shift, lag) for a, b, shift, lag in self.turns),
            before=tuple(self.before[o] for o in kept),
            after=tuple(self.after[o] for o in kept),
        )

    def freed(self, devices: Collection[int]) -> Flow:
        """The same where ``devices`` run as many of their families at once as they like, and hold as much: a relaxation.

        Of each of these families one operation runs at a time, as on a machine of its own. What transfers stop is left out.
        """
        own = [family for family, device in enumerate(self.device) if device in devices]
        machines = len(self.names) - len(self.stopping)
        number = {family: machines + place for place, family in enumerate(own)}
        kept = [hold for hold in self.held if hold.first not in number]
        return replace(
            self,
            names=(*self.names[:machines], *(self.label[family] for family in own)),
            device=tuple(number.get(family, device) for family, device in enumerate(self.device)),
            stopping=(),
            held=tuple(kept),
            arcs=tuple(arc for arc in self.arcs if arc.after not in number),
            turns=tuple(turn for turn in self.turns if turn.after not in number),
        )

    def thinned(self, kept: int, of: int) -> Flow:
        """The same with ``kept`` of every ``of`` microbatches, evenly spread: a relaxation, with that much less memory.

        Of ``of`` microbatches in a row ``kept`` are left, number ``n * of // kept`` as number n. The others are left out of a
        schedule as they are: what is left starts and ends when it did. A family holds microbatches that follow each other, and
        among these q of those left are ``(q - 1) * of // kept + 1`` microbatches at least, no less than
        ``((q - 1) * of + g) / kept`` with the greatest common divisor g. So what a device holds keeps
        ``sum of amount * of * q <= kept * limit + sum of amount * (of - g)``. A wait for the ``shift``-th before becomes one for
        the ``ceil(shift * kept / of)``-th of those left, which is no later.
        """
        assert self.routes == 1, "one route"
        assert 0 < kept <= of, (kept, of)

        def fewer(number: int) -> int:
            return -(-number * kept // of)

        limit = None
        if self.limit is not None:
            besides = [0] * len(self.limit)
            for hold in self.held:
                besides[self.device[hold.first]] += hold.amount * (of - math.gcd(kept, of))
            limit = tuple(kept * room + more for room, more in zip(self.limit, besides, strict=True))
        return replace(
            self,
            count=tuple(map(fewer, self.count)),
            held=tuple(hold._replace(amount=hold.amount * of) for hold in self.held),
            arcs=tuple(arc._replace(shift=fewer(arc.shift)) for arc in self.arcs),
            turns=tuple(turn._replace(shift=fewer(turn.shift)) for turn in self.turns),
            limit=limit,
        )

    @cached_property
    def families_of(self) -> tuple[tuple[int, ...], ...]:
        """Per device, then per link, its families, in topological order."""
        of: list[list[int]] = [[] for _ in range(len(self.names) - len(self.stopping))]
        for family, device in enumerate(self.device):
            of[device].append(family)
        return tuple(map(tuple, of))

    @property
    def machines(self) -> tuple[tuple[int, ...], ...]:
        """Families of which no two operations run at once: of every device, every link, and what stops each other."""
        return self.families_of + self.stopping

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Per machine, the sum of all its operations' durations."""
        return tuple(sum(self.duration[o] * self.count[o] for o in families) for families in self.machines)

    def computing(self) -> Flow:
        """The same without what precedes and follows the operations of a device: a relaxation."""
        none = (0,) * len(self.label)
        return replace(self, before=none, after=none)

    @cached_property
    def around(self) -> tuple[int, ...]:
        """Per machine, what there is at least before its first operation and after its last one."""
        return tuple(sum(min((of[o] for o in own), default=0) for of in (self.before, self.after)) for own in self.machines)

    @cached_property
    def edges_into(self) -> tuple[tuple[Edge, ...], ...]:
        """Per family the data edges that end in it."""
        into: list[list[Edge]] = [[] for _ in self.label]
        for edge in self.edges:
            into[edge.after].append(edge)
        return tuple(map(tuple, into))

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Per family the set of families that it depends on, directly or not, as bits of an integer."""
        sets: list[int] = []
        for edges in self.edges_into:
            found = 0
            for edge in edges:
                found |= sets[edge.before] | 1 << edge.before
            sets.append(found)
        return tuple(sets)

    def chain(self, first: int, last: int) -> int:
        """Least time from the start of ``first(n)`` to the end of ``last(n)``; ``-FAR`` where neither depends on the other."""
        reach = [-FAR] * len(self.label)
        reach[first] = self.duration[first]
        for family in range(first + 1, last + 1):
            arrivals = (reach[edge.before] + edge.lag for edge in self.edges_into[family] if edge.before >= first)
            reach[family] = max(arrivals, default=-FAR) + self.duration[family]
        return reach[last] if reach[last] > -FAR // 2 else -FAR


def flows_of(pipeline: Pipeline, pairs: bool, *, links: bool = True) -> tuple[Flow, ...]:
    """Relaxed pipelines (see above), each valid by itself; with ``pairs`` for schedules with overlapped pairs, too."""
    if pairs and pairs_save_time(pipeline):
        return flow_of(pipeline, Share.BACKWARD, links=links), flow_of(pipeline, Share.FORWARD, links=links)
    return (flow_of(pipeline, links=links),)


class Share(Enum):
    """What of a forward and a backward counts where they may run as a pair."""

    BACKWARD = "the backward counts with what the pair takes longer than the forward"
    FORWARD = "the forward counts with what the pair takes longer than the backward"
    NEITHER = "no more than a pair takes counts of either alone; together they may take longer, so this is no flow of its own"


def shared(pipeline: Pipeline, share: Share | None) -> tuple[IntArray, IntArray, IntArray]:
    """Ticks ``[route, stage]`` of ``F'``, ``I'`` and ``W'``; ``share``: of schedules that run pairs."""
    forward, full, input_, weight = (pipeline.ticks.duration[:, kind].copy() for kind in Kind)
    split = input_ >= 0
    gradient = np.where(split, np.minimum(input_, full), full)
    rest = np.where(split, np.minimum(input_ + weight, full) - gradient, 0)
    for word in pairs_of(pipeline) if share is not None else ():
        rows, backs = (tuple(zip(*((f.route, f.stage) for f in side), strict=True)) for side in (word.forwards, word.backwards))
        overlap = pipeline.ticks.overlap[rows]
        backward = np.minimum(gradient[backs] + rest[backs], overlap.min())
        forward[rows] = np.minimum(forward[rows], overlap)
        if share is Share.FORWARD:
            forward[rows] = np.minimum(forward[rows], overlap - backward.max())
        elif share is Share.BACKWARD:
            backward = np.minimum(backward, (overlap - forward[rows]).min())
        gradient[backs] = np.minimum(gradient[backs], backward)
        rest[backs] = np.minimum(rest[backs], backward - gradient[backs])
    return forward, gradient, rest


def flow_of(pipeline: Pipeline, share: Share | None = None, *, links: bool = True) -> Flow:
    """The relaxed pipeline (see above); without a ``share`` for schedules without pairs that save time."""
    limit = None
    if pipeline.amounts.limit is not None:
        limit = tuple((pipeline.amounts.limit - pipeline.amounts.static).tolist())
    lines = pipeline.lines if links else ()
    builder = _Builder(pipeline, limit, lines, shared(pipeline, share))
    for route, microbatches in enumerate(pipeline.microbatches_of):
        if len(microbatches):
            builder.add_route(route, len(microbatches))
    names = [f"device {device}" for device in range(pipeline.devices)] + [_line(line) for line in lines]
    stopping = []
    for number, line in enumerate(lines if pipeline.links.blocking else ()):
        for device in range(pipeline.devices):
            own = [o for o, ends in builder.ends.items() if builder.device[o] == pipeline.devices + number and device in ends]
            if own:
                stopping.append(tuple(sorted([*own, *(o for o, of in enumerate(builder.device) if of == device)])))
                names.append(f"device {device} with {_line(line)}")
    return Flow(
        pipeline.devices,
        tuple(names),
        sum(map(bool, map(len, pipeline.microbatches_of))),
        tuple(builder.label),
        tuple(builder.kind),
        tuple(builder.duration),
        tuple(builder.device),
        tuple(stopping),
        tuple(builder.count),
        tuple(builder.edges),
        tuple(builder.held),
        tuple(builder.arcs),
        tuple(builder.turns),
        limit,
        tuple(builder.before),
        tuple(builder.after),
    )


def _line(line: Line) -> str:
    return f"link {', '.join(f'{a}->{b}' for a, b in line)}"


class _Builder:
    """Collects the families of all routes."""

    def __init__(
        self,
        pipeline: Pipeline,
        limit: tuple[int, ...] | None,
        lines: tuple[Line, ...],
        durations: tuple[IntArray, IntArray, IntArray],
    ) -> None:
        self.pipeline = pipeline
        self.limit = limit
        self.durations = durations
        self.link = {pair: pipeline.devices + number for number, line in enumerate(lines) for pair in line}
        self.ends: dict[int, tuple[int, int]] = {}
        """Of the transfers, from which device to which."""
        self.label: list[str] = []
        self.kind: list[Kind | Send] = []
        self.duration: list[int] = []
        self.device: list[int] = []
        self.count: list[int] = []
        self.before: list[int] = []
        self.after: list[int] = []
        self.edges: list[Edge] = []
        self.held: list[Held] = []
        self.arcs: list[Arc] = []
        self.turns: list[Turn] = []

    def add(
        self,
        label: str,
        kind: Kind | Send,
        duration: int,
        device: int,
        count: int,
        before: int | None,
        lag: int = 0,
        *,
        traffic: tuple[int, int] = (0, 0),
    ) -> int:
        """A family that depends on ``before``, ``lag`` after it; its number. ``traffic``: before and after it."""
        number = len(self.label)
        if before is not None:
            self.edges.append(Edge(before, number, lag))
        self.label.append(label)
        self.kind.append(kind)
        self.duration.append(duration)
        self.device.append(device)
        self.count.append(count)
        self.before.append(traffic[0])
        self.after.append(traffic[1])
        return number

    def send(self, stage: int, route: int, kind: Send, before: int) -> tuple[int, int]:
        """The way of a result from ``before`` of the stage: what the next computation waits for, and for how long after that."""
        ticks, devices = self.pipeline.ticks, self.pipeline.routes[route]
        pair = devices[stage], devices[stage + (1 if kind == Send.SEND_F else -1)]
        held = int(ticks.sending[route, kind - Send.SEND_F, stage])
        if not held or pair not in self.link:
            return before, int(ticks.lag[pair])
        label = f"{stage}{kind.name}{f'@{route}' if route else ''}"
        number = self.add(label, kind, held, self.link[pair], self.count[before], before)
        self.ends[number] = pair
        return number, int(ticks.latency[pair])

    def add_route(self, route: int, count: int) -> None:
        """The families of a route that ``count`` microbatches take."""
        devices = self.pipeline.routes[route]
        suffix = f"@{route}" if route else ""
        forward, gradient, rest = (durations[route].tolist() for durations in self.durations)
        split = self.pipeline.costs.split
        weights = shared(self.pipeline, None)[2][route].tolist()
        ticks = self.pipeline.ticks
        traffic = list(zip(ticks.gather[route].tolist(), ticks.scatter[route].tolist(), strict=True))
        before, lag = None, 0
        first: list[int] = []
        for stage, device in enumerate(devices):
            if before is not None:
                before, lag = self.send(stage - 1, route, Send.SEND_F, before)
            own = traffic[stage]
            before = self.add(f"{stage}F{suffix}", Kind.F, forward[stage], device, count, before, lag, traffic=own)
            first.append(before)
        lag = 0
        last: dict[int, tuple[int, int | None]] = {}
        for stage in reversed(range(len(devices))):
            device = devices[stage]
            if last:
                assert before is not None
                before, lag = self.send(stage + 1, route, Send.SEND_B, before)
            label, own = f"{stage}{'I' if split else 'B'}{suffix}", traffic[stage]
            before = self.add(label, Kind.I, gradient[stage], device, count, before, lag, traffic=own)
            after = None
            if weights[stage]:
                after = self.add(f"{stage}W{suffix}", Kind.W, rest[stage], device, count, before, traffic=own)
            last[stage] = (before, after)
        if self.limit is not None:
            below = [0] * len(self.limit)
            for stage, device in enumerate(devices):
                below[device] += int(self.pipeline.amounts.activation[route, stage])
                self._add_memory(route, stage, first[stage], last[stage], self.limit[device], below[device])
            for device, room in enumerate(self.limit):
                self._add_turns(route, [stage for stage, at in enumerate(devices) if at == device], first, room)

    def _add_memory(self, route: int, stage: int, first: int, last: tuple[int, int | None], limit: int, below: int) -> None:
        """What one stage holds, and the arcs that follow.

        When ``F(n)`` of a stage starts, the device also holds that microbatch's activations of its earlier stages, and at
        least as many others of each as of this stage: ``below`` per microbatch, its own share included. So ``I(n - limit //
        below)`` has ended; and besides ``below`` of this microbatch there is room for ``(limit - below) // retained`` others
        whose ``W`` has not.
        """
        activation = int(self.pipeline.amounts.activation[route, stage])
        input_, weight = last
        retained = int(self.pipeline.amounts.retained[route, stage]) if weight is not None else 0
        if activation > retained:
            self.held.append(Held(first, input_, activation - retained))
        if below:
            self.arcs.append(Arc(input_, first, limit // below))
        if weight is not None and retained:
            self.held.append(Held(first, weight, retained))
            self.arcs.append(Arc(weight, first, 1 + (limit - below) // retained))

    def _add_turns(self, route: int, stages: Sequence[int], first: Sequence[int], limit: int) -> None:
        """The forwards of an earlier one of a device's ``stages`` wait for those of a later one.

        When ``F(n)`` of the later one starts, no backward of the microbatches from n on has run on the device. With ``below`` as
        above, those that have begun the earlier stage hold that much each, and n holds the later stage and those between, too: so
        ``F(n + c)`` of the earlier stage has not started, where c of them do not fit, ``c = (limit - these) // below``.
        """
        amounts = self.pipeline.amounts.activation[route].tolist()
        below = 0
        for i, earlier in enumerate(stages):
            below += amounts[earlier]
            beside = 0
            for later in stages[i + 1 :] if below else ():
                beside += amounts[later]
                self.turns.append(Turn(first[later], first[earlier], (limit - beside) // below, 0))


def heads(flow: Flow, *, memory: bool, own: bool = False, most: int | None = None, work: bool = True) -> list[IntArray]:
    """Earliest starts: one array per family, ``[instance]``; not decreasing.

    They follow from the data edges, the order within a family, the work that its device must have done before an instance,
    and, with ``memory``, the arcs. With ``own`` (of a flow without links) the arrays are ``[device, instance]``: starts counted
    from that device's own first start (below ``-FAR / 2``: nothing is known). ``most`` keeps the first instances only. Without
    ``work`` nothing follows from what different families take together.

    *Arcs.* ``after(n)`` waits for ``before(n - shift)``, which ends at least ``chain`` after ``after(n - shift)`` starts; so
    the head of ``after`` rises by ``chain`` every ``shift`` instances.
    *Machine.* Before ``o(n)`` starts, each of its machines has run ``n + 1`` instances of each ancestor of ``o`` that is of
    that machine, and ``n`` instances of ``o``.
    """
    result: list[IntArray] = []
    for family, (time, device) in enumerate(zip(flow.duration, flow.device, strict=True)):
        index = np.arange(flow.count[family] if most is None else min(most, flow.count[family]))
        if own:
            start = np.full((flow.devices, len(index)), -FAR)
            start[device] = 0
        else:
            start = np.full((1, len(index)), flow.before[family], dtype=np.int64)
        for edge in flow.edges_into[family]:
            start = np.maximum(start, result[edge.before] + (flow.duration[edge.before] + edge.lag))
        for families in flow.machines if work else ():
            if family not in families:
                continue
            ancestors = [o for o in families if flow.ancestors[family] >> o & 1]
            earliest = np.full(len(start), FAR)
            taken = 0
            for ancestor in reversed(ancestors):
                earliest = np.minimum(earliest, result[ancestor][:, 0])
                taken += flow.duration[ancestor]
                start = np.maximum(start, earliest[:, None] + (index + 1) * taken + index * time)
        start = np.maximum.accumulate(start - index * time, axis=1) + index * time
        if memory:
            for arc in flow.arcs:
                if arc.after == family and arc.shift < len(index):
                    start = _lifted(start, arc.shift, flow.chain(family, arc.before))
        result.append(start)
    return result if own else [start[0] for start in result]


def _lifted(start: IntArray, shift: int, rise: int) -> IntArray:
    """The least array at or above ``start`` that rises by ``rise`` or more every ``shift`` instances (and is not decreasing)."""
    rows = -(-start.shape[1] // shift)
    padded = np.pad(start, ((0, 0), (0, rows * shift - start.shape[1])), mode="edge").reshape(len(start), rows, shift)
    steps = (np.arange(rows) * rise)[None, :, None]
    lifted = np.maximum.accumulate(padded - steps, axis=1) + steps
    return np.maximum.accumulate(lifted.reshape(len(start), -1)[:, : start.shape[1]], axis=1)


def tails(flow: Flow, *, memory: bool, own: bool = False, most: int | None = None, work: bool = True) -> list[IntArray]:
    """Least times from an instance's end to the end of all (``own``: of the device): per family, from its last instance on."""
    return heads(flow.reversed(), memory=memory, own=own, most=most, work=work)[::-1]
