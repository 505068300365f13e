"""The loop of the tabu search: move after move on critical paths; see :mod:`ppopt.compiled`.

What the arguments are: :mod:`ppopt.tabu.jobs`. Places are those in the rows of all machines, one behind the other.
"""

from __future__ import annotations

from typing import Any

from ppopt.compiled import bare, loop

NEVER = 2**60
"""Longer than any path: what cannot be done."""
SLOTS = 2**16
"""Of the table of pairs that are tabu; two pairs may share one, then both are tabu. Not measured."""
BEST, SINCE, MOVES, KICKS, LOOKED, SET = range(6)
"""What is counted: the least value; moves since it was found, or since the search went on from there; all moves; how many of the
next ones are random; places of operations that were looked at, and times that were set."""
GOES_ON, STUCK, CYCLIC = range(3)
"""What became of a search."""


def random_below(number: int, chance: Any) -> int:
    """A random number below another one (a linear congruential generator)."""
    chance[0] = (chance[0] * 1103515245 + 12345) & (2**31 - 1)
    return int((chance[0] >> 8) % number)


def slot_of(before: int, after: int) -> int:
    """The slot of a pair of operations in the table of those that are tabu."""
    return (before * 1000003 + after * 7919) & (SLOTS - 1)


def end_before(place: int, machine: int, jobs: Any, plan: Any) -> int:
    """When a machine has run all before a place."""
    if place == jobs.begin[machine]:
        return int(plan.release[machine])
    last = plan.sequence[place - 1]
    return int(plan.head[last] + jobs.duration[last])


def head_of(node: int, jobs: Any, plan: Any) -> int:
    """The longest path to its start."""
    longest = end_before(plan.place[node], jobs.machine[node], jobs, plan)
    for at in range(jobs.before_begin[node], jobs.before_begin[node + 1]):
        before = jobs.before[at]
        longest = max(longest, plan.head[before] + jobs.duration[before] + jobs.before_lag[at])
    return int(longest)


def tail_behind(place: int, machine: int, jobs: Any, plan: Any) -> int:
    """The longest path along a machine behind a place."""
    return int(plan.tail[plan.sequence[place + 1]] if place + 1 < jobs.begin[machine + 1] else plan.rest[machine])


def tail_of(node: int, jobs: Any, plan: Any) -> int:
    """The longest path from its start, its own duration included."""
    longest = tail_behind(plan.place[node], jobs.machine[node], jobs, plan)
    for at in range(jobs.after_begin[node], jobs.after_begin[node + 1]):
        longest = max(longest, plan.tail[jobs.after[at]] + jobs.after_lag[at])
    return int(longest + jobs.duration[node])


def value_of(jobs: Any, plan: Any) -> int:
    """The largest of the machines' ends, each with its rest."""
    longest = -NEVER
    for machine in range(jobs.machines):
        longest = max(longest, end_before(jobs.begin[machine + 1], machine, jobs, plan) + plan.rest[machine])
    return int(longest)


def critical_path(value: int, jobs: Any, plan: Any, work: Any) -> int:
    """A random one of the longest paths, from its end to its begin, in ``work.path``; of how many operations."""
    node, ways = -1, 0
    for machine in range(jobs.machines):
        last = plan.sequence[jobs.begin[machine + 1] - 1]
        if end_before(jobs.begin[machine + 1], machine, jobs, plan) + plan.rest[machine] == value:
            ways += 1
            if random_below(ways, work.chance) == 0:
                node = last
    length = 0
    while node >= 0:
        work.path[length] = node
        length += 1
        head, place, machine, follow, ways = plan.head[node], plan.place[node], jobs.machine[node], -1, 0
        if place > jobs.begin[machine] and end_before(place, machine, jobs, plan) == head:
            follow, ways = plan.sequence[place - 1], 1
        for at in range(jobs.before_begin[node], jobs.before_begin[node + 1]):
            before = jobs.before[at]
            if plan.head[before] + jobs.duration[before] + jobs.before_lag[at] == head and before != follow:
                ways += 1
                if random_below(ways, work.chance) == 0:
                    follow = before
        node = follow
    return length


def may_move(first: int, last: int, back: bool, jobs: Any, plan: Any, work: Any) -> bool:
    """Whether the operation at place ``first`` may move behind that at ``last`` (``back``), or the last one before the first one;
    their new order is in ``work.segment`` then. Longest paths show that nothing waits for itself then, though not always where
    nothing would; no operation passes one of its own family; and memory suffices."""
    early, late = plan.sequence[first], plan.sequence[last]
    moved, machine = (early if back else late), jobs.machine[early]
    family = jobs.family[moved]
    for place in range(first, last + 1):
        if plan.sequence[place] != moved and jobs.family[plan.sequence[place]] == family:
            return False
    begins = jobs.after_begin if back else jobs.before_begin
    for at in range(begins[moved], begins[moved + 1]):
        other = jobs.after[at] if back else jobs.before[at]
        if back:
            longer = plan.tail[other] - plan.tail[late]
        else:
            longer = plan.head[other] + jobs.duration[other] - plan.head[early] - jobs.duration[early]
        if longer > 0 or (longer == 0 and jobs.duration[other] == 0):
            return False
        if jobs.machine[other] == machine and first <= plan.place[other] <= last:
            return False
    for place in range(first, last):
        work.segment[place + (0 if back else 1)] = plan.sequence[place + (1 if back else 0)]
    work.segment[last if back else first] = moved
    level = plan.level[first]
    for place in range(first, last + 1):
        node = work.segment[place]
        if level + jobs.claim[node] > jobs.room[machine]:
            return False
        level += jobs.change[node]
    return True


def estimate(first: int, last: int, jobs: Any, plan: Any, work: Any) -> int:
    """About the longest path through places whose new order is in ``work.segment`` (Balas and Vazacopoulos)."""
    machine = jobs.machine[plan.sequence[first]]
    end = end_before(first, machine, jobs, plan)
    for place in range(first, last + 1):
        node = work.segment[place]
        head = end
        for at in range(jobs.before_begin[node], jobs.before_begin[node + 1]):
            before = jobs.before[at]
            among = jobs.machine[before] == machine and first <= plan.place[before] <= last
            time = work.head[before] if among else plan.head[before]
            head = max(head, time + jobs.duration[before] + jobs.before_lag[at])
        work.head[node] = head
        end = head + jobs.duration[node]
    tail = tail_behind(last, machine, jobs, plan)
    longest = -NEVER
    for back in range(last - first + 1):
        node = work.segment[last - back]
        for at in range(jobs.after_begin[node], jobs.after_begin[node + 1]):
            after = jobs.after[at]
            among = jobs.machine[after] == machine and first <= plan.place[after] <= last
            time = work.tail[after] if among else plan.tail[after]
            tail = max(tail, time + jobs.after_lag[at])
        tail += jobs.duration[node]
        work.tail[node] = tail
        longest = max(longest, work.head[node] + tail)
    return int(longest)


def tabu(first: int, last: int, back: bool, plan: Any, work: Any) -> bool:
    """Whether a move undoes one that was made not long ago, for some pair of operations."""
    early, late = plan.sequence[first], plan.sequence[last]
    for place in range(first, last + 1):
        node = plan.sequence[place]
        slot = slot_of(node, early) if back else slot_of(late, node)
        if node != (early if back else late) and work.until[slot] > work.counts[MOVES]:
            return True
    return False


def choose(length: int, farthest: int, jobs: Any, plan: Any, work: Any) -> tuple[int, int, bool]:
    """The move that promises the shortest of the longest paths through what it moves: its places, and whether it goes back.

    ``work.path`` is cut into blocks, rows of operations that follow each other on a machine. Only what moves before the first one
    of a block or behind the last one can make the path shorter, but not at the path's own begin and end (Nowicki and Smutnicki).
    A move that is tabu is taken where it promises the best value so far, or a random one where nothing else is left. Places
    below 0: there is none.
    """
    least, ties, others = NEVER, 0, 0
    best = other = (-1, -1, False)
    end = 0
    while end < length:
        begin = end
        machine = jobs.machine[work.path[end]]
        while (
            begin + 1 < length
            and jobs.machine[work.path[begin + 1]] == machine
            and plan.place[work.path[begin + 1]] == plan.place[work.path[begin]] - 1
        ):
            begin += 1
        low, high = plan.place[work.path[begin]], plan.place[work.path[end]]
        for distance in range(1, min(high - low, farthest) + 1):
            for kind in range(4):  # behind the last; the last to the front; before the first; the first to the end
                if end == 0 if kind < 2 else begin == length - 1:
                    continue
                if kind % 2 == 1 and (distance == 1 or distance == high - low):
                    continue  # as the one before
                a = high - distance if kind < 2 else low
                b, to = a + distance, kind == 0 or kind == 3
                if not may_move(a, b, to, jobs, plan, work):
                    continue
                work.counts[LOOKED] += distance + 1
                longest = estimate(a, b, jobs, plan, work)
                if longest > least:
                    continue
                if longest >= work.counts[BEST] and tabu(a, b, to, plan, work):
                    others += 1
                    if random_below(others, work.chance) == 0:
                        other = (a, b, to)
                    continue
                ties = 1 if longest < least else ties + 1
                if random_below(ties, work.chance) == 0:
                    best = (a, b, to)
                least = longest
        end = begin + 1
    return best if best[0] >= 0 else other


def any_swap(tries: int, jobs: Any, plan: Any, work: Any) -> int:
    """The place of a random operation that may swap places with the next one; -1: none was found."""
    for _ in range(tries):
        place = random_below(jobs.nodes, work.chance)
        on = jobs.machine[plan.sequence[place]]
        if place + 1 < jobs.begin[on + 1] and may_move(place, place + 1, True, jobs, plan, work):
            return place
    return -1


def move(first: int, last: int, back: bool, moves: int, jobs: Any, plan: Any, work: Any) -> None:
    """Move an operation, and let the pairs that it passes be tabu for so many moves."""
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


PARTS = (
    *(random_below, slot_of, end_before, head_of, tail_behind, tail_of, value_of, critical_path, may_move, estimate),
    *(tabu, choose, any_swap, move, sort, over, set_times, mark, times_after),
)
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
        value = value_of(jobs, plan)
        count[SINCE] += 1
        if value < count[BEST]:
            count[BEST], count[SINCE] = value, 0
            for place in range(jobs.nodes):
                work.best[place] = plan.sequence[place]
        if count[BEST] <= lower:
            return GOES_ON
        if count[SINCE] > habits.vain:
            return STUCK
        first, last, back = -1, -1, True
        if count[KICKS] == 0:
            first, last, back = choose(critical_path(value, jobs, plan, work), habits.farthest, jobs, plan, work)
        else:
            count[KICKS] -= 1
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
