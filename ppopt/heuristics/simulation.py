"""A list schedule is run (:mod:`ppopt.heuristics.loops`), or what it is stuck for is put into words."""

from __future__ import annotations

import numpy as np

from ppopt.compiled.heaps import Heaps
from ppopt.constraints import operations, transfers_of
from ppopt.heuristics.loops import simulate
from ppopt.heuristics.ranked import Ranked
from ppopt.heuristics.running import Account, Ends, Memories, Sizes, State, Use, Work
from ppopt.pipeline import IntArray


class Stuck(ValueError):
    """No operation can go on although some are left: every next one waits for memory or for another that waits.

    ``time`` is in ticks; ``waiting`` says for each device that still has operations what it waits for.
    """

    def __init__(self, time: int, shown: object, waiting: dict[int, str]) -> None:
        reasons = "; ".join(f"device {device} waits for {reason}" for device, reason in waiting.items())
        super().__init__(f"the list scheduler is stuck at time {shown}: {reasons}")
        self.time = time
        self.waiting = waiting


def sequence_of(jobs: Ranked, *, patient: bool, reserve: bool) -> IntArray:
    """The jobs in the order of their starts.

    ``patient``, ``reserve``: as in :func:`~ppopt.heuristics.list_scheduling.list_schedule`.

    Raises:
        Stuck: memory, or a cycle in the words, lets nothing go on.
    """
    count = jobs.count
    sizes = Sizes(count, int(jobs.claimer.max(initial=-1)) + 2, count + jobs.machines)
    begin = jobs.needs.copy(), jobs.release.copy()  # they change
    work = Work(jobs.duration, jobs.machine, jobs.awaited, *begin, jobs.offset, jobs.after, jobs.lag)
    use = Use(jobs.memory, jobs.amount, jobs.returned, jobs.claimer, jobs.finishes)
    longest = int(jobs.duration.max(initial=0)) + int(jobs.lag.max(initial=0))
    most = ((count + 1) * longest + int(jobs.release.max(initial=0)) + 1) * sizes.stride
    how = patient, not jobs.duration.all()
    memories, account, state = _memories(jobs, reserve), _account(jobs), _state(jobs, sizes)
    effort = count * len(jobs.pipeline.routes)  # a claim may ask for every route
    time = simulate(effort, most, sizes, *how, work, use, memories, _ends(jobs), account, state)
    sequence: IntArray = state.sequence
    if count and sequence[-1] < 0:
        raise _stuck(jobs, int(time), sequence, state.heads, account.held)
    return sequence


def _account(jobs: Ranked) -> Account:
    claimers = sum(map(len, jobs.claims.claimers))
    return Account(np.zeros(len(jobs.claims.limits), np.int64), *np.zeros((3, claimers), np.int64))


def _state(jobs: Ranked, sizes: Sizes) -> State:
    """Before anything has begun. A job is in no heap more than once, and a machine is to be looked at once, but that one event is
    that a job of it ends and another that what it was to start is put off."""
    machines = jobs.machines
    queue = jobs.machine * sizes.width + np.where((jobs.machine < jobs.devices) & (jobs.amount > 0), jobs.claimer + 1, 0)
    none = np.full(machines, -1, np.int64)
    return State(
        events=Heaps.of(np.array([jobs.count + 2 * machines])),
        queues=Heaps.of(np.bincount(queue, minlength=machines * sizes.width)),
        coming=Heaps.of(np.bincount(jobs.machine[jobs.awaited > 0], minlength=machines)),
        touched=Heaps.of(np.array([machines])),
        seen=np.zeros(machines, np.int64),
        running=none,
        taken=none.copy(),
        stops=np.zeros(machines, np.int64),
        later=none.copy(),
        sequence=np.full(jobs.count, -1, np.int64),
        heads=np.full(jobs.devices, -1, np.int64),
    )


def _memories(jobs: Ranked, reserve: bool) -> Memories:
    claimers, mix = jobs.claims.claimers, jobs.pipeline.mix
    # one stage never fills up: each of its microbatches holds what it needs there, whatever route it has, but for pieces
    routes = jobs.pipeline.routes if not mix.pieces else range(len(jobs.pipeline.routes))
    stages = [{(routes[stage.route], stage.stage) for stage in of} for of in claimers]
    reserves = [
        0 if not reserve else 2 if any(stage.more for stage in of) else int(len(own) > 1)
        for of, own in zip(claimers, stages, strict=True)
    ]
    if any(reserves):  # who goes first there must not wait for room elsewhere that others have taken who come later
        reserves = [max(own, int(len({stage.route for stage in of}) > 1)) for own, of in zip(reserves, claimers, strict=True)]
    columns = [(stage.route, stage.amount, stage.more, stage.count) for of in claimers for stage in of]
    first = np.cumsum([0, *map(len, claimers)])
    table = np.array(columns, dtype=np.int64).reshape(-1, 4).T.copy()
    return Memories(np.array(jobs.claims.limits, dtype=np.int64), np.array(reserves, dtype=np.int64), first, *table)


def _ends(jobs: Ranked) -> Ends:
    pipeline = jobs.pipeline
    blocking = bool(pipeline.links.blocking) and jobs.machines > jobs.devices
    ends = np.full((2, jobs.count if blocking else 0), -1, dtype=np.int64)
    links_of: list[set[int]] = [set() for _ in range(jobs.devices)]
    if blocking:
        pairs = np.full((2, pipeline.index.size), -1, dtype=np.int64)
        for hop in transfers_of(pipeline):
            pairs[:, operations(pipeline, hop.send)] = np.array(hop.pair)[:, None]
        single = jobs.numbers < pipeline.index.size
        ends[:, single] = pairs[:, jobs.numbers[single]]
        sent = np.flatnonzero(ends[0] >= 0)
        for machine, *pair in zip(*(column[sent].tolist() for column in (jobs.machine, *ends)), strict=True):
            for device in pair:
                links_of[device].add(machine)
    first = np.cumsum([0, *map(len, links_of)])
    of = np.array([link for links in links_of for link in sorted(links)], dtype=np.int64)
    return Ends(jobs.devices, blocking, ends[0], ends[1], first, of)


def _stuck(jobs: Ranked, time: int, sequence: IntArray, heads: IntArray, held: IntArray) -> Stuck:
    """Why nothing can go on: on each device the first job that has no room, else the first that waits for another."""
    pipeline = jobs.pipeline
    left = np.setdiff1d(np.arange(jobs.count), sequence)
    before: dict[int, int] = {}  # by job, one that has not started and for which it waits
    for job in left.tolist():
        for i in range(int(jobs.offset[job]), int(jobs.offset[job + 1])):
            before.setdefault(int(jobs.after[i]), job)
    waiting: dict[int, str] = {}
    for job in left[np.argsort(jobs.place[left], kind="stable")].tolist():  # forwards first, the oldest first
        d = int(jobs.machine[job])
        if d in waiting or d >= jobs.devices:
            continue
        first = int(heads[d])
        if first >= 0:
            memory = int(jobs.memory[first])
            amounts = int(held[memory]), int(jobs.amount[first]), jobs.claims.limits[memory]
            has, claim, limit = map(pipeline.amount, amounts)
            waiting[d] = f"memory for {jobs.text(first)} (holds {has}, needs {claim} more, has {limit})"
        elif job in before:
            waiting[d] = f"{jobs.text(before[job])}, to run {jobs.text(job)}"
    return Stuck(time, pipeline.time(time), waiting)
