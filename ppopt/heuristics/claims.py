"""What jobs claim of the memories and give back; and which memories of several words are the same one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ppopt.constraints import Capacity, Family, Word, operations
from ppopt.heuristics.features import Features
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline


@dataclass(frozen=True)
class Claimer:
    """A stage that claims memory: each of ``count`` forwards ``amount``, and ``more`` the input gradients, if any is run."""

    route: int
    stage: int
    amount: int
    more: int
    count: int


@dataclass(frozen=True, eq=False)
class Claims:
    """Memories, and per job what it does to one of them. Amounts are integers, as in the :class:`~ppopt.constraints.Capacity`
    words; memories and claimers go by their places, and -1 is none."""

    limits: tuple[int, ...]
    claimers: tuple[tuple[Claimer, ...], ...]
    """Per memory, by route and stage."""
    memory: IntArray
    """Per job, the memory that it claims from or gives back to."""
    amount: IntArray
    """Per job, what it claims at its start."""
    returned: IntArray
    """Per job, what it gives back at its end."""
    claimer: IntArray
    """Per job that claims, the place of its stage among the claimers of its memory; of an input gradient, behind those of all."""
    finishes: IntArray
    """Per job that gives back the last that a microbatch holds of a claimer: the place of that claimer."""

    @classmethod
    def of(cls, pipeline: Pipeline, words: Sequence[Capacity], job_of: IntArray, features: Features) -> Claims:
        """What jobs claim under these words. ``job_of``: by the number of a single operation its job; -1: it is not run.

        Raises:
            ValueError: an operation uses two memories.
        """
        jobs = len(features.kind)
        memory, claimer = np.full(jobs, -1), np.full(jobs, -1)
        amount, returned = np.zeros(jobs, dtype=np.int64), np.zeros(jobs, dtype=np.int64)
        place = np.full((max(1, len(words)), *pipeline.device_of.shape), -1)  # of a memory's claimer, by route and stage
        claimers = tuple(_claimers(pipeline, word, job_of) for word in words)
        for m, word in enumerate(words):
            for i, own in enumerate(claimers[m]):
                place[m, own.route, own.stage] = i
            for hold in word.holds:
                for family, changed in ((hold.claim, amount), *((family, returned) for family in hold.release)):
                    used = job_of[operations(pipeline, family)]
                    used = used[used >= 0]
                    if ((memory[used] >= 0) & (memory[used] != m)).any():
                        raise ValueError("an operation uses two capacities; a device has one memory")
                    memory[used] = m
                    np.add.at(changed, used, hold.amount)
                    if changed is amount:
                        behind = 0 if family.kind == Kind.F else len(claimers[m])
                        claimer[used] = place[m, family.route, family.stage] + behind
        last = (memory >= 0) & np.isin(features.kind, (Kind.B, Kind.W))
        finishes = np.where(last, place[memory, features.route, features.stage], -1)
        return cls(tuple(word.limit for word in words), claimers, memory, amount, returned, claimer, finishes)


def _claimers(pipeline: Pipeline, word: Capacity, job_of: IntArray) -> tuple[Claimer, ...]:
    amounts: Counter[Family] = Counter()
    for hold in word.holds:
        if hold.claim.kind == Kind.F or (job_of[operations(pipeline, hold.claim)] >= 0).any():
            amounts[hold.claim] += hold.amount
    counts = [len(microbatches) for microbatches in pipeline.microbatches_of]
    return tuple(
        Claimer(route, stage, amounts[Family(stage, Kind.F, route)], amounts[Family(stage, Kind.I, route)], counts[route])
        for route, stage in sorted({(family.route, family.stage) for family in amounts})
    )


def lasting(word: Capacity, *, reserved: bool = True) -> Capacity:
    """What is held longer than a backward runs; ``reserved``: in what the largest of the other holds leaves.

    All that is allowed then fits: a device runs one operation at a time, so that never more than one of the others is held.
    """
    brief = [hold for hold in word.holds if hold.release == (hold.claim,) and hold.claim.kind != Kind.F]
    if not brief:
        return word
    holds = tuple(hold for hold in word.holds if hold not in brief)
    return replace(word, holds=holds, limit=word.limit - max(hold.amount for hold in brief) * reserved)


def tightest(words: Iterable[Word]) -> tuple[Word, ...]:
    """The same words; of capacities that hold the same, in whatever unit of memory, only the smallest."""
    words = tuple(words)
    stages = [frozenset(hold.claim.stage for hold in word.holds) if isinstance(word, Capacity) else None for word in words]
    same = Counter(stages)  # capacities that hold the same are about the same stages
    kept: dict[object, Word] = {}
    rooms: dict[object, int] = {}
    for place, word in enumerate(words):
        if not isinstance(word, Capacity) or same[stages[place]] == 1:
            kept[place] = word
            continue
        unit, held = holding(word)
        if held not in kept or word.limit // unit < rooms[held]:
            kept[held], rooms[held] = word, word.limit // unit
    return tuple(kept.values())


def holding(word: Capacity) -> tuple[int, object]:
    """A unit of memory, and what is held in that unit: equal for two words that are about one memory."""
    unit = math.gcd(*(hold.amount for hold in word.holds)) or 1
    amounts = Counter((hold.claim, frozenset(hold.release), hold.amount // unit) for hold in word.holds)
    return unit, frozenset(amounts.items())
