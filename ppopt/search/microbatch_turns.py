"""The best order of microbatches that differ, for an order of operations that is settled: which takes which place.

The places are taken one after the other. What is left to decide depends on how many microbatches of each kind are left, on those
in places that have something left to do, and on the ends of the operations that others wait for
(:class:`~ppopt.timing.places.Places`). Of two ways to the same of all but the ends, one whose ends are nowhere later is as good
as the other one (dynamic programming with dominance). Where there are too many states, two passes go on with some of them:

- *restricted*: with those of the least bound. What it comes to is an order of the microbatches; nothing is below the least bound
  of a state that was left out.
- *relaxed*: those of the largest bounds are merged with others from which as many of each kind are left. A merged state has the
  earliest of their ends, and in each place the shortest of their microbatches. So what it comes to is a lower bound. For this one
  of any two kinds of microbatches has to be the shorter one throughout.

Both are passes through decision diagrams (Bergman, Cire, van Hoeve, Hooker: Decision Diagrams for Optimization). Where nothing
was left out, or merged, a pass is exact. Everything is in ticks, and about makespans.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ppopt.clock import Clock
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Order
from ppopt.search import tuning
from ppopt.timing.places import Places, changes_of, places_of

FAR = 2**61
WIDTHS = (2_000, 16_000, 120_000, 500_000)
"""States at a time in one pass after the other. Measured: 16,000 are enough for a proof with 16 sequences of four lengths on a
linear placement; 500,000 take about a gigabyte with 32 sequences."""
NEIGHBOURS = 20
"""States beside each that it is compared with. Measured: hardly more are left than if all were compared."""


class Passed(NamedTuple):
    """What a pass has shown: the kinds of microbatches by place, of the best order that it came to (empty: none); what that
    takes; a lower bound; whether all orders were looked at."""

    kinds: tuple[int, ...]
    value: int
    bound: int
    exact: bool


@dataclass
class _States:
    """The states after some places: a row each."""

    left: IntArray
    """``[state, kind]``: how many microbatches of a kind are left."""
    taken: npt.NDArray[np.int16]
    """``[state, place]``: the kinds of those that have been placed."""
    ends: dict[int, IntArray]
    """By operation that others wait for, its end."""
    done: IntArray
    """When everything so far has ended, with what devices do behind it."""
    least: IntArray
    """What an order takes at least that goes on from here."""

    def chosen(self, which: npt.NDArray[np.integer[Any]]) -> _States:
        """Some of them."""
        ends = {o: column[which] for o, column in self.ends.items()}
        return _States(self.left[which], self.taken[which], ends, self.done[which], self.least[which])

    def __len__(self) -> int:
        return len(self.done)


class MicrobatchTurns:
    """Passes over the orders of the microbatches of ``pipeline``, in the places of an order of alike ones.

    ``alike``: the pipeline with alike microbatches that ``order`` is of. One way through the devices, sequences of equally many
    pieces, transfers as mere delays. ``kind_of``: of each sequence its kind; those of a kind take and hold the same.
    """

    def __init__(self, pipeline: Pipeline, alike: Pipeline, order: Order) -> None:
        self.pipeline = pipeline
        sequences = pipeline.mix.sequences(pipeline.microbatches)
        self.sequences = sequences
        self.places: Places = places_of(alike, order, pipeline.ticks.per_unit, len(sequences[0]))
        of = [[self._tables(m) for m in sequence] for sequence in sequences]
        found = sorted({_key(each) for each in of})
        self.kind_of = [found.index(_key(each)) for each in of]
        some = [of[self.kind_of.index(kind)] for kind in range(len(found))]
        self.counts = np.bincount(self.kind_of, minlength=len(found)).astype(np.int64)
        self.duration, self.claims, self.releases = (np.array([[piece[i] for piece in each] for each in some]) for i in range(3))
        """``[kind, piece, family]``."""
        self.limit = pipeline.amounts.limit
        self.ordered = self._in_order(alike.stages)
        """Whether of any two kinds one takes no longer than the other one, and holds no more."""
        self._prepare()

    def _tables(self, microbatch: int) -> tuple[list[int], list[int], list[int]]:
        route = self.pipeline.route_of_microbatch[microbatch]
        return (self.pipeline.ticks.duration[route].ravel().tolist(), *changes_of(self.pipeline, microbatch))

    def _in_order(self, stages: int) -> bool:
        tables = [self.duration]
        if self.limit is not None:  # what it takes at a start, and what is retained of it
            tables += [self.claims, self.releases[..., Kind.W * stages : (Kind.W + 1) * stages]]
        return all((np.diff(table, axis=0) >= 0).all() for table in tables)

    def _prepare(self) -> None:
        """What the operations of a place have left to do, and what comes after the last of a device at least."""
        places, least = self.places, self.duration.min(axis=0)
        tail = [op.tail for op in places.ops]
        for o in reversed(places.sequence):
            op = places.ops[o]
            own = tail[o] + int(least[op.place % places.together, op.family])
            for before, lag in op.waits:
                tail[before] = max(tail[before], own + lag)
        self._tail = [tail[row[-1]] if len(row) else 0 for row in places.rows]
        self._work: list[list[IntArray]] = [
            [np.zeros(len(self.counts), dtype=np.int64) for _ in range(places.count)] for _ in places.rows
        ]
        """``[device][place]``, by kind: the work of a sequence in that place."""
        for op in places.ops:
            self._work[op.device][places.taken(op)] += self._column(op.place, op.family)
        self._whole = [row[0] if row else np.zeros(len(self.counts), dtype=np.int64) for row in self._work]

    def _column(self, place: int, family: int) -> IntArray:
        column: IntArray = self.duration[:, place % self.places.together, family]
        return column

    # --- passes ---

    def kinds(self) -> int:
        """How many kinds of sequences there are."""
        return len(self.counts)

    def turns(self, kinds: Sequence[int]) -> tuple[int, ...]:
        """The microbatches in their order, where the places are taken by these kinds; of a kind the first ones first."""
        left = [[s for s, kind in enumerate(self.kind_of) if kind == own][::-1] for own in range(self.kinds())]
        return tuple(m for kind in kinds for m in self.sequences[left[kind].pop()])

    def passed(self, width: int, upper: int, clock: Clock, *, relaxed: bool = False) -> Passed | None:
        """A pass with at most ``width`` states at a time; only what takes less than ``upper`` matters.

        ``None``: the clock was over first.
        """
        zero = np.zeros(1, dtype=np.int64)
        taken = np.zeros((1, self.places.count), dtype=np.int16)
        states = _States(self.counts[None, :].copy(), taken, {}, zero, zero)
        bound, exact = FAR, True
        for k in range(self.places.count):
            clock.charge(tuning.SCHEDULED * len(states) * self.kinds())
            if clock.over:
                return None
            states = self._taken(states, k, upper)
            if not len(states):
                return Passed((), upper, min(bound, upper), exact)
            if k + 1 < self.places.count:
                states = self._undominated(states, k)
            if len(states) > width:
                exact = False
                if relaxed:
                    states = self._merged(states, k, width)
                else:
                    first = np.argpartition(states.least, width)
                    bound = min(bound, int(states.least[first[width:]].min()))
                    states = states.chosen(first[:width])
        value = np.maximum(states.done, states.least)
        best = int(value.argmin())
        kinds = () if relaxed and not exact else tuple(states.taken[best].tolist())
        return Passed(kinds, int(value[best]), min(bound, int(value[best])), exact)

    def _taken(self, states: _States, k: int, upper: int) -> _States:
        """The states after place ``k`` is taken too."""
        each = [self._with(states, k, kind, upper) for kind in range(self.kinds())]
        return _joined([some for some in each if len(some)] or each[:1])

    def _with(self, states: _States, k: int, kind: int, upper: int) -> _States:
        """Those in which place ``k`` is taken by a sequence of a kind, within memory and below ``upper``."""
        some = states.chosen(np.flatnonzero(states.left[:, kind]))
        some.left[:, kind] -= 1
        some.taken[:, k] = kind
        places = self.places
        for o in places.steps[k]:
            op = places.ops[o]
            start = np.full(len(some), op.lead, dtype=np.int64)
            for before, lag in op.waits:
                np.maximum(start, some.ends[before] + lag, out=start)
            some.ends[o] = start + self._column(op.place, op.family)[some.taken[:, places.taken(op)]]
            if op.tail or o == places.rows[op.device][-1]:
                some.done = np.maximum(some.done, some.ends[o] + op.tail)
        some.least = np.maximum(some.least, self._least(some, k))
        fits = some.least < upper
        if self.limit is not None:
            fits &= self._fits(some, k)
        kept = set(places.open[k])
        some.ends = {o: column for o, column in some.ends.items() if o in kept}
        return some.chosen(np.flatnonzero(fits))

    def _least(self, states: _States, k: int) -> IntArray:
        """What each goes on to take at least: what is left to do on a device, and behind it."""
        least, places = states.done, self.places
        for device, row in enumerate(places.rows):
            known = [o for o in row if places.step[o] <= k]
            if len(known) == len(row):
                continue
            left = states.left @ self._whole[device]
            for place in places.begun[k]:
                of_place = np.zeros(self.kinds(), dtype=np.int64)
                for o in row[len(known) :]:
                    op = places.ops[o]
                    if places.taken(op) == place:
                        of_place += self._column(op.place, op.family)
                left = left + of_place[states.taken[:, place]]
            begin = states.ends[known[-1]] if known else 0
            least = np.maximum(least, begin + left + self._tail[device])
        return least

    def _fits(self, states: _States, k: int) -> npt.NDArray[np.bool_]:
        """Whether every device has room for what the operations that are known now claim."""
        fits = np.ones(len(states), dtype=np.bool_)
        for room, holds in self._claimed[k]:
            held = np.zeros(len(states), dtype=np.int64)
            for place, amount in holds:
                held += amount[states.taken[:, place]]
            fits &= held <= room
        return fits

    @cached_property
    def _claimed(self) -> list[list[tuple[int, list[tuple[int, IntArray]]]]]:
        """Of each place, for each operation that is known with it and claims something: the room of its device, and the places of
        which something is held then, with how much, by kind."""
        places, amounts = self.places, self.pipeline.amounts
        assert amounts.limit is not None
        found: list[list[tuple[int, list[tuple[int, IntArray]]]]] = [[] for _ in range(places.count)]
        for device, row in enumerate(places.rows):
            room = int(amounts.limit[device] - amounts.static[device])
            held = [np.zeros(len(self.counts), dtype=np.int64) for _ in range(places.count)]
            for o in row:
                op = places.ops[o]
                piece, place = op.place % places.together, places.taken(op)
                claim, release = (table[:, piece, op.family] for table in (self.claims, self.releases))
                held[place] = held[place] + claim
                if claim.any():
                    found[places.step[o]].append((room, [(p, amount) for p, amount in enumerate(held) if amount.any()]))
                held[place] = held[place] - release
        return found

    # --- fewer states ---

    def _undominated(self, states: _States, k: int) -> _States:
        """Without those of which another one is as good; a few neighbours are looked at."""
        words = self._words(states, self.places.begun[k])
        ends = np.stack([*(states.ends[o] for o in self.places.open[k]), states.done, states.least], axis=1)
        by = np.lexsort([ends.sum(axis=1), *words])
        words, ends = [word[by] for word in words], ends[by]
        worse = np.zeros(len(by), dtype=np.bool_)
        for step in range(1, min(NEIGHBOURS + 1, len(by))):
            same = np.ones(len(by) - step, dtype=np.bool_)
            for word in words:
                same &= word[step:] == word[:-step]
            worse[step:] |= same & (ends[:-step] <= ends[step:]).all(axis=1)
        return states.chosen(by[~worse])

    def _words(self, states: _States, places: Sequence[int]) -> list[IntArray]:
        """How many of each kind are left, and the kinds in some places, as few numbers."""
        columns = [(states.left[:, kind], int(count) + 1) for kind, count in enumerate(self.counts)]
        columns += [(states.taken[:, place].astype(np.int64), self.kinds()) for place in places]
        words, size = [np.zeros(len(states), dtype=np.int64)], 1
        for column, base in columns:
            if size * base > 2**62:
                words.append(np.zeros(len(states), dtype=np.int64))
                size = 1
            words[-1] = words[-1] * base + column
            size *= base
        return words

    def _merged(self, states: _States, k: int, width: int) -> _States:
        """Those of small bounds, and the others merged, as few as that makes them: by the kinds in the last places."""
        by = np.argsort(states.least, kind="stable")
        kept, rest = states.chosen(by[: width // 2]), states.chosen(by[width // 2 :])
        begun = self.places.begun[k]
        for last in range(len(begun), -1, -1):
            words = self._words(rest, begun[len(begun) - last :])
            order = np.lexsort(words)
            new = np.zeros(len(order), dtype=np.bool_)
            new[0] = True
            for word in words:
                new[1:] |= word[order][1:] != word[order][:-1]
            if int(new.sum()) <= width - width // 2:
                break
        rest, at = rest.chosen(order), np.flatnonzero(new)
        ends = {o: np.minimum.reduceat(column, at) for o, column in rest.ends.items()}
        done, least = (np.minimum.reduceat(column, at) for column in (rest.done, rest.least))
        merged = _States(rest.left[at], np.minimum.reduceat(rest.taken, at, axis=0), ends, done, least)
        return _joined([kept, merged])


def _key(tables: Sequence[tuple[list[int], list[int], list[int]]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for piece in tables for row in piece)


def _joined(each: Sequence[_States]) -> _States:
    if len(each) == 1:
        return each[0]
    left, taken, done, least = (np.concatenate([getattr(s, name) for s in each]) for name in ("left", "taken", "done", "least"))
    return _States(left, taken, {o: np.concatenate([s.ends[o] for s in each]) for o in each[0].ends}, done, least)


def orders_in_all(counts: Sequence[int]) -> int:
    """How many orders of microbatches there are, where those of a kind are alike."""
    return math.factorial(sum(counts)) // math.prod(map(math.factorial, counts))
