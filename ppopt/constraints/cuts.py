"""Words that keep the optimum and make it easier to find; each with the condition under which it is valid."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ppopt.constraints.pairs import pairs_of
from ppopt.constraints.rules import backward_kinds
from ppopt.constraints.words import Family, OneOf, Pairable, Precede, Word, chain
from ppopt.op import Kind, Send
from ppopt.pipeline import Pipeline


def cuts_of(pipeline: Pipeline, extra: Sequence[Word] = ()) -> tuple[Precede, ...]:
    """Words that keep the optimum and make it easier to find: :func:`in_order` and :func:`room_in_order`.

    Both need microbatches that can be renumbered; nothing is cut where ``extra``, the words beside the rules, could tell
    them apart (:func:`alike`).
    """
    return (*in_order(pipeline), *room_in_order(pipeline)) if alike(extra) else ()


def alike(extra: Sequence[Word]) -> bool:
    """Whether these words, beside the rules, treat all microbatches of a route alike: only choices over whole families do."""
    return all(
        isinstance(word, Pairable)
        or (isinstance(word, OneOf) and all(isinstance(stream, Family) for streams in word.alternatives for stream in streams))
        for word in extra
    )


def in_order(pipeline: Pipeline) -> tuple[Precede, ...]:
    """Every stage runs each kind in the order of the microbatches, route by route.

    Valid where the microbatches of a route are alike. Renumber the operations of each kind and stage by their starts: the
    devices stay as busy as they were; whatever starts as the (n+1)-th of its kind had n+1 predecessors that ended in time, so
    the (n+1)-th of these did; and memory depends on counts alone. Where a backward may be run either way, ``B`` and ``I``
    are one sequence: the n-th of them, whichever it is, hands on the n-th gradient. The transfers from a stage in one direction
    are alike too, on the same link for the same time, and are renumbered with the rest: what holds the link, and when, stays.
    So does what is an overlapped pair: how long it takes depends on the forward's stage, not on its microbatch.
    """
    backward = backward_kinds(pipeline)
    orders = [(Kind.F, Kind.F), *((a, b) for a in backward for b in backward)]
    if pipeline.costs.split:
        orders.append((Kind.W, Kind.W))
    sending = pipeline.ticks.sending
    transfers = tuple(
        chain(Family(stage, send, route))
        for route in range(len(pipeline.routes))
        for stage in range(pipeline.stages)
        for send in Send
        if sending[route, send - Send.SEND_F, stage]
    )
    return transfers + tuple(
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


def free_choices(pipeline: Pipeline) -> tuple[OneOf | Pairable, ...]:
    """What a schedule may choose beside the rules, without choices that gain nothing.

    Forwards and backwards may run as overlapped pairs (:func:`~ppopt.constraints.pairs.pairs_of`). Where splitting is free
    (:func:`splitting_is_free`) a backward that is in no pair is split.
    """
    free = splitting_is_free(pipeline)
    pairs = pairs_of(pipeline, alone=not free)
    return (*pairs, *always_split(pipeline, but={family for word in pairs for family in word.backwards})) if free else pairs


def always_split(pipeline: Pipeline, but: Collection[Family] = ()) -> tuple[OneOf, ...]:
    """Every backward is run as ``I`` and ``W``; but the full backwards ``but`` stay a choice.

    Valid, as a restriction that keeps the optimum, where ``I`` + ``W`` takes no longer than ``B`` on every stage: a ``B``
    can then be replaced by its ``I`` followed by its ``W``, and everybody has its gradient no later.
    """
    return tuple(
        OneOf(((Family(stage, Kind.I, route), Family(stage, Kind.W, route)),))
        for route in range(len(pipeline.routes))
        for stage in range(pipeline.stages)
        if Family(stage, Kind.B, route) not in but
    )


def splitting_is_free(pipeline: Pipeline) -> bool:
    """Whether ``I`` + ``W`` takes no longer than ``B`` on every stage: the condition of :func:`always_split`."""
    duration = pipeline.ticks.duration
    return pipeline.costs.split and bool((duration[:, Kind.I] + duration[:, Kind.W] <= duration[:, Kind.B]).all())
