"""Words that keep the optimum and make it easier to find; each with the condition under which it is valid."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ppopt.constraints.checked import streams_of
from ppopt.constraints.copies import first_in_order, may_copy
from ppopt.constraints.expansion import chosen, operations
from ppopt.constraints.graphs import graph_of
from ppopt.constraints.implied import held_from_forwards
from ppopt.constraints.in_turn import waits_in_turn
from ppopt.constraints.joined import joined
from ppopt.constraints.pairs import pairs_of
from ppopt.constraints.rules import backward_kinds, rules_of, weights_of
from ppopt.constraints.weight_order import weights_in_turn
from ppopt.constraints.words import (
    Capacity,
    Exclusive,
    Family,
    Lead,
    OneOf,
    Pairable,
    Precede,
    Tail,
    Together,
    Turns,
    Word,
    chain,
    select,
)
from ppopt.op import HOPS, Kind, Send
from ppopt.pipeline import Pipeline, room_to_split, splitting_takes_memory


def cuts_of(pipeline: Pipeline, extra: Sequence[Word] = ()) -> tuple[Precede, ...]:
    """Words that keep the optimum and make it easier to find: :func:`in_order`, :func:`room_in_order`, :func:`weights_in_order`.

    All need microbatches that can be renumbered; nothing is cut where ``extra``, the words beside the rules, could tell
    them apart (:func:`alike`). Where microbatches may be copied to the host, none is valid: :func:`first_in_order` is.
    """
    if may_copy(pipeline):
        return first_in_order(pipeline) if not extra else ()
    if not alike(pipeline, extra):
        return ()
    weights = weights_in_order(pipeline) if not extra else ()
    return (*in_order(pipeline), *room_in_order(pipeline, extra), *weights)


def alike(pipeline: Pipeline, extra: Sequence[Word]) -> bool:
    """Whether a schedule that obeys these words, beside the rules, still does once it is renumbered as in :func:`in_order`.

    Operations keep their times then, and the (k+1)-th to start of a stage and kind becomes that of the k-th microbatch. So words
    that say what is run are kept where they say it of whole families, one by one; and so are ``Exclusive`` and ``Capacity`` over
    families, since devices stay as busy as they were and what is held depends on counts. ``Precede`` is, between two families of
    a route that are always run, where the ``shift`` is not negative: of the first k + 1 operations that start, k + 1 - shift had
    a predecessor that ended in time, so the (k - shift)-th predecessor did.

    Raises:
        TypeError: a word that is not known here.
    """
    if len(select(extra, Pairable)) == len(extra):
        return True
    forced = None
    for word in extra:
        if not isinstance(word, Precede | Exclusive | Capacity | Together | Pairable | OneOf | Lead | Tail | Turns):
            raise TypeError(f"unknown word {word!r}")
        if not all(isinstance(stream, Family) for stream in streams_of(word)):
            return False
        if isinstance(word, Together) or (isinstance(word, OneOf) and len(word.alternatives) > 1):
            return False
        if isinstance(word, Precede) and word != Precede(word.before, word.before, shift=1):
            before, after = word.before, word.after
            if before.route != after.route or word.shift < 0:  # type: ignore[union-attr]
                return False
            if forced is None:
                forced = chosen(pipeline, (*rules_of(pipeline), *extra))[0]
            if not all(np.isin(operations(pipeline, stream), forced).all() for stream in (before, after)):
                return False
    return True


def in_order(pipeline: Pipeline) -> tuple[Precede, ...]:
    """Every stage runs each kind in the order of the microbatches, route by route.

    Valid where the microbatches of a route are alike. Renumber the operations of each kind and stage by their starts: the devices
    stay as busy as they were; whatever starts as the (n+1)-th of its kind had n+1 predecessors that ended in time, so the
    (n+1)-th of these did; and memory depends on counts alone. Where a backward may be run either way, ``B`` and ``I`` are one
    sequence: the n-th of them, whichever it is, hands on the n-th gradient. The n-th ``W`` becomes that of the n-th ``I``, which
    has ended by then: n of them have. Of a ``W`` in p pieces, p to start in a row, from number ``n * p`` on, become those of the
    n-th ``I``: more than n of the ``W`` have begun when the first one starts, so that more than n ``I`` have ended; and for n + 1
    of the ``W`` to end as many pieces have to. So all pieces of one ``W`` run before those of the next one. The transfers from a
    stage in one direction are alike too, on the same link for the same time, and are renumbered with the rest: what holds the
    link, and when, stays. So does what is an overlapped pair: how long it
    takes depends on the forward's stage, not on its microbatch.
    """
    backward = backward_kinds(pipeline)
    orders = [(Kind.F, Kind.F), *((a, b) for a in backward for b in backward)]
    sending = pipeline.ticks.sending
    transfers = tuple(
        chain(Family(stage, send, route))
        for route in range(len(pipeline.routes))
        for stage in range(pipeline.stages)
        for send in HOPS
        if sending[route, send - Send.SEND_F, stage]
    )
    words: list[Precede] = [*transfers]
    for route in range(len(pipeline.routes)):
        for stage in range(pipeline.stages):
            words += [Precede(Family(stage, a, route), Family(stage, b, route), shift=1) for a, b in orders]
            if pipeline.costs.split:
                weights = weights_of(pipeline, stage, route)
                words.append(Precede(weights[-1], weights[0], shift=1))
    return tuple(words)


def room_in_order(pipeline: Pipeline, extra: Sequence[Word] = ()) -> tuple[Precede, ...]:
    """What the memory limit says about microbatches that run in order (valid with :func:`in_order` only).

    These are the precedences that memory implies in the graph of families (:func:`~ppopt.constraints.implied.implied_by_memory`,
    :func:`~ppopt.constraints.in_turn.waits_in_turn`), of what forwards claim alone. Where a backward may be run either way, a
    wait for ``I`` is one for whichever is run, and no longer than until that ends. A wait for ``W`` is left out there: it needs
    every microbatch to hold until its ``W``, and one that runs ``B`` does not. ``extra`` are the words that bind beside the
    rules; without any, what is run is as in :func:`free_choices`.
    """
    if pipeline.amounts.limit is None:
        return ()
    graph = held_from_forwards(graph_of(pipeline))
    kinds = backward_kinds(pipeline)
    run = chosen(pipeline, (*rules_of(pipeline, links=False), *(extra or free_choices(pipeline))))[0]
    split = all(np.isin(operations(pipeline, graph.families[o]), run).all() for o in graph.of_kind(Kind.I, Kind.W))
    lasting = split and not pairs_of(pipeline)
    cuts: list[Precede] = []
    for wait in (*graph.implied, *waits_in_turn(graph)):
        before, after = graph.families[wait.before], graph.families[wait.after]
        if wait.shift >= graph.count[wait.after]:
            continue
        if before.kind in kinds:
            lag = wait.lag if lasting else 0
            cuts += [Precede(before._replace(kind=kind), after, shift=wait.shift, lag=lag) for kind in kinds]
        elif before.kind == Kind.F or np.isin(operations(pipeline, before), run).all():
            cuts.append(Precede(before, after, shift=wait.shift, lag=wait.lag))
    return tuple(cuts)


def weights_in_order(pipeline: Pipeline) -> tuple[Precede, ...]:
    """Weight gradients of stages of equal cost on a device run in the order of their input gradients, as far as that is known.

    Valid with :func:`in_order` and where nothing binds beside the rules (:mod:`~ppopt.constraints.weight_order` has the proof).
    Every backward has to be split: what memory implies then holds for every microbatch. Each runs where its forward did: else the
    rules do not say all that a device holds. Of the rules the proof knows data,
    machines, memory, and what precedes and follows a device's operations; with others, such as pauses between the passes of a
    device, which tell its stages apart, or working sets that do, nothing is cut. Nor is anything where activations may be copied
    to the host: microbatches are not in order then.
    """
    rules = rules_of(pipeline)
    if (
        not pipeline.costs.split
        or may_copy(pipeline)
        or pipeline.backward_routes
        or pipeline.amounts.more_working.any()
        or not all(isinstance(word, Precede | Exclusive | Capacity | OneOf | Lead | Tail) for word in rules)
    ):
        return ()
    graph = joined(graph_of(pipeline))
    turns = weights_in_turn(graph)
    run = chosen(pipeline, (*rules_of(pipeline, links=False), *free_choices(pipeline)))[0] if turns else ()
    weights = {o: weights_of(pipeline, (f := graph.families[o]).stage, f.route) for o in graph.of_kind(Kind.W)}
    if not all(np.isin(operations(pipeline, family), run).all() for families in weights.values() for family in families):
        return ()
    return tuple(Precede(weights[before][-1], weights[after][0], shift=shift) for before, after, shift, _ in turns)


def free_choices(pipeline: Pipeline) -> tuple[OneOf | Pairable, ...]:
    """What a schedule may choose beside the rules, without choices that gain nothing.

    Forwards and backwards may run as overlapped pairs (:func:`~ppopt.constraints.pairs.pairs_of`). Where splitting is free
    (:func:`splitting_is_free`) a backward that is in no pair is split. Where memory never leaves room for that, it is run whole.
    """
    if not splitting_is_free(pipeline):
        room = room_to_split(pipeline)
        whole = (OneOf(((Family(stage, Kind.B, route),),)) for route, stage in np.argwhere(~room).tolist())
        return (*pairs_of(pipeline), *whole)
    pairs = pairs_of(pipeline, alone=False)
    return (*pairs, *always_split(pipeline, but={family for word in pairs for family in word.backwards}))


def always_split(pipeline: Pipeline, but: Collection[Family] = ()) -> tuple[OneOf, ...]:
    """Every backward is run as ``I`` and ``W``; but the full backwards ``but`` stay a choice.

    Valid, as a restriction that keeps the optimum, where splitting is free (:func:`splitting_is_free`): a ``B`` can then be
    replaced by its ``I`` followed by its ``W``, and everybody has its gradient no later. Where memory never leaves room for the
    ``I`` of a stage (:func:`~ppopt.pipeline.room_to_split`), its backwards stay a choice as well.
    """
    room = room_to_split(pipeline)
    return tuple(
        OneOf(((Family(stage, Kind.I, route), *weights_of(pipeline, stage, route)),))
        for route in range(len(pipeline.routes))
        for stage in range(pipeline.stages)
        if room[route, stage] and Family(stage, Kind.B, route) not in but
    )


def splitting_is_free(pipeline: Pipeline) -> bool:
    """Whether ``I`` + ``W`` takes no longer than ``B`` on every stage, and no more memory: what :func:`always_split` needs."""
    duration = pipeline.ticks.duration
    if not pipeline.costs.split or splitting_takes_memory(pipeline):
        return False
    return bool((duration[:, Kind.I] + pipeline.ticks.weight <= duration[:, Kind.B]).all())
