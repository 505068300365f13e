"""The loops that time an order; see :mod:`ppopt.compiled`.

Operations go by their numbers (:class:`~ppopt.op.OpIndex`); tables ``[route, row, stage]`` and ``[route, stage]`` are laid out
in one row. An ``order`` is the numbers in the rows of all devices, where each row begins, the number of stages times that of
microbatches, that of microbatches, and that of the pieces of a weight gradient. A ``place`` is the route, by microbatch, and the
device, ``[route, row, stage]``.
"""

from __future__ import annotations

from typing import Any

from ppopt.compiled import loop

NOT_RUN, WAITING = -1, -2
"""In place of the end of an operation: it is not in the order; it has not been run yet."""
FINE, MALFORMED, CYCLIC = 0, 1, 2
"""What became of an order: it has times; something is missing, run twice or elsewhere; operations wait for each other."""


def rows_of(pieces: int) -> int:
    """How many rows tables by kind have."""
    return 4 if pieces == 1 else 7 + pieces


def halves(number: int, slots: int, pieces: int) -> tuple[int, int]:
    """The forward and the backward of a pair."""
    number -= (7 + pieces) * slots
    return number // slots, slots + number % slots


@loop(6e-7, ("end", "duration"), (halves, rows_of))
def enter(order: tuple[Any, ...], place: tuple[Any, Any], lasts: Any, overlap: Any, end: Any, duration: Any) -> int:
    """Mark what is run as ``WAITING`` in ``end`` and write down what it takes, ``duration``; whether the order is whole.

    ``lasts``: ``[route, row, stage]``, negative: there is no such operation. ``overlap``: ``[route, stage]``, what a pair takes,
    negative: as long as its halves.
    """
    numbers, offsets, slots, microbatches, pieces = order
    route, device = place
    stages = slots // microbatches
    families = rows_of(pieces) * stages
    for d in range(len(offsets) - 1):
        for at in range(offsets[d], offsets[d + 1]):
            number, second, together = numbers[at], -1, -1
            if number >= (7 + pieces) * slots:
                number, second = halves(number, slots, pieces)
                together = overlap[route[number % microbatches] * stages + number // microbatches]
            time = 0
            while number >= 0:
                if 4 * slots <= number < 8 * slots or end[number] != NOT_RUN:
                    return MALFORMED
                end[number] = WAITING
                family = number // microbatches
                r = route[number % microbatches]
                took = lasts[r * families + family]
                if took < 0 or device[r * families + family] != d:
                    return MALFORMED
                time += took
                number, second = second, -1
            duration[at] = together if together >= 0 else time
    for slot in range(slots):
        whole = end[slots + slot] == WAITING
        halved = end[2 * slots + slot] == WAITING
        if end[slot] != WAITING or whole == halved or halved != (end[3 * slots + slot] == WAITING):
            return MALFORMED
        for piece in range(1, pieces):
            if halved != (end[(7 + piece) * slots + slot] == WAITING):
                return MALFORMED
    return FINE


def data_there(
    number: int, ready: int, microbatches: int, families: int, route: Any, needs: tuple[Any, ...], end: Any
) -> tuple[int, int]:
    """When the data of an operation are there that is ready otherwise; and one that is not run yet, -1: all are."""
    first, before, lag = needs
    microbatch = number % microbatches
    family = number // microbatches + route[microbatch] * families
    for i in range(first[family], first[family + 1]):
        other = before[i] * microbatches + microbatch
        arrival = end[other]
        if arrival >= 0:
            ready = max(ready, arrival + lag[i])
        elif arrival == WAITING:
            return ready, other
    return ready, -1


def demanded(number: int, ready: int, demands: tuple[Any, ...], end: Any) -> tuple[int, int]:
    """When the further waits of an operation are over that is ready otherwise; and one that is not run yet, -1: all are."""
    first, following, before, lag = demands
    late, j = -1, first[number]
    while j >= 0:
        arrival = end[before[j]]
        if arrival >= 0:
            ready = max(ready, arrival + lag[j])
        elif arrival == WAITING:
            late = before[j]
        j = following[j]
    return ready, late


@loop(1.2e-6, ("start", "end", "sequence"), (halves, rows_of, data_there, demanded))
def sweep(order: Any, place: Any, duration: Any, needs: Any, demands: Any, start: Any, end: Any, sequence: Any) -> int:
    """Start times of what was entered (:func:`enter`), no earlier than they are given; ``sequence``: its places, each behind all
    that it waits for, and left alone where it is empty. ``CYCLIC``: something never runs.

    Each device runs on until it needs a result that is not there yet, and again once the device that makes it has moved on.

    ``needs``: entries ``first[f]`` to ``first[f + 1]`` are what operations of the family ``f``, ``[route, row, stage]``, wait
    for: operations of the same microbatch and the families ``needed``, ``[row, stage]``, and ``lag`` ticks after these end.
    ``demands``: by the number of an operation the first of its further waits (an empty array: there are none); by wait the next
    one, -1: no more, for which operation it is, and the ticks after its end.
    """
    numbers, offsets, slots, microbatches, pieces = order
    route, device = place
    devices, families = len(offsets) - 1, rows_of(pieces) * (slots // microbatches)
    at, free, todo = list(offsets[:-1]), [0] * devices, list(range(devices))
    waiting = [-1] * devices  # by device the last one that waits for it
    beside = [-1] * devices  # by device the one that waits for the same and came before
    done, traced, more = 0, len(sequence) > 0, len(demands[0]) > 0
    while len(todo) > 0:
        d = todo.pop()
        now, time, stuck = at[d], free[d], -1
        while now < offsets[d + 1]:
            ready = start[now]
            if ready < time:
                ready = time
            first, second = numbers[now], -1
            if first >= (7 + pieces) * slots:
                first, second = halves(first, slots, pieces)
            ready, stuck = data_there(first, ready, microbatches, families, route, needs, end)
            if second >= 0 and stuck < 0:
                ready, stuck = data_there(second, ready, microbatches, families, route, needs, end)
            if more and stuck < 0:
                ready, stuck = demanded(first, ready, demands, end)
                if second >= 0 and stuck < 0:
                    ready, stuck = demanded(second, ready, demands, end)
            if stuck >= 0:
                break
            start[now] = ready
            time = ready + duration[now]
            end[first] = time
            if second >= 0:
                end[second] = time
            if traced:
                sequence[done] = now
            done += 1
            now += 1
        moved = now > at[d]
        at[d], free[d] = now, time
        if stuck >= 0:
            maker = device[route[stuck % microbatches] * families + stuck // microbatches]
            beside[d], waiting[maker] = waiting[maker], d
        if moved:
            other, waiting[d] = waiting[d], -1
            while other >= 0:
                todo.append(other)
                other = beside[other]
    return FINE if done == len(numbers) else CYCLIC
