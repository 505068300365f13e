"""The loops of the tabu search: move after move; see :mod:`ppopt.compiled`."""

from __future__ import annotations

from typing import Any

from ppopt.compiled import bare, loop
from ppopt.tabu import moves as choosing
from ppopt.tabu import paths
from ppopt.tabu.moves import along_path, excess_at, may_move, price, within_room
from ppopt.tabu.paths import (
    BACK,
    BEST,
    EXCESS,
    FIRST,
    GUIDED,
    KICKS,
    LAST,
    LEAST,
    MOVES,
    NEVER,
    SET,
    SINCE,
    TIES,
    critical_path,
    head_of,
    random_below,
    slot_of,
    tail_of,
    value_of,
)

GOES_ON, STUCK, CYCLIC = range(3)
"""What became of a search."""


def any_swap(tries: int, jobs: Any, plan: Any, work: Any) -> int:
    """The place of a random operation that may swap places with the next one, as they are in the guide where there is one; -1:
    none was found."""
    for _ in range(tries):
        place = random_below(jobs.nodes, work.chance)
        node = plan.sequence[place]
        if place + 1 == jobs.begin[jobs.machine[node] + 1]:
            continue
        if work.counts[GUIDED] != 0 and work.guide[node] < work.guide[plan.sequence[place + 1]]:
            continue
        if may_move(place, place + 1, True, jobs, plan, work):
            return place
    return -1


def move(first: int, last: int, back: bool, moves: int, jobs: Any, plan: Any, work: Any) -> None:
    """Move an operation, and let the pairs that it passes be tabu for so many moves."""
    for place in range(first, last + 1):
        work.counts[EXCESS] -= excess_at(place, jobs, plan)
    moved, place, step = (plan.sequence[first], first, 1) if back else (plan.sequence[last], last, -1)
    for _ in range(last - first):
        passed = plan.sequence[place + step]
        plan.sequence[place] = passed
        work.until[slot_of(moved, passed) if back else slot_of(passed, moved)] = work.counts[MOVES] + moves
        place += step
    plan.sequence[place] = moved
    level = plan.level[first]
    for place in range(first, last + 1):
        node = plan.sequence[place]
        plan.place[node], plan.level[place] = place, level
        work.counts[EXCESS] += excess_at(place, jobs, plan)
        level += jobs.change[node]


def sort(low: int, high: int, jobs: Any, plan: Any, work: Any) -> bool:
    """Bring the operations of these ranks in a topological order again; whether there is one."""
    ready = 0
    for rank in range(low, high + 1):
        node = plan.ranked[rank]
        place, waits = plan.place[node], 0
        if place > jobs.begin[jobs.machine[node]] and low <= plan.rank[plan.sequence[place - 1]] <= high:
            waits = 1
        for at in range(jobs.before_begin[node], jobs.before_begin[node + 1]):
            if low <= plan.rank[jobs.before[at]] <= high:
                waits += 1
        work.waits[node] = waits
        if waits == 0:
            work.queue[ready] = node
            ready += 1
    done = 0
    while done < ready:
        node = work.queue[done]
        done += 1
        place = plan.place[node] + 1
        if place < jobs.begin[jobs.machine[node] + 1]:
            ready = over(plan.sequence[place], low, high, ready, plan, work)
        for at in range(jobs.after_begin[node], jobs.after_begin[node + 1]):
            ready = over(jobs.after[at], low, high, ready, plan, work)
    if done <= high - low:
        return False
    for turn in range(done):
        node = work.queue[turn]
        plan.ranked[low + turn], plan.rank[node] = node, low + turn
    return True


def over(node: int, low: int, high: int, ready: int, plan: Any, work: Any) -> int:
    """One wait of a node is over; how many are in the queue then."""
    if low <= plan.rank[node] <= high:
        work.waits[node] -= 1
        if work.waits[node] == 0:
            work.queue[ready] = node
            ready += 1
    return ready


def set_times(rank: int, until: int, step: int, jobs: Any, plan: Any, work: Any) -> None:
    """Set the heads of what is marked, from ``rank`` up to ``until`` (``step`` 1), or the tails, down to it (-1). Where one
    changes, what follows, or comes before, is marked, too."""
    begins = jobs.after_begin if step > 0 else jobs.before_begin
    others = jobs.after if step > 0 else jobs.before
    while (until - rank) * step >= 0:
        node = plan.ranked[rank]
        rank += step
        if work.marked[node] == 0:
            continue
        work.marked[node] = 0
        work.counts[SET] += 1
        time = head_of(node, jobs, plan) if step > 0 else tail_of(node, jobs, plan)
        if time == (plan.head[node] if step > 0 else plan.tail[node]):
            continue
        if step > 0:
            plan.head[node] = time
        else:
            plan.tail[node] = time
        place = plan.place[node] + step
        if jobs.begin[jobs.machine[node]] <= place < jobs.begin[jobs.machine[node] + 1]:
            until = mark(plan.sequence[place], until, step, plan, work)
        for at in range(begins[node], begins[node + 1]):
            until = mark(others[at], until, step, plan, work)


def mark(node: int, until: int, step: int, plan: Any, work: Any) -> int:
    """Mark a node; the rank that is the furthest then."""
    work.marked[node] = 1
    return int(max(until * step, plan.rank[node] * step) * step)


def times_after(first: int, last: int, jobs: Any, plan: Any, work: Any) -> bool:
    """Ranks, heads and tails after a move between two places; whether nothing waits for itself."""
    low, high = jobs.nodes, -1
    for place in range(first, last + 1):
        rank = plan.rank[plan.sequence[place]]
        low, high = min(low, rank), max(high, rank)
    if not sort(low, high, jobs, plan, work):
        return False
    machine = jobs.machine[plan.sequence[first]]
    for step in (1, -1):
        until, place = (high, last + 1) if step > 0 else (low, first - 1)
        for among in range(first, last + 1):
            work.marked[plan.sequence[among]] = 1
        if jobs.begin[machine] <= place < jobs.begin[machine + 1]:
            until = mark(plan.sequence[place], until, step, plan, work)
        set_times(low if step > 0 else high, until, step, jobs, plan, work)
    return True


PARTS = (*paths.PARTS, *choosing.PARTS, any_swap, move, sort, over, set_times, mark, times_after)
CHANGED = (
    *(f"plan.{name}" for name in ("sequence", "place", "head", "tail", "ranked", "rank", "level")),
    *(f"work.{name}" for name in ("best", "until", "chance", "counts")),
)


@loop(4e-3, CHANGED, PARTS)
def search(moves: int, lower: int, habits: Any, jobs: Any, plan: Any, work: Any) -> int:
    """Make so many moves, or until a value is ``lower``; the best sequence goes to ``work.best``. ``STUCK``: there is no move, or
    there were too many in vain; ``CYCLIC``: in what is the plan now operations wait for each other; else ``GOES_ON``."""
    jobs, plan, work = bare(jobs), bare(plan), bare(work)
    count = work.counts
    for _ in range(moves):
        first, last, back = -1, -1, True
        if count[KICKS] > 0:
            first = any_swap(habits.tries, jobs, plan, work)
            last = first + 1
            count[KICKS] = count[KICKS] - 1 if first >= 0 else 0
        if first < 0:
            value = value_of(jobs, plan)
            count[SINCE] += 1
            if value < count[BEST] and count[EXCESS] == 0:
                count[BEST], count[SINCE] = value, 0
                for place in range(jobs.nodes):
                    work.best[place] = plan.sequence[place]
            if count[BEST] <= lower:
                return GOES_ON
            if count[SINCE] > habits.vain:
                return STUCK
            price(habits.turns, work)
            count[LEAST], count[TIES], count[FIRST], count[GUIDED] = NEVER, 0, -1, 0
            along_path(critical_path(value, jobs, plan, work), habits.farthest, jobs, plan, work)
            if count[EXCESS] > 0:
                within_room(value, habits.farthest, jobs, plan, work)
            first, last, back = count[FIRST], count[LAST], count[BACK] != 0
        if first < 0:
            first, back = any_swap(habits.tries, jobs, plan, work), True
            last = first + 1
            if first < 0:
                return STUCK
        count[MOVES] += 1
        move(first, last, back, habits.tabu + random_below(habits.varied, work.chance), jobs, plan, work)
        if not times_after(first, last, jobs, plan, work):
            return CYCLIC
    return GOES_ON


@loop(7e-6, tuple(f"plan.{name}" for name in ("place", "head", "tail", "ranked", "rank")), PARTS)
def arrange(jobs: Any, plan: Any, work: Any) -> bool:
    """Places, ranks, heads and tails of a sequence; whether nothing waits for itself in it."""
    jobs, plan, work = bare(jobs), bare(plan), bare(work)
    for place in range(jobs.nodes):
        plan.place[plan.sequence[place]] = plan.ranked[place] = plan.rank[place] = place
    if not sort(0, jobs.nodes - 1, jobs, plan, work):
        return False
    for rank in range(jobs.nodes):
        plan.head[plan.ranked[rank]] = head_of(plan.ranked[rank], jobs, plan)
    for turn in range(jobs.nodes):
        node = plan.ranked[jobs.nodes - 1 - turn]
        plan.tail[node] = tail_of(node, jobs, plan)
    return True
