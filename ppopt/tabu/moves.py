"""Parts of the loops of the tabu search: which moves there are, and which of them promises most."""

from __future__ import annotations

from typing import Any

from ppopt.tabu.paths import (
    BACK,
    BEST,
    DEAREST,
    EXCEEDS,
    EXCESS,
    FIRST,
    LAST,
    LEAST,
    LOOKED,
    MORE,
    MOVES,
    NEVER,
    TIES,
    TURNS,
    UNIT,
    WEIGHT,
    end_before,
    random_below,
    slot_of,
    tail_behind,
)


def may_move(first: int, last: int, back: bool, jobs: Any, plan: Any, work: Any) -> bool:
    """Whether the operation at place ``first`` may move behind that at ``last`` (``back``), or the last one before the first one;
    their new order is in ``work.segment`` then, and by how much more memory is exceeded is counted.

    Nothing waits for itself then: heads and tails leave room for no path from one operation to the other, though they may where
    there is none. No operation passes one of its own family. And memory suffices, unless it may be exceeded.
    """
    early, late = plan.sequence[first], plan.sequence[last]
    moved, machine = (early if back else late), jobs.machine[early]
    family = jobs.family[moved]
    for place in range(first, last + 1):
        if plan.sequence[place] != moved and jobs.family[plan.sequence[place]] == family:
            return False
    begins = jobs.after_begin if back else jobs.before_begin
    for at in range(begins[moved], begins[moved + 1]):
        other = jobs.after[at] if back else jobs.before[at]
        one, to = (other, late) if back else (early, other)
        if plan.head[to] >= plan.head[one] + jobs.duration[one] and plan.tail[one] >= plan.tail[to] + jobs.duration[one]:
            return False
        if jobs.machine[other] == machine and first <= plan.place[other] <= last:
            return False
    for place in range(first, last):
        work.segment[place + (0 if back else 1)] = plan.sequence[place + (1 if back else 0)]
    work.segment[last if back else first] = moved
    work.counts[MORE] = 0
    level = plan.level[first]
    for place in range(first, last + 1):
        node = work.segment[place]
        work.counts[MORE] += max(0, level + jobs.claim[node] - jobs.room[machine]) - excess_at(place, jobs, plan)
        level += jobs.change[node]
    return bool(work.counts[EXCEEDS] != 0 or work.counts[MORE] <= 0)


def excess_at(place: int, jobs: Any, plan: Any) -> int:
    """How much more is held at a place than there is room for."""
    node = plan.sequence[place]
    return int(max(0, plan.level[place] + jobs.claim[node] - jobs.room[jobs.machine[node]]))


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


def weigh(first: int, last: int, back: bool, value: int, jobs: Any, plan: Any, work: Any) -> None:
    """Note a move that is possible, if none promises more: the longest path through what it moves, ``value`` at least, and what
    memory that is exceeded counts. One that is tabu is as good as nothing, unless it promises the best value so far."""
    if not may_move(first, last, back, jobs, plan, work):
        return
    count = work.counts
    count[LOOKED] += last - first + 1
    excess = count[EXCESS] + count[MORE]
    promised = max(value, estimate(first, last, jobs, plan, work)) + excess * count[WEIGHT] // count[UNIT]
    if (promised >= count[BEST] or excess > 0) and tabu(first, last, back, plan, work):
        promised = NEVER
    if promised > count[LEAST]:
        return
    count[TIES] = 1 if promised < count[LEAST] else count[TIES] + 1
    count[LEAST] = promised
    if random_below(count[TIES], work.chance) == 0:
        count[FIRST], count[LAST], count[BACK] = first, last, 1 if back else 0


def along_path(length: int, farthest: int, jobs: Any, plan: Any, work: Any) -> None:
    """Weigh the moves that may make the longest path in ``work.path`` shorter.

    It is cut into blocks, rows of operations that follow each other on a machine. Only what moves before the first one of a block
    or behind the last one can make the path shorter, but not at the path's own begin and end (Nowicki and Smutnicki).
    """
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
                first = high - distance if kind < 2 else low
                weigh(first, first + distance, kind == 0 or kind == 3, -NEVER, jobs, plan, work)
        end = begin + 1


def within_room(value: int, farthest: int, jobs: Any, plan: Any, work: Any) -> None:
    """Weigh the moves after which less is held at a random place where there is no room for it: of what gives back behind it to
    before it, and of what takes before it to behind it."""
    full, ways = 0, 0
    for place in range(jobs.nodes):
        if excess_at(place, jobs, plan) > 0:
            ways += 1
            if random_below(ways, work.chance) == 0:
                full = place
    machine = jobs.machine[plan.sequence[full]]
    end = jobs.begin[machine + 1]
    for last in range(full + 1, min(full + farthest + 1, end)):
        if jobs.change[plan.sequence[last]] < 0:
            weigh(full, last, False, value, jobs, plan, work)
    for first in range(max(jobs.begin[machine], full - farthest), full + 1):
        if jobs.change[plan.sequence[first]] > 0:
            for last in range(max(full, first + 1), min(first + farthest + 1, end)):
                weigh(first, last, True, value, jobs, plan, work)


def price(turns: int, work: Any) -> None:
    """Let excess count more where there was some for so many moves, and less where there was none."""
    count = work.counts
    count[TURNS] = max(count[TURNS], 0) + 1 if count[EXCESS] > 0 else min(count[TURNS], 0) - 1
    if count[TURNS] >= turns:
        count[TURNS], count[WEIGHT] = 0, min(2 * count[WEIGHT], DEAREST)
    elif count[TURNS] <= -turns:
        count[TURNS], count[WEIGHT] = 0, max(1, count[WEIGHT] // 2)


PARTS = (may_move, excess_at, estimate, tabu, weigh, along_path, within_room, price)
