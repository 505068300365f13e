"""Greedy list scheduling: words and a priority rule become an order that keeps every word and every memory limit.

Time jumps from event to event. Whenever a device is free it starts, of the operations whose inputs are there and that
its memory has room for, the one that the rule ranks first. Rules differ in that ranking and in whether a device may
wait a little for something more important; none is best everywhere, so :func:`baselines` runs them all.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatchmethod

import numpy as np

from ppopt.constraints import (
    Capacity,
    Exclusive,
    Family,
    OneOf,
    Pairable,
    Precede,
    Together,
    Word,
    always_split,
    chosen,
    expand,
    instances,
    operations,
    rules_of,
    sends,
    splitting_is_free,
    spread,
    transfers_of,
    without_links,
)
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Order, Schedule, devices_of, durations, halves, of_stages
from ppopt.timing.timed import time_order


class Stuck(ValueError):
    """No operation can go on although some are left: every next one waits for memory or for another that waits.

    ``time`` is in ticks; ``waiting`` says for each device that still has operations what it waits for.
    """

    def __init__(self, time: int, shown: object, waiting: dict[int, str]) -> None:
        reasons = "; ".join(f"device {device} waits for {reason}" for device, reason in waiting.items())
        super().__init__(f"the list scheduler is stuck at time {shown}: {reasons}")
        self.time = time
        self.waiting = waiting


@dataclass(frozen=True)
class Claims:
    """Operations that take memory of one device: the forwards of one family, ``amount`` each."""

    route: int
    stage: int
    amount: int
    count: int


class Jobs:
    """What the words leave to be scheduled: jobs (operations and overlapped pairs), with their needs.

    With ``links`` the transfers that hold a link are jobs of that link; without, they are lags.

    ``run``: the numbers of the single operations that are run; by default those that the words leave, and where a backward
    may be run either way the cheaper one of the stage, split where they tie. ``pairs``: the numbers of the overlapped pairs among
    them; by default those that the words demand. ``duration`` and ``lag`` may be replaced before :func:`run_jobs` (a coarser
    grid).

    Raises:
        ValueError: the words contradict each other, or choose between other things than the ways to run a backward.
        TypeError: a word that is not known here.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        words: Iterable[Word],
        run: IntArray | None = None,
        pairs: IntArray | None = None,
        *,
        links: bool = False,
    ) -> None:
        self.pipeline = pipeline
        words = _tightest(words if links else without_links(pipeline, words))
        run = _run(pipeline, words) if run is None else run
        self._job = np.full(pipeline.index.size, -1, dtype=np.int64)
        self._pairs: list[tuple[IntArray, IntArray]] = []
        self._machine: IntArray = np.full(pipeline.index.size, -1, dtype=np.int64)
        self._capacities: list[tuple[int, list[tuple[IntArray, list[IntArray], int]]]] = []
        self.claim_families: list[list[Claims]] = []
        precedes: list[Precede] = []
        for word in words:
            if isinstance(word, Precede):
                precedes.append(word)
            else:
                self._take(word)
        self.numbers = self._numbered(run, self._demanded() if pairs is None else pairs)
        """The operations' numbers (:class:`~ppopt.op.OpIndex`), pairs included, one per job."""
        self.duration = durations(pipeline, self.numbers)
        """Ticks, per job."""
        first, second = halves(pipeline.index, self.numbers)
        self._job[first] = np.arange(len(first))
        paired = second >= 0
        self._job[second[paired]] = np.flatnonzero(paired)
        self.machine = self._machine[first]
        """Per job, which of the exclusive resources it occupies: the devices, then the links."""
        before, after, lag = expand(pipeline, precedes)
        before, after = self._job[before], self._job[after]
        both = (before >= 0) & (after >= 0)
        self.before, self.after, self.lag = before[both], after[both], lag[both]

    @singledispatchmethod
    def _take(self, word: object) -> None:
        raise TypeError(f"the list scheduler does not know the word {word!r}")

    @_take.register
    def _(self, word: OneOf) -> None:
        """Already decided by :func:`_run`."""

    @_take.register
    def _(self, word: Together) -> None:
        self._pairs.append(instances(self.pipeline, word))

    @_take.register
    def _(self, word: Pairable) -> None:
        """A choice that is made elsewhere: each may be run by itself."""

    @_take.register
    def _(self, word: Exclusive) -> None:
        if not word.computes and not all(map(sends, word.streams)):
            return  # transfers that block: told by their ends
        machine = int(self._machine.max()) + 1
        for stream in word.streams:
            ops = operations(self.pipeline, stream)
            if (self._machine[ops] >= 0).any():
                raise ValueError(f"{stream} is in two Exclusive words: an operation runs on one device")
            self._machine[ops] = machine

    @_take.register
    def _(self, word: Capacity) -> None:
        column = [
            (operations(self.pipeline, hold.claim), [operations(self.pipeline, r) for r in hold.release], hold.amount)
            for hold in word.holds
        ]
        self._capacities.append((word.limit, column))
        totals: dict[Family, int] = {}
        for hold in word.holds:
            totals[hold.claim] = totals.get(hold.claim, 0) + hold.amount
        self.claim_families.append(
            [Claims(f.route, f.stage, a, len(self.pipeline.microbatches_of[f.route])) for f, a in totals.items()]
        )

    def _demanded(self) -> IntArray:
        """The pairs of the ``Together`` words."""
        pair = self.pipeline.index.pair
        columns = (zip(first.tolist(), second.tolist(), strict=True) for first, second in self._pairs)
        return np.array([pair(*halves_) for column in columns for halves_ in column], dtype=np.int64)

    def _numbered(self, run: IntArray, pairs: IntArray) -> IntArray:
        if not len(pairs):
            return run
        return np.concatenate((np.setdiff1d(run, np.concatenate(halves(self.pipeline.index, pairs))), pairs))

    @cached_property
    def memory(self) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
        """Limits per capacity; per job its capacity (-1: none), what it claims at its start and gives back at its end;
        and, where it claims, its family's place in ``claim_families`` (-1: none).

        Raises:
            ValueError: a capacity is used from two devices, or a device has two that hold different things.
        """
        count = len(self.numbers)
        capacity, family = np.full(count, -1), np.full(count, -1)
        claim, release = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        for c, (_, holds) in enumerate(self._capacities):
            keys = {(f.route, f.stage): i for i, f in enumerate(self.claim_families[c])}
            for claimers, releasers, amount in holds:
                for ops, changed in [(claimers, claim), *((ops, release) for ops in releasers)]:
                    jobs = self._job[ops]
                    np.add.at(changed, jobs[jobs >= 0], amount)
                    used = jobs[jobs >= 0]
                    if ((capacity[used] >= 0) & (capacity[used] != c)).any():
                        raise ValueError("an operation uses two capacities; a device has one memory")
                    capacity[used] = c
                for op, job in zip(claimers.tolist(), self._job[claimers].tolist(), strict=True):
                    microbatch = op % self.pipeline.microbatches
                    stage = op // self.pipeline.microbatches % self.pipeline.stages
                    family[job] = keys[int(self.pipeline.route_by_microbatch[microbatch]), stage]
        limits = [limit for limit, _ in self._capacities]
        return limits, capacity.tolist(), claim.tolist(), release.tolist(), family.tolist()

    @cached_property
    def done_with(self) -> IntArray:
        """Per job, of which claiming family it gives back the last part: its place in ``claim_families`` (-1: of none)."""
        features, capacity = self.features, np.array(self.memory[1])
        place = np.full((max(1, len(self.claim_families)), *self.pipeline.device_of.shape), -1)
        for c, families in enumerate(self.claim_families):
            for i, family in enumerate(families):
                place[c, family.route, family.stage] = i
        last = (capacity >= 0) & np.isin(features.kind, (Kind.B, Kind.W))
        return np.where(last, place[capacity, features.route, features.stage], -1)

    @cached_property
    def features(self) -> Features:
        """What priority rules look at."""
        pipeline = self.pipeline
        first, second = halves(pipeline.index, self.numbers)
        shown = np.where(second >= 0, second, first)  # a pair is ranked as its backward
        family, microbatch = np.divmod(shown, pipeline.microbatches)
        kind, stage = np.divmod(family, pipeline.stages)
        kind[kind >= len(Kind)] = Kind.F  # transfers are not ranked
        route = pipeline.route_by_microbatch[microbatch]
        turn = np.zeros(pipeline.microbatches, dtype=np.int64)
        for microbatches in pipeline.microbatches_of:
            turn[microbatches] = np.arange(len(microbatches))
        head, tail = _heads_and_tails(pipeline)
        return Features(kind, stage, route, turn[microbatch], head[route, kind, stage], tail[route, kind, stage])


@dataclass(frozen=True)
class Features:
    """Arrays, one entry per job: ``turn`` is which of its route's microbatches it belongs to; ``head`` and ``tail`` are
    the ticks that one lone microbatch needs before its start and after its start."""

    kind: IntArray
    stage: IntArray
    route: IntArray
    turn: IntArray
    head: IntArray
    tail: IntArray


def _tightest(words: Iterable[Word]) -> tuple[Word, ...]:
    """The same words, of those capacities that hold the same (in whatever unit of memory) the tightest alone."""
    kept: dict[object, Word] = {}
    rooms: dict[object, int] = {}
    for place, word in enumerate(words):
        if not isinstance(word, Capacity):
            kept[place] = word
            continue
        unit, held = _holding(word)
        if held not in kept or word.limit // unit < rooms[held]:
            kept[held], rooms[held] = word, word.limit // unit
    return tuple(kept.values())


def _holding(word: Capacity) -> tuple[int, object]:
    """A unit of memory, and what is held in that unit."""
    unit = math.gcd(*(hold.amount for hold in word.holds)) or 1
    amounts = Counter((hold.claim, frozenset(hold.release), hold.amount // unit) for hold in word.holds)
    return unit, frozenset(amounts.items())


def _run(pipeline: Pipeline, words: Sequence[Word]) -> IntArray:
    """The single operations that are run, the free choices made."""
    forced, free = chosen(pipeline, words)
    if not len(free):
        return forced
    family, microbatch = np.divmod(free, pipeline.microbatches)
    kind, stage = np.divmod(family, pipeline.stages)
    if (kind == Kind.F).any():
        raise ValueError("the list scheduler chooses between B and I, W only")
    duration = pipeline.ticks.duration[pipeline.route_by_microbatch[microbatch]]
    rows = np.arange(len(free))
    fused = duration[rows, Kind.B, stage] < duration[rows, Kind.I, stage] + duration[rows, Kind.W, stage]
    return np.sort(np.concatenate((forced, free[(kind == Kind.B) == fused])))


def _heads_and_tails(pipeline: Pipeline) -> tuple[IntArray, IntArray]:
    """``[route, kind, stage]``: the least ticks before an operation's start and from its start to the microbatch's end."""
    duration, latency = np.maximum(pipeline.ticks.duration, 0), pipeline.ticks.lag
    head, tail = np.zeros_like(duration), np.zeros_like(duration)
    split = pipeline.costs.split
    for r, devices in enumerate(pipeline.routes):
        gradient = duration[r, Kind.I] if split else duration[r, Kind.B]
        rest = duration[r, Kind.W] if split else np.zeros_like(gradient)
        time = 0
        for s, device in enumerate(devices):
            time += int(latency[devices[s - 1], device]) if s else 0
            head[r, Kind.F, s] = time
            time += int(duration[r, Kind.F, s])
        after = 0
        for s in reversed(range(len(devices))):
            time += int(latency[devices[s + 1], devices[s]]) if s + 1 < len(devices) else 0
            head[r, Kind.B, s] = head[r, Kind.I, s] = time
            time += int(gradient[s])
            head[r, Kind.W, s] = time
        for s, device in enumerate(devices):
            after = int(gradient[s]) + max(int(rest[s]), after + (int(latency[device, devices[s - 1]]) if s else 0))
            tail[r, Kind.B, s] = tail[r, Kind.I, s] = after
            tail[r, Kind.W, s] = rest[s]
        for s in reversed(range(len(devices))):
            hop = int(latency[devices[s], devices[s + 1]]) if s + 1 < len(devices) else 0
            after += int(duration[r, Kind.F, s]) + hop
            tail[r, Kind.F, s] = after
    return head, tail


# --- priority rules ----------------------------------------------------------------------------------------------

Rule = Callable[[Jobs], tuple[IntArray, ...]]


def _ranks(jobs: Jobs, forward: int, backward: int, weight: int) -> IntArray:
    return np.array([forward, backward, backward, weight])[jobs.features.kind]


def backward_first(jobs: Jobs) -> tuple[IntArray, ...]:
    """Input gradients, then forwards, then weight gradients; the later stage first, then the older microbatch."""
    return _ranks(jobs, 1, 0, 2), -jobs.features.stage, jobs.features.turn


def oldest_backward_first(jobs: Jobs) -> tuple[IntArray, ...]:
    """Input gradients, then forwards, then weight gradients; the older microbatch first, then the later stage."""
    return _ranks(jobs, 1, 0, 2), jobs.features.turn, -jobs.features.stage


def forward_first(jobs: Jobs) -> tuple[IntArray, ...]:
    """Forwards, then input gradients, then weight gradients; the later stage first, then the older microbatch."""
    return _ranks(jobs, 0, 1, 2), -jobs.features.stage, jobs.features.turn


def weight_early(jobs: Jobs) -> tuple[IntArray, ...]:
    """Input gradients, then weight gradients, then forwards; the later stage first, then the older microbatch."""
    return _ranks(jobs, 2, 0, 1), -jobs.features.stage, jobs.features.turn


def oldest_first(jobs: Jobs) -> tuple[IntArray, ...]:
    """The oldest microbatch, weight gradients last."""
    return _ranks(jobs, 0, 0, 1), jobs.features.turn, jobs.features.tail


def critical_path(jobs: Jobs) -> tuple[IntArray, ...]:
    """What has the longest way to the end of its microbatch."""
    return -jobs.features.tail, jobs.features.turn


def paced(jobs: Jobs) -> tuple[IntArray, ...]:
    """As if a microbatch entered whenever the busiest device has worked off another: by the time at which an operation
    would then be due."""
    features = jobs.features
    work = int(jobs.pipeline.work.max())
    return (features.turn * work // max(1, int(features.turn.max()) + 1) + features.head, features.turn, features.stage)


PRIORITIES: dict[str, Rule] = {
    "backward-first": backward_first,
    "oldest-backward-first": oldest_backward_first,
    "forward-first": forward_first,
    "weight-early": weight_early,
    "oldest-first": oldest_first,
    "critical-path": critical_path,
    "paced": paced,
}
"""The priority rules by name. Keys are compared one after the other, small before large."""
_CROWDED = ("backward-first", "oldest-backward-first")
"""Those that are tried with several numbers of microbatches in flight."""


# --- the scheduler -----------------------------------------------------------------------------------------------


def list_schedule(
    pipeline: Pipeline,
    words: Iterable[Word],
    priority: str | Rule = "backward-first",
    *,
    patient: bool = False,
    reserve: bool = True,
) -> Schedule:
    """A schedule that keeps ``words`` (:func:`~ppopt.constraints.rules_of` among them), built greedily.

    ``patient``: a device about to start a weight gradient waits instead where something else is known to arrive so soon
    that the weight gradient would delay it longer than the wait. ``reserve``: an activation is claimed only where every
    microbatch can still be finished one after the other, the oldest first; with microbatches in order and no words but
    the rules this never gets stuck (a device with several stages could otherwise fill up with forwards of the early ones).
    Turn it off where other words fix the order.

    Raises:
        Stuck: memory, or a cycle in the words, lets nothing go on.
        CyclicOrder: words between devices contradict the order that was built.
        ValueError: the words contradict each other, or are not all :func:`listable`.
    """
    words = tuple(words)
    jobs = Jobs(pipeline, words, links=True)
    rule = PRIORITIES[priority] if isinstance(priority, str) else priority
    return time_order(pipeline, run_jobs(jobs, rule(jobs), patient=patient, reserve=reserve), words=words)


def listable(pipeline: Pipeline, words: Iterable[Word]) -> tuple[Word, ...]:
    """The words that the list scheduler keeps while it builds an order.

    Left out are, of those beside the rules: ``Exclusive``, which on one device says nothing new; ``Capacity`` between devices, or
    of a device whose memory another one is about already.
    """
    rules = set(rules_of(pipeline))
    words = tuple(words)
    kept: list[Word] = []
    memories: dict[int, object] = {}
    for word in sorted(words, key=lambda word: word not in rules):
        if isinstance(word, Capacity) and word.holds:
            claim = word.holds[0].claim
            device = pipeline.routes[claim.route][claim.stage]
            if spread(pipeline, word) or memories.setdefault(device, _holding(word)[1]) != _holding(word)[1]:
                continue
        if not isinstance(word, Exclusive) or word in rules:
            kept.append(word)
    return tuple(kept)


def run_jobs(
    jobs: Jobs,
    keys: Sequence[IntArray],
    *,
    patient: bool = False,
    reserve: bool = True,
    release: IntArray | None = None,
) -> Order:
    """The order in which the jobs run when those with smaller ``keys`` go first; as :func:`list_schedule`.

    ``release``: per job, the time before which it must not start.
    """
    count = len(jobs.numbers)
    rank = np.lexsort((np.arange(count), *keys[::-1]))  # jobs in the order of the rule
    place = np.empty(count, dtype=np.int64)
    place[rank] = np.arange(count)
    machines = _Machines(jobs, rank, place, patient, reserve)
    sequence = machines.run(None if release is None else release[rank])
    return in_sequence(jobs.pipeline, jobs.numbers[rank][sequence])


def in_sequence(pipeline: Pipeline, numbers: IntArray) -> Order:
    """The order in which every device runs its operations in the sequence of ``numbers``; transfers are left out."""
    numbers = numbers[(numbers < pipeline.index.computations) | (numbers >= pipeline.index.size)]
    device = devices_of(pipeline, numbers)
    return Order(pipeline.index, tuple(numbers[device == d] for d in range(pipeline.devices)))


class _Machines:
    """The devices and the links at work. Jobs are numbered in the order of the rule here, so that the smallest goes first.

    A link takes its transfers first come, first served. Where they block, the one that it has taken lets neither end start
    anything new, and starts when both compute nothing (as in :mod:`ppopt.timing.links`, but for ties).
    """

    def __init__(self, jobs: Jobs, rank: IntArray, place: IntArray, patient: bool, reserve: bool) -> None:
        self.jobs, self.rank, self.reserve, self.patient = jobs, rank, reserve, patient
        self.count = count = len(rank)
        self.duration = jobs.duration[rank].tolist()
        self.machine = jobs.machine[rank].tolist()
        self.instant = 0 in self.duration
        before, after = place[jobs.before], place[jobs.after]
        by_before = np.argsort(before, kind="stable")
        self.after, self.lag = after[by_before].tolist(), jobs.lag[by_before].tolist()
        self.offset = np.searchsorted(before[by_before], np.arange(count + 1)).tolist()
        self.needs = np.bincount(after, minlength=count).tolist()
        self.limits, *columns = jobs.memory
        self.capacity, self.claim, self.give_back, self.family = ([column[j] for j in rank.tolist()] for column in columns)
        self.done_with = jobs.done_with[rank].tolist()
        self.deferrable = (jobs.features.kind[rank] == Kind.W).tolist()
        self.held = [0] * len(self.limits)
        self.claimed = [[0] * len(families) for families in jobs.claim_families]
        self.returned = [[0] * len(families) for families in jobs.claim_families]
        machines = max(self.machine, default=-1) + 1
        self.ready: list[list[int]] = [[] for _ in range(machines)]  # heaps of what claims no memory
        self.claimers: list[dict[int, list[int]]] = [{} for _ in range(machines)]  # and of what does, by family
        self.coming: list[list[int]] = [[] for _ in range(machines)]  # heaps of arrival times, where devices are patient
        self.running = [-1] * machines
        self.stride = count + machines  # an event is time * stride + (a job that arrives, or count + a device to look at)
        self.events: list[int] = []
        self.earliest: list[int] = of_stages(jobs.pipeline, jobs.numbers[rank], jobs.pipeline.ticks.gather).tolist()
        self.sequence: list[int] = []
        pipeline = jobs.pipeline
        self.devices = pipeline.devices if machines > pipeline.devices else machines
        self.blocking = pipeline.links.blocking and machines > self.devices
        pairs = {number: hop.pair for hop in transfers_of(pipeline) for number in operations(pipeline, hop.send).tolist()}
        self.ends = [pairs.get(number, ()) for number in jobs.numbers[rank].tolist()] if pairs else []
        self.stopped, self.taken = [0] * self.devices, [-1] * machines
        self.links_of: list[set[int]] = [set() for _ in range(self.devices)]
        for machine, pair in zip(self.machine, self.ends, strict=False) if self.blocking else ():
            for device in pair:
                self.links_of[device].add(machine)

    def run(self, release: IntArray | None) -> list[int]:
        """The jobs in the order of their starts."""
        if release is not None:
            self.earliest = release.tolist()
        for job in range(self.count):
            if not self.needs[job]:
                self._arrive(job)
        events, stride, count, running = self.events, self.stride, self.count, self.running
        time = 0
        while events:
            time = events[0] // stride
            now = (time + 1) * stride
            touched = set()
            while events and events[0] < now:
                code = heapq.heappop(events) % stride
                if code < count:
                    self._queue(code)
                    touched.add(self.machine[code])
                else:
                    device = code - count
                    job, running[device] = running[device], -1
                    if job >= 0 and self.give_back[job]:
                        self._return(job)
                    touched.add(device)
                    if self.blocking:
                        touched |= self._released(device, job)
            idle = [device for device in touched if running[device] < 0]
            if self.blocking:
                idle.sort(reverse=True)  # links first, for they stop devices
            if not self.instant:
                for device in idle:
                    job = self._next(device, time)
                    if job >= 0:
                        self._start(job, device, time)
                continue
            later = []  # what takes no time goes first everywhere: what it makes may be wanted now
            for device in idle:
                job = self._next(device, time)
                if job >= 0 and not self.duration[job]:
                    self._start(job, device, time)
                elif job >= 0:
                    later.append((job, device))
            again = bool(events) and events[0] < now
            for job, device in later:
                if again:
                    self._queue(job)
                    heapq.heappush(events, time * stride + count + device)
                else:
                    self._start(job, device, time)
        if len(self.sequence) < count:
            raise self._stuck(time)
        return self.sequence

    def _arrive(self, job: int) -> None:
        time = self.earliest[job]
        heapq.heappush(self.events, time * self.stride + job)
        if self.patient and not self.deferrable[job]:
            heapq.heappush(self.coming[self.machine[job]], time)

    def _queue(self, job: int) -> None:
        device = self.machine[job]
        if device >= self.devices:
            if self.taken[device] != job:
                heapq.heappush(self.ready[device], self.earliest[job] * self.stride + job)
            return
        heap = self.claimers[device].setdefault(self.family[job], []) if self.claim[job] else self.ready[device]
        heapq.heappush(heap, job)

    def _start(self, job: int, device: int, time: int) -> None:
        end = time + self.duration[job]
        self.running[device] = job
        self.taken[device] = -1
        if self.claim[job]:
            capacity = self.capacity[job]
            self.held[capacity] += self.claim[job]
            self.claimed[capacity][self.family[job]] += 1
        self.sequence.append(job)
        heapq.heappush(self.events, end * self.stride + self.count + device)
        after, lag, needs, earliest = self.after, self.lag, self.needs, self.earliest
        for i in range(self.offset[job], self.offset[job + 1]):
            follower = after[i]
            arrival = end + lag[i]
            if arrival > earliest[follower]:
                earliest[follower] = arrival
            needs[follower] -= 1
            if not needs[follower]:
                self._arrive(follower)

    def _next(self, device: int, time: int) -> int:
        """The first job, in the order of the rule, that can start; taken from its heap. -1: none can, or better none does."""
        ready = self.ready[device]
        if device >= self.devices:
            return self._transfer(device, ready)
        if self.stopped[device]:
            return -1
        best, source = (ready[0], ready) if ready else (self.count, None)
        for heap in self.claimers[device].values():
            if heap and heap[0] < best and self._fits(heap[0]):
                best, source = heap[0], heap
        if source is None:
            return -1
        if self.patient and self.deferrable[best]:
            wait = self._worth_waiting(self.coming[device], time, time + self.duration[best])
            if wait:
                heapq.heappush(self.events, wait * self.stride + self.count + device)
                return -1
        return heapq.heappop(source)

    def _transfer(self, link: int, waiting: list[int]) -> int:
        """The transfer that came first, if its ends let it start."""
        job = self.taken[link]
        if job < 0 and waiting:
            job = self.taken[link] = heapq.heappop(waiting) % self.stride
            for device in self.ends[job] if self.blocking else ():
                self.stopped[device] += 1
        if job < 0 or (self.blocking and any(self.running[device] >= 0 for device in self.ends[job])):
            return -1
        return job

    def _released(self, machine: int, job: int) -> set[int]:
        """Whom else it may concern that ``job`` has ended, where transfers block."""
        if machine < self.devices:
            return self.links_of[machine]
        for device in self.ends[job] if job >= 0 else ():
            self.stopped[device] -= 1
        return set(self.ends[job]) if job >= 0 else set()

    def _fits(self, job: int) -> bool:
        capacity = self.capacity[job]
        limit = self.limits[capacity]
        if self.held[capacity] + self.claim[job] > limit:
            return False
        families = self.jobs.claim_families[capacity]
        if not self.reserve or len(families) < 2:
            return True
        claimed, returned, family = self.claimed[capacity], self.returned[capacity], self.family[job]
        claimed[family] += 1
        fits = all(
            done >= of.count or self._reserved(families, claimed, returned, of.route, done) <= limit
            for of, done in zip(families, claimed, strict=True)
        )
        claimed[family] -= 1
        return fits

    @staticmethod
    def _reserved(families: list[Claims], claimed: list[int], returned: list[int], route: int, turn: int) -> int:
        """What a microbatch needs at most on this device once all older ones are done: what it has yet to claim, and
        what it and the younger ones hold. Microbatches are taken in turn over the routes."""
        total = 0
        for i, family in enumerate(families):
            if family.route == route and claimed[i] <= turn:
                total += family.amount
            else:
                total += family.amount * max(0, claimed[i] - max(returned[i], turn + (family.route < route)))
        return total

    def _return(self, job: int) -> None:
        self.held[self.capacity[job]] -= self.give_back[job]
        if self.reserve and self.done_with[job] >= 0:
            self.returned[self.capacity[job]][self.done_with[job]] += 1

    @staticmethod
    def _worth_waiting(coming: list[int], time: int, end: int) -> int:
        """When to look again, 0: now is as good."""
        while coming and coming[0] <= time:
            heapq.heappop(coming)
        return coming[0] if coming and coming[0] - time < end - coming[0] else 0

    def _stuck(self, time: int) -> Stuck:
        pipeline, started = self.jobs.pipeline, set(self.sequence)
        text = [str(pipeline.index.op(int(number))) for number in self.jobs.numbers[self.rank].tolist()]
        before: dict[int, int] = {}
        for job in range(self.count):
            if job not in started:
                for i in range(self.offset[job], self.offset[job + 1]):
                    before.setdefault(self.after[i], job)
        waiting: dict[int, str] = {}
        for job in sorted(set(range(self.count)) - started, key=self.rank.__getitem__):  # forwards first, the oldest first
            d = self.machine[job]
            if d in waiting or d >= self.devices:
                continue
            blocked = [heap[0] for heap in self.claimers[d].values() if heap]
            if blocked:
                first = min(blocked)
                amounts = (self.held[self.capacity[first]], self.claim[first], self.limits[self.capacity[first]])
                held, claim, limit = map(pipeline.amount, amounts)
                waiting[d] = f"memory for {text[first]} (holds {held}, needs {claim} more, has {limit})"
            elif job in before:
                waiting[d] = f"{text[before[job]]}, to run {text[job]}"
        return Stuck(time, pipeline.time(time), waiting)


def baselines(pipeline: Pipeline) -> list[tuple[str, Schedule]]:
    """All schedules of :func:`each_baseline`."""
    return list(each_baseline(pipeline))


def each_baseline(pipeline: Pipeline) -> Iterator[tuple[str, Schedule]]:
    """A schedule of every rule, patient and not, within the memory limit; those first that tend to be the best.

    Where ``B`` or ``I``, ``W`` is a free choice, also with every backward split. Where a device holds several stages and
    memory is limited, also with at most so many microbatches between their first and last operation, for several numbers:
    early stages then leave room for the later ones. Once a number is so large that it changes nothing, larger ones are left out.
    """
    rules = rules_of(pipeline)
    plain = Jobs(pipeline, rules, links=True)
    free = {}
    for label, name, patient in _variants(_CROWDED, ""):
        free[name, patient] = order = run_jobs(plain, PRIORITIES[name](plain), patient=patient)
        yield label, time_order(pipeline, order)
    for most in _crowds(pipeline):
        jobs = Jobs(pipeline, (*rules, *in_flight(pipeline, most)), links=True)
        for label, name, patient in _variants(_CROWDED, f"{most} in flight"):
            if (name, patient) in free:
                order = run_jobs(jobs, PRIORITIES[name](jobs), patient=patient)
                if all(map(np.array_equal, order.rows, free[name, patient].rows)):
                    del free[name, patient]
                else:
                    yield label, time_order(pipeline, order)
    others = [(plain, "", [name for name in PRIORITIES if name not in _CROWDED])]
    if pipeline.costs.split and not splitting_is_free(pipeline):
        others.append((Jobs(pipeline, (*rules, *always_split(pipeline)), links=True), "split", list(PRIORITIES)))
    for jobs, variant, names in others:
        for label, name, patient in _variants(names, variant):
            yield label, time_order(pipeline, run_jobs(jobs, PRIORITIES[name](jobs), patient=patient))


def _variants(names: Iterable[str], variant: str) -> Iterator[tuple[str, str, bool]]:
    """Label, rule, and whether devices are patient."""
    for name in names:
        for patient in (False, True):
            yield ", ".join(part for part in (f"greedy {name}", "patient" if patient else "", variant) if part), name, patient


def in_flight(pipeline: Pipeline, most: int) -> tuple[Word, ...]:
    """On every route at most ``most`` microbatches have begun and not yet run their last backward."""
    last = (Kind.B, Kind.W) if pipeline.costs.split else (Kind.B,)
    return tuple(
        Precede(Family(0, kind, route), Family(0, Kind.F, route), shift=most)
        for route in range(len(pipeline.routes))
        for kind in last
    )


def several_stages(pipeline: Pipeline) -> bool:
    """Whether some device holds several."""
    return bool(np.bincount(pipeline.device_of.ravel()).max() > 1)


def _crowds(pipeline: Pipeline) -> range:
    """How many microbatches in flight are worth trying: from what always fits to what the first device can begin."""
    amounts = pipeline.amounts
    if amounts.limit is None or not several_stages(pipeline):
        return range(0)
    room = amounts.limit - amounts.static
    first = pipeline.routes[0][0]
    whole = int(amounts.activation[0][pipeline.device_of[0] == first].sum())
    one = int(amounts.activation[0, 0])
    if not one:
        return range(0)
    least, most = (min(int(room[first]) // amount, pipeline.microbatches) for amount in (whole, one))
    return range(max(least, 1), most + 1, max(1, (most - least) // 6))
