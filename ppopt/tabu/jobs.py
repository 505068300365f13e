"""What the loop of the tabu search (:mod:`ppopt.tabu.loop`) works on: a schedule as jobs on machines, in numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ppopt.pipeline import IntArray
from ppopt.pipeline.holding import memory_changes
from ppopt.schedule import halves
from ppopt.tabu.loop import BEST, NEVER, SET, SLOTS
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
        numbers = np.array(network.number, dtype=np.int64)
        before, after, lag = (np.array(column, dtype=np.int64) for column in (network.before, network.after, network.lag))
        earlier, later = network.turns()
        before, after = np.concatenate((before, earlier)), np.concatenate((after, later))
        lag = np.concatenate((lag, np.zeros(len(earlier), dtype=np.int64)))
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
            np.array(network.duration, dtype=np.int64),
            (np.cumsum(busy) - 1)[np.array(network.machine, dtype=np.int64)],
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
    end. For the makespan both are 0. For the device span a device is released when it begins, and its rest is minus that.

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
    """What the search has found, the ``best`` sequence; by slot the number of moves ``until`` which a pair of operations is tabu;
    the state of ``chance``; what is counted (``counts``, :mod:`ppopt.tabu.loop`); and room to work in."""

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

    @classmethod
    def empty(cls, jobs: Jobs, seed: int) -> Work:
        """Nothing is found."""
        sizes = (jobs.nodes, SLOTS, 1, SET + 1, *(jobs.nodes,) * 7)
        work = cls(*(np.zeros(size, dtype=np.int64) for size in sizes))
        work.chance[0] = seed % 2**31
        work.counts[BEST] = NEVER
        return work


class Habits(NamedTuple):
    """What steers the search.

    After ``vain`` moves without a better value a walk begins anew, at the best sequence and with ``random`` random moves, for
    each of which so many places are tried (``tries``). An operation moves no further than ``farthest`` places, and the pairs that
    it passes are tabu for ``tabu`` moves at least and fewer than ``varied`` more. The search is over once walks began anew
    ``patience`` times in vain. The first one of a pipeline may begin from several schedules (``starts``).
    """

    vain: int = 2000  # measured on 7 makespans, 4 s each: 1000 to 10,000 give values no more than 0.4 % apart
    random: int = 100  # measured on those and 2 spans: with none they are up to 0.7 % larger; 10 and 100 are alike
    tries: int = 1000  # not measured
    farthest: int = 12  # measured on those: with 6, 25 and 60 values are within 0.3 %
    tabu: int = 10  # not measured
    varied: int = 20  # not measured
    patience: int = 20  # not measured
    starts: int = 4  # measured on 3 pipelines: the best of four ends up to 2 % lower than the one that was the best before


HABITS = Habits()
