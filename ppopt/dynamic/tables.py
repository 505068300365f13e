"""The rules of a graph as arrays for the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np

from ppopt.bounds.shaving import Windows
from ppopt.constraints import FamilyGraph
from ppopt.dynamic.loop import NO_LIMIT
from ppopt.pipeline import IntArray


class Tables:
    """A graph, and the windows of its operations, as :func:`~ppopt.dynamic.loop.expand` reads them."""

    def __init__(self, graph: FamilyGraph, windows: Windows) -> None:
        families, count, machines = len(graph.families), graph.count[0], graph.owners
        self.families, self.count, self.machines = families, count, machines
        bits = count.bit_length()
        per = 62 // bits
        words = -(-families // per)
        self.width = words + 2 * machines + 1
        self.sizes = families, count, machines, words, self.width, per, bits
        self.largest = NO_LIMIT + int(windows.late.max()) + sum(abs(held.amount) * count for held in graph.held)
        waits = list(dict.fromkeys((*graph.precedences, *graph.implied)))
        into = [[wait for wait in waits if wait.after == family] for family in range(families)]
        out = [[wait for wait in waits if wait.before == family] for family in range(families)]
        own = [machine.families for machine in graph.machines[:machines]]
        held = [reservoir.held for reservoir in graph.reservoirs] + [()] * (machines - len(graph.reservoirs))
        claim = [0] * families
        for each in held:
            for one in each:
                claim[one.first] += one.amount
        limits = [reservoir.limit for reservoir in graph.reservoirs] + [NO_LIMIT] * (machines - len(graph.reservoirs))
        self.rules = (
            *map(_array, (graph.owner, graph.duration)),
            *(_begins(into), _flat(into, "before"), _flat(into, "shift")),
            *(_begins(own), _array(family for families_of in own for family in families_of)),
            *(_begins(out), _flat(out, "after"), _flat(out, "shift")),
            _array(claim),
            *(_begins(held), *(_flat(held, name) for name in ("first", "last", "amount"))),
            _array(limits),
        )
        self.windows = tuple(np.ascontiguousarray(row) for row in windows)
        operations = [[(family, n) for family in families_of for n in range(count)] for families_of in own]
        for those in operations:
            those.sort(key=lambda one: int(windows.late[one[0] * count + one[1]]))
        flat = [one for those in operations for one in those]
        self.order = (
            _begins(operations),
            *(_array(one[i] for one in flat) for i in range(2)),
            _array(graph.duration[family] for family, _ in flat),
            _array(int(windows.late[family * count + n]) for family, n in flat),
        )

    def beginning(self) -> IntArray:
        """The state in which nothing has started."""
        row = np.zeros(self.width, dtype=np.int64)
        row[-1 - self.machines : -1] = -1
        return row

    def free(self, rows: IntArray) -> IntArray:
        """When machines are free, ``[state, machine]``."""
        return rows.reshape(-1, self.width)[:, -1 - 2 * self.machines : -1 - self.machines]

    def scratch(self) -> tuple[IntArray, ...]:
        """Room for what is to be known of one state."""
        of_machine, of_family, of_operation = self.machines, self.families, self.families * self.count
        sizes = (*[of_family] * 5, of_operation, *[of_machine] * 3, of_family, of_family)
        return tuple(np.zeros(size, dtype=np.int64) for size in sizes)


def unknown(graph: FamilyGraph) -> str | None:
    """Why the states of a graph cannot be told by what has started and by when machines are free; ``None``: they can."""
    if len(set(graph.count)) > 1 or graph.routes > 1:
        return "it knows one route alone"
    if any(wait.lag for wait in (*graph.precedences, *graph.implied)):
        return "it knows nothing of latency"
    if graph.owners > graph.devices:
        return "it knows nothing of links that are busy"
    if len(graph.machines) > graph.owners or any(graph.owner[held.first] != graph.owner[held.last] for held in graph.held):
        return "it takes each operation to need one machine alone, which gives back what it holds"
    return None


def _array(numbers: Iterable[int]) -> IntArray:
    return np.array(list(numbers), dtype=np.int64)


def _begins(lists: Sequence[Sequence[object]]) -> IntArray:
    """Where each of some lists begins, one behind the other, and where the last one ends."""
    return _array(accumulate(map(len, lists), initial=0))


def _flat(lists: Iterable[Iterable[object]], name: str) -> IntArray:
    """One field of all that is in some lists."""
    return _array(getattr(one, name) for each in lists for one in each)
