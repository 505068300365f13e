"""Parts of the loops of the tabu search: what is counted, and longest paths through a plan.

What the arguments are: :mod:`ppopt.tabu.jobs`. Places are those in the rows of all machines, one behind the other.
"""

from __future__ import annotations

from typing import Any

NEVER = 2**60
"""Longer than any path: what cannot be done."""
DEAREST = 2**30
"""The most that an excess of one claim counts, in ticks."""
SLOTS = 2**16
"""Of the table of pairs that are tabu; two pairs may share one, then both are tabu. Not measured."""
BEST, SINCE, MOVES, KICKS, GUIDED, LOOKED, SET = range(7)
"""What is counted: the least value within memory since the search began anew; moves since it was found, or since the search went
on from there; all moves; how many of the next ones are random, and whether these go towards the guide; places of operations that
were looked at, and times that were set."""
EXCEEDS, EXCESS, MORE, UNIT, WEIGHT, TURNS = range(7, 13)
"""Whether memory may be exceeded; how much more is held than there is room for, summed up over all places; by how much more that
would be after the move that is looked at; the largest claim of an operation, and what that much excess counts in ticks; for how
many moves there was some excess, or, below 0, none."""
LEAST, TIES, FIRST, LAST, BACK = range(13, 18)
"""The move that promises most: what it promises, how many promise as much; its places and its way; ``FIRST`` below 0: none."""
COUNTS = 18


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


PARTS = (random_below, slot_of, end_before, head_of, tail_behind, tail_of, value_of, critical_path)
