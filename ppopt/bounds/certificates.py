"""Lower bounds that hold for whatever durations the stages have: the reasons of the one-machine bound as inequalities.

The one-machine bound (:func:`ppopt.bounds.machine`) says ``makespan >= min head + work + min tail`` of some operations of a
device. The head of an operation is a time before which it cannot start. It is the length of a chain of reasons, followed back
from the operation to the start of the schedule. A reason is the operation that makes its input, the same operation of the
microbatch before, or what its device must have done before. Each of them holds whatever the durations are. So the inequality
holds for every pipeline of the same placement and number of microbatches. It is linear in the durations but for the two minima.

A device span is counted from the first start on the device to the last end there. The inequality is the same, but a chain stops
at the first operation of that device that it comes to: none starts before the span does.

Where microbatches differ, a stage has durations for each of their sizes (:func:`~ppopt.pipeline.scaling.sizes_of`). What a
device must have done before an operation may begin with one of several operations then: such a chain divides, and a head is the
least of all that come of it.

What layers take once per step is a duration of their stage, too: a device gathers that of all its stages before it begins
(:mod:`ppopt.bounds.margins`).

Of weight gradients in pieces these are the reasons of whole ones (:func:`~ppopt.constraints.joined`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ppopt.bounds.closed_form import Heads, best_set
from ppopt.bounds.heads import ancestors_among, heads, most_instances, tails
from ppopt.bounds.margins import Margins, margins_of, once_of_stages
from ppopt.bounds.ways import NOTHING, Once, Part, Time, Way, common, shortest
from ppopt.constraints import FamilyGraph, joined, relaxed_graph
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.pipeline.mix import Sizes
from ppopt.pipeline.scaling import sizes_of
from ppopt.schedule import Objective


@dataclass(frozen=True)
class Certificate:
    """``spans * objective >= least of heads + work + least of tails``, whatever the durations of the stages are.

    Valid for one objective (makespan or device span), placement, number of microbatches and links (transfers as mere delays),
    with and without a limit of memory. ``spans`` is 1 but where it is about the device spans of several devices together.
    """

    heads: tuple[Way, ...]
    work: Way
    tails: tuple[Way, ...]
    spans: int = 1

    def value(self, duration: Mapping[Part, Time]) -> int:
        """The bound in ticks, where the stages have these durations."""
        first, last = (min(way.value(duration) for way in ways) for ways in (self.heads, self.tails))
        return int(-(-(first + self.work.value(duration) + last) // self.spans))


def durations_of(pipeline: Pipeline) -> dict[Part, Time]:
    """In ticks, as certificates count them: every backward run the cheaper way; a stage takes the same on routes of one size."""
    graph, sizes = joined(relaxed_graph(pipeline, links=False)), sizes_of(pipeline)
    every = itertools.product((Kind.F, Kind.I, Kind.W), range(pipeline.stages), range(len(sizes.scales)))
    found: dict[Part, Time] = {Part(*of): 0 for of in every}
    found |= {_part(graph, sizes, o): graph.duration[o] for o in range(len(graph.families))}
    return found | once_of_stages(pipeline)


def certificates(pipeline: Pipeline, most: int, objective: Objective = "makespan") -> list[Certificate]:
    """The best certificates of a pipeline, one of a device, ``most`` of them: the first is its one-machine bound.

    Where there are several routes, each stage takes the same on all of a size.
    """
    return list(_certificates(pipeline, objective)[:most])


@lru_cache(maxsize=8)  # the bound of a cut is asked for, and then learned from; a few cuts are compared
def _certificates(pipeline: Pipeline, objective: Objective) -> tuple[Certificate, ...]:
    found: list[tuple[int, Certificate]] = []
    each = reasons_of_devices(pipeline, objective)
    graph = each[0].graph
    for device, (reasons, (_, families)) in enumerate(zip(each, graph.machines, strict=False)):
        if not families:
            continue  # of a route that no microbatch takes
        rows = [(reasons.heads[o], reasons.tails[o]) for o in families]
        best = best_set(rows, [graph.duration[o] for o in families], [graph.count[o] for o in families])
        around = 0 if objective == "makespan" else graph.around[device]
        found.append((best.value + around, reasons.of_set(families, best.head, best.tail)))
    if objective == "makespan":
        found.append(each[0].longest_way())
    found.sort(key=lambda pair: -pair[0])
    return tuple(certificate for _, certificate in found)


def work_certificates(pipeline: Pipeline, once: Collection[Once] = ()) -> list[Certificate]:
    """What the operations of each device take together, with what it does before and after them: of device spans, too.

    ``once`` as of :func:`~ppopt.bounds.margins.margins_of`.
    """
    graph, sizes = joined(relaxed_graph(pipeline, links=False)), sizes_of(pipeline)
    margins = margins_of(pipeline, graph, once)
    each = (families for _, families in graph.machines[: graph.devices])
    works = (_work(graph, sizes, families, graph.count).behind(margins.around(families)) for families in each)
    return [Certificate((NOTHING,), work, (NOTHING,)) for work in works]


def plain_certificates(
    pipeline: Pipeline, objective: Objective = "makespan", once: Collection[Once] = ()
) -> Iterator[Certificate]:
    """The certificates of one route that need no example: work of a device behind the way to it and before the way from it.

    ``once`` as of :func:`work_certificates`.

    For every device and each of its stages: all forwards from that stage on and all backwards; the same and the weight gradients;
    the backwards of that stage and the earlier ones; the same and their weight gradients.
    """
    each = reasons_of_devices(pipeline, objective, once)
    graph = each[0].graph
    for reasons, (_, families) in zip(each, graph.machines, strict=False):
        of = {kind: [o for o in families if _part(graph, reasons.sizes, o).kind == kind] for kind in (Kind.F, Kind.I, Kind.W)}
        backwards = of[Kind.I][::-1]  # by their stages, ascending
        after, nothing = reasons.tail(backwards[0], 0), (reasons.least_tail(families),)
        for k, forward in enumerate(of[Kind.F]):
            some = of[Kind.F][k:] + backwards
            yield Certificate(reasons.head(forward, 0), reasons.work(some), after)
            yield Certificate(reasons.head(forward, 0), reasons.work(some + of[Kind.W]), nothing)
            fewer = backwards[: k + 1]
            stages = {graph.families[o].stage for o in fewer}
            weights = [o for o in of[Kind.W] if graph.families[o].stage in stages]
            yield Certificate(reasons.head(fewer[-1], 0), reasons.work(fewer), after)
            yield Certificate(reasons.head(fewer[-1], 0), reasons.work(fewer + weights), nothing)


def reasons_of_devices(pipeline: Pipeline, objective: Objective, once: Collection[Once] = ()) -> list[Reasons]:
    """Of each device why an operation cannot come earlier or later in a makespan, or in the device's own span.

    ``once`` as of :func:`work_certificates`.
    """
    whole = Reasons.of(pipeline, once)
    graph = whole.graph
    if objective == "makespan":
        return [whole] * graph.devices
    most = most_instances(graph)
    head, tail = (of(graph, memory=False, own=True, most=most) for of in (heads, tails))
    own = ((device, [row[device] for row in head], [row[device] for row in tail]) for device in range(graph.devices))
    return [Reasons(graph, whole.sizes, whole.margins, of) for of in own]


class Reasons:
    """Heads and tails of a graph, each with the chains of reasons that make it so long.

    Stages are told apart by their numbers and by the sizes of microbatches alone: they take the same on each route of a size.

    ``own``: a device, and heads and tails that count from its own first start and to its own last end (of the first instances at
    least); else they count from the begin and to the end of the schedule.
    """

    def __init__(self, graph: FamilyGraph, sizes: Sizes, margins: Margins, own: tuple[int, Heads, Heads] | None = None) -> None:
        self.graph, self.sizes, self.margins = graph, sizes, margins
        self.heads: Heads
        self.tails: Heads
        self._around = NOTHING
        """What a device's own span has beside what its operations take."""
        first: Sequence[Way | None] = margins.before
        last: Sequence[Way | None] = margins.behind
        if own is None:
            self.heads, self.tails = heads(graph, memory=False), tails(graph, memory=False)
        else:
            device, self.heads, self.tails = own
            self._around = margins.around(graph.machines[device].families)
            first = last = [NOTHING if owner == device else None for owner in graph.owner]
        self._last = last
        self._to = _Chains(graph, sizes, self.heads, first)
        self._from = _Chains(graph.reversed(), sizes, self.tails[::-1], last[::-1])

    @classmethod
    def of(cls, pipeline: Pipeline, once: Collection[Once] = ()) -> Reasons:
        """Those of the makespan of a pipeline, whole weight gradients, and transfers as mere delays; ``once`` as of
        :func:`work_certificates`."""
        graph = joined(relaxed_graph(pipeline, links=False))
        return cls(graph, sizes_of(pipeline), margins_of(pipeline, graph, once))

    def head(self, family: int, instance: int) -> tuple[Way, ...]:
        """The way to an instance of a family, no shorter than one of these."""
        return self._to.ways(family, instance)

    def tail(self, family: int, instance: int) -> tuple[Way, ...]:
        """The way from an instance of a family, counted from the last one, no shorter than one of these."""
        return self._from.ways(len(self.graph.families) - 1 - family, instance)

    def least_tail(self, families: Sequence[int]) -> Way:
        """What comes behind any of these at least, whatever the durations are."""
        return common([last for o in families if (last := self._last[o]) is not None])

    def since_last(self, backward: int) -> tuple[Way, Way]:
        """How early a backward can start behind the first one of the last stage, and how close one may be to the next.

        On its device the backward of microbatch m of the last stage comes behind m + 1 forwards and m backwards of that stage.
        """
        return self._to.behind_turn(backward)

    def until_last(self, forward: int) -> tuple[Way, Way]:
        """The same from the end: how late a forward can end before the last one of the last stage, and how close they may be."""
        return self._from.behind_turn(len(self.graph.families) - 1 - forward)

    def work(self, families: Sequence[int], counts: Sequence[int] | None = None) -> Way:
        """What the instances of these families take together: all of each family, or as many as ``counts`` says; and what a
        device does before and behind them in its own span."""
        known = self.graph.count if counts is None else dict(zip(families, counts, strict=True))
        return _work(self.graph, self.sizes, families, known).behind(self._around)

    def of_set(self, families: Sequence[int], head: int, tail: int) -> Certificate:
        """The certificate of the instances whose heads and tails reach two thresholds."""
        chosen, left = list[tuple[int, int, int]](), list[int]()
        for o in families:
            early, late = (int(side[o].searchsorted(least)) for side, least in ((self.heads, head), (self.tails, tail)))
            known = max(early, late) < len(self.heads[o])  # else all of them count as too early, as in the bound
            count = max(self.graph.count[o] - early - late, 0) if known else 0
            left.append(count)
            if count:
                chosen.append((o, early, late))
        alone = [o for o, *_ in chosen if self.graph.count[o] == 1]  # of those the first and the last ones are enough
        behind, before = set(alone).difference(self._to.first(alone)), set(alone).difference(self._last_of(alone))
        first = [way for o, early, _ in chosen if o not in behind for way in self.head(o, early)]
        last = [way for o, _, late in chosen if o not in before for way in self.tail(o, late)]
        return Certificate(shortest(first), self.work(families, left), shortest(last))

    def _last_of(self, families: Sequence[int]) -> list[int]:
        """The families that may end last of these: one that ends before another, whatever the durations are, is left out."""
        end = len(self.graph.families) - 1
        return [end - o for o in self._from.first([end - o for o in families])]

    def longest_way(self) -> tuple[int, Certificate]:
        """The longest way through one operation, and its length."""
        best, at = -1, (0, 0)
        for o, (first, last) in enumerate(zip(self.heads, self.tails, strict=True)):
            ways = first + last[::-1] + self.graph.duration[o]
            if int(ways.max()) > best:
                best, at = int(ways.max()), (o, int(ways.argmax()))
        o, n = at
        way = Way.of({_part(self.graph, self.sizes, o): 1})
        return best, Certificate(self.head(o, n), way, self.tail(o, self.graph.count[o] - 1 - n))


class _Chains:
    """Chains of reasons of a graph, each back from an operation to the begin.

    ``lead``: what comes before each family in any case; ``None``: nothing is known but what it waits for.
    """

    def __init__(self, graph: FamilyGraph, sizes: Sizes, starts: Heads, lead: Sequence[Way | None]) -> None:
        self._graph, self._sizes, self._starts, self._lead = graph, sizes, starts, lead
        self._leads = [None if way is None else 0 if way == NOTHING else own for way, own in zip(lead, graph.lead, strict=True)]
        self._known: dict[tuple[int, int], tuple[Way, ...]] = {}
        self._begins, self._durations = np.array([row[0] for row in starts], dtype=np.int64), np.array(graph.duration)
        self._members = [np.array(machine.families, dtype=np.int64) for machine in graph.machines]

    def ways(self, family: int, instance: int) -> tuple[Way, ...]:
        """Back from an instance to the begin, always by a reason that makes its start what it is."""
        at = family, instance
        if at not in self._known:
            self._known[at] = self._found(family, instance)
        return self._known[at]

    def _found(self, family: int, instance: int) -> tuple[Way, ...]:
        graph, starts = self._graph, self._starts
        times: Counter[Part] = Counter()
        constant = 0
        while True:
            start, own = int(starts[family][instance]), self._part(family)
            if instance and start == int(starts[family][instance - 1]) + graph.duration[family]:
                times[own] += 1
                instance -= 1
                continue
            for before, _, _, lag in graph.into[family]:
                if start == int(starts[before][instance]) + graph.duration[before] + lag:
                    times[self._part(before)] += 1
                    constant += lag
                    family = before
                    break
            else:
                lead = self._lead[family]
                if lead is not None and start == self._leads[family]:
                    return (Way.of(times, constant).behind(lead),)
                times[own] += instance
                done, first = self._done_before(family, instance)
                for other in done:
                    times[self._part(other)] += instance + 1
                so_far = Way.of(times, constant)
                return shortest([so_far.behind(way) for one in first for way in self.ways(one, 0)])

    def behind_turn(self, family: int) -> tuple[Way, Way]:
        """How early a family can start behind the first operation of its kind in the last stage, and how close its operations may
        be: there each comes behind one of the kind before (:meth:`Reasons.since_last`)."""
        graph = self._graph
        times: Counter[Part] = Counter()
        constant = 0
        while True:
            own = self._part(family)
            before = {self._part(o): (o, lag) for o, _, _, lag in graph.into[family]}
            same = next((part for part in before if part.kind == own.kind and part.stage != own.stage), None)
            if same is None:
                break
            family, lag = before[same]
            times[same] += 1
            constant += lag
        part = next(part for part in before if part.stage == own.stage)
        turn, lag = before[part]
        (way,) = self.ways(turn, 0)
        since = way.behind(Way.of(times + Counter({part: 1}), constant + lag))
        alternating = set(graph.machines_of[turn]) & set(graph.machines_of[family])
        return since, Way.of({part: 1, own: 1}) if alternating else Way()

    def _done_before(self, family: int, instance: int) -> tuple[list[int], list[int]]:
        """The families of its device that must have run ``instance + 1`` times before, and those that may begin before all
        others."""
        graph, start = self._graph, int(self._starts[family][instance])
        found: list[tuple[list[int], list[int]]] = []
        for place in graph.machines_of[family]:
            before = ancestors_among(graph, family, self._members[place])
            least = np.minimum.accumulate(self._begins[before][::-1])[::-1]  # of each and all behind it
            taken = np.cumsum(self._durations[before][::-1])[::-1]
            for k in np.flatnonzero(least + (instance + 1) * taken + instance * graph.duration[family] == start).tolist():
                some = before[k:].tolist()
                found.append((some, self.first(some)))
        assert found, f"nothing says why {graph.label[family]} number {instance} starts at {start}"
        return min(found, key=lambda one: len(one[1]))

    def first(self, families: Sequence[int]) -> list[int]:
        """The families that may begin first of these: one that begins behind another, whatever the durations are, is left out."""
        kept: list[int] = []
        for o in families:
            if not any(self._begins_later(o, first) for first in kept):
                kept = [first for first in kept if not self._begins_later(first, o)] + [o]
        return kept

    def _begins_later(self, family: int, first: int) -> bool:
        """Whether the head of a family is no less than that of ``first``, whatever the durations are."""
        least, own = self._lead[first], self._lead[family]
        sooner = not self._graph.into[first] and least is not None and own is not None and least.below(own)
        return sooner or bool(self._graph.ancestors[family] >> first & 1)

    def _part(self, family: int) -> Part:
        return _part(self._graph, self._sizes, family)


def _part(graph: FamilyGraph, sizes: Sizes, family: int) -> Part:
    of = graph.families[family]
    assert isinstance(of.kind, Kind), "transfers are delays here"
    return Part(Kind.I if of.kind == Kind.B else of.kind, of.stage, sizes.of[of.route])


def _work(graph: FamilyGraph, sizes: Sizes, families: Sequence[int], counts: Sequence[int] | Mapping[int, int]) -> Way:
    """What these families take together: the duration of each as often as ``counts`` has it, by family."""
    times: Counter[Part] = Counter()
    for o in families:
        times[_part(graph, sizes, o)] += counts[o]
    return Way.of(times)
