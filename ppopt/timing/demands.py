"""What words ask for that no order implies: waits between devices, waits of some length, and who goes first between devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ppopt.constraints import (
    Away,
    Capacity,
    Dealt,
    Exclusive,
    Family,
    Precede,
    Stream,
    Word,
    device_of_family,
    instances,
    operations,
    rules_of,
    select,
    sends,
    spread,
)
from ppopt.op import Kind, Send
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule, devices_of, durations, halves


class Demands(NamedTuple):
    """``after`` starts at least ``lag`` ticks after ``before`` ends, where both are run; numbers of single computations."""

    before: IntArray
    after: IntArray
    lag: IntArray

    def __bool__(self) -> bool:
        return len(self.before) > 0

    def __add__(self, other: object) -> Demands:
        assert isinstance(other, Demands)
        return Demands(*map(np.concatenate, zip(self, other, strict=True)))


_NONE = np.array([], dtype=np.int64)
NO_DEMANDS = Demands(_NONE, _NONE, _NONE)


def demands_of(pipeline: Pipeline, words: Iterable[Word]) -> Demands:
    """The waits of the ``Precede`` words, beside the rules, between devices or of some length: an order tells the others."""
    found: list[Demands] = [NO_DEMANDS]
    rules: set[Word] = set()
    for word in select(words, Precede):
        if sends(word.before) or sends(word.after):
            continue
        if not word.lag and _in_place(pipeline, word.before, word.after):
            continue
        rules = rules or set(rules_of(pipeline, links=False))
        if word in rules:
            continue
        before, after = instances(pipeline, word)
        kept = (devices_of(pipeline, before) != devices_of(pipeline, after)) | (word.lag > 0)
        found.append(Demands(before[kept], after[kept], np.full(int(kept.sum()), word.lag, dtype=np.int64)))
    return Demands(*map(np.concatenate, zip(*found, strict=True)))


def _in_place(pipeline: Pipeline, *streams: Stream) -> bool:
    """Whether all operations of these streams are on one device."""
    devices: set[int] = set()
    for stream in streams:
        if isinstance(stream, Family):
            devices.add(device_of_family(pipeline, stream))
        elif isinstance(stream, Dealt):
            devices |= {device_of_family(pipeline, family) for family in stream.families}
        else:
            devices.update(devices_of(pipeline, operations(pipeline, stream)).tolist())
    return len(devices) <= 1


def between_devices(pipeline: Pipeline, words: Iterable[Word]) -> tuple[Exclusive | Capacity, ...]:
    """The words that say who goes first between devices, or of copies: the orders of the devices do not tell that."""
    return tuple(
        word
        for word in select(words, Exclusive, Capacity)
        if (isinstance(word, Capacity) and (word.away or any(sends(hold.claim) for hold in word.holds))) or spread(pipeline, word)
    )


def settled(pipeline: Pipeline, words: Iterable[Word], start: IntArray, end: IntArray) -> Demands:
    """Waits that make the words :func:`between_devices` hold, whatever the times, in the order of given ones.

    ``start``, ``end``: by the number of each single operation when it runs (in any unit), -1 where it does not. What excludes
    each other runs in the order of its starts. What is claimed waits until enough has been given back of what was claimed before,
    what is given back first at first: two holds that may overlap are then two that fit together, and so do all that overlap at
    some time.
    """
    waits: list[tuple[int, int]] = []
    for word in between_devices(pipeline, words):
        if isinstance(word, Exclusive):
            waits += _one_by_one(pipeline, word, start, end)
        else:
            waits += _held(pipeline, word, start, end)
    if not waits:
        return NO_DEMANDS
    before, after = np.array(waits, dtype=np.int64).T
    return Demands(before, after, np.zeros(len(before), dtype=np.int64))


def _one_by_one(pipeline: Pipeline, word: Exclusive, start: IntArray, end: IntArray) -> list[tuple[int, int]]:
    ops = np.unique(np.concatenate([operations(pipeline, stream) for stream in word.streams]))
    ops = ops[start[ops] >= 0]
    row = ops[np.lexsort((ops, end[ops], start[ops]))].tolist()
    device = devices_of(pipeline, np.array(row, dtype=np.int64)).tolist()
    return [(row[i], row[i + 1]) for i in range(len(row) - 1) if device[i] != device[i + 1]]


def _held(pipeline: Pipeline, word: Capacity, start: IntArray, end: IntArray) -> list[tuple[int, int]]:
    holds: list[tuple[int, int, int]] = []  # claim, release, amount
    for hold in word.holds:
        claims = operations(pipeline, hold.claim)
        ends = np.array([operations(pipeline, family) for family in hold.release])
        run = np.where(start[ends] >= 0, end[ends], -1)
        releases = ends[run.argmax(axis=0), np.arange(len(claims))]
        holds += zip(claims.tolist(), releases.tolist(), [hold.amount] * len(claims), strict=True)
    holds = [hold for hold in holds if start[hold[0]] >= 0]
    for away in word.away:
        holds = _moved(pipeline, away, holds, start)
    holds.sort(key=lambda hold: (int(start[hold[0]]), int(end[hold[1]]), hold))
    waits: list[tuple[int, int]] = []
    held: list[tuple[int, int, int]] = []
    gone: list[int] = []
    told: dict[tuple[int, bool], int] = {}  # by device of a claim, or its engine, how many that are gone they wait for already
    slots = pipeline.stages * pipeline.microbatches
    for claim, release, amount in holds:
        held.sort(key=lambda hold: int(end[hold[1]]))
        while held and sum(other for _, _, other in held) + amount > word.limit:
            gone.append(held.pop(0)[1])
        held.append((claim, release, amount))
        place = int(devices_of(pipeline, np.array([claim]))[0]), claim // slots >= Send.SEND_F
        waits += [(other, claim) for other in gone[told.get(place, 0) :] if other != claim]
        told[place] = len(gone)
    return waits


def _moved(pipeline: Pipeline, away: Away, holds: list[tuple[int, int, int]], start: IntArray) -> list[tuple[int, int, int]]:
    """What the copies of ``away`` make of ``holds``: of what is held from each forward on they leave so much less meanwhile."""
    forwards = operations(pipeline, away.out._replace(kind=Kind.F)).tolist()
    copies = zip(operations(pipeline, away.out).tolist(), operations(pipeline, away.back).tolist(), strict=True)
    copied = {forward: copy for forward, copy in zip(forwards, copies, strict=True) if start[copy[0]] >= 0}
    left = dict.fromkeys(copied, away.amount)
    found = []
    for claim, release, amount in holds:
        part = min(amount, left.get(claim, 0))
        if part:
            out, back = copied[claim]
            left[claim] -= part
            found += [(claim, out, part), (back, release, part)]
        if amount > part:
            found.append((claim, release, amount - part))
    return found


def when(schedule: Schedule) -> tuple[IntArray, IntArray]:
    """By the number of each single computation and copy its start and its end; -1: it is not run."""
    start, end = (np.full(schedule.pipeline.index.size, -1, dtype=np.int64) for _ in range(2))
    for row, starts, ends in zip(schedule.order.rows, schedule.start, schedule.end, strict=True):
        for half in halves(schedule.pipeline.index, row):
            start[half[half >= 0]], end[half[half >= 0]] = starts[half >= 0], ends[half >= 0]
    for row, starts in zip(*schedule.copies, strict=True):
        start[row], end[row] = starts, starts + durations(schedule.pipeline, row)
    return start, end
