"""What the loop of the tabu search (:mod:`ppopt.tabu.loop`) works on: a schedule as jobs on machines, in numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ppopt.pipeline import IntArray
from ppopt.pipeline.holding import memory_changes
from ppopt.schedule import halves
from ppopt.tabu.paths import BEST, COUNTS, NEVER, SLOTS, UNIT, WEIGHT
from ppopt.timing.links import Network


class Jobs(NamedTuple):
    """Operations and the transfers that hold a link (nodes), what they wait for, and the machines that run them.

    By node: its ``duration``, ``machine`` and ``family``, nodes of which keep their order; what it has to ``claim`` of the memory
    at its start, and by how much more is held behind its end (``change``). Entries ``before_begin[n]`` to ``before_begin[n + 1]``
    of ``before`` and ``before_lag`` are what node ``n`` waits for, and how long after its end; ``after`` the other way round.
    By machine: the first place of its row in the sequence, and the ``room`` for what is held there. Machines that run nothing are
    left out; the first ones are the ``devices``.
    """

    nodes: int
    devices: int
    machines: int
    begin: IntArray
    room: IntArray
    duration: IntArray
    machine: IntArray
    family: IntArray
    claim: IntArray
    change: IntArray
    before_begin: IntArray
    before: IntArray
    before_lag: IntArray
    after_begin: IntArray
    after: IntArray
    after_lag: IntArray

    @classmethod
    def of(cls, network: Network) -> Jobs:
        """Those of an order."""
        pipeline = network.pipeline
        nodes = len(network.duration)
        offsets = np.array(network.offsets, dtype=np.int64)
        busy = np.diff(offsets) > 0
        numbers = network.number
        earlier, later = network.turns()
        before, after = np.concatenate((network.before, earlier)), np.concatenate((network.after, later))
        lag = np.concatenate((network.lag, np.zeros(len(earlier), dtype=np.int64)))
        claim, change = np.zeros((2, nodes), dtype=np.int64)
        room = np.full(len(busy), NEVER)
        amounts = pipeline.amounts
        if amounts.limit is not None:
            computed = slice(0, network.computations)
            claim[computed], given = memory_changes(pipeline, numbers[computed])
            change[computed] = claim[computed] - given
            room[: pipeline.devices] = amounts.limit - amounts.static
        return cls(
            nodes,
            int(busy[: pipeline.devices].sum()),
            int(busy.sum()),
            np.append(offsets[:-1][busy], nodes),
            room[busy],
            network.duration,
            (np.cumsum(busy) - 1)[network.machine],
            halves(pipeline.index, numbers)[0] // pipeline.microbatches,
            claim,
            change,
            *_by(after, before, lag, nodes),
            *_by(before, after, lag, nodes),
        )


def _by(key: IntArray, other: IntArray, lag: IntArray, nodes: int) -> tuple[IntArray, IntArray, IntArray]:
    """Where the entries of each node begin, and the entries in that order."""
    order = np.argsort(key, kind="stable")
    return np.searchsorted(key[order], np.arange(nodes + 1)), other[order], lag[order]


class Plan(NamedTuple):
    """An order of all machines and its times. By machine ``release``, when it can begin, and ``rest``, what counts behind its
    end. For the makespan these are what a device does before and after its operations. For the device span a device is released
    when it has begun and done that, and its rest is less by its begin.

    ``sequence``: the nodes in the rows of all machines; by node its ``place`` there, its ``head``, the longest path to its start,
    its ``tail``, that from its start on, and its ``rank``: ``ranked`` are the nodes in a topological order. By place what is held
    before (``level``).
    """

    sequence: IntArray
    place: IntArray
    head: IntArray
    tail: IntArray
    ranked: IntArray
    rank: IntArray
    level: IntArray
    release: IntArray
    rest: IntArray

    @classmethod
    def empty(cls, jobs: Jobs) -> Plan:
        """One that is to be filled."""
        sizes = (*(jobs.nodes,) * 7, jobs.machines, jobs.machines)
        return cls(*(np.zeros(size, dtype=np.int64) for size in sizes))


class Work(NamedTuple):
    """What the search has found since it began anew, the ``best`` sequence; by slot the number of moves ``until`` which a pair of
    operations is tabu; the state of ``chance``; what is counted (``counts``, :mod:`ppopt.tabu.paths`); by node its place in the
    sequence that random moves go towards (``guide``); and room to work in."""

    best: IntArray
    until: IntArray
    chance: IntArray
    counts: IntArray
    segment: IntArray
    head: IntArray
    tail: IntArray
    waits: IntArray
    queue: IntArray
    path: IntArray
    marked: IntArray
    guide: IntArray

    @classmethod
    def empty(cls, jobs: Jobs, seed: int) -> Work:
        """Nothing is found."""
        sizes = (jobs.nodes, SLOTS, 1, COUNTS, *(jobs.nodes,) * 8)
        work = cls(*(np.zeros(size, dtype=np.int64) for size in sizes))
        work.chance[0] = seed % 2**31
        work.counts[BEST] = NEVER
        work.counts[UNIT], work.counts[WEIGHT] = max(1, int(jobs.claim.max())), max(1, int(jobs.duration.mean()))
        return work


class Habits(NamedTuple):
    """What steers the search.

    A walk is over after ``vain`` moves without a better value. An operation moves no further than ``farthest`` places, and the
    pairs that it passes are tabu for ``tabu`` moves at least and fewer than ``varied`` more. What memory that is exceeded counts
    is doubled after ``turns`` moves with some, and halved after as many with none. The first walks of a pipeline may begin from
    several schedules (``starts``). What the best walks found is ``kept``, so many at most. The next one begins between two of
    these; or, where they are fewer than ``apart`` swaps from each other or not enough yet, at one of them, with ``random`` random
    moves, for each of which so many places are tried (``tries``). The search is over once so many walks were in vain
    (``patience``).
    """

    vain: int = 2000  # measured on 7 makespans, 4 s each: 1000 to 10,000 give values no more than 0.4 % apart
    farthest: int = 12  # measured on those: with 6, 25 and 60 values are within 0.3 %
    tabu: int = 10  # not measured
    varied: int = 20  # not measured
    turns: int = 10  # measured on 9 pipelines, 5 s each: 3 and 30 give values no more than 0.1 % apart on average
    starts: int = 4  # measured on 3 pipelines: the best of four ends up to 2 % lower than the one that was the best before
    kept: int = 5  # measured on those 9: 3 and 10 give values 0.1 % larger on average
    apart: int = 20  # not measured
    random: int = 400  # measured on those 9: 100 gives values 0.1 % larger on average
    tries: int = 1000  # not measured
    patience: int = 20  # measured on 8 pipelines: with 50, values are 0.04 % less in more than twice the time


HABITS = Habits()
