"""The loops that time an order; see :mod:`ppopt.compiled`.

Operations go by their numbers (:class:`~ppopt.op.OpIndex`); tables ``[route, kind, stage]`` and ``[route, stage]`` are laid out
in one row. An ``order`` is the numbers in the rows of all devices, where each row begins, the number of stages times that of
microbatches, and that of microbatches. A ``place`` is the route, by microbatch, and the device, ``[route, stage]``.
"""

from __future__ import annotations

from typing import Any

from ppopt.compiled import loop

NOT_RUN, WAITING = -1, -2
"""In place of the end of an operation: it is not in the order; it has not been run yet."""
FINE, MALFORMED, CYCLIC = 0, 1, 2
"""What became of an order: it has times; something is missing, run twice or elsewhere; operations wait for each other."""


@loop(6e-7, ("end", "duration"))
def enter(order: tuple[Any, Any, int, int], place: tuple[Any, Any], lasts: Any, overlap: Any, end: Any, duration: Any) -> int:
    """Mark what is run as ``WAITING`` in ``end`` and write down what it takes, ``duration``; whether the order is whole.

    ``lasts``: ``[route, kind, stage]``, negative: there is no such operation. ``overlap``: ``[route, stage]``, what a pair takes,
    negative: as long as its halves.
    """
    numbers, offsets, slots, microbatches = order
    route, device = place
    stages = slots // microbatches
    families = 4 * stages
    for d in range(len(offsets) - 1):
        for at in range(offsets[d], offsets[d + 1]):
            number = numbers[at]
            second = -1
            together = -1
            if number >= 6 * slots:
                number -= 6 * slots
                second = slots + number % slots
                number //= slots
                together = overlap[route[number % microbatches] * stages + number // microbatches]
            time = 0
            while number >= 0:
                if number >= 4 * slots or end[number] != NOT_RUN:
                    return MALFORMED
                end[number] = WAITING
                family = number // microbatches
                r = route[number % microbatches]
                took = lasts[r * families + family]
                if took < 0 or device[r * stages + family % stages] != d:
                    return MALFORMED
                time += took
                number = second
                second = -1
            duration[at] = together if together >= 0 else time
    for slot in range(slots):
        whole = end[slots + slot] == WAITING
        halved = end[2 * slots + slot] == WAITING
        if end[slot] != WAITING or whole == halved or halved != (end[3 * slots + slot] == WAITING):
            return MALFORMED
    return FINE


@loop(1.2e-6, ("start", "end", "sequence"))
def sweep(
    order: tuple[Any, Any, int, int],
    place: tuple[Any, Any],
    duration: Any,
    needs: tuple[Any, ...],
    demands: tuple[Any, ...],
    start: Any,
    end: Any,
    sequence: Any,
) -> int:
    """Start times of what was entered (:func:`enter`), no earlier than they are given; ``sequence``: its places, each behind all
    that it waits for, and left alone where it is empty. ``CYCLIC``: something never runs.

    Each device runs on until it needs a result that is not there yet, and again once the device that makes it has moved on.

    ``needs``: entries ``first[f]`` to ``first[f + 1]`` are what operations of the family ``f``, ``[route, kind, stage]``, wait
    for: operations of the same microbatch and the families ``needed``, ``[kind, stage]``, and ``lag`` ticks after these end.
    ``demands``: by the number of an operation the first of its further waits (an empty array: there are none); by wait the next
    one, -1: no more, for which operation it is, and the ticks after its end.
    """
    numbers, offsets, slots, microbatches = order
    route, device = place
    first_need, needed, lag = needs
    first_demand, next_demand, demanded, demanded_lag = demands
    devices, stages = len(offsets) - 1, slots // microbatches
    at = [0] * devices
    free = [0] * devices
    waiting = [-1] * devices  # by device the last one that waits for it
    beside = [-1] * devices  # by device the one that waits for the same and came before
    todo = [0] * devices
    for d in range(devices):
        at[d] = offsets[d]
        todo[devices - 1 - d] = d
    done, traced, more = 0, len(sequence) > 0, len(first_demand) > 0
    while len(todo) > 0:
        d = todo.pop()
        now, time, stuck = at[d], free[d], -1
        while now < offsets[d + 1]:
            ready = start[now]
            if ready < time:
                ready = time
            first = numbers[now]
            second = -1
            if first >= 6 * slots:
                first -= 6 * slots
                second = slots + first % slots
                first //= slots
            number, following = first, second
            while number >= 0:
                microbatch = number % microbatches
                family = route[microbatch] * 4 * stages + number // microbatches
                for i in range(first_need[family], first_need[family + 1]):
                    other = needed[i] * microbatches + microbatch
                    arrival = end[other]
                    if arrival >= 0:
                        arrival += lag[i]
                        if arrival > ready:
                            ready = arrival
                    elif arrival == WAITING:
                        stuck = other
                        break
                if more:
                    j = first_demand[number]
                    while j >= 0:
                        arrival = end[demanded[j]]
                        if arrival >= 0:
                            ready = max(ready, arrival + demanded_lag[j])
                        elif arrival == WAITING:
                            stuck = demanded[j]
                        j = next_demand[j]
                number, following = following, -1
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
            maker = device[route[stuck % microbatches] * stages + stuck // microbatches % stages]
            beside[d], waiting[maker] = waiting[maker], d
        if moved:
            other, waiting[d] = waiting[d], -1
            while other >= 0:
                todo.append(other)
                other = beside[other]
    return FINE if done == len(numbers) else CYCLIC
