"""Bounds of pipelines whose activations may be on the host: those of a relaxation, and what can at most be away in the time.

*Never held.* What may be away at some time is never held at all (:func:`~ppopt.pipeline.rewriting.never_copied`). A schedule with
copies is then one of a pipeline without, and what bounds that bounds it.

*Away in the time.* A microbatch holds an amount from the start of ``F`` to the end of its backward, no shorter than the way of
its data. Where it is copied, at least from the start of ``F`` to the end of the copy out, and from the start of the copy in to
the end of the backward. All these rectangles of a device have to fit under its limit, from the first head of a forward on:

* up to the least tail of anything that gives memory back; or
* up to the least tail of an input gradient. By then all input gradients have ended, so that of each rectangle nothing is left but
  its ``W``, of which no more than the limit's amount is held: that much, for as long as the longest ``W``, may lie behind.

Copies make rectangles smaller, and cost time of an engine and room on the host. Take a makespan of T:

* An engine has time for copies from the first end of a forward on. Its devices need copies until their rectangles fit. They need
  the least time if those come first that spare the most for the time that they take; of the last one a part may do.
* The host has its limit, for as long as the schedule takes. It keeps an amount during both copies and as long as the device is
  spared it. What its devices need of it is counted in the same way.

The least T in which each engine and the host have enough for what their devices need is a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from ppopt.bounds.bound import Bound
from ppopt.bounds.heads import heads, tails
from ppopt.constraints import FamilyGraph, lives, relaxed_graphs
from ppopt.constraints.lives import Life
from ppopt.op import COPIES, Kind, Send
from ppopt.pipeline import Pipeline
from ppopt.pipeline.offload import Engine, copied
from ppopt.pipeline.rewriting import never_copied, unlimited
from ppopt.schedule import Objective

BoundOf = TypeVar("BoundOf", bound=Callable[..., Any])


def relaxed(pipeline: Pipeline) -> tuple[Pipeline, int]:
    """The relaxation without copies, and how many ticks of ``pipeline`` are one of it."""
    without = never_copied(pipeline)
    return without, pipeline.ticks.per_unit // without.ticks.per_unit


def beside_copies(bound: BoundOf) -> BoundOf:
    """A bound in ticks that also takes pipelines with copies to the host: that of the relaxation then, without a schedule."""

    @wraps(bound)
    def of(pipeline: Pipeline, *args: Any, **options: Any) -> Bound | None:
        found: Bound | None
        if not pipeline.engines:
            found = bound(pipeline, *args, **options)
            return found
        without, factor = relaxed(pipeline)
        if options.get("target") is not None:
            options["target"] = -(-options["target"] // factor)
        found = bound(without, *args, **options)
        return found and replace(found, value=found.value * factor, schedule=None)

    return of  # type: ignore[return-value]


class _Stage(NamedTuple):
    """What the microbatches of a stage hold and what copying one takes; times in ticks."""

    device: int
    area: int
    """Memory times time of all of them, each copied where it has to be."""
    forced: int
    """How many have to be copied."""
    open: int
    """Of how many that is open."""
    spared: int
    """Memory times time that a copy spares."""
    amount: int
    """What a copy moves."""
    takes: dict[Send, int]
    """What the copies of one take, by direction."""
    weight: int
    """How long it is held at least behind its input gradient."""
    begin: int
    """Until its forward has ended, from the begin of the schedule; or of the device, for spans."""
    end: int
    """From the begin of what waits for the copy in on, with the margin, to the end."""


class _Share(NamedTuple):
    """What a device needs of an engine, or of the host."""

    area: int
    room: int | None
    """What it may hold; ``None``: that is not limited."""
    outside: int
    """Ticks of the schedule in which nothing of ``area`` can lie."""
    forced: int
    """What it takes in any case."""
    open: tuple[tuple[int, int, int], ...]
    """How many copies more there may be, what each spares of ``area``, what each takes; what spares most for that comes first."""

    def need(self, time: int) -> Fraction | None:
        """What it takes at least in a schedule of so many ticks; ``None``: there is none."""
        left = Fraction(0) if self.room is None else Fraction(self.area - self.room * (time - self.outside))
        need = Fraction(self.forced)
        for number, spared, takes in self.open:
            if left <= 0:
                break
            copies = min(Fraction(number), left / spared)
            left, need = left - copies * spared, need + copies * takes
        return None if left > 0 else need


class _Supply(NamedTuple):
    """An engine, or the host: what it gives a tick, the ticks in which it cannot, and what devices need of it."""

    name: str
    rate: int
    outside: int
    shares: tuple[_Share, ...]

    def fits(self, time: int) -> bool:
        """Whether a schedule of so many ticks gives each device what it needs."""
        needs = [share.need(time) for share in self.shares]
        return None not in needs and sum(need for need in needs if need) <= self.rate * max(0, time - self.outside)

    def least(self) -> int:
        """The least number of ticks that does."""
        low, high = 0, 1
        while not self.fits(high):
            low, high = high + 1, 2 * high
        while low < high:
            time = (low + high) // 2
            low, high = (low, time) if self.fits(time) else (time + 1, high)
        return low


def away(pipeline: Pipeline, objective: Objective = "makespan", *, pairs: bool = False) -> Bound | None:
    """What can at most be away in the time (see above); ``None`` without copies.

    ``pairs``: the bound is for schedules with overlapped pairs, too.
    """
    if not pipeline.engines:
        return None
    plain = unlimited(pipeline)
    best = None
    for graph in relaxed_graphs(plain, pairs):
        for supply in _supplies(pipeline, graph, pipeline.ticks.per_unit // plain.ticks.per_unit, objective):
            value = supply.least()
            if best is None or value > best.value:
                best = Bound(value, "memory", supply.name)
    return best


def _supplies(pipeline: Pipeline, graph: FamilyGraph, factor: int, objective: Objective) -> list[_Supply]:
    """What the devices need, by engine, and of the host; and alone where no engine is theirs.

    The spans of several devices may lie anywhere, so that nothing is said of what these share.
    """
    head, tail = (of(graph, memory=False, most=1) for of in (heads, tails))
    ends = _Ends(*([int(row[0]) if objective == "makespan" else 0 for row in side] for side in (head, tail)))
    stages = [_stage(pipeline, graph, forward, life, factor, ends) for forward, life in lives(graph).items()]
    outside = [_outside(graph, device, factor, ends, stages) for device in range(pipeline.devices)]

    def share(device: int, cost: Callable[[_Stage], int], kept: int = 0) -> _Share:
        """``cost``: of the copies of one, by themselves; ``kept``: 1 where what they spare costs as much again."""
        own = [stage for stage in stages if stage.device == device]
        useful = [(s.open, s.spared, cost(s) + kept * s.spared) for s in own if s.open and s.spared > 0]
        room = None if pipeline.amounts.limit is None else int(pipeline.amounts.limit[device] - pipeline.amounts.static[device])
        return _Share(
            sum(stage.area for stage in own),
            room if room and own else None,
            outside[device],
            sum(stage.forced * cost(stage) for stage in own),
            tuple(sorted(useful, key=lambda way: Fraction(way[2], way[1]))),
        )

    def supply(
        name: str, devices: tuple[int, ...], sends: tuple[Send, ...], cost: Callable[[_Stage], int], host: int = 0
    ) -> _Supply:
        of = [stage for stage in stages if stage.device in devices and stage.takes]
        begin = min((s.begin + (0 if Send.OFFLOAD in sends else s.takes[Send.OFFLOAD]) for s in of), default=0)
        end = min((s.end + (0 if Send.RELOAD in sends else s.takes[Send.RELOAD]) for s in of), default=0)
        return _Supply(name, host or 1, begin + end, tuple(share(device, cost, int(host > 0)) for device in devices))

    def of_engine(engine: Engine) -> _Supply:
        names = ", ".join(map(str, engine.devices))
        whose = "its" if len(engine.devices) == 1 else "their"
        name = f"memory times time of device {names}, less what {whose} engine can have away"
        return supply(name, engine.devices, engine.sends, lambda stage: sum(stage.takes.get(send, 0) for send in engine.sends))

    together = [engine.devices for engine in pipeline.engines]
    engines = list(pipeline.engines)
    if objective == "span":
        engines = [Engine((device,), engine.sends) for engine in pipeline.engines for device in engine.devices]
    found = [of_engine(engine) for engine in engines]
    for device in set(range(pipeline.devices)).difference(*together):
        found.append(_Supply(f"memory times time of device {device}", 0, 0, (share(device, lambda _: 0),)))
    host = pipeline.amounts.host
    if host and objective == "makespan":
        devices = tuple(sorted({device for of in together for device in of}))
        name = "memory times time of all devices, less what the host can have of it"
        found.append(supply(name, devices, COPIES, lambda s: s.amount * sum(s.takes.values()), host))
    return found


class _Ends(NamedTuple):
    """Per family its least head and its least tail in ticks of the graph; 0 for spans, which begin and end with the device."""

    head: list[int]
    tail: list[int]


def _outside(graph: FamilyGraph, device: int, factor: int, ends: _Ends, stages: list[_Stage]) -> int:
    """Ticks before the first forward of a device, and behind what can be left of what it holds (see above)."""
    own = graph.machines[device].families
    forwards = [o for o in own if graph.families[o].kind == Kind.F]
    backs = [o for o in own if graph.families[o].kind in (Kind.B, Kind.I)]
    if not forwards or not backs:
        return 0
    weights = [o for o in own if graph.families[o].kind == Kind.W]
    behind = max(stage.weight for stage in stages if stage.device == device)
    last = factor * min(ends.tail[o] for o in (*backs, *weights))
    return factor * min(ends.head[o] for o in forwards) + max(last, factor * min(ends.tail[o] for o in backs) - behind)


def _stage(pipeline: Pipeline, graph: FamilyGraph, forward: int, life: tuple[Life, Life], factor: int, ends: _Ends) -> _Stage:
    """What a stage holds, by its forward's place in the graph of the pipeline without copies; times in ticks of ``pipeline``."""
    family = graph.families[forward]
    route, stage = family.route, family.stage
    amounts, ticks = pipeline.amounts, pipeline.ticks
    activation, kept, moves = (int(of[route, stage]) for of in (amounts.activation, amounts.kept, amounts.away))
    gradient = next(
        o for o, f in enumerate(graph.families) if f.kind in (Kind.I, Kind.B) and (f.route, f.stage) == (route, stage)
    )
    out, back = ticks.copying[route, :, stage].tolist()
    makes, number, margin = out >= 0, graph.count[forward], int(ticks.margin[route, stage])
    which = copied(pipeline, route, stage) if makes else ()
    takes = {Send.OFFLOAD: out, Send.RELOAD: back} if makes else {}
    amount = moves if makes else 0
    least = factor * graph.duration[forward] + sum(takes.values()) + margin
    area = spared = longest = 0
    left = amount
    for held, (whole, behind) in zip((activation - kept, kept), life, strict=True):
        way, ending = factor * whole, factor * behind
        longest = max(longest, ending - factor * graph.duration[gradient]) if held else longest
        part = min(held, left)
        left -= part
        area += held * way
        spared += part * (way - least - ending)
    forced = 0 if which is None else len(which)
    return _Stage(
        graph.owner[forward],
        number * area - forced * spared,
        forced,
        number if which is None else 0,
        spared,
        amount,
        takes,
        longest,
        factor * (ends.head[forward] + graph.duration[forward]),
        factor * (ends.tail[gradient] + graph.duration[gradient]) + margin,
    )
