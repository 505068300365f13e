"""What every solver takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from ppopt.constraints import Capacity, Word, select, spread
from ppopt.heuristics import Jobs, listable, run_jobs
from ppopt.heuristics.claims import lasting
from ppopt.op import COPIES
from ppopt.pipeline import IntArray, Pipeline, computed
from ppopt.schedule import Objective, Order, Schedule, Transfers, durations, halves, in_sequence
from ppopt.timing.copies import reloaded_late
from ppopt.timing.demands import demands_of, settled
from ppopt.timing.links import in_turn, left_shifted, made, sent
from ppopt.timing.timed import CyclicOrder, time_order

Progress: TypeAlias = Callable[[int | None, int], None]
"""Called with the best value and the lower bound, in ticks, whenever one improves, from any thread."""


class TooLarge(ValueError):
    """A model of the pipeline would be larger than the solver can be expected to handle."""


class NotForIlp(ValueError):
    """A word that binds and that the ILP has no way to say; CP-SAT has."""


def check_for_ilp(pipeline: Pipeline, words: Iterable[Word]) -> None:
    """Nothing, where the ILP can say all these words.

    Raises:
        NotForIlp: what is held is on several devices; the program knows who is first on one device only.
    """
    for word in select(words, Capacity):
        copies = all(hold.claim.kind in COPIES for hold in word.holds)  # of which it knows who is first on any device
        if spread(pipeline, word) and not copies:
            raise NotForIlp('solver = "ilp" takes a Capacity within one device only; "cp-sat" takes any')


@dataclass(frozen=True)
class Outcome:
    """What a search has shown.

    ``schedule``: the best found, timed with the true durations. ``lower_bound``: ticks; no schedule within the horizon
    is better, and where there is none at all it is above the upper end. ``interrupted``: Ctrl-C ended it.
    """

    schedule: Schedule | None
    lower_bound: int
    interrupted: bool = field(default=False, kw_only=True)


def timed(
    pipeline: Pipeline,
    words: Iterable[Word],
    numbers: IntArray,
    starts: IntArray,
    objective: Objective,
    grid: int = 1,
    parts: int = 1,
) -> Schedule:
    """A found order (operations, and their starts in steps of ``grid`` ticks) with the pipeline's true times.

    With ``parts`` of a step the starts are counted in these, no two are the same on a device, and they are the order.

    Sorting the starts is not enough where operations take no time and many start at once: the list scheduler puts these in
    an order that data and memory allow, starting each operation when the solver did; at one time, what takes no time goes
    first, oldest microbatch first. Starting everything as early as possible can lengthen a device's span, so the found
    starts are kept where they are better. Found transfers, each as early as the found order of its link allows, are kept where
    they do better than first come, first served. An order does not imply what words say between devices: the times wait for it,
    and only such are given that obey.

    Raises:
        Stuck: operations that take no time start at once, and no order of these fits the memory.
        CyclicOrder: the same between devices, or an order found on a coarser grid contradicts words between devices.
    """
    words = tuple(words)
    when = dict(zip(numbers.tolist(), (starts // parts).tolist(), strict=True))
    if pipeline.engines:
        return timed_with_copies(pipeline, words, numbers, starts, objective, grid, parts)
    computing = computed(pipeline.index, numbers)
    if parts > 1:
        order = in_sequence(pipeline, numbers[np.argsort(starts, kind="stable")])
    else:
        order = _listed(pipeline, listable(pipeline, words), numbers[computing], when, grid)
    demands = demands_of(pipeline, words)
    if between := tuple(word for word in words if spread(pipeline, word)):
        demands += settled(pipeline, between, *_when(pipeline, numbers, starts, grid, parts))
    schedules: list[Schedule] = []
    cyclic = None
    try:
        schedules.append(time_order(pipeline, order, demands=demands))
    except CyclicOrder as error:  # what takes no time starts with what it waits for
        if grid > 1:
            raise
        cyclic = error
    if grid > 1:
        return schedules[0]

    def times(rows: Sequence[IntArray]) -> tuple[IntArray, ...]:
        return tuple(np.array([when[number] for number in row.tolist()], dtype=np.int64) for row in rows)

    transfers = tuple(row[np.argsort(times([row])[0], kind="stable")] for row in sent(pipeline))
    found = Schedule(pipeline, order, times(order.rows), Transfers(transfers, times(transfers)))
    in_place = all((start[1:] >= end[:-1]).all() for start, end in zip(found.start, found.end, strict=True))
    if in_place:  # else what takes no time had to change places
        schedules.append(found)
        if pipeline.lines and cyclic is None:
            schedules.insert(1, left_shifted(found, demands))
    if cyclic is not None and not in_place:
        raise cyclic
    return min(schedules, key=lambda schedule: schedule.objective(objective))


def timed_with_copies(
    pipeline: Pipeline, words: tuple[Word, ...], numbers: IntArray, starts: IntArray, objective: Objective, grid: int, parts: int
) -> Schedule:
    """:func:`timed` where activations may be on the host: copies are found with the rest, and who claims memory waits for them.

    Raises:
        CyclicOrder: operations wait for each other, or what was found on a coarser grid does not fit the memory.
    """
    longer = durations(pipeline, numbers) > 0
    kind = halves(pipeline.index, numbers)[0] // (pipeline.stages * pipeline.microbatches)
    found = np.lexsort((numbers, kind, longer, starts))  # what takes no time goes first, F before B before I before W
    order = in_sequence(pipeline, numbers[found])
    times, ends = _when(pipeline, numbers, starts, grid, parts)
    demands = demands_of(pipeline, words) + settled(pipeline, words, times, ends)
    nominal = np.where(times >= 0, times.astype(np.float64), np.nan)
    schedules = []
    try:
        left = in_turn(pipeline, order, nominal, demands)
        schedules.append(reloaded_late(left))
    except ValueError as error:
        if grid > 1 or parts > 1:
            raise CyclicOrder([str(error)]) from error
    if grid == 1 and parts == 1:
        copies = made(pipeline, nominal)
        transfers = tuple(row[np.argsort(times[row], kind="stable")] for row in sent(pipeline))
        rows = tuple(times[halves(pipeline.index, row)[0]] for row in order.rows)
        sending, copying = (Transfers(of, tuple(times[row] for row in of)) for of in (transfers, copies))
        own = Schedule(pipeline, order, rows, sending, copying)
        until = (*own.end, *(start + durations(pipeline, row) for row, start in zip(*copying, strict=True)))
        if all((start[1:] >= end[:-1]).all() for start, end in zip((*own.start, *copying.start), until, strict=True)):
            schedules.append(reloaded_late(own))
    schedules = [schedule for schedule in schedules if schedule.within_memory]
    if not schedules:
        raise CyclicOrder(["what was found does not fit the memory"])
    return min(schedules, key=lambda schedule: schedule.objective(objective))


def _when(pipeline: Pipeline, numbers: IntArray, starts: IntArray, grid: int, parts: int) -> tuple[IntArray, IntArray]:
    """By the number of each single operation its found start and end, in parts of a step; -1: it is not run."""
    begin, end = (np.full(pipeline.index.size, -1, dtype=np.int64) for _ in range(2))
    steps = durations(pipeline, numbers) // grid
    ends = starts + np.where((steps == 0) & (parts > 1), 1, steps * parts)
    for half in halves(pipeline.index, numbers):
        begin[half[half >= 0]], end[half[half >= 0]] = starts[half >= 0], ends[half >= 0]
    return begin, end


def _listed(pipeline: Pipeline, words: Iterable[Word], numbers: IntArray, when: Mapping[int, int], grid: int) -> Order:
    """The order in which the list scheduler runs these operations if it starts them at these times, in steps."""
    first, second = halves(pipeline.index, numbers)
    words = (lasting(word, reserved=False) if isinstance(word, Capacity) else word for word in words)  # the rest fits as found
    jobs = Jobs(pipeline, words, run=np.sort(np.concatenate((first, second[second >= 0]))), pairs=numbers[second >= 0])
    jobs.duration, jobs.lag = jobs.duration // grid, jobs.lag // grid
    release = np.array([when[number] for number in jobs.numbers.tolist()], dtype=np.int64)
    microbatch = halves(pipeline.index, jobs.numbers)[0] % pipeline.microbatches
    ranks = (release, (jobs.duration > 0).astype(np.int64), microbatch, jobs.features.turn)
    return run_jobs(jobs, ranks, reserve=False, release=release)
