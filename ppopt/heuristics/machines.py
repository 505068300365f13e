"""What runs jobs: devices and links, each with the queue of the jobs that could start there.

Jobs go by their rank (:class:`~ppopt.heuristics.ranked.Ranked`), times are in ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from ppopt.heuristics.ledger import Ledger
from ppopt.heuristics.ranked import Ranked

NOTHING = -1
"""No job."""


class Device:
    """A device takes the job that the rule puts first, of those that have arrived and that its memory has room for.

    A ``patient`` device that is about to start a weight gradient waits instead where something else will arrive so soon that the
    weight gradient would delay it longer than the wait. ``wake(device, time)`` asks for another look at the device.
    """

    def __init__(
        self, number: int, jobs: Ranked, ledgers: Sequence[Ledger], wake: Callable[[int, int], None], *, patient: bool
    ) -> None:
        self._number, self._jobs, self._ledgers, self._wake, self._patient = number, jobs, ledgers, wake, patient
        self._memory, self._amount, self._returned, self._claimer = jobs.memory, jobs.amount, jobs.returned, jobs.claimer
        self._ready: list[int] = []  # a heap of the jobs that claim no memory
        self._claiming: dict[int, list[int]] = {}  # a heap of those that do for each of the families that claim
        self._coming: list[int] = []  # a heap of arrival times
        self.running = NOTHING
        self.stops = 0
        """How many blocking transfers let it start nothing new."""
        self.links: set[int] = set()
        """The machines that are links to or from it, where transfers block."""

    def expect(self, time: int) -> None:
        """A job for which a patient device waits arrives at this time."""
        heappush(self._coming, time)

    def queue(self, job: int) -> None:
        """A job has arrived."""
        heappush(self._claiming.setdefault(self._claimer[job], []) if self._amount[job] else self._ready, job)

    def next(self, time: int) -> int:
        """The job to start now, taken from its queue; or ``NOTHING``."""
        if self.stops:
            return NOTHING
        ready = self._ready
        best, source = (ready[0], ready) if ready else (self._jobs.count, None)
        for heap in self._claiming.values():
            if heap and heap[0] < best and self._ledgers[self._memory[heap[0]]].fits(heap[0]):
                best, source = heap[0], heap
        if source is None:
            return NOTHING
        if self._patient and not self._jobs.awaited[best]:
            arrival = self._next_arrival(time)
            if arrival and arrival - time < time + self._jobs.duration[best] - arrival:
                self._wake(self._number, arrival)
                return NOTHING
        return heappop(source)

    def start(self, job: int) -> None:
        """Run a job."""
        self.running = job
        if self._amount[job]:
            self._ledgers[self._memory[job]].claim(job)

    def end(self) -> int:
        """The job that it ran, which has ended; ``NOTHING``: it ran none."""
        job, self.running = self.running, NOTHING
        if job >= 0 and self._returned[job]:
            self._ledgers[self._memory[job]].give_back(job)
        return job

    def concerned(self, job: int) -> set[int]:
        """The machines that may go on now that it has ended ``job``, beside itself."""
        return self.links

    def lacking(self) -> tuple[int, Ledger] | None:
        """The first job that has no room, and the account of the memory."""
        blocked = [heap[0] for heap in self._claiming.values() if heap]
        return (min(blocked), self._ledgers[self._memory[min(blocked)]]) if blocked else None

    def _next_arrival(self, time: int) -> int:
        """When the next job arrives for which it would wait; 0: none is known."""
        coming = self._coming
        while coming and coming[0] <= time:
            heappop(coming)
        return coming[0] if coming else 0


class Link:
    """A link takes its transfers first come, first served.

    ``ends``: the devices of each transfer that blocks. From when it is taken on they start nothing new, and it starts when both
    compute nothing (as in :mod:`ppopt.timing.links`, but for ties).
    """

    def __init__(self, arrival: Sequence[int], ends: Mapping[int, tuple[tuple[int, Device], ...]]) -> None:
        """``arrival``: per job, when it arrives."""
        self._arrival, self._ends = arrival, ends
        self._waiting: list[tuple[int, int]] = []  # a heap of arrival time and job
        self._taken = NOTHING
        self.running = NOTHING

    def queue(self, job: int) -> None:
        """A transfer has arrived."""
        if job != self._taken:
            heappush(self._waiting, (self._arrival[job], job))

    def next(self, time: int) -> int:
        """The transfer to start now; or ``NOTHING``."""
        job = self._taken
        if job < 0 and self._waiting:
            job = self._taken = heappop(self._waiting)[1]
            for _, device in self._ends.get(job, ()):
                device.stops += 1
        if job < 0 or any(device.running >= 0 for _, device in self._ends.get(job, ())):
            return NOTHING
        return job

    def start(self, job: int) -> None:
        """Run a transfer."""
        self.running, self._taken = job, NOTHING

    def end(self) -> int:
        """The transfer that it ran, which has ended; ``NOTHING``: it ran none."""
        job, self.running = self.running, NOTHING
        for _, device in self._ends.get(job, ()):
            device.stops -= 1
        return job

    def concerned(self, job: int) -> set[int]:
        """The machines that may go on now that it has ended ``job``, beside itself."""
        return {number for number, _ in self._ends.get(job, ())}


Machine: TypeAlias = Device | Link
