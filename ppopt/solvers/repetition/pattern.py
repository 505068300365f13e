"""The rules of a pipeline as a graph over families of operations: what repeats, whatever the number of microbatches is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ppopt.constraints import Capacity, Exclusive, Family, OneOf, Precede, Word, cuts_of, rules_of, sends, splitting_is_free
from ppopt.op import Kind, Send
from ppopt.pipeline import Pipeline


class Edge(NamedTuple):
    """``after(n)`` starts at least ``lag`` after the end of ``before(n - shift)``; both are families, by number."""

    before: int
    after: int
    shift: int
    lag: int


class Held(NamedTuple):
    """``amount`` is held from the start of ``first(n)`` to the end of ``last(n)``; both are families, by number."""

    first: int
    last: int
    amount: int


class Room(NamedTuple):
    """What a device holds, and how much it may."""

    limit: int
    held: tuple[Held, ...]

    @property
    def alone(self) -> bool:
        """Whether it is one amount per microbatch: an arc says it all, ``F(n + limit // amount)`` waits for n's release."""
        return len(self.held) == 1


@dataclass(frozen=True)
class Pattern:
    """Families of operations, numbered from 0 so that edges without a shift go upwards. Times in ticks.

    Every family runs its operations in order, which loses nothing where the microbatches of a route are alike
    (:func:`ppopt.constraints.in_order`). ``arcs`` are edges that follow from ``rooms`` then.
    """

    families: tuple[Family, ...]
    duration: tuple[int, ...]
    devices: tuple[tuple[int, ...], ...]
    """Per device the families that it runs."""
    lines: tuple[tuple[int, ...], ...]
    """Per link (:attr:`~ppopt.pipeline.Pipeline.lines`) the transfers that it carries."""
    stopping: tuple[tuple[int, ...], ...]
    """Where transfers block, of a device and a link what stops each other."""
    edges: tuple[Edge, ...]
    arcs: tuple[Edge, ...]
    rooms: tuple[Room, ...]

    @property
    def machines(self) -> tuple[tuple[int, ...], ...]:
        """Families of which no two operations run at once, devices first."""
        return self.devices + self.lines + self.stopping

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Per machine, what it does for one microbatch of every route."""
        return tuple(sum(self.duration[o] for o in families) for families in self.machines)

    @property
    def several(self) -> bool:
        """Whether some device holds several stages."""
        return any(sum(self.families[o].kind == Kind.F for o in families) > 1 for families in self.devices)

    @cached_property
    def reach(self) -> tuple[int, ...]:
        """Per family, how long after the end of an operation something may still wait for it: its longest lag."""
        longest = [0] * len(self.families)
        for edge in self.edges:
            longest[edge.before] = max(longest[edge.before], edge.lag)
        return tuple(longest)

    @cached_property
    def machines_of(self) -> tuple[tuple[int, ...], ...]:
        """Per family all of ``machines`` that it needs; its device or link is the first."""
        machines = list(enumerate(self.machines))
        return tuple(tuple(m for m, families in machines if o in families) for o in range(len(self.families)))

    @cached_property
    def device_of(self) -> tuple[int, ...]:
        """Per family its device, or the number of devices and its link's."""
        of = [0] * len(self.families)
        for device, families in enumerate(self.devices + self.lines):
            for o in families:
                of[o] = device
        return tuple(of)

    def chain(self, first: int, last: int) -> int | None:
        """Least time from the start of ``first(n)`` to the end of ``last(n)``; ``None`` where it does not depend on it."""
        reach: dict[int, int] = {first: self.duration[first]}
        for edge in sorted(self.edges, key=lambda edge: edge.after):
            if edge.shift == 0 and edge.before in reach:
                time = reach[edge.before] + edge.lag + self.duration[edge.after]
                reach[edge.after] = max(time, reach.get(edge.after, 0))
        return reach.get(last)

    def coarse(self, grid: int) -> Pattern:
        """The same graph with durations rounded to multiples of ``grid``, and no lag."""
        duration = tuple(max(1, round(time / grid)) if time else 0 for time in self.duration)
        edges, arcs = (tuple(edge._replace(lag=0) for edge in column) for column in (self.edges, self.arcs))
        return replace(self, duration=duration, edges=edges, arcs=arcs)


def patterns_of(pipeline: Pipeline) -> tuple[Pattern, ...]:
    """The patterns worth a search, each with every backward of a stage run in one way.

    One, where a split backward takes no longer than a fused one or where there is no choice; else all split, and each stage
    the cheaper way.
    """
    cheaper = tuple(Kind.I if free else Kind.B for free in _free(pipeline))
    if not pipeline.costs.split or splitting_is_free(pipeline):
        return (pattern_of(pipeline, cheaper),)
    return tuple(pattern_of(pipeline, kinds) for kinds in dict.fromkeys((cheaper, (Kind.I,) * pipeline.stages)))


def _free(pipeline: Pipeline) -> list[bool]:
    """Per stage, whether a split backward takes no longer than a fused one, on every route."""
    if not pipeline.costs.split:
        return [False] * pipeline.stages
    duration = pipeline.ticks.duration
    free = duration[:, Kind.I] + duration[:, Kind.W] <= duration[:, Kind.B]
    return [bool(column.all()) for column in free.T]


def pattern_of(pipeline: Pipeline, backward: tuple[Kind, ...]) -> Pattern:
    """The rules of ``pipeline`` with stage s's backward run as ``B``, or as ``I`` and ``W`` where ``backward[s]`` is ``I``."""
    words = rules_of(pipeline)
    run: list[Family] = []
    for word in words:
        if isinstance(word, OneOf):
            ways = [[f for f in streams if isinstance(f, Family)] for streams in word.alternatives]
            way = next(way for way in ways if any(f.kind in (Kind.F, *Send, backward[f.stage]) for f in way))
            run += way
    compiled = _Compiled(pipeline, run)
    for word in words:
        compiled.take(word)
    arcs = {edge for word in cuts_of(pipeline) for edge in compiled.edge(word) if edge.before != edge.after}
    arcs |= {Edge(h.last, h.first, room.limit // h.amount, 0) for room in compiled.rooms if room.alone for h in room.held}
    return Pattern(
        tuple(compiled.families),
        tuple(compiled.duration(f) for f in compiled.families),
        tuple(compiled.devices),
        tuple(compiled.lines),
        tuple(compiled.stopping),
        tuple(compiled.edges),
        tuple(sorted(arcs)),
        tuple(compiled.rooms),
    )


class _Compiled:
    """The words over families, read one by one."""

    def __init__(self, pipeline: Pipeline, run: list[Family]) -> None:
        def place(family: Family) -> tuple[int, int, int]:
            """Down the route, then up again, a weight gradient behind its input gradient, a transfer behind what it carries."""
            down = family.kind in (Kind.F, Send.SEND_F)
            return family.route, family.stage if down else 2 * pipeline.stages - family.stage, family.kind

        self.pipeline = pipeline
        self.families = sorted(run, key=place)
        self.number = {family: o for o, family in enumerate(self.families)}
        self.devices: list[tuple[int, ...]] = []
        self.lines: list[tuple[int, ...]] = []
        self.stopping: list[tuple[int, ...]] = []
        self.edges: list[Edge] = []
        self.rooms: list[Room] = []

    def take(self, word: Word) -> None:
        """Keep what ``word`` says about the families that are run.

        Raises:
            TypeError: a word that is not known here.
        """
        if isinstance(word, Precede):
            self.edges += self.edge(word)
        elif isinstance(word, Exclusive):
            machines = self.devices if word.computes else self.lines if all(map(sends, word.streams)) else self.stopping
            machines.append(tuple(self.number[f] for f in word.streams if f in self.number))
        elif isinstance(word, Capacity):
            held = [
                Held(self.number[hold.claim], self.number[family], hold.amount)
                for hold in word.holds
                for family in hold.release
                if family in self.number
            ]
            self.rooms.append(Room(word.limit, _merged(held)))
        elif not isinstance(word, OneOf):
            raise TypeError(f"repetition does not know the word {word!r}")

    def duration(self, family: Family) -> int:
        """Ticks of each of its operations."""
        ticks, kind = self.pipeline.ticks, family.kind
        if isinstance(kind, Send):
            return int(ticks.sending[family.route, kind - Send.SEND_F, family.stage])
        return int(ticks.duration[family.route, kind, family.stage])

    def edge(self, word: Precede) -> list[Edge]:
        """The edge that a word is; none where one of its families is not run."""
        before, after = (self.number.get(stream) for stream in (word.before, word.after))  # type: ignore[arg-type]
        return [] if before is None or after is None else [Edge(before, after, word.shift, word.lag)]


def _merged(held: list[Held]) -> tuple[Held, ...]:
    """What is held over the same time, as one."""
    amounts: dict[tuple[int, int], int] = {}
    for first, last, amount in held:
        amounts[first, last] = amounts.get((first, last), 0) + amount
    return tuple(Held(first, last, amount) for (first, last), amount in amounts.items())


def counts_of(pipeline: Pipeline) -> tuple[int, ...]:
    """Per route its number of microbatches."""
    return tuple(np.bincount(pipeline.route_by_microbatch, minlength=len(pipeline.routes)).tolist())
