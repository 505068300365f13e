"""The events of a list schedule: time jumps from one to the next, and free machines start what comes first by the rule."""

from __future__ import annotations

from heapq import heappop, heappush

from ppopt.constraints import operations, transfers_of
from ppopt.heuristics.ledger import Ledger
from ppopt.heuristics.machines import Device, Link, Machine
from ppopt.heuristics.ranked import Ranked


class Stuck(ValueError):
    """No operation can go on although some are left: every next one waits for memory or for another that waits.

    ``time`` is in ticks; ``waiting`` says for each device that still has operations what it waits for.
    """

    def __init__(self, time: int, shown: object, waiting: dict[int, str]) -> None:
        reasons = "; ".join(f"device {device} waits for {reason}" for device, reason in waiting.items())
        super().__init__(f"the list scheduler is stuck at time {shown}: {reasons}")
        self.time = time
        self.waiting = waiting


class Simulation:
    """The devices and the links at work. An event is that a job arrives (all that it waits for is there) or that a machine is to
    be looked at (its job has ended, or it has waited long enough).

    ``patient``, ``reserve``: as in :func:`~ppopt.heuristics.list_scheduling.list_schedule`.
    """

    def __init__(self, jobs: Ranked, *, patient: bool, reserve: bool) -> None:
        self._jobs, self._patient = jobs, patient
        self._count, self._duration, self._machine = jobs.count, jobs.duration, jobs.machine
        self._after, self._lag, self._offset = jobs.after, jobs.lag, jobs.offset
        self._needs, self._arrival = jobs.needs[:], jobs.release[:]
        self._events: list[int] = []  # a heap of time * stride + (a job that arrives, or count + a machine to be looked at)
        self._stride = jobs.count + jobs.machines
        self._sequence: list[int] = []
        ledgers = [Ledger(jobs, memory, reserve=reserve) for memory in range(len(jobs.claims.limits))]
        self._devices = [Device(d, jobs, ledgers, self._wake, patient=patient) for d in range(jobs.devices)]
        self._blocking = jobs.pipeline.links.blocking and jobs.machines > jobs.devices
        ends = self._ends() if self._blocking else {}
        links = [Link(self._arrival, ends) for _ in range(jobs.devices, jobs.machines)]
        self._machines: list[Machine] = [*self._devices, *links]

    def run(self) -> list[int]:
        """The jobs in the order of their starts.

        Raises:
            Stuck: memory, or a cycle in the words, lets nothing go on.
        """
        for job, needs in enumerate(self._needs):
            if not needs:
                self._arrive(job)
        events, stride = self._events, self._stride
        start = self._start_instant_first if 0 in self._duration else self._start_all
        time = 0
        while events:
            time = events[0] // stride
            start(self._idle((time + 1) * stride), time)
        if len(self._sequence) < self._count:
            raise self._stuck(time)
        return self._sequence

    def _idle(self, until: int) -> list[int]:
        """The machines that may start something, once all events before ``until`` have taken place."""
        events, stride, count, machines = self._events, self._stride, self._count, self._machines
        touched = set()
        while events and events[0] < until:
            code = heappop(events) % stride
            if code < count:
                number = self._machine[code]
                machines[number].queue(code)
                touched.add(number)
            else:
                number = code - count
                job = machines[number].end()
                touched.add(number)
                if self._blocking:
                    touched |= machines[number].concerned(job)
        idle = [number for number in touched if machines[number].running < 0]
        if self._blocking:
            idle.sort(reverse=True)  # links first, for they stop devices
        return idle

    def _start_all(self, idle: list[int], time: int) -> None:
        for number in idle:
            job = self._machines[number].next(time)
            if job >= 0:
                self._start(job, number, time)

    def _start_instant_first(self, idle: list[int], time: int) -> None:
        """What takes no time goes first on all machines, for what it makes may be wanted at once; then the others."""
        events, later = self._events, []
        for number in idle:
            job = self._machines[number].next(time)
            if job >= 0 and not self._duration[job]:
                self._start(job, number, time)
            elif job >= 0:
                later.append((job, number))
        again = bool(events) and events[0] < (time + 1) * self._stride
        for job, number in later:
            if again:
                self._machines[number].queue(job)
                self._wake(number, time)
            else:
                self._start(job, number, time)

    def _start(self, job: int, number: int, time: int) -> None:
        self._machines[number].start(job)
        self._sequence.append(job)
        end = time + self._duration[job]
        heappush(self._events, end * self._stride + self._count + number)
        after, lag, needs, arrival = self._after, self._lag, self._needs, self._arrival
        for i in range(self._offset[job], self._offset[job + 1]):
            follower = after[i]
            earliest = end + lag[i]
            if earliest > arrival[follower]:
                arrival[follower] = earliest
            needs[follower] -= 1
            if not needs[follower]:
                self._arrive(follower)

    def _arrive(self, job: int) -> None:
        """All that the job waits for is known: so is the time of its arrival."""
        time = self._arrival[job]
        heappush(self._events, time * self._stride + job)
        if self._patient and self._jobs.awaited[job]:
            self._devices[self._machine[job]].expect(time)

    def _wake(self, number: int, time: int) -> None:
        """Have a machine looked at. A job that it runs at that time counts as ended."""
        heappush(self._events, time * self._stride + self._count + number)

    def _ends(self) -> dict[int, tuple[tuple[int, Device], ...]]:
        """The devices of each transfer with their numbers; and the devices get to know their links."""
        jobs = self._jobs
        hops = {
            number: hop.pair for hop in transfers_of(jobs.pipeline) for number in operations(jobs.pipeline, hop.send).tolist()
        }
        ends = {}
        for job, number in enumerate(jobs.numbers.tolist()):
            if number in hops:
                ends[job] = tuple((d, self._devices[d]) for d in hops[number])
                for _, device in ends[job]:
                    device.links.add(jobs.machine[job])
        return ends

    def _stuck(self, time: int) -> Stuck:
        """Why nothing can go on: on each device the first job that has no room, else the first that waits for another."""
        jobs, pipeline = self._jobs, self._jobs.pipeline
        left = set(range(self._count)) - set(self._sequence)
        before: dict[int, int] = {}  # by job, one that has not started and for which it waits
        for job in sorted(left):
            for i in range(self._offset[job], self._offset[job + 1]):
                before.setdefault(self._after[i], job)
        waiting: dict[int, str] = {}
        for job in sorted(left, key=jobs.place.__getitem__):  # forwards first, the oldest first
            d = jobs.machine[job]
            if d in waiting or d >= jobs.devices:
                continue
            lacking = self._devices[d].lacking()
            if lacking is not None:
                first, ledger = lacking
                held, claim, limit = map(pipeline.amount, (ledger.held, jobs.amount[first], ledger.limit))
                waiting[d] = f"memory for {jobs.text(first)} (holds {held}, needs {claim} more, has {limit})"
            elif job in before:
                waiting[d] = f"{jobs.text(before[job])}, to run {jobs.text(job)}"
        return Stuck(time, pipeline.time(time), waiting)
