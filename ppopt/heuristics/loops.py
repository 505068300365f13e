"""The loop of a list schedule; see :mod:`ppopt.compiled`.

Jobs go by their rank (:class:`~ppopt.heuristics.ranked.Ranked`), times are in ticks. What the arguments are:
:mod:`ppopt.heuristics.running`.
"""

from __future__ import annotations

from typing import Any

from ppopt.compiled import bare, loop
from ppopt.compiled.heaps import HEAPS, count, first, pop, push

NOTHING = -1
"""No job."""


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


def all_can_finish(memory: int, memories: Any, account: Any) -> bool:
    """Whether there is room to finish each microbatch that has yet to claim something with a forward (:func:`to_finish`).

    That is worked out for all routes at once, turn by turn, of what their younger microbatches hold. The claimers of a route
    follow each other.
    """
    begin, end = memories.first[memory], memories.first[memory + 1]
    turn = -1
    while True:
        following, behind = NOTHING, 0
        for i in range(begin, end):
            claimed = account.claimed[i]
            if memories.amount[i] > 0 and turn < claimed < memories.begun[i] and (following < 0 or claimed < following):
                following = claimed
        if following < 0:
            return True
        turn = following
        for i in range(begin, end):
            behind += memories.amount[i] * max(0, account.claimed[i] - max(account.finished[i], turn))
        before, i = 0, begin
        while i < end:
            route, own, younger, asked = memories.route[i], 0, 0, False
            while i < end and memories.route[i] == route:
                amount, claimed, finished = memories.amount[i], account.claimed[i], account.finished[i]
                held = amount * max(0, claimed - max(finished, turn))
                behind -= held
                own += amount if claimed <= turn else held
                younger += amount * max(0, claimed - max(finished, turn + 1))
                asked = asked or (amount > 0 and claimed == turn and turn < memories.begun[i])
                i += 1
            if asked and before + own + behind > memories.limit[memory]:
                return False
            before += younger


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
    place = memories.first[memory] + use.claimer[job]
    if memories.reserves[memory] == 0 or place >= memories.first[memory + 1]:
        return True
    account.claimed[place] += 1
    fine = all_can_finish(memory, memories, account)
    if fine and memories.reserves[memory] == 2:
        fine = can_go_back(memory, memories, account)
    account.claimed[place] -= 1
    return fine


def first_that_fits(machine: int, sizes: Any, use: Any, memories: Any, account: Any, state: Any) -> int:
    """The queue of a device whose first job comes first, of those that have room for it; -1: none has."""
    begin = machine * sizes.width
    best, source = sizes.jobs, -1
    if count(begin, state.queues) > 0:
        best, source = first(begin, state.queues), begin
    for queue in range(begin + 1, begin + sizes.width):
        if count(queue, state.queues) > 0:
            job = first(queue, state.queues)
            if job < best and fits(job, use, memories, account):
                best, source = job, queue
    return source


def transfer(link: int, sizes: Any, ends: Any, state: Any) -> int:
    """The transfer that a link starts now, first come, first served; or ``NOTHING``.

    One that blocks lets its ends start nothing new from when it is taken on, and starts when both compute nothing (as in
    :mod:`ppopt.timing.links`, but for ties).
    """
    job: int = state.taken[link]
    if job < 0 and count(link * sizes.width, state.queues) > 0:
        job = pop(link * sizes.width, state.queues) % sizes.jobs
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
        push(0, -machine if ends.blocking else machine, state.touched)


def arrive(job: int, patient: bool, sizes: Any, work: Any, state: Any) -> None:
    """All that a job waits for is known: so is the time of its arrival."""
    push(0, work.arrival[job] * sizes.stride + job, state.events)
    if patient and work.awaited[job] > 0:
        push(work.machine[job], work.arrival[job], state.coming)


def enqueue(job: int, sizes: Any, work: Any, use: Any, ends: Any, state: Any) -> None:
    """A job has arrived: what claims memory goes by its claimer, a transfer by when it came."""
    machine = work.machine[job]
    if machine < ends.devices:
        push(machine * sizes.width + (use.claimer[job] + 1 if use.amount[job] > 0 else 0), job, state.queues)
    elif job != state.taken[machine]:
        push(machine * sizes.width, work.arrival[job] * sizes.jobs + job, state.queues)


def had_better_wait(job: int, time: int, work: Any, state: Any) -> bool:
    """Whether a patient device had better wait for something that arrives soon instead of starting a job now."""
    if work.awaited[job] > 0:
        return False
    machine = work.machine[job]
    while count(machine, state.coming) > 0 and first(machine, state.coming) <= time:
        pop(machine, state.coming)
    if count(machine, state.coming) == 0:
        return False
    arrival = first(machine, state.coming)
    return bool(arrival - time < time + work.duration[job] - arrival)


def happen(until: int, sizes: Any, work: Any, use: Any, memories: Any, account: Any, ends: Any, state: Any) -> None:
    """All events before ``until`` take place."""
    while count(0, state.events) > 0 and first(0, state.events) < until:
        code = pop(0, state.events) % sizes.stride
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
    if patient and had_better_wait(first(queue, state.queues), time, work, state):
        return NOTHING  # what it waits for lets it be looked at again when it arrives
    job: int = pop(queue, state.queues)
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
    push(0, end * sizes.stride + sizes.jobs + machine, state.events)
    for i in range(work.offset[job], work.offset[job + 1]):
        follower = work.after[i]
        if end + work.lag[i] > work.arrival[follower]:
            work.arrival[follower] = end + work.lag[i]
        work.needs[follower] -= 1
        if work.needs[follower] == 0:
            arrive(follower, patient, sizes, work, state)


PARTS = (
    *HEAPS,
    *(to_finish, all_can_finish, can_go_back, fits, first_that_fits, transfer, give_back, claim, touch, arrive, enqueue),
    *(had_better_wait, happen, next_job, start),
)


@loop(1e-5, ("state.sequence", "state.heads", "account.held"), PARTS)
def simulate(
    sizes: Any, patient: bool, instant: bool, work: Any, use: Any, memories: Any, ends: Any, account: Any, state: Any
) -> int:
    """Jobs in the order of their starts, ``state.sequence`` (what is left of it is -1 once nothing can go on any more), and the
    time of the last event.

    An event is that a job arrives (all that it waits for is there) or that a machine is to be looked at (its job has ended).
    Whenever a machine is free it starts what comes first. Of machines that are looked at at one time the
    one with the smaller number comes first; where transfers block, the larger one, for links stop devices. ``instant``: something
    takes no time; that goes first on all machines, for what it makes may be wanted at once.

    ``state.heads``: by device the first job that has arrived and claims memory, -1: none; ``account.held``: by memory what is
    held at the end.
    """
    work, use, memories, ends = bare(work), bare(use), bare(memories), bare(ends)
    account, state = bare(account), bare(state)
    done, time = 0, 0
    for job in range(sizes.jobs):
        if work.needs[job] == 0:
            arrive(job, patient, sizes, work, state)
    while count(0, state.events) > 0:
        time = first(0, state.events) // sizes.stride
        until = (time + 1) * sizes.stride
        happen(until, sizes, work, use, memories, account, ends, state)
        later = 0
        while count(0, state.touched) > 0:
            machine = abs(pop(0, state.touched))
            state.seen[machine] = 0
            job = next_job(machine, time, patient, sizes, work, use, memories, account, ends, state)
            if job >= 0 and instant and work.duration[job] > 0:
                state.later[later] = job
                later += 1
            elif job >= 0:
                start(job, time, patient, sizes, work, use, memories, account, ends, state)
                state.sequence[done] = job
                done += 1
        again = count(0, state.events) > 0 and first(0, state.events) < until
        for place in range(later):
            job = state.later[place]
            if again:
                enqueue(job, sizes, work, use, ends, state)
                push(0, time * sizes.stride + sizes.jobs + work.machine[job], state.events)
            else:
                start(job, time, patient, sizes, work, use, memories, account, ends, state)
                state.sequence[done] = job
                done += 1
    for d in range(ends.devices):
        for queue in range(d * sizes.width + 1, (d + 1) * sizes.width):
            if count(queue, state.queues) > 0 and (state.heads[d] < 0 or first(queue, state.queues) < state.heads[d]):
                state.heads[d] = first(queue, state.queues)
    return time
