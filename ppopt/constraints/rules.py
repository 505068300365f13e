"""What every schedule of a pipeline must obey."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppopt.constraints.checked import streams_of
from ppopt.constraints.copies import away_from, copies_of
from ppopt.constraints.turns import microbatch_turns
from ppopt.constraints.words import (
    Capacity,
    Exclusive,
    Family,
    Hold,
    Lead,
    OneOf,
    Precede,
    Stream,
    Tail,
    Turn,
    Turns,
    Word,
    sends,
)
from ppopt.op import WHOLE, Kind, Send
from ppopt.pipeline import Pipeline


def rules_of(pipeline: Pipeline, *, links: bool = True) -> tuple[Word, ...]:
    """The rules of any schedule of this pipeline; a few per stage, whatever the number of microbatches.

    Every microbatch runs forward through its route and back. A backward is run as ``B``, or as ``I`` and ``W`` where the costs
    have them (``W`` perhaps in pieces, one behind the other). Results travel over links, one at a time; a device runs one
    operation at a time and stays within its memory; activations may be copied to the host meanwhile
    (:func:`~ppopt.constraints.copies.copies_of`).
    Without ``links`` nothing is said about who holds a link when: what is left is a relaxation (:func:`data_of`).
    """
    return _rules_of(pipeline, links and bool(pipeline.lines))


@lru_cache(maxsize=2)  # bounds, list schedules and the search ask for these, hundreds of thousands where microbatches differ
def _rules_of(pipeline: Pipeline, links: bool) -> tuple[Word, ...]:
    rules: list[Word] = [*data_of(pipeline, links=links)]
    rules += [Exclusive(streams) for streams in _streams_of_devices(pipeline)]
    rules += links_of(pipeline) if links else ()
    rules += memory_of(pipeline)
    rules += copies_of(pipeline)
    rules += margins_of(pipeline)
    rules += turns_of(pipeline)
    rules += microbatch_turns(pipeline)
    return tuple(rules)


def data_of(pipeline: Pipeline, *, links: bool = True) -> tuple[Word, ...]:
    """The rules about data: what is run, and what it waits for.

    Without ``links`` there are no transfers: their time, on links that nobody else needs, is a lag between computations.
    """
    return _data_of(pipeline, links and bool(pipeline.lines))


@lru_cache(maxsize=2)  # as above; timing an order whose transfers hold links asks for these, too
def _data_of(pipeline: Pipeline, links: bool) -> tuple[Word, ...]:
    return tuple(rule for route in range(len(pipeline.routes)) for rule in data_of_route(pipeline, route, links=links))


class Hop(NamedTuple):
    """The way of a result from one stage to the next: ``send`` is run after whichever of ``makers`` is, and whichever of
    ``takers`` is run waits for it. ``held``: ticks of the transfer on its link; 0: it holds none, and is no operation."""

    makers: tuple[Family, ...]
    send: Family
    takers: tuple[Family, ...]
    pair: tuple[int, int]
    held: int
    latency: int

    def words(self, links: bool) -> list[Word]:
        """What waits for what."""
        if not (links and self.held):
            lag = self.held + self.latency
            return [Precede(maker, taker, lag=lag) for maker in self.makers for taker in self.takers]
        return [
            OneOf(((self.send,),)),
            *(Precede(maker, self.send) for maker in self.makers),
            *(Precede(self.send, taker, lag=self.latency) for taker in self.takers),
        ]


def _hops(pipeline: Pipeline, route: int) -> Iterator[tuple[Hop, Hop]]:
    """For each two neighbouring stages the hops of the result and of the gradient, from the first stage on."""
    devices, ticks = pipeline.device_by_kind[route], pipeline.ticks
    kinds = backward_kinds(pipeline)
    back = devices[Kind.B].tolist()
    for stage, (a, b) in enumerate(pairwise(devices[Kind.F].tolist())):
        makers, takers = (tuple(Family(s, kind, route) for kind in kinds) for s in (stage + 1, stage))
        yield (
            Hop(
                (Family(stage, Kind.F, route),),
                Family(stage, Send.SEND_F, route),
                (Family(stage + 1, Kind.F, route),),
                (a, b),
                int(ticks.sending[route, 0, stage]),
                int(ticks.latency[a, b]),
            ),
            Hop(
                makers,
                Family(stage + 1, Send.SEND_B, route),
                takers,
                (back[stage + 1], back[stage]),
                int(ticks.sending[route, 1, stage + 1]),
                int(ticks.latency[back[stage + 1], back[stage]]),
            ),
        )


def transfers_of(pipeline: Pipeline) -> list[Hop]:
    """The hops whose transfers hold a link."""
    if not pipeline.lines:
        return []
    return [hop for route in range(len(pipeline.routes)) for hops in _hops(pipeline, route) for hop in hops if hop.held]


def links_of(pipeline: Pipeline) -> tuple[Exclusive, ...]:
    """A link carries one transfer at a time; where transfers block, neither of its ends computes meanwhile.

    A device may be part of several transfers at once, so for each link of a device there is a word of its own.
    """
    if not pipeline.lines:
        return ()
    hops, computing = transfers_of(pipeline), _streams_of_devices(pipeline)
    words = []
    for line in pipeline.lines:
        on_line = [hop for hop in hops if hop.pair in line]
        words.append(Exclusive(tuple(hop.send for hop in on_line)))
        for device in sorted({device for pair in line for device in pair}) if pipeline.links.blocking else ():
            words.append(Exclusive((*computing[device], *(hop.send for hop in on_line if device in hop.pair))))
    return tuple(words)


def without_links(pipeline: Pipeline, words: Iterable[Word]) -> tuple[Word, ...]:
    """These words with every transfer taken as a lag between computations: a relaxation."""
    words = tuple(words)
    kept = tuple(word for word in words if not any(map(sends, streams_of(word))))
    if len(kept) == len(words):
        return words
    return (*kept, *(word for hop in transfers_of(pipeline) for word in hop.words(links=False)))


def backward_kinds(pipeline: Pipeline) -> tuple[Kind, ...]:
    """The kinds that hand a gradient upstream: ``B``, and ``I`` where the costs have it."""
    return (Kind.B, Kind.I) if pipeline.costs.split else (Kind.B,)


def weights_of(pipeline: Pipeline, stage: int, route: int) -> tuple[Family, ...]:
    """The weight gradients of a stage: one family, or one for each of their pieces, in the order in which these run."""
    pieces = pipeline.costs.weight_pieces
    return tuple(Family(stage, Kind.W, route, piece) for piece in (range(pieces) if pieces > 1 else (WHOLE,)))


def computing(pipeline: Pipeline, stage: int, route: int, kinds: Iterable[Kind] = tuple(Kind)) -> Iterator[Family]:
    """What a device may run of a stage of these kinds."""
    for kind in kinds:
        if kind == Kind.W and pipeline.costs.split:
            yield from weights_of(pipeline, stage, route)
        elif kind in (Kind.F, Kind.B) or pipeline.costs.split:
            yield Family(stage, kind, route)


def data_of_route(pipeline: Pipeline, route: int, *, links: bool = True) -> list[Word]:
    """Those of :func:`data_of` that are about one route."""
    hops = list(_hops(pipeline, route))
    kinds = backward_kinds(pipeline)
    rules: list[Word] = []
    for stage in range(pipeline.stages):
        forward = Family(stage, Kind.F, route)
        alternatives: list[tuple[Stream, ...]] = [(Family(stage, Kind.B, route),)]
        rules.append(OneOf(((forward,),)))
        if Kind.I in kinds:
            split = (Family(stage, Kind.I, route), *weights_of(pipeline, stage, route))
            alternatives.append(split)
            rules += [Precede(before, after) for before, after in pairwise(split)]
        rules.append(OneOf(tuple(alternatives)))
        if stage:
            rules += hops[stage - 1][0].words(links)
        on, back = (int(pipeline.device_by_kind[route, kind, stage]) for kind in (Kind.F, Kind.B))
        if stage == pipeline.stages - 1 or on != back:  # what the forward leaves behind is sent there; else it follows
            lag = int(pipeline.ticks.latency[on, back])
            rules += [Precede(forward, Family(stage, kind, route), lag=lag) for kind in kinds]
        if stage < pipeline.stages - 1:
            rules += hops[stage][1].words(links)
    return rules


def _streams_of_devices(pipeline: Pipeline) -> list[tuple[Stream, ...]]:
    streams: list[list[Stream]] = [[] for _ in range(pipeline.devices)]
    for route, devices in enumerate(pipeline.device_by_kind.tolist()):
        for stage in range(pipeline.stages):
            for family in computing(pipeline, stage, route):
                streams[devices[family.kind][stage]].append(family)
    return [tuple(of_device) for of_device in streams]


def margins_of(pipeline: Pipeline) -> tuple[Lead | Tail, ...]:
    """What a device has to do before its first operation and after its last one; it counts in makespan and span."""
    ticks = pipeline.ticks
    return tuple(
        word(family, int(table[route, family.kind, stage]))
        for word, table in ((Lead, ticks.lead), (Tail, ticks.tail))
        for route, stage in np.argwhere((table > 0).any(axis=1)).tolist()
        for family in computing(pipeline, stage, route)
        if table[route, family.kind, stage]
    )


def turns_of(pipeline: Pipeline) -> tuple[Turns, ...]:
    """The pauses between the passes of a device, in which it gathers the weights of the next one or scatters gradients.

    The directions are forwards; what needs the weights of a backward; and what adds to the gradients. Those of one stage are one
    turn, of whatever route they are.
    """
    ticks = pipeline.ticks
    if not ticks.pauses:
        return ()
    input_, weight = ((Kind.B, Kind.I), (Kind.B, Kind.W)) if pipeline.costs.split else ((Kind.B,), (Kind.B,))
    none = np.zeros_like(ticks.gather)
    words = []
    for device in range(pipeline.devices):
        places = np.argwhere(pipeline.device_of == device).tolist()
        for kinds, before, after in (
            ((Kind.F,), ticks.gather, none),
            (input_, ticks.gather, none),
            (weight, none, ticks.scatter),
        ):
            turns = []
            for stage in sorted({stage for _, stage in places}):
                routes = [route for route, other in places if other == stage]
                families = tuple(family for route in routes for family in computing(pipeline, stage, route, kinds))
                turns.append(Turn(families, *(int(of[routes[0], stage]) for of in (before, after))))
            if len(turns) > 1 and any(turn.before or turn.after for turn in turns):
                words.append(Turns(tuple(turns)))
    return tuple(words)


def memory_of(pipeline: Pipeline) -> tuple[Capacity, ...]:
    """The memory limit of every device; nothing where there is no limit.

    Static memory is taken off, and what every backward of the device takes while it runs (:attr:`~ppopt.pipeline.Amounts.room`).
    Of stages whose backward runs elsewhere than the forward nothing is said; :func:`memory_between` does.
    """
    return _capacities(pipeline, range(pipeline.devices), elsewhere=False)


def memory_between(pipeline: Pipeline) -> tuple[Capacity, ...]:
    """The memory limit of the devices that run the backward of some other device's forward, and hold what that leaves behind.

    No order says when the one device's forward is too early for the other one's memory, so these bind as words of one's own do.
    """
    on, back = pipeline.device_by_kind[:, Kind.F], pipeline.device_by_kind[:, Kind.B]
    return _capacities(pipeline, sorted(set(back[on != back].tolist())), elsewhere=True)


def _capacities(pipeline: Pipeline, devices: Iterable[int], *, elsewhere: bool) -> tuple[Capacity, ...]:
    amounts = pipeline.amounts
    if amounts.limit is None:
        return ()
    on, back = (pipeline.device_by_kind[:, kind].tolist() for kind in (Kind.F, Kind.B))
    each = [of.tolist() for of in (amounts.activation, amounts.kept, amounts.rebuilt)]
    capacities = []
    for device in devices:
        holds: list[Hold] = []
        away = away_from(pipeline, device)
        for route, row in enumerate(back):
            for stage, held_on in enumerate(row):
                if held_on == device and (elsewhere or on[route][stage] == device):
                    holds += _holds_of(pipeline, route, stage, *(of[route][stage] for of in each))
        room = int(amounts.room[device])
        more = amounts.more_working[:, device]
        if away:  # what is held may be on the host by the next backward, so each needs its room
            more = amounts.working[:, device]
            room += int(more.min())
        holds += _while_it_runs(pipeline, device, more.tolist())
        capacities.append(Capacity(tuple(holds), room, away))
    return tuple(capacities)


def _while_it_runs(pipeline: Pipeline, device: int, takes: Sequence[int]) -> list[Hold]:
    """What each backward of a device takes while it runs; ``takes``: by route."""
    places = np.argwhere(pipeline.device_by_kind[:, Kind.B] == device).tolist()
    backwards = [Family(stage, Kind.B, route) for route, stage in places]
    if pipeline.costs.split:
        backwards += [Family(stage, Kind.I, route) for route, stage in places]
        backwards += [family for route, stage in places for family in weights_of(pipeline, stage, route)]
    return [Hold(family, (family,), takes[family.route]) for family in backwards if takes[family.route]]


def _holds_of(pipeline: Pipeline, route: int, stage: int, activation: int, kept: int, rebuilt: int) -> list[Hold]:
    """What a microbatch holds there: what F takes, a part of it until the weight gradient; and what I takes more, until then."""
    weight = weights_of(pipeline, stage, route)[-1]
    forward, full, input_ = (Family(stage, kind, route) for kind in (Kind.F, Kind.B, Kind.I))
    if not pipeline.costs.split:
        holds = [Hold(forward, (full,), activation)]
    else:
        holds = [
            Hold(forward, (full, input_), activation - kept),
            Hold(forward, (full, weight), kept),
            Hold(input_, (weight,), rebuilt),
        ]
    return [hold for hold in holds if hold.amount]
