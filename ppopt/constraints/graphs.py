"""The words of a pipeline compiled to graphs of families: as they are, and relaxed for lower bounds.

*The relaxed graph.* Let ``b``, ``i``, ``w`` be the durations of ``B``, ``I``, ``W`` of a stage. The relaxed graph has
``i' = min(i, b)`` and ``w' = min(i + w, b) - i'`` (``b`` and 0 where memory never leaves room to split,
:func:`~ppopt.pipeline.room_to_split`). It holds what forwards claim, and nothing of what ``I`` takes more. In any schedule put
``I'`` at the start of ``B`` and ``W'`` behind it, or ``I'`` at the start of ``I`` and ``W'`` at the start of ``W``: nothing
overlaps, gradients arrive no later, memory is released no later. Where ``W`` comes in p pieces, so does ``W'``: each takes a
p-th part of ``w'``, rounded up or down to whole ticks, no more than a piece takes. A backward with ``w' = 0`` is an ``I'`` alone.
An overlapped pair that takes at least as long as its forward and ``i' + w'`` is covered in the same way: ``F'`` at its start,
``I'`` and ``W'`` at its end.

*Pairs that save time* (:func:`shared`) are covered once the durations are made smaller until ``f' + i' + w'`` is at most the
overlap, for every forward and every backward of the device: each operation then counts with a share that it has in any pair.
There are two ways to do that (the forward, or the backward, ``W`` first, gives way), and both give a relaxed graph.

*In order.* The n-th operation of a family (by start) can be renumbered to belong to the n-th microbatch: if the n + 1 earliest
starts of a family are at most y, each has its own predecessor, so the n + 1 earliest starts of the predecessor are at most
y - duration - latency. The intervals on devices and links stay, and memory depends on counts alone. It needs equal durations and
amounts over the microbatches of a route, and an objective of device intervals alone (makespan and device span are).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache

import numpy as np

from ppopt.constraints.copies import may_copy
from ppopt.constraints.families import FamilyGraph, Held, Machine, Precedence, Reservoir, merged
from ppopt.constraints.implied import held_from_forwards, implied_by_memory
from ppopt.constraints.pairs import pairs_of, pairs_save_time
from ppopt.constraints.rules import rules_of, transfers_of
from ppopt.constraints.turns import turn_of
from ppopt.constraints.words import Capacity, Exclusive, Family, Lead, OneOf, Precede, Tail, Turns, Word, sends
from ppopt.op import HOPS, Kind, Send
from ppopt.pipeline import IntArray, Pipeline, room_to_split, splitting_takes_memory


def graph_of(pipeline: Pipeline, backward: Sequence[Kind] | None = None, *, links: bool = True) -> FamilyGraph:
    """The rules of ``pipeline``, where stage s runs its backward as ``B``, or as ``I`` and ``W`` where ``backward[s]`` is ``I``.

    By default every backward is split if the costs have that. Without ``links`` a transfer is a delay between computations.

    Raises:
        TypeError: the rules have a word that is not known here.
    """
    if may_copy(pipeline):
        raise TypeError("a graph of families knows nothing of copies to the host")
    backward = backward or (Kind.I if pipeline.costs.split else Kind.B,) * pipeline.stages
    compiled = _Compiled(pipeline)
    words = rules_of(pipeline, links=links)
    compiled.choose(words, backward)
    for word in words:
        compiled.take(word)
    graph = compiled.graph()
    return replace(graph, implied=implied_by_memory(graph))


def graphs_of(pipeline: Pipeline) -> tuple[FamilyGraph, ...]:
    """The graphs worth a search for a period, for any number of microbatches, each with every backward of a stage run in one way.

    One, where a split backward takes no longer than a fused one, and no more memory, or where there is no choice; else all split
    (that have room for it), and each stage the cheaper way.
    """
    if not pipeline.costs.split:
        return (graph_of(pipeline).endless(),)
    duration = pipeline.ticks.duration
    free = duration[:, Kind.I] + pipeline.ticks.weight <= duration[:, Kind.B]
    if splitting_takes_memory(pipeline):
        free &= pipeline.amounts.rebuilt == 0
    ways = [tuple(Kind.I if all(stage) else Kind.B for stage in of.T.tolist()) for of in (free, room_to_split(pipeline))]
    return tuple(graph_of(pipeline, way).endless() for way in dict.fromkeys(ways))


class Share(Enum):
    """What of a forward and a backward counts where they may run as a pair."""

    BACKWARD = "the backward counts with what the pair takes longer than the forward"
    FORWARD = "the forward counts with what the pair takes longer than the backward"
    NEITHER = "no more than a pair takes counts of either alone; together they may take longer, so this is no relaxation"


def relaxed_graph(pipeline: Pipeline, share: Share | None = None, *, links: bool = True) -> FamilyGraph:
    """The relaxed graph (see above); without a ``share`` for schedules without pairs that save time.

    Without ``links`` a transfer is a delay between computations, which is a relaxation again.
    """
    return _relaxed_graph(pipeline, share, links and bool(pipeline.lines))


@lru_cache(maxsize=4)  # every bound of a pipeline asks for these
def _relaxed_graph(pipeline: Pipeline, share: Share | None, links: bool) -> FamilyGraph:
    graph = held_from_forwards(graph_of(pipeline, links=links))
    forward, gradient, rest = shared(pipeline, share)
    whole = shared(pipeline, None)[2]
    of = {Kind.F: forward, Kind.B: gradient, Kind.I: gradient, Kind.W: rest}
    pieces = pipeline.costs.weight_pieces
    duration = tuple(
        (int(of[family.kind][family.route, family.stage]) + max(family.piece, 0)) // (pieces if family.kind == Kind.W else 1)
        if isinstance(family.kind, Kind)
        else time
        for family, time in zip(graph.families, graph.duration, strict=True)
    )
    graph = replace(graph, duration=duration).taken()
    return graph.without([o for o in graph.of_kind(Kind.W) if not whole[graph.families[o].route, graph.families[o].stage]])


def relaxed_graphs(pipeline: Pipeline, pairs: bool, *, links: bool = True) -> tuple[FamilyGraph, ...]:
    """Relaxed graphs, each valid by itself; with ``pairs`` for schedules with overlapped pairs, too."""
    if pairs and pairs_save_time(pipeline):
        return relaxed_graph(pipeline, Share.BACKWARD, links=links), relaxed_graph(pipeline, Share.FORWARD, links=links)
    return (relaxed_graph(pipeline, links=links),)


def shared(pipeline: Pipeline, share: Share | None) -> tuple[IntArray, IntArray, IntArray]:
    """Ticks ``[route, stage]`` of ``F'``, ``I'`` and ``W'``; ``share``: of schedules that run pairs."""
    forward, full, input_ = (pipeline.ticks.duration[:, kind].copy() for kind in (Kind.F, Kind.B, Kind.I))
    weight = pipeline.ticks.weight
    split = (input_ >= 0) & room_to_split(pipeline)
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


class _Compiled:
    """The words over families, read one by one."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.families: list[Family] = []
        self.number: dict[Family, int] = {}
        self.precedences: list[Precedence] = []
        self.computing: list[Machine] = []
        self.links: list[Machine] = []
        self.stopping: list[Machine] = []
        self.reservoirs: list[Reservoir] = []
        self.lead: list[int] = []
        self.tail: list[int] = []
        self.pair = {hop.send: hop.pair for hop in transfers_of(pipeline)}
        """From which device to which a transfer goes."""

    def choose(self, words: Sequence[Word], backward: Sequence[Kind]) -> None:
        """Number the families that are run, of each choice those of the way that is wanted."""
        run: list[Family] = []
        for word in words:
            if isinstance(word, OneOf):
                ways = [[f for f in streams if isinstance(f, Family)] for streams in word.alternatives]
                run += next(way for way in ways if any(f.kind in (Kind.F, *HOPS, backward[f.stage]) for f in way))

        turn = turn_of(self.pipeline)

        def place(family: Family) -> tuple[int, ...]:
            """Down the route, then up again, a weight gradient behind its input gradient, a transfer behind what it carries.

            Route by route; all routes at once where some wait for others, in their turns.
            """
            down = family.kind in (Kind.F, Send.SEND_F)
            way = family.stage if down else 2 * self.pipeline.stages - family.stage
            if not turn:
                return family.route, way, family.kind, family.piece
            return way, family.kind, family.piece, family.route if down else turn[family.route]

        self.families = sorted(run, key=place)
        self.number = {family: o for o, family in enumerate(self.families)}
        self.lead, self.tail = ([0] * len(run) for _ in range(2))

    def take(self, word: Word) -> None:
        """Keep what ``word`` says about the families that are run.

        Raises:
            TypeError: a word that is not known here.
        """
        if isinstance(word, Precede):
            before, after = (self.number.get(stream) for stream in (word.before, word.after))  # type: ignore[arg-type]
            if before is not None and after is not None and before != after:
                self.precedences.append(Precedence(before, after, word.shift, word.lag))
        elif isinstance(word, Exclusive):
            self._machine(word)
        elif isinstance(word, Capacity):
            held = (
                Held(self.number[hold.claim], self.number[family], hold.amount)
                for hold in word.holds
                for family in hold.release
                if hold.claim != family and hold.claim in self.number and family in self.number  # a relaxation
            )
            self.reservoirs.append(Reservoir(word.limit, merged(held)))
        elif isinstance(word, Lead | Tail):
            margins = self.lead if isinstance(word, Lead) else self.tail
            if word.family in self.number:
                margins[self.number[word.family]] = word.ticks
        elif not isinstance(word, OneOf | Turns):  # without the pauses between turns: a relaxation
            raise TypeError(f"a graph of families cannot say the word {word!r}")

    def _machine(self, word: Exclusive) -> None:
        families = tuple(sorted(self.number[f] for f in word.streams if isinstance(f, Family) and f in self.number))
        carried = [self.pair[f] for f in word.streams if isinstance(f, Family) and sends(f)]
        if not carried:
            self.computing.append(Machine(f"device {len(self.computing)}", families))
            return
        line = next(line for line in self.pipeline.lines if carried[0] in line)
        link = f"link {', '.join(f'{a}->{b}' for a, b in line)}"
        if word.computes_none:
            self.links.append(Machine(link, families))
        else:
            device = next(f for f in word.streams if isinstance(f, Family) and not sends(f))
            place = self.pipeline.device_by_kind[device.route, device.kind, device.stage]
            name = f"device {place} with {link}"
            self.stopping.append(Machine(name, families))

    def graph(self) -> FamilyGraph:
        """What was said, without what follows from it."""
        ticks = self.pipeline.ticks
        counts = [len(microbatches) for microbatches in self.pipeline.microbatches_of]

        def time(family: Family) -> int:
            if isinstance(family.kind, Send):
                return int(ticks.sending[family.route, family.kind - Send.SEND_F, family.stage])
            return int(ticks.duration[family.route, family.row, family.stage])

        return FamilyGraph(
            families=tuple(self.families),
            duration=tuple(map(time, self.families)),
            count=tuple(counts[family.route] for family in self.families),
            precedences=tuple(self.precedences),
            machines=(*self.computing, *self.links, *self.stopping),
            devices=len(self.computing),
            owners=len(self.computing) + len(self.links),
            reservoirs=tuple(self.reservoirs),
            implied=(),
            lead=tuple(self.lead),
            tail=tuple(self.tail),
        )
