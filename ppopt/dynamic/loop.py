"""The loop that finds the states of one layer from those of the layer before; see :mod:`ppopt.compiled`.

A state is a row of numbers: ``words`` with how many operations of each family have started, ``bits`` for each family; when each
machine is free, no earlier than the last operation started; the family that it runs until then, -1: nothing that others wait for;
and when the last operation started.
"""

from __future__ import annotations

from typing import Any

from ppopt.compiled import bare, loop

OFTEN = 2**16
"""About how many states and ways on are looked at between two looks at the clock: a twentieth of a second."""
_FACTOR, _LOW = 2654435769, 2**32 - 1
"""Knuth's multiplicative hash, and the bits of a number that are kept."""
FIRST, SECOND = 1, 2
"""Which of two states has machines that are free no later."""
NEVER = 2**60
"""A time that does not come."""
NO_LIMIT = 2**60
"""What a machine may hold where memory is not limited."""


def unpack(rows: Any, at: int, sizes: Any, done: Any) -> None:
    """How many operations of each family have started in the state at that place."""
    families, _, _, _, _, per, bits, _ = sizes
    mask, family, word = (1 << bits) - 1, 0, at
    while family < families:
        packed = rows[word]
        for _ in range(min(per, families - family)):
            done[family] = packed & mask
            packed >>= bits
            family += 1
        word += 1


def release(family: int, n: int, rows: Any, at: int, sizes: Any, rules: Any, windows: Any, done: Any, head: Any) -> int:
    """When an operation can start at the earliest, for its window and what it waits for.

    ``head``: when the next operation of each family does, :data:`NEVER` where that is not known.
    """
    count, machines, words = sizes[1], sizes[2], sizes[3]
    owner, time, into, before, shift = rules[0], rules[1], rules[2], rules[3], rules[4]
    early, free, runs = windows[0], at + words, at + words + machines
    start: int = early[family * count + n]
    for i in range(into[family], into[family + 1]):
        other, m = before[i], n - shift[i]
        if m < 0:
            continue
        if done[other] <= m:
            start = max(start, early[other * count + m] + time[other])
            if head[other] < NEVER:
                start = max(start, head[other] + (m - done[other] + 1) * time[other])
        elif done[other] == m + 1 and rows[runs + owner[other]] == other:
            start = max(start, rows[free + owner[other]])
    return start


def find_heads(rows: Any, at: int, sizes: Any, rules: Any, windows: Any, done: Any, head: Any) -> bool:
    """When the next operation of each family starts at the earliest, as far as chains of waits say; ``False``: too late."""
    families, count, _, words, _, _, _, _ = sizes
    owner, time, late, free = rules[0], rules[1], windows[1], at + words
    for family in range(families):
        head[family] = NEVER
    for family in range(families):
        n = done[family]
        if n < count:
            ready = release(family, n, rows, at, sizes, rules, windows, done, head)
            head[family] = max(rows[free + owner[family]], ready)
            if head[family] + time[family] > late[family * count + n]:
                return False
    return True


def slack_of(machine: int, rows: Any, at: int, sizes: Any, rules: Any, windows: Any, scratch: Any) -> int:
    """How long before its latest end everything that is left for a machine ends, if it may be interrupted: always what has to end
    first (Jackson's rule). Less than 0: some operation would be too late; at most :data:`NEVER`."""
    count = sizes[1]
    time, of, own = rules[1], rules[5], rules[6]
    late = windows[1]
    done, head, turn, ready, left, due = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4], scratch[9]
    first, last = of[machine], of[machine + 1]
    now = NEVER
    slack: int = NEVER
    for i in range(first, last):
        family = own[i]
        turn[i], ready[i], left[i] = done[family], head[family], time[family]
        due[i] = late[family * count + min(turn[i], count - 1)]
        now = min(now, ready[i])
    while now < NEVER:
        least, best, coming = NEVER, -1, NEVER
        for i in range(first, last):
            if ready[i] > now:
                coming = min(coming, ready[i])
            elif due[i] < least:
                least, best = due[i], i
        if best < 0:
            now = coming
        elif now + left[best] > coming:
            left[best] -= coming - now
            now = coming
        else:
            now += left[best]
            slack = min(slack, least - now)
            if slack < 0:
                return slack
            family = own[best]
            turn[best] += 1
            left[best], ready[best] = time[family], NEVER
            if turn[best] < count:
                due[best] = late[family * count + turn[best]]
                ready[best] = release(family, turn[best], rows, at, sizes, rules, windows, done, head)
    return slack


def list_todo(machine: int, order: Any, scratch: Any) -> None:
    """List what is left for a machine, the earliest latest end first, and when it has to go on at the latest."""
    begin, family, number, time, late = order
    done, todo, end, latest = scratch[0], scratch[5], scratch[6], scratch[7]
    taken, left, room = 0, begin[machine], NEVER
    for i in range(begin[machine], begin[machine + 1]):
        if number[i] >= done[family[i]]:
            taken += time[i]
            room = min(room, late[i] - taken)
            todo[left] = i
            left += 1
    end[machine], latest[machine] = left, room


def look_at(rows: Any, at: int, sizes: Any, rules: Any, windows: Any, order: Any, scratch: Any) -> bool:
    """Find what is to be known of a state before it goes on; ``False``: some operation would be too late."""
    machines = sizes[2]
    done, head, used = scratch[0], scratch[1], scratch[8]
    holds, first, last, amount = rules[11], rules[12], rules[13], rules[14]
    unpack(rows, at, sizes, done)
    if not find_heads(rows, at, sizes, rules, windows, done, head):
        return False
    for machine in range(machines):
        if slack_of(machine, rows, at, sizes, rules, windows, scratch) < 0:
            return False
        list_todo(machine, order, scratch)
        used[machine] = 0
        for i in range(holds[machine], holds[machine + 1]):
            used[machine] += amount[i] * (done[first[i]] - done[last[i]])
    return True


def start_of(family: int, rows: Any, at: int, sizes: Any, rules: Any, windows: Any, scratch: Any) -> int:
    """When the next operation of a family starts if it is the next of all, no earlier than the last one, until when all machines
    count as busy; :data:`NEVER`: it cannot be that."""
    count, machines, words = sizes[1], sizes[2], sizes[3]
    owner, time, into, before, shift = rules[0], rules[1], rules[2], rules[3], rules[4]
    claim, limit = rules[10], rules[15]
    done, latest, used = scratch[0], scratch[7], scratch[8]
    free, runs, n, own = at + words, at + words + machines, done[family], owner[family]
    if n == count or used[own] + claim[family] > limit[own]:
        return NEVER
    start: int = max(rows[free + own], windows[0][family * count + n])
    for i in range(into[family], into[family + 1]):
        other, m = before[i], n - shift[i]
        if m >= 0 and done[other] <= m:
            return NEVER
        if m >= 0 and done[other] == m + 1 and rows[runs + owner[other]] == other:
            start = max(start, rows[free + owner[other]])
    if start + time[family] > windows[1][family * count + n]:
        return NEVER
    for machine in range(machines):
        if start > latest[machine] and machine != own:
            return NEVER
    return start


def begins_by(rows: Any, at: int, sizes: Any, rules: Any, scratch: Any) -> int:
    """Until when something starts, whatever is next: later than that an operation could be moved before all others.

    It can be where all that it waits for has started, and nothing else on its machine starts before it would end: nothing starts
    before what is next, nor before its head. All else may keep its time. So of all ways to go on from this state that end in time
    the one whose starts have the least sum begins by then, whatever states were left out. Where memory is limited, what takes
    some may not be moved.
    """
    machines, time, of, own = sizes[2], rules[1], rules[5], rules[6]
    claim, limit = rules[10], rules[15]
    head, begin = scratch[1], scratch[10]
    found = NEVER
    for machine in range(machines):
        first, second = NEVER, NEVER
        for i in range(of[machine], of[machine + 1]):
            ready = head[own[i]]
            if ready < first:
                first, second = ready, first
            elif ready < second:
                second = ready
        for i in range(of[machine], of[machine + 1]):
            family = own[i]
            start = begin[family]
            if start < found and (claim[family] == 0 or limit[machine] == NO_LIMIT):
                end = start + time[family]
                alone = (second if head[family] == first else first) >= end
                found = min(found, start if alone else max(end - 1, start))
    return found


def leaves_time(family: int, end: int, rules: Any, order: Any, scratch: Any) -> bool:
    """Whether all that is left for the machine can still end in time behind the next operation of a family, which ends then."""
    begin, of, number, time, late = order
    done, todo, last = scratch[0], scratch[5], scratch[6]
    machine, now = rules[0][family], end
    for place in range(begin[machine], last[machine]):
        i = todo[place]
        if of[i] != family or number[i] != done[family]:
            now += time[i]
            if now > late[i]:
                return False
    return True


def write(rows: Any, at: int, after: Any, to: int, family: int, start: int, sizes: Any, rules: Any) -> None:
    """Write the state in which the next operation of a family has started."""
    _, _, machines, words, _, per, bits, _ = sizes
    owner, time, out = rules[0], rules[1], rules[7]
    for word in range(words):
        after[to + word] = rows[at + word]
    after[to + family // per] += 1 << (bits * (family % per))
    free, runs = words, words + machines
    for machine in range(machines):
        until = rows[at + free + machine]
        after[to + free + machine] = max(until, start)
        after[to + runs + machine] = rows[at + runs + machine] if until > start else -1
    after[to + free + owner[family]] = start + time[family]
    after[to + runs + owner[family]] = family if out[family] < out[family + 1] else -1
    after[to + runs + machines] = start


def compare(rows: Any, one: int, other: int, sizes: Any) -> int:
    """Of which state, where the same operations have started, no machine is free later: :data:`FIRST`, :data:`SECOND`, the sum of
    both, or 0: of neither."""
    machines, free = sizes[2], sizes[3]
    found, machine = FIRST + SECOND, 0
    while found and machine < machines:
        first, second = rows[one + free + machine], rows[other + free + machine]
        if first > second:
            found &= SECOND
        elif first < second:
            found &= FIRST
        machine += 1
    return found


def is_no_worse(rows: Any, one: int, other: int, sizes: Any, rules: Any, done: Any) -> bool:
    """Whether whatever can follow one state, where the same operations have started, can follow another one at the same times, of
    which no machine is free earlier."""
    count, machines, words = sizes[1], sizes[2], sizes[3]
    owner, time, out, after, shift = rules[0], rules[1], rules[7], rules[8], rules[9]
    free, runs = words, words + machines
    now = rows[other + runs + machines]
    if rows[one + runs + machines] > now:
        return False
    for machine in range(machines):
        family, until = rows[one + runs + machine], rows[one + free + machine]
        if family < 0 or until <= now:
            continue
        same = rows[other + free + machine] if rows[other + runs + machine] == family else 0
        for i in range(out[family], out[family + 1]):
            then, n = after[i], done[family] - 1 + shift[i]
            if n < count and until > max(rows[other + free + owner[then]] + time[then] * (n - done[then]), same):
                return False
    return True


def put(after: Any, to: int, table: Any, chain: Any, parent: Any, sizes: Any, rules: Any, done: Any) -> bool:
    """Keep the state that was written last, unless one is kept that is no worse; leave out those that it is no worse than."""
    words, width, slots = sizes[3], sizes[4], sizes[7]
    mixed = 0
    for word in range(words):
        value = after[to + word]
        mixed = ((mixed ^ value ^ (value >> 30)) & _LOW) * _FACTOR & _LOW
    slot = (mixed >> 10) % slots
    at, before = table[slot], -1
    while at >= 0:
        other, then, word = at * width, chain[at], 0
        while word < words and after[other + word] == after[to + word]:
            word += 1
        found = compare(after, other, to, sizes) if word == words else 0
        if found & FIRST and is_no_worse(after, other, to, sizes, rules, done):
            return False
        if found & SECOND and is_no_worse(after, to, other, sizes, rules, done):
            parent[at] = -1
            if before < 0:
                table[slot] = then
            else:
                chain[before] = then
        else:
            before = at
        at = then
    chain[to // width], table[slot] = table[slot], to // width
    return True


LOOKING = (unpack, release, find_heads, slack_of, list_todo, look_at)
GOING_ON = (start_of, begins_by, leaves_time, write, compare, is_no_worse, put)


@loop(2e-5, ("after", "parent", "chosen", "chain", "table", "state"), (*LOOKING, *GOING_ON))
def expand(
    sizes: Any,
    rules: Any,
    windows: Any,
    order: Any,
    rows: Any,
    after: Any,
    parent: Any,
    chosen: Any,
    chain: Any,
    table: Any,
    scratch: Any,
    state: Any,
) -> None:
    """Find the states behind those from ``state[0]`` to ``state[1]``, and count them in ``state[2]``, until there is no room for
    more or enough was looked at: ``state[3]``."""
    rules, windows, order, scratch = bare(rules), bare(windows), bare(order), bare(scratch)
    families, width = sizes[0], sizes[4]
    time, done, begin = rules[1], scratch[0], scratch[10]
    looked, number, room = 0, state[2], len(parent) - families
    one = state[0]
    while one < state[1] and looked < OFTEN and number <= room:
        at = one * width
        looked += 1
        if look_at(rows, at, sizes, rules, windows, order, scratch):
            for family in range(families):
                begin[family] = start_of(family, rows, at, sizes, rules, windows, scratch)
            last = begins_by(rows, at, sizes, rules, scratch)
            for family in range(families):
                start = begin[family]
                if start > last or start == NEVER:
                    continue
                looked += 1
                if not leaves_time(family, start + time[family], rules, order, scratch):
                    continue
                write(rows, at, after, number * width, family, start, sizes, rules)
                done[family] += 1
                if put(after, number * width, table, chain, parent, sizes, rules, done):
                    parent[number], chosen[number] = one, family
                    number += 1
                done[family] -= 1
        one += 1
    state[0], state[2], state[3] = one, number, looked


@loop(5e-6, ("after", "parent", "chosen", "chain", "table", "state"), (unpack, compare, is_no_worse, put))
def merge(
    sizes: Any,
    rules: Any,
    rows: Any,
    others: Any,
    after: Any,
    parent: Any,
    chosen: Any,
    chain: Any,
    table: Any,
    scratch: Any,
    state: Any,
) -> None:
    """Keep the states of ``rows``, too; ``others``: for each its place in the layer before, -1: it was left out, and then the
    family that started. ``state[2]`` counts all."""
    rules, scratch = bare(rules), bare(scratch)
    width, number, size = sizes[4], state[2], len(others) // 2
    for one in range(size):
        if others[one] >= 0:
            for i in range(width):
                after[number * width + i] = rows[one * width + i]
            unpack(after, number * width, sizes, scratch[0])
            if put(after, number * width, table, chain, parent, sizes, rules, scratch[0]):
                parent[number], chosen[number] = others[one], others[size + one]
                number += 1
    state[2] = number


@loop(1e-5, ("slacks",), (unpack, release, find_heads, slack_of))
def judge(sizes: Any, rules: Any, windows: Any, rows: Any, scratch: Any, slacks: Any) -> None:
    """Find the slack of all machines together (:func:`slack_of`) in each state, of those that have something left; -1: it is less
    than 0 for one of them."""
    rules, windows, scratch = bare(rules), bare(windows), bare(scratch)
    machines, width = sizes[2], sizes[4]
    for one in range(len(slacks)):
        at = one * width
        unpack(rows, at, sizes, scratch[0])
        total = 0 if find_heads(rows, at, sizes, rules, windows, scratch[0], scratch[1]) else -1
        for machine in range(machines):
            slack = slack_of(machine, rows, at, sizes, rules, windows, scratch) if total >= 0 else NEVER
            if slack < NEVER:
                total = total + slack if slack >= 0 else -1
        slacks[one] = total
