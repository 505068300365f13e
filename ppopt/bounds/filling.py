"""Lower bounds over all cuts from a limit of memory: how little a device can do while it fills, and while it empties.

Let a device hold the stages ``s_1 < ... < s_v`` of one route, ``room`` be its limit without what it always holds, ``held_k`` what
one microbatch holds of stage ``s_k``.

*Filling.* Let ``t`` be the head of the first backward of ``s_j`` on the device. Before ``t`` no backward of ``s_1 .. s_j`` has
begun: one of ``s_k``, k < j, comes behind that of ``s_j`` of its own microbatch. Let ``n_k`` be the number of forwards of ``s_k``
that have started by then, and ``r_k`` that of backwards, 0 up to ``s_j``. All that is not given back is held:
``(n_1 - r_1) held_1 + ... + (n_v - r_v) held_v <= room``. Microbatches run in order (:mod:`ppopt.constraints.graphs`), so
``n_1 >= ... >= n_v``, ``n_k >= r_k`` and ``r_1 <= ... <= r_v``. The backwards of the last stage of the pipeline alternate with
its forwards: the one of microbatch m begins no earlier than m times both behind the first one, and so does that of each stage.
So ``r_k`` is limited by ``t``, too, and the last one of them may have run in part only. By ``t`` the device has done

    ``gain = n_1 f_1 + ... + n_v f_v + r_1 b_1 + ... + r_v b_v``

at most. What is left is yet to come, and behind it a least tail: ``makespan >= t + work - gain + tail``, for one such choice of
the numbers at least. For the last stage ``s_v`` of the device ``t`` may as well be the moment at which that backward starts,
which is no earlier than its head: then ``n_1 .. n_v`` are 1 at least.

*Emptying* is the same from the end: behind the end of the last forward of ``s_j``, of ``s_k`` the last ``n_k`` backwards are run
and the last ``r_k`` forwards, and what the other backwards give back was all held when that time began. A ``W`` may come long
behind its ``I``. So where there are any, ``n_k`` counts the microbatches of ``s_k`` that have a ``W`` to come; each holds the
lesser of activation and ``retained``. The numbers need not fall with k then; of the stages behind ``s_j`` those that have an
``I`` to come do, and are no more than ``n_j``.

*Both.* Idle time before the one moment and behind the other one adds up where the first comes before the last:
``makespan >= work + (head - gain) + (tail - other gain)``. It does unless all microbatches are held at once. For, if the first
backward of ``s_i`` starts behind the start of the last forward of ``s_j``, all forwards of ``s_1 .. s_min(i, j)`` have started
by then, and no backward of these.

*Device spans.* All of it holds with heads and tails that count from the device's own first start and to its own last end.

The numbers are those of a schedule, so whatever is said of one moment holds for the same numbers. Heads, tails, work and gains
are linear in the durations of the stages; these, and what is held, are sums over layers. So all of it holds whatever the cut is.
Least durations and least amounts may stand for the true ones: the longer operations are, the more is left, and the more they
hold, the fewer fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ppopt.bounds.certificates import reasons_of_devices
from ppopt.bounds.savings import Savings
from ppopt.bounds.ways import NOTHING, Once, Part, Time, Way
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective


@dataclass(frozen=True)
class Held:
    """What the layers hold, in whole amounts: of a microbatch from its forward on, of that until ``W``, and always; and the room
    of each device. ``savings``: how much less of a microbatch, where it is open what recomputes; else that is settled."""

    held: Sequence[int]
    kept: Sequence[int]
    own: Sequence[int]
    room: Sequence[int]
    savings: Savings | None = None

    @property
    def least(self) -> Held:
        """As little as the layers can hold, however they recompute, whatever that takes."""
        if self.savings is None:
            return self
        held = [value - saved for value, saved in zip(self.held, self.savings.most, strict=True)]
        kept = [value - saved for value, saved in zip(self.kept, self.savings.unkept, strict=True)]
        return Held(held, kept, self.own, self.room)


@dataclass(frozen=True)
class Count:
    """How many operations of a kind a device runs in a phase, and what that says.

    ``gain``: how long each of them takes. ``stage``, ``holds``: 1, each holds what a microbatch takes of a stage; -1, each gives
    it back; 0, neither. ``within``: counts of the phase, by their places, that are no smaller. ``least``: at least so many.
    ``since``, ``every``: the first one begins no earlier than ``since``, and each no earlier than ``every`` behind the one before
    (``None``: nothing is known).
    """

    gain: Way
    stage: int
    holds: int
    within: tuple[int, ...] = ()
    least: int = 0
    since: Way | None = None
    every: Way = NOTHING

    def done(self, duration: Mapping[Part, Time], count: int, until: Time) -> Time | None:
        """How much of that many can be run by a time; ``None``: not all of them can have begun."""
        gain = self.gain.value(duration)
        if self.since is None or not count:
            return count * gain
        last = self.since.value(duration) + (count - 1) * self.every.value(duration)
        return None if last >= until else (count - 1) * gain + min(gain, until - last)


@dataclass(frozen=True)
class Phase:
    """The time before the first backward of a stage starts on a device, or behind the end of its last forward of it.

    ``way``: how long that is at least. ``counts``: what the device does in that time.
    """

    way: Way
    counts: tuple[Count, ...]

    def least(self, duration: Mapping[Part, Time], held: Mapping[int, int], room: int, most: int) -> Time:
        """Idle ticks at least, with these durations and amounts of the stages; ``most`` microbatches."""
        until = self.way.value(duration)
        best: Time = -1

        def count(numbers: tuple[int, ...], done: Time, left: int) -> None:
            nonlocal best
            if len(numbers) == len(self.counts):
                best = max(best, done) if left >= 0 else best
                return
            of = self.counts[len(numbers)]
            for n in range(of.least, min((numbers[i] for i in of.within), default=most) + 1):
                more = of.done(duration, n, until)
                if more is not None:
                    count((*numbers, n), done + more, left - n * of.holds * held[of.stage])

        count((), 0, room)
        return until - best


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

    def value(self, duration: Mapping[Part, Time], held: Mapping[int, int], kept: Mapping[int, int], room: int) -> Time:
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


def fillings(pipeline: Pipeline, objective: Objective = "makespan", once: Collection[Once] = ()) -> Iterator[Filling]:
    """Of each device of a pipeline of one route and one size; only its placement, links and number of microbatches matter.

    ``once`` as of :func:`~ppopt.bounds.certificates.work_certificates`.
    """
    each = reasons_of_devices(pipeline, objective, once)
    graph = each[0].graph
    number = {(Kind.I if f.kind == Kind.B else f.kind, f.stage): o for o, f in enumerate(graph.families)}
    weights = any(kind == Kind.W for kind, _ in number)
    back = (Kind.I, Kind.W) if weights else (Kind.I,)
    for device, (reasons, (_, families)) in enumerate(zip(each, graph.machines, strict=False)):
        stages = tuple(s for s, d in enumerate(pipeline.routes[0]) if d == device)
        first, last = [], []
        for j, stage in enumerate(stages):
            begun = {s: reasons.since_last(number[Kind.I, s]) for s in stages[j + 1 :]}
            (way,) = reasons.head(number[Kind.I, stage], 0)
            first.append(Phase(way, _numbers(stages, j, (Kind.F,), back, begun)))
            begun = {s: reasons.until_last(number[Kind.F, s]) for s in stages[j + 1 :]}
            parts = (Kind.W, Kind.I) if weights else (Kind.I,)
            (way,) = reasons.tail(number[Kind.F, stage], 0)
            last.append(Phase(way, _numbers(stages, j, parts, (Kind.F,), begun)))
        (tail,) = (reasons.least_tail(families),) if weights else reasons.tail(number[Kind.I, stages[0]], 0)
        (head,) = reasons.head(number[Kind.F, stages[0]], 0)
        work = reasons.work(families)
        yield Filling(device, stages, pipeline.microbatches, work, head, tail, tuple(first), tuple(last))


def _numbers(
    stages: Sequence[int],
    j: int,
    claiming: Sequence[Kind],
    other: Sequence[Kind],
    begun: Mapping[int, tuple[Way, Way]],
) -> tuple[Count, ...]:
    """The counts of a phase up to ``stages[j]``.

    ``claiming``: the kinds that it begins with, those of one stage that hold anything (or will have been holding it) first;
    ``other``: the kinds that come with the end of what is held, of the stages behind alone; ``begun``: of these, how early they
    come and how close to each other.
    """
    counts: list[Count] = []
    least = int(j == len(stages) - 1)  # the moment itself, else a time before it
    before: tuple[int, ...] = ()  # the count of the stage before, which is no smaller
    ends = []
    alone = len(claiming) == 1
    for k, stage in enumerate(stages):
        if k <= j:
            gain = Way.of({Part(kind, stage): 1 for kind in claiming})
            counts.append(Count(gain, stage, 1, before if alone else (), least))
            before = (len(counts) - 1,)
            continue
        own: tuple[int, ...] = ()
        for place, kind in enumerate(claiming):
            within = (*own, *(before if place == len(claiming) - 1 else ()))
            counts.append(Count(Way.of({Part(kind, stage): 1}), stage, int(not place), within))
            own = (len(counts) - 1,)
        before = own
        ends.append((stage, own))
    later: tuple[int, ...] = ()
    for stage, own in reversed(ends):
        since, every = begun[stage]
        gain = Way.of({Part(kind, stage): 1 for kind in other})
        counts.append(Count(gain, stage, -1, (*own, *later), 0, since, every))
        later = (len(counts) - 1,)
    return tuple(counts)
