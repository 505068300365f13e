"""Lower bounds over all cuts from a limit of memory: how little a device can do while it fills, and while it empties.

Let a device hold the stages ``s_1 < ... < s_v`` of one route, ``room`` be its limit without what it always holds, ``held_k`` what
one microbatch holds of stage ``s_k``.

*Filling.* Consider the moment at which the first backward of ``s_j`` starts on the device. No backward of ``s_1 .. s_j`` has
begun: one of ``s_k``, k < j, comes behind that of ``s_j`` of its own microbatch. Let ``n_k`` be the number of forwards of ``s_k``
that have started. All that they took is held: ``n_1 held_1 + ... + n_j held_j <= room``. Microbatches run in order
(:mod:`ppopt.constraints.graphs`), so ``n_1 >= ... >= n_j``, and of a stage behind ``s_j`` no more than ``n_j`` forwards and
backwards have started. So far the device has done at most

    ``gain = n_1 f_1 + ... + n_j f_j + n_j (all that it does of one microbatch behind s_j)``

and the moment is no earlier than the head of that backward. What is left is yet to come, and behind it a least tail:
``makespan >= head + work - gain + tail``, for one such choice of the numbers at least.

*Emptying* is the same from the end: behind the end of the last forward of ``s_j``, of ``s_k`` the last ``n_k`` backwards are run,
and what they give back was all held when that forward started. A ``W`` may come long behind its ``I``. So where there are any,
``n_k`` counts the microbatches of ``s_k`` that have a ``W`` to come; each holds the lesser of activation and ``retained``. The
numbers need not fall with k then. And a stage ``s_k`` behind ``s_j`` has its number, too: of the microbatches held there whose
``I`` is over already, which have just their ``W`` to come. All others of which it has anything to run are among the ``n_j``.

*Both.* Idle time before the one moment and behind the other one adds up where the first comes before the last:
``makespan >= work + (head - gain) + (tail - other gain)``. It does unless all microbatches are held at once. For, if the first
backward of ``s_i`` starts behind the start of the last forward of ``s_j``, all forwards of ``s_1 .. s_min(i, j)`` have started
by then, and no backward of these.

The numbers are those of a schedule, so whatever is said of one moment holds for the same numbers. Heads, tails, work and gains
are linear in the durations of the stages; these, and what is held, are sums over layers. So all of it holds whatever the cut is.
Least durations and least amounts may stand for the true ones: the longer operations are, the more is left, and the more they
hold, the fewer fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ppopt.bounds.certificates import Part, Reasons, Way
from ppopt.constraints import joined, relaxed_graph
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.pipeline.scaling import sizes_of


@dataclass(frozen=True)
class Phase:
    """The time before the first backward of a stage starts on a device, or behind the end of its last forward of it.

    ``way``: how long that is at least. ``gains``: of each of the ``stages``, what the device does in that time for one more
    microbatch that it holds. ``some``: of so many of the stages at least one is held. ``falling``: the numbers fall from stage to
    stage.
    """

    way: Way
    stages: tuple[int, ...]
    gains: tuple[Way, ...]
    some: int
    falling: bool

    def least(self, duration: Mapping[Part, int], held: Mapping[int, int], room: int, most: int) -> int:
        """Idle ticks at least, with these durations and amounts of the stages; ``most`` microbatches."""
        gains = [way.value(duration) for way in self.gains]

        def best(place: int, last: int, left: int) -> int:
            if place == len(self.stages):
                return 0
            amount = held[self.stages[place]]
            fit = last if not amount else min(last, left // amount)
            values = (n * gains[place] + best(place + 1, n if self.falling else most, left - n * amount) for n in range(fit + 1))
            return max(values)

        return self.way.value(duration) - best(0, most, room)


@dataclass(frozen=True)
class Filling:
    """What a limit of memory says of one device, whatever the cut is (see above)."""

    device: int
    stages: tuple[int, ...]
    microbatches: int
    work: Way
    head: Way
    tail: Way
    first: tuple[Phase, ...]
    last: tuple[Phase, ...]

    def value(self, duration: Mapping[Part, int], held: Mapping[int, int], kept: Mapping[int, int], room: int) -> int:
        """The bound in ticks.

        ``held`` and ``kept``: what a microbatch holds of each stage, and what is left of that between ``I`` and ``W``.
        """
        begin = [phase.least(duration, held, room, self.microbatches) for phase in self.first]
        end = [phase.least(duration, kept, room, self.microbatches) for phase in self.last]
        both = [
            one + other
            for (i, one), (j, other) in itertools.product(enumerate(begin), enumerate(end))
            if self.microbatches * sum(held[s] for s in self.stages[: min(i, j) + 1]) > room
        ]
        head, tail = self.head.value(duration), self.tail.value(duration)
        return self.work.value(duration) + max(*(one + tail for one in begin), *(head + other for other in end), *both)


def fillings(pipeline: Pipeline) -> Iterator[Filling]:
    """Of each device of a pipeline of one route and one size; only its placement, links and number of microbatches matter."""
    graph = joined(relaxed_graph(pipeline, links=False))
    reasons = Reasons(graph, sizes_of(pipeline))
    number = {(Kind.I if f.kind == Kind.B else f.kind, f.stage): o for o, f in enumerate(graph.families)}
    weights = any(kind == Kind.W for kind, _ in number)
    for device, (_, families) in enumerate(graph.machines[: graph.devices]):
        stages = tuple(s for s, d in enumerate(pipeline.routes[0]) if d == device)
        back = (Kind.I, Kind.W) if weights else (Kind.I,)
        first, last = [], []
        for j, stage in enumerate(stages):
            behind = [Part(kind, s) for s in stages[j + 1 :] for kind in (Kind.F, *back)]
            held = [[Part(Kind.F, s)] for s in stages[:j]] + [[Part(Kind.F, stage), *behind]]
            (way,) = reasons.head(number[Kind.I, stage], 0)
            first.append(Phase(way, stages[: j + 1], _each_once(held), j + 1, True))
            held = [[Part(kind, s) for kind in back] for s in stages[:j]] + [[*(Part(kind, stage) for kind in back), *behind]]
            held += [[Part(Kind.W, s)] for s in stages[j + 1 :]] if weights else []
            (way,) = reasons.tail(number[Kind.F, stage], 0)
            last.append(Phase(way, stages[: len(held)], _each_once(held), j + 1, not weights))
        nothing = (Way((), min(graph.tail[o] for o in families)),)
        (tail,) = nothing if weights else reasons.tail(number[Kind.I, stages[0]], 0)
        (head,) = reasons.head(number[Kind.F, stages[0]], 0)
        work = reasons.work(families)
        yield Filling(device, stages, pipeline.microbatches, work, head, tail, tuple(first), tuple(last))


def _each_once(parts: Sequence[Sequence[Part]]) -> tuple[Way, ...]:
    return tuple(Way.of(dict.fromkeys(some, 1)) for some in parts)
