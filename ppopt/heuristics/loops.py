"""The loop of a list schedule; see :mod:`ppopt.compiled`.

Jobs go by their rank (:class:`~ppopt.heuristics.ranked.Ranked`), times are in ticks. Columns are read one by one where they are
used: a compiled function counts the references to each that it takes out of a tuple, which takes longer than all else here.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

from ppopt.compiled import loop

NOTHING = -1
"""No job."""


class Work(NamedTuple):
    """By job what it takes, where, and when; and who waits for it."""

    duration: Any
    machine: Any
    awaited: Any
    """Whether a patient device waits for it."""
    needs: Any
    """How many it still waits for."""
    arrival: Any
    """When it arrives, as far as that is known."""
    offset: Any
    """Entries ``offset[j]`` to ``offset[j + 1]`` of what follows are about the jobs that wait for job j."""
    after: Any
    lag: Any


class Use(NamedTuple):
    """By job what it does to memories: :class:`~ppopt.heuristics.claims.Claims`."""

    memory: Any
    amount: Any
    returned: Any
    claimer: Any
    finishes: Any


class Memories(NamedTuple):
    """By memory, and by claimer of all of them."""

    limit: Any
    reserves: Any
    """0: nothing; 1: for what forwards claim; 2: for what input gradients claim, too."""
    first: Any
    """Where the claimers of a memory begin."""
    route: Any
    amount: Any
    more: Any
    begun: Any
    """How many microbatches it has."""


class Account(NamedTuple):
    """What is held, by memory; and how far its claimers have come."""

    held: Any
    claimed: Any
    """How many microbatches have claimed."""
    back: Any
    """How many of their input gradients have claimed more."""
    finished: Any
    """How many of them hold nothing any more."""


class Ends(NamedTuple):
    """The transfers that block."""

    devices: int
    """How many of the machines are devices."""
    blocking: bool
    """Whether there are such transfers."""
    source: Any
    target: Any
    """By job its devices."""
    first: Any
    links: Any
    """Entries ``first[d]`` to ``first[d + 1]`` are the links of device d."""


class Sizes(NamedTuple):
    """How much there is."""

    jobs: int
    """How many there are."""
    width: int
    """Queues of a machine: one for jobs that claim nothing, and one for each claimer that its memory may have."""
    stride: int
    """Jobs and machines. An event is its time times that, and a job that arrives, or behind these a machine to be looked at."""


class State(NamedTuple):
    """What is going on."""

    events: Any
    """A heap."""
    queues: Any
    """Heaps of the jobs that have arrived, those of a machine side by side."""
    coming: Any
    """By device a heap of the times at which awaited jobs arrive."""
    touched: Any
    """A heap of the machines to be looked at, or of their negative numbers where the larger ones come first."""
    seen: Any
    """By machine whether it is among these."""
    running: Any
    """By machine its job."""
    taken: Any
    """By link the transfer that it has taken on."""
    stops: Any
    """By machine how many blocking transfers let it start nothing new."""


def heaps(number: int) -> Any:
    """So many empty heaps."""
    made = [[0] for _ in range(number)]
    for heap in made:
        heap.pop()
    return made


def to_finish(memory: int, route: int, turn: int, memories: Any, account: Any) -> int:
    """The most that is held while the microbatch of this turn is finished, all older ones having been: what it has yet to claim
    with its forwards, and what it and the younger ones hold. The routes take turns."""
    total = 0
    for i in range(memories.first[memory], memories.first[memory + 1]):
        if memories.route[i] == route and account.claimed[i] <= turn:
            total += memories.amount[i]
        else:
            older = turn + 1 if memories.route[i] < route else turn
            total += memories.amount[i] * max(0, account.claimed[i] - max(account.finished[i], older))
    return total


def can_go_back(memory: int, memories: Any, account: Any) -> bool:
    """Whether every microbatch has room for its input gradients, the oldest first, each stage by stage from the last one on.

    A stage gives back all that it holds before the one before it takes anything. From one microbatch to the next what is held
    when an input gradient starts only falls, so of each stage the first microbatch that has yet to go back is looked at.
    """
    for i in range(memories.first[memory], memories.first[memory + 1]):
        turn = account.back[i]
        if memories.more[i] > 0 and turn < memories.begun[i]:
            held = to_finish(memory, memories.route[i], turn, memories, account) + memories.more[i]
            for j in range(i + 1, memories.first[memory + 1]):
                if memories.route[j] == memories.route[i] and account.finished[j] <= turn:
                    held -= memories.amount[j]
            if held > memories.limit[memory]:
                return False
    return True


def fits(job: int, use: Any, memories: Any, account: Any) -> bool:
    """Whether there is room for what the job claims.

    Where the memory reserves, a job may claim only where every microbatch can still be finished afterwards, one after the other,
    the oldest first. Forwards of early stages could otherwise fill a device that has several stages, and nothing would go on; and
    forwards of any stage one whose input gradients claim more. An input gradient needs no more than room for itself: its weight
    gradient follows without any claim, and then nothing of both is held.
    """
    memory = use.memory[job]
    if account.held[memory] + use.amount[job] > memories.limit[memory]:
        return False
    begin, end = memories.first[memory], memories.first[memory + 1]
    place = begin + use.claimer[job]
    if memories.reserves[memory] == 0 or place >= end:
        return True
    account.claimed[place] += 1
    fine = True
    for i in range(begin, end):
        turn = account.claimed[i]
        if (
            memories.amount[i] > 0
            and turn < memories.begun[i]
            and to_finish(memory, memories.route[i], turn, memories, account) > memories.limit[memory]
        ):
            fine = False
            break
    if fine and memories.reserves[memory] == 2:
        fine = can_go_back(memory, memories, account)
    account.claimed[place] -= 1
    return fine


def first_that_fits(machine: int, sizes: Any, use: Any, memories: Any, account: Any, state: Any) -> int:
    """The queue of a device whose first job comes first, of those that have room for it; -1: none has."""
    begin = machine * sizes.width
    best, source = sizes.jobs, -1
    if len(state.queues[begin]) > 0:
        best, source = state.queues[begin][0], begin
    for queue in range(begin + 1, begin + sizes.width):
        if len(state.queues[queue]) > 0:
            job = state.queues[queue][0]
            if job < best and fits(job, use, memories, account):
                best, source = job, queue
    return source


def transfer(link: int, sizes: Any, ends: Any, state: Any) -> int:
    """The transfer that a link starts now, first come, first served; or ``NOTHING``.

    One that blocks lets its ends start nothing new from when it is taken on, and starts when both compute nothing (as in
    :mod:`ppopt.timing.links`, but for ties).
    """
    job: int = state.taken[link]
    if job < 0 and len(state.queues[link * sizes.width]) > 0:
        job = heappop(state.queues[link * sizes.width]) % sizes.jobs
        state.taken[link] = job
        if ends.blocking:
            state.stops[ends.source[job]] += 1
            state.stops[ends.target[job]] += 1
    if job >= 0 and ends.blocking and (state.running[ends.source[job]] >= 0 or state.running[ends.target[job]] >= 0):
        return NOTHING
    return job


def give_back(job: int, use: Any, memories: Any, account: Any) -> None:
    """What a job held longer than itself is free."""
    memory = use.memory[job]
    account.held[memory] -= use.returned[job]
    if memories.reserves[memory] > 0 and use.finishes[job] >= 0:
        account.finished[memories.first[memory] + use.finishes[job]] += 1


def claim(job: int, use: Any, memories: Any, account: Any) -> None:
    """A job takes its memory."""
    memory = use.memory[job]
    account.held[memory] += use.amount[job]
    place, end = memories.first[memory] + use.claimer[job], memories.first[memory + 1]
    if place < end:
        account.claimed[place] += 1
    else:
        account.back[memories.first[memory] + place - end] += 1


def touch(machine: int, ends: Any, state: Any) -> None:
    """A machine is to be looked at."""
    if state.seen[machine] == 0:
        state.seen[machine] = 1
        heappush(state.touched, -machine if ends.blocking else machine)


def arrive(job: int, patient: bool, sizes: Any, work: Any, state: Any) -> None:
    """All that a job waits for is known: so is the time of its arrival."""
    heappush(state.events, work.arrival[job] * sizes.stride + job)
    if patient and work.awaited[job]:
        heappush(state.coming[work.machine[job]], work.arrival[job])


def enqueue(job: int, sizes: Any, work: Any, use: Any, ends: Any, state: Any) -> None:
    """A job has arrived: what claims memory goes by its claimer, a transfer by when it came."""
    machine = work.machine[job]
    if machine < ends.devices:
        heappush(state.queues[machine * sizes.width + (use.claimer[job] + 1 if use.amount[job] > 0 else 0)], job)
    elif job != state.taken[machine]:
        heappush(state.queues[machine * sizes.width], work.arrival[job] * sizes.jobs + job)


def waits(job: int, time: int, work: Any, state: Any) -> int:
    """Until when a patient device had better wait instead of starting a job now; 0: it had not."""
    if work.awaited[job]:
        return 0
    expected = state.coming[work.machine[job]]
    while len(expected) > 0 and expected[0] <= time:
        heappop(expected)
    if len(expected) == 0 or expected[0] - time >= time + work.duration[job] - expected[0]:
        return 0
    until: int = expected[0]
    return until


def happen(until: int, sizes: Any, work: Any, use: Any, memories: Any, account: Any, ends: Any, state: Any) -> None:
    """All events before ``until`` take place."""
    while len(state.events) > 0 and state.events[0] < until:
        code = heappop(state.events) % sizes.stride
        if code < sizes.jobs:
            enqueue(code, sizes, work, use, ends, state)
            touch(work.machine[code], ends, state)
            continue
        machine = code - sizes.jobs
        job = state.running[machine]
        state.running[machine] = NOTHING
        touch(machine, ends, state)
        if machine < ends.devices:
            if job >= 0 and use.returned[job] > 0:
                give_back(job, use, memories, account)
            if ends.blocking:
                for i in range(ends.first[machine], ends.first[machine + 1]):
                    touch(ends.links[i], ends, state)
        elif job >= 0 and ends.blocking:
            for device in (ends.source[job], ends.target[job]):
                state.stops[device] -= 1
                touch(device, ends, state)


def next_job(
    machine: int, time: int, patient: bool, sizes: Any, work: Any, use: Any, memories: Any, account: Any, ends: Any, state: Any
) -> int:
    """The job that a machine starts now, taken from its queue; or ``NOTHING``."""
    if state.running[machine] >= 0 or state.stops[machine] > 0:
        return NOTHING
    if machine >= ends.devices:
        return transfer(machine, sizes, ends, state)
    queue = first_that_fits(machine, sizes, use, memories, account, state)
    if queue < 0:
        return NOTHING
    until = waits(state.queues[queue][0], time, work, state) if patient else 0
    if until > 0:
        heappush(state.events, until * sizes.stride + sizes.jobs + machine)
        return NOTHING
    job: int = heappop(state.queues[queue])
    return job


def start(
    job: int, time: int, patient: bool, sizes: Any, work: Any, use: Any, memories: Any, account: Any, ends: Any, state: Any
) -> None:
    """A machine starts a job, and some that wait for it will arrive."""
    machine = work.machine[job]
    state.running[machine] = job
    if machine >= ends.devices:
        state.taken[machine] = NOTHING
    elif use.amount[job] > 0:
        claim(job, use, memories, account)
    end = time + work.duration[job]
    heappush(state.events, end * sizes.stride + sizes.jobs + machine)
    for i in range(work.offset[job], work.offset[job + 1]):
        follower = work.after[i]
        if end + work.lag[i] > work.arrival[follower]:
            work.arrival[follower] = end + work.lag[i]
        work.needs[follower] -= 1
        if work.needs[follower] == 0:
            arrive(follower, patient, sizes, work, state)


PARTS = (
    *(heaps, to_finish, can_go_back, fits, first_that_fits, transfer, give_back, claim, touch, arrive, enqueue, waits, happen),
    *(next_job, start),
)


@loop(1e-5, ("sequence", "heads", "held"), PARTS)
def simulate(
    sizes: Any, patient: bool, instant: bool, work: Any, use: Any, memories: Any, ends: Any, sequence: Any, heads: Any, held: Any
) -> int:
    """Jobs in the order of their starts, ``sequence`` (what is left of it is -1 once nothing can go on any more), and the time of
    the last event.

    An event is that a job arrives (all that it waits for is there) or that a machine is to be looked at (its job has ended, or it
    has waited long enough). Whenever a machine is free it starts what comes first. Of machines that are looked at at one time the
    one with the smaller number comes first; where transfers block, the larger one, for links stop devices. ``instant``: something
    takes no time; that goes first on all machines, for what it makes may be wanted at once.

    ``heads``: by device the first job that has arrived and claims memory, -1: none; ``held``: by memory what is held at the end.
    """
    machines, claimers = sizes.stride - sizes.jobs, len(memories.route)
    none = [0] * claimers
    account = Account(held, none, none.copy(), none.copy())
    idle, zero = [NOTHING] * machines, [0] * machines
    queues, coming, lists = heaps(machines * sizes.width), heaps(machines), heaps(3)
    state = State(lists[0], queues, coming, lists[1], zero, idle, idle.copy(), zero.copy())
    later, done, time = lists[2], 0, 0
    for job in range(sizes.jobs):
        if work.needs[job] == 0:
            arrive(job, patient, sizes, work, state)
    while len(state.events) > 0:
        time = state.events[0] // sizes.stride
        until = (time + 1) * sizes.stride
        happen(until, sizes, work, use, memories, account, ends, state)
        while len(state.touched) > 0:
            machine = abs(heappop(state.touched))
            state.seen[machine] = 0
            job = next_job(machine, time, patient, sizes, work, use, memories, account, ends, state)
            if job >= 0 and instant and work.duration[job] > 0:
                later.append(job)
            elif job >= 0:
                start(job, time, patient, sizes, work, use, memories, account, ends, state)
                sequence[done] = job
                done += 1
        again = len(state.events) > 0 and state.events[0] < until
        for job in later:
            if again:
                enqueue(job, sizes, work, use, ends, state)
                heappush(state.events, time * sizes.stride + sizes.jobs + work.machine[job])
            else:
                start(job, time, patient, sizes, work, use, memories, account, ends, state)
                sequence[done] = job
                done += 1
        later.clear()
    for d in range(ends.devices):
        for queue in range(d * sizes.width + 1, (d + 1) * sizes.width):
            if len(queues[queue]) > 0 and (heads[d] < 0 or queues[queue][0] < heads[d]):
                heads[d] = queues[queue][0]
    return time
