"""The loop that finds the states of a state graph, one after the other; see :mod:`ppopt.compiled`.

What the arguments are: :mod:`ppopt.bounds.state_events`. ``now`` is the state that is looked at, ``then`` one that may follow.
"""

from __future__ import annotations

from typing import Any

from ppopt.compiled import bare, loop

NEVER = 2**14
"""A time that does not come; all that come are below a quarter of it."""
MISSED = -1
"""What is left of an operation that could have started and has not."""
NOTHING = -1
"""What a machine may choose that need not start anything."""
DONE, FULL, MANY, FAR = 0, 1, 2, 3
"""Why the loop ended: all that was asked for is done; there is no room for more states; or for the edges from the next one; or
families are too far behind for the numbers of a table."""
FORBIDDEN, TOO_FAR = -1, -2
"""A way that leads nowhere: a machine idles that may not; families are too far behind."""
FARTHEST = 2**15 - 2
"""How many operations a family may be behind the first one."""
_FACTOR, _BITS = 2654435769, 2**32 - 1
"""Knuth's multiplicative hash: a number, times this one; so many bits of that count."""


def arrival(family: int, rules: Any, facts: Any, state: Any) -> int:
    """The least time until the input of its next operation can be there, or the first one may start; 0: it is."""
    length = 0
    while family != rules.first and state.behind[family] <= state.behind[rules.before[family]]:
        facts.path[length] = family  # its input has not even begun
        length += 1
        family = rules.before[family]
    before = rules.before[family]
    if family == rules.first:
        time = NEVER * state.closed[0]
    else:
        sent = state.behind[family] - state.behind[before] - (1 if state.left[before] > 0 else 0)
        moving = state.way[rules.place[before]] if rules.delay[family] > 0 else 0
        if sent > (1 if moving > 0 else 0):
            time = 0
        elif sent > 0:
            time = moving
        else:
            time = state.left[before] + rules.delay[family]
    while length > 0:
        length -= 1
        after = facts.path[length]
        time = max(time, state.busy[rules.machine[family]]) + rules.duration[family] + rules.delay[after]
        time = min(time, NEVER)
        family = after
    return int(time)


def may_not_idle(machine: int, rules: Any, facts: Any, now: Any, state: Any) -> bool:
    """Whether a machine that runs nothing has to: it can run something, and nothing that is worth it arrives soon enough.

    What is worth waiting for follows from ``now``, before anything is chosen: memory and the order of its device allow it.
    """
    if not facts.able[machine]:
        return False
    for at in range(rules.begin[machine], rules.begin[machine + 1]):
        family = rules.family[at]
        own = rules.own[family]
        if (
            facts.fits[family]
            and (own < 0 or now.behind[family] > now.behind[own])
            and 0 < arrival(family, rules, facts, state) < facts.shortest[machine]
        ):
            return False
    return True


def look(rules: Any, facts: Any, now: Any) -> None:
    """By family, whether its next operation can run: its input is there, and there is memory. By machine, whether one can."""
    for machine in range(rules.machines):
        held = 0
        for at in range(rules.hold_begin[machine], rules.hold_begin[machine + 1]):
            given = rules.given[at]
            held += (now.behind[given] - now.behind[rules.taken[at]] + (1 if now.left[given] > 0 else 0)) * rules.amount[at]
        able, shortest = 0, NEVER
        for at in range(rules.begin[machine], rules.begin[machine + 1]):
            family = rules.family[at]
            before = rules.before[family]
            if family == rules.first:
                arrived = 1 - now.closed[0]
            else:
                arrived = now.behind[family] - now.behind[before] - (1 if now.left[before] > 0 else 0)
                if arrived > 0 and rules.delay[family] > 0 and now.way[rules.place[before]] > 0:
                    arrived -= 1
            fits = 1 if held <= rules.room[family] else 0
            facts.fits[family], facts.can[family] = fits, 0
            if fits and arrived > 0:
                facts.can[family], able = 1, 1
                shortest = min(shortest, rules.binding[family])
        facts.able[machine], facts.shortest[machine] = able, shortest


def choices(rules: Any, facts: Any, now: Any) -> int:
    """Start what has its machine for itself, and list what every machine may choose; in how many ways, 0: something is forbidden.

    What is forbidden is left out before the choices of all machines are put together, for operations that start let nothing
    arrive earlier. What they delay is looked at afterwards.
    """
    for machine in range(rules.machines):
        family = rules.family[rules.begin[machine]]
        if rules.alone[machine] and facts.can[family] and now.left[family] == 0:
            now.left[family] = now.busy[machine] = rules.duration[family]
            now.runs[machine] = family
            now.behind[family] -= 1
    ways, options = 1, 0
    for machine in range(rules.machines):
        facts.option_begin[machine] = options
        if now.busy[machine] > 0 or not facts.able[machine]:
            continue
        if not may_not_idle(machine, rules, facts, now, now):
            facts.option[options] = NOTHING
            options += 1
        if not rules.alone[machine]:
            for at in range(rules.begin[machine], rules.begin[machine + 1]):
                family = rules.family[at]
                if facts.can[family] and now.left[family] == 0:
                    facts.option[options] = 2 * family
                    options += 1
                    if family == rules.first:  # and no other microbatch begins after this one
                        facts.option[options] = 2 * family + 1
                        options += 1
        ways *= options - facts.option_begin[machine]
    facts.option_begin[rules.machines] = options
    return ways


def begin(way: int, rules: Any, facts: Any, now: Any, then: Any) -> int:
    """Start what the machines choose in one of the ways; whether a microbatch begins, or why that leads nowhere."""
    for family in range(rules.families):
        then.behind[family], then.left[family] = now.behind[family], now.left[family]
    for place in range(rules.sent):
        then.way[place] = now.way[place]
    then.closed[0], begun = now.closed[0], 0
    for machine in range(rules.machines):
        then.busy[machine], then.runs[machine] = now.busy[machine], now.runs[machine]
        first = facts.option_begin[machine]
        count = facts.option_begin[machine + 1] - first
        if count == 0:
            continue
        option = facts.option[first + way % count]
        way //= count
        if option == NOTHING:
            continue
        for at in range(rules.begin[machine], rules.begin[machine + 1]):
            then.left[rules.family[at]] = 0
        family = option // 2
        then.left[family] = then.busy[machine] = rules.duration[family]
        then.runs[machine] = family
        then.behind[family] -= 1
        if family == rules.first:
            begun = 1
            then.closed[0] = max(then.closed[0], option % 2)
    far = False
    if begun:
        for family in range(rules.families):
            then.behind[family] += 1
            far = far or then.behind[family] > FARTHEST
    if far:
        return TOO_FAR
    for machine in range(rules.machines):
        if then.busy[machine] == 0 and facts.able[machine]:
            if may_not_idle(machine, rules, facts, now, then):
                return FORBIDDEN
            for at in range(rules.begin[machine], rules.begin[machine + 1]):
                if facts.can[rules.family[at]]:
                    then.left[rules.family[at]] = MISSED
    return begun


def settle(rules: Any, state: Any) -> None:
    """Results count as there that arrive while the devices that they go to compute."""
    for place in range(rules.sent):
        way = state.way[place]
        if way > 0:
            there = True
            for at in range(rules.goes_begin[place], rules.goes_begin[place + 1]):
                there = there and state.busy[rules.goes_to[at]] >= way
            if there:
                state.way[place] = 0


def go_on(rules: Any, then: Any) -> int:
    """Time passes to the next event: how much; ``NEVER`` where nothing happens any more."""
    settle(rules, then)
    elapsed = NEVER
    for machine in range(rules.machines):
        if then.busy[machine] > 0:
            elapsed = min(elapsed, then.busy[machine])
    for place in range(rules.sent):
        if then.way[place] > 0:
            elapsed = min(elapsed, then.way[place])
    if elapsed == NEVER:
        return NEVER
    for place in range(rules.sent):
        then.way[place] = max(0, then.way[place] - elapsed)
    for machine in range(rules.machines):
        if then.busy[machine] > 0:
            family = then.runs[machine]
            then.busy[machine] -= elapsed
            then.left[family] -= elapsed
            if then.left[family] == 0 and rules.place[family] >= 0:
                then.way[rules.place[family]] = rules.lag[rules.place[family]]
        else:
            then.runs[machine] = NOTHING
    settle(rules, then)
    return elapsed


def all_run(rules: Any, state: Any) -> bool:
    """Whether no microbatch begins any more and everything has run, or all of the device whose span counts."""
    if not state.closed[0]:
        return False
    for machine in range(rules.machines):
        if rules.span < 0 or machine == rules.span:
            for at in range(rules.begin[machine], rules.begin[machine + 1]):
                if state.behind[rules.family[at]] != 0 or state.left[rules.family[at]] != 0:
                    return False
    return True


def last_tail(rules: Any, state: Any) -> int:
    """How long after the event at which all has run (:func:`all_run`) the devices end at least."""
    longest = 0
    for machine in range(rules.machines):
        if (rules.span < 0 or machine == rules.span) and state.runs[machine] != NOTHING:
            longest = max(longest, rules.tail[state.runs[machine]])
    return int(longest)


def write(state: Any, over: bool, rules: Any, row: int, table: Any) -> None:
    """The numbers of a state as a row of the table, those of the last state where it is ``over``."""
    first, second = rules.families, 2 * rules.families
    for family in range(rules.families):
        table[row + family], table[row + first + family] = (0, 0) if over else (state.behind[family], state.left[family])
    for place in range(rules.sent):
        table[row + second + place] = 0 if over else state.way[place]
    table[row + second + rules.sent] = state.closed[0]


def hash_of(row: int, rules: Any, table: Any) -> int:
    """The hash of the state in a row of the table, of 32 bits."""
    mixed = 0
    for place in range(rules.width):
        mixed += table[row + place] * rules.factor[place]
    return int(((mixed ^ (mixed >> 25)) & (2**31 - 1)) * _FACTOR & _BITS)


def read(rules: Any, row: int, table: Any, state: Any) -> int:
    """The state in a row of the table; how many ends and arrivals there will be of what has begun: fewer after every event."""
    for machine in range(rules.machines):
        state.busy[machine] = 0
    depth, first, second = 0, rules.families, 2 * rules.families
    for family in range(rules.families):
        behind, left = table[row + family], table[row + first + family]
        state.behind[family], state.left[family] = behind, left
        waiting = behind
        if left > 0:
            state.busy[rules.machine[family]], state.runs[rules.machine[family]] = left, family
            waiting += 1
        depth += 2 * waiting if rules.place[family] >= 0 else waiting
    for place in range(rules.sent):
        way = table[row + second + place]
        state.way[place] = way
        depth += 1 if way > 0 else 0
    state.closed[0] = table[row + second + rules.sent]
    return depth


def number_of(size: int, rules: Any, table: Any, slots: Any) -> int:
    """The number of the state in row ``size``, behind the known ones: ``size`` itself where it is new. Then it is noted.

    ``slots``: a hash table; each slot has the number of a state, -1 where it is free, and a part of its hash.
    """
    width, row = rules.width, size * rules.width
    hashed = hash_of(row, rules, table)
    slot, mark = hashed >> rules.shift, hashed & (2**31 - 1)
    while slots[2 * slot] >= 0:
        known = slots[2 * slot]
        if slots[2 * slot + 1] == mark:
            place = 0
            while place < width and table[known * width + place] == table[row + place]:
                place += 1
            if place == width:
                return int(known)
        slot = (slot + 1) & rules.mask
    slots[2 * slot], slots[2 * slot + 1] = size, mark
    return size


PARTS = (arrival, may_not_idle, look, choices, begin, settle, go_on, all_run, last_tail, write, hash_of, read, number_of)
CHANGED = ("table", "slots", "edges.target", "edges.begun", "edges.elapsed", "found.edges", "found.depth", "found.totals")


# seconds for a number of a state: measured, 500 states of 47 numbers take 0.02 s in Python, of 157 0.06 s, of 385 0.19 s
@loop(9e-7, CHANGED, PARTS)
def explore(
    done: int, size: int, until: int, rules: Any, facts: Any, now: Any, then: Any, table: Any, slots: Any, edges: Any, found: Any
) -> int:
    """What follows from the states ``done`` to ``until`` (not included), of ``size`` known ones; why it ended.

    ``edges``: those from these states, by source. ``found``: by source the number of edges and the depth, from 0 on; in
    ``totals`` how many states were done, how many are known now, and how many edges there are.
    """
    width = rules.width
    most_states, most_edges = len(table) // width, len(edges.target)
    rules, facts, now, then, edges, found = bare(rules), bare(facts), bare(now), bare(then), bare(edges), bare(found)
    table, slots = bare(table), bare(slots)
    first, count, why = done, 0, DONE
    while done < until and done < size:
        depth = read(rules, done * width, table, now)
        look(rules, facts, now)
        ways = choices(rules, facts, now)
        if count + ways > most_edges:
            why = MANY
            break
        if size + ways >= most_states:
            why = FULL
            break
        before = count
        for way in range(ways):
            begun = begin(way, rules, facts, now, then)
            if begun == TOO_FAR:
                why = FAR
            elapsed = go_on(rules, then) if begun >= 0 else NEVER
            if elapsed < NEVER:
                over = all_run(rules, then)
                write(then, over, rules, size * width, table)
                target = number_of(size, rules, table, slots)
                size += 1 if target == size else 0
                elapsed += last_tail(rules, then) if over else 0
                edges.target[count], edges.begun[count], edges.elapsed[count] = target, begun, elapsed
                count += 1
        if why == FAR:
            break
        found.edges[done - first], found.depth[done - first] = count - before, depth
        done += 1
    found.totals[0], found.totals[1], found.totals[2] = done, size, count
    return why


@loop(1e-5, ("slots",), (hash_of, number_of))
def number_all(size: int, rules: Any, table: Any, slots: Any) -> None:
    """Note all states in a hash table that is empty."""
    rules, table, slots = bare(rules), bare(table), bare(slots)
    for number in range(size):
        number_of(number, rules, table, slots)
