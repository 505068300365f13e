"""Edge finding: which durations leave no time for a schedule of some makespan, and so what a makespan is at least.

An operation starts no earlier than its head, and ends no later than its tail lets it within the makespan. On one machine more
follows from that, as it runs one operation at a time:

* what has to be done between the earliest start and the latest end of some operations has to fit;
* an operation that would not fit among those that have to end by some time, if it came before the last of them, comes behind all
  of them (*edge finding*: Carlier and Pinson, "An algorithm for solving the job-shop problem", 1989);
* an operation that would end behind the latest start of another comes behind it, and behind all such (*detectable precedences*).

Each raises earliest starts, and, with time running backwards, lowers latest ends; those of what waits for these operations
follow, until nothing changes. Both are found by the trees of Vilim ("Global constraints in scheduling", 2007), in ``n log n``
steps for ``n`` operations of a machine. Where no time is left for some operation there is no schedule of that makespan.

Measured on the 4024 cuts of 40 layers in 16 stages whose one-machine bounds are below the best known makespan, as far as they
were learned from the least of them: 3870 have no schedule that is better, by this alone, which takes 0.2 ms for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ppopt.clock import Clock, Limits, in_threads
from ppopt.compiled import bare, expect, loop
from ppopt.constraints import FamilyGraph, Precedence
from ppopt.pipeline import IntArray

SECONDS = 1.5e-7
"""Deterministic seconds of an operation, each time that starts are raised. Measured: as long on an idle machine."""
ROUNDS = 30
"""How often starts are raised for durations that are not refuted, about, while the least makespan that is not is searched for.
Measured: 33 to 34 times, with 96 to 384 operations."""
OFTEN = 2**15
"""How often starts of operations are raised between two looks at the clock: half a second in Python."""
NEVER = -(2**60)
"""When operations have ended that there are none of."""
EMPTY, ALL, MAYBE = 0, 1, 2
"""What a leaf of a tree has: nothing; an operation; one of those of which at most one counts."""
FULL, SAME, LATER = -1, 0, 1
"""What became of a machine's operations: they do not fit; their earliest starts are as before; some are later."""


class EdgeFinding:
    """Edge finding on one graph of alike microbatches of one route, for many durations of its families.

    The graph's own durations and reservoirs do not matter. Its lags, and what is before and behind operations, count ``scale``
    times, unless that is given with the durations. Operations without duration are in nobody's way.
    """

    def __init__(self, graph: FamilyGraph, scale: int = 1) -> None:
        self.families, self.count = len(graph.families), graph.count[0]
        assert set(graph.count) == {self.count}, "microbatches of one route"
        in_order = [Precedence(family, family, 1) for family in range(self.families)]
        waits = np.array(sorted([*graph.precedences, *in_order], key=lambda one: one.after), dtype=np.int64)
        waits[:, 3] *= scale
        own = [family * self.count + n for machine in graph.machines for family in machine.families for n in range(self.count)]
        sizes = [len(machine.families) * self.count for machine in graph.machines]
        self.margins = np.array([graph.lead, graph.tail], dtype=np.int64) * scale
        """What is before the operations of each family, and what is behind them, in ticks."""
        self._own = np.array(own, dtype=np.int64)
        self.rules = _rows(waits.T), np.cumsum([0, *sizes])
        self.sizes = len(sizes), len(waits), self.families, self.count, 1 << max(max(sizes) - 1, 0).bit_length()
        self._lags = int(self.count * waits[:, 3].sum())

    def raised(self, durations: IntArray, bounds: IntArray, below: int, limits: Limits) -> IntArray:
        """Bounds of the makespan with each of some durations (a row for all families), where ``bounds`` are known, up to
        ``below``; all in ticks. When the clock is over the last ones are left as they are."""
        margins = np.broadcast_to(self.margins, (len(durations), *self.margins.shape))
        return self.asked(np.concatenate([durations[:, None], margins], axis=1), bounds, below, limits, once=False)[0]

    def asked(
        self, times: IntArray, bounds: IntArray, below: int, limits: Limits, once: bool
    ) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """What :meth:`raised` says, or, where they are asked ``once``, ``below`` for those that have no makespan below that; and
        of which that is known before the clock is over. ``times``: of each the durations, what is before and what is behind."""
        found, done, parts = bounds.copy(), np.zeros(len(bounds), dtype=np.bool_), limits.threads
        expect((1 if once else ROUNDS) * self.families * self.count * len(times), raise_bounds)

        def raise_part(part: int) -> None:
            own = times[part::parts], bounds[part::parts], below, once
            found[part::parts], done[part::parts] = self._asked(*own, limits.clock)

        in_threads(raise_part, limits)
        return found, done

    def _asked(
        self, times: IntArray, bounds: IntArray, below: int, once: bool, clock: Clock
    ) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """:meth:`asked` by one thread."""
        found, state, operations, work = bounds.copy(), np.zeros(2, np.int64), self.families * self.count, self.room()
        whole = times[:, 0].sum(axis=1) * self.count + times[:, 1:].max(axis=2).sum(axis=1)
        longest = int(whole.max(initial=0)) + self._lags + abs(below)
        assert 2 * longest * operations < -NEVER // 2, "far from never"
        rows = np.ascontiguousarray(times).ravel()
        while state[0] < len(found) and not clock.over:
            often = min(ROUNDS * operations * (len(found) - int(state[0])), OFTEN)
            raise_bounds(often, 2 * longest * operations - NEVER, below, once, self.sizes, self.rules, rows, found, work, state)
            clock.charge(SECONDS * int(state[1]))
        return found, np.arange(len(found)) < state[0]

    def room(self) -> tuple[tuple[IntArray, ...], tuple[IntArray, ...], tuple[IntArray, ...], IntArray]:
        """Room for one thread: of each operation its earliest start, its negative latest end, its duration, and two numbers more;
        the operations of each machine in four orders; a tree; for each machine with what windows nothing is raised."""
        operations = self.families * self.count
        starts, trees = (_rows(np.zeros(shape, np.int64)) for shape in ((5, operations), (6, 2 * self.sizes[-1])))
        return starts, _rows(np.repeat(self._own[None, :], 4, axis=0)), trees, np.full(self.sizes[0], NEVER)


def _rows(table: IntArray) -> tuple[IntArray, ...]:
    """The rows of a table, each on its own."""
    return tuple(np.ascontiguousarray(row) for row in table)


def join(tree: Any, node: int) -> None:
    """What a node has of both of its children.

    A tree has the operations of a machine by their earliest starts. Of each node ``total`` is what those that are :data:`ALL`
    take, ``until`` when they have ended at the earliest; ``more`` and ``late`` are the same with one of those that are
    :data:`MAYBE`, if that is more, and ``of_more`` and ``of_late`` say which one, -1: none.
    """
    total, until, more, late, of_more, of_late = tree
    left, right = 2 * node, 2 * node + 1
    total[node] = total[left] + total[right]
    until[node] = max(until[right], until[left] + total[right])
    more[node], of_more[node] = more[left] + total[right], of_more[left]
    if total[left] + more[right] > more[node]:
        more[node], of_more[node] = total[left] + more[right], of_more[right]
    late[node], of_late[node] = late[right], of_late[right]
    if until[left] + more[right] > late[node]:
        late[node], of_late[node] = until[left] + more[right], of_more[right]
    if late[left] + total[right] > late[node]:
        late[node], of_late[node] = late[left] + total[right], of_late[left]


def put(tree: Any, leaf: int, which: int, operation: int, start: int, time: int) -> None:
    """Set what a leaf of a tree has."""
    total, until, more, late, of_more, of_late = tree
    total[leaf], until[leaf], more[leaf], late[leaf], of_more[leaf], of_late[leaf] = 0, NEVER, 0, NEVER, -1, -1
    if which != EMPTY:
        more[leaf], late[leaf] = time, start + time
    if which == ALL:
        total[leaf], until[leaf] = time, start + time
    if which == MAYBE:
        of_more[leaf], of_late[leaf] = operation, operation


def change(tree: Any, leaf: int, which: int, operation: int, start: int, time: int) -> None:
    """Set what a leaf of a tree has, and what follows for all nodes above it."""
    put(tree, leaf, which, operation, start, time)
    node = leaf // 2
    while node:
        join(tree, node)
        node //= 2


def sort(order: Any, begin: int, end: int, key: Any, time: Any, often: int) -> None:
    """Sort the operations of a machine by ``key + often * time``; they nearly are."""
    for i in range(begin + 1, end):
        operation, j = order[i], i
        value = key[operation] + often * time[operation]
        while j > begin and key[order[j - 1]] + often * time[order[j - 1]] > value:
            order[j] = order[j - 1]
            j -= 1
        order[j] = operation


def grow(begin: int, end: int, width: int, starts: Any, order: Any, tree: Any) -> None:
    """Make the tree of a machine, with all of its operations that take time; for each its leaf, and no raised start yet."""
    early, _, time, raised, leaf = starts
    for i in range(width):
        operation = order[begin + i] if begin + i < end else -1
        if operation >= 0:
            raised[operation], leaf[operation] = early[operation], width + i
        if operation >= 0 and time[operation]:
            put(tree, width + i, ALL, operation, early[operation], time[operation])
        else:
            put(tree, width + i, EMPTY, -1, 0, 0)
    for node in range(width - 1, 0, -1):
        join(tree, node)


def find_edges(begin: int, end: int, starts: Any, by_late: Any, tree: Any) -> bool:
    """Raise starts of operations that come behind all those that have to end by some time; ``False``: these do not fit.

    ``by_late``: the operations, the latest end first.
    """
    early, minus_late, time, raised, leaf = starts
    until, late, of_late = tree[1], tree[3], tree[5]
    for at in range(begin, end):
        last = by_late[at]
        if not time[last]:
            continue
        if until[1] > -minus_late[last]:
            return False
        while late[1] > -minus_late[last]:
            other = of_late[1]
            raised[other] = max(raised[other], until[1])
            change(tree, leaf[other], EMPTY, -1, 0, 0)
        change(tree, leaf[last], MAYBE, last, early[last], time[last])
    return True


def add(tree: Any, leaf: int, start: int, time: int) -> None:
    """Let an operation count for all in the nodes above its leaf, where none is :data:`MAYBE`."""
    total, until, _, _, _, _ = tree
    total[leaf], until[leaf] = time, start + time
    node = leaf // 2
    while node:
        left, right = 2 * node, 2 * node + 1
        total[node] = total[left] + total[right]
        until[node] = max(until[right], until[left] + total[right])
        node //= 2


def until_without(tree: Any, leaf: int) -> int:
    """When all but the operation of a leaf have ended at the earliest."""
    total, until, _, _, _, _ = tree
    taken, ended = 0, NEVER
    while leaf > 1:
        other = leaf ^ 1
        ended = max(ended, until[other] + taken) if leaf % 2 else max(until[other], ended + total[other])
        taken += total[other]
        leaf //= 2
    return ended


def find_precedences(begin: int, end: int, starts: Any, by_end: Any, by_start: Any, tree: Any) -> None:
    """Raise starts of operations that come behind those that cannot come behind them.

    ``by_end``: the operations, the earliest end first; ``by_start``: the largest latest start first. In the tree nothing counts
    for all yet, as :func:`find_edges` leaves it.
    """
    early, minus_late, time, raised, leaf = starts
    at = end - 1
    for k in range(begin, end):
        operation = by_end[k]
        if not time[operation]:
            continue
        while at >= begin and -minus_late[by_start[at]] - time[by_start[at]] < early[operation] + time[operation]:
            other = by_start[at]
            if time[other]:
                add(tree, leaf[other], early[other], time[other])
            at -= 1
        raised[operation] = max(raised[operation], until_without(tree, leaf[operation]))


def raise_starts(begin: int, end: int, width: int, starts: Any, orders: Any, tree: Any) -> int:
    """Raise the earliest starts of a machine's operations: ``FULL`` where they do not fit, else whether any is later.

    ``starts``: earliest starts, negative latest ends, durations, and room for raised starts and for leaves. ``orders``: of the
    earliest starts, of the negative latest ends, and of both with durations.
    """
    early, minus_late, time, raised, _ = starts
    by_early, by_late, by_end, by_start = orders
    sort(by_early, begin, end, early, time, 0)
    sort(by_late, begin, end, minus_late, time, 0)
    grow(begin, end, width, starts, by_early, tree)
    if not find_edges(begin, end, starts, by_late, tree):
        return FULL
    sort(by_end, begin, end, early, time, 1)
    sort(by_start, begin, end, minus_late, time, 1)
    find_precedences(begin, end, starts, by_end, by_start, tree)
    later = SAME
    for at in range(begin, end):
        operation = by_early[at]
        if raised[operation] > early[operation]:
            early[operation], later = raised[operation], LATER
    return later


def follow(sizes: Any, waits: Any, starts: Any) -> bool:
    """Raise what waits for operations, and lower what these wait for; ``False``: some operation has no time left."""
    _, number, families, count, _ = sizes
    before, after, shift, lag = waits
    early, minus_late, time, _, _ = starts
    for n in range(count):
        for i in range(number):
            if n >= shift[i]:
                first, then = before[i] * count + n - shift[i], after[i] * count + n
                early[then] = max(early[then], early[first] + time[first] + lag[i])
    for n in range(count - 1, -1, -1):
        for i in range(number - 1, -1, -1):
            if n >= shift[i]:
                first, then = before[i] * count + n - shift[i], after[i] * count + n
                minus_late[first] = max(minus_late[first], minus_late[then] + time[then] + lag[i])
    missing = 0
    for operation in range(families * count):
        missing = max(missing, early[operation] + time[operation] + minus_late[operation])
    return missing == 0


def raised_until_full(most: int, own: int, times: Any, sizes: Any, rules: Any, work: Any) -> int:
    """Whether operations do not fit into ``most`` ticks: what :func:`raised_until_settled` says of these windows. ``own``: where
    the durations of the families are in ``times``, behind which there is what is before them and what is behind them."""
    machines, _, families, count, _ = sizes
    lead, tail = own + families, own + 2 * families
    early, minus_late, settled = work[0][0], work[0][1], work[3]
    for machine in range(machines):
        settled[machine] = NEVER
    for family in range(families):
        for operation in range(family * count, family * count + count):
            early[operation], minus_late[operation] = times[lead + family], times[tail + family] - most
    return raised_until_settled(sizes, rules, work)


def moved(begin: int, end: int, order: Any, early: Any, minus_late: Any) -> int:
    """The sum of earliest starts and of negative latest ends of a machine's operations: more where any window is narrower."""
    found = 0
    for at in range(begin, end):
        found += early[order[at]] + minus_late[order[at]]
    return found


def raised_until_settled(sizes: Any, rules: Any, work: Any) -> int:
    """Raise earliest starts and lower latest ends until nothing changes. One more than operations were looked at, each counted as
    often as it was, until it is clear that they do not fit; negative: they may, after so many.

    A machine is left out while its windows are those of when nothing was raised there (``work[3]``, see :func:`moved`): windows
    only become narrower.
    """
    machines, _, families, count, width = sizes
    waits, begin = rules
    starts, (by_early, by_late, by_end, by_start), tree, settled = work
    early, minus_late, time, raised, leaf = starts
    number: int = 1
    rounds, later = 0, True
    while later and rounds < families * count:
        rounds += 1
        later = False
        if not follow(sizes, waits, starts):
            return number
        for machine in range(machines):
            first, last = begin[machine], begin[machine + 1]
            before = moved(first, last, by_early, early, minus_late)
            if before == settled[machine]:
                continue
            number += last - first
            there = raise_starts(first, last, width, starts, (by_early, by_late, by_end, by_start), tree)
            if there == FULL:
                return number
            turned = (minus_late, early, time, raised, leaf)
            back = raise_starts(first, last, width, turned, (by_late, by_early, by_start, by_end), tree)
            if back == FULL:
                return number
            if there == SAME and back == SAME:
                settled[machine] = before
            else:
                later = True
    return -number


SETTLING = (
    join,
    put,
    change,
    add,
    until_without,
    sort,
    grow,
    find_edges,
    find_precedences,
    raise_starts,
    follow,
    moved,
    raised_until_settled,
)
PARTS = (*SETTLING, raised_until_full)


@loop(1.6e-5, ("found", "state"), PARTS)
def raise_bounds(below: int, once: bool, sizes: Any, rules: Any, times: Any, found: Any, work: Any, state: Any) -> None:
    """Raise bounds up to ``below``, from that of the durations ``state[0]`` on, until enough operations were raised, each counted
    as often as it was: ``state[1]``. ``once``: only those that are no less."""
    rules, work = bare(rules), bare(work)
    _, _, families, count, _ = sizes
    time = work[0][2]
    row, spent = state[0], 0
    while row < len(found) and spent < OFTEN:
        for family in range(families):
            for operation in range(family * count, family * count + count):
                time[operation] = times[3 * row * families + family]
        low, high, step = found[row], below, 1
        most = below - 1
        while low < high:
            raised = raised_until_full(most, 3 * row * families, times, sizes, rules, work)
            if raised > 0:
                low, step = most + 1, 2 * step
            else:
                high = most
            most = min(low + step - 1, (low + high - 1) // 2)
            spent += abs(raised)
            if once:
                break
        found[row] = low
        row += 1
    state[0], state[1] = row, spent
