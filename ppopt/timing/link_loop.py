"""The loop that times an order whose transfers hold their links, first come, first served; see :mod:`ppopt.compiled`.

Computations and transfers are nodes (:class:`~ppopt.timing.links.Network`). Machines are the links, then the devices. Of those
that something changes for at one time, the links are looked at first: they take transfers, and where these block, stop devices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppopt.compiled import bare, loop
from ppopt.compiled.heaps import HEAPS, Heaps, count, first, pop, push
from ppopt.pipeline import IntArray

NOTHING = -1
"""No node."""


class Sizes(NamedTuple):
    """How much there is."""

    nodes: int
    links: int
    stride: int
    """Twice the nodes. An event is its time times that, and a node that arrives, or behind all of these one that ends."""
    blocking: bool
    """Whether transfers stop the devices at their ends."""


class Nodes(NamedTuple):
    """By node what it takes, where, and who waits for it."""

    duration: Any
    machine: Any
    needs: Any
    """How many it still waits for."""
    earliest: Any
    """When it arrives, as far as that is known."""
    offset: Any
    """Entries ``offset[n]`` to ``offset[n + 1]`` of what follows are about the nodes that wait for node n."""
    after: Any
    lag: Any
    source: Any
    target: Any
    """The devices of a transfer, as machines; where no transfer blocks, these are empty."""


class State(NamedTuple):
    """What is going on. By machine but for the heaps, ``arrived`` and ``start``."""

    events: Heaps
    """One heap."""
    waiting: Heaps
    """By link the transfers that have arrived: the time of that times the number of nodes, and the node."""
    touched: Heaps
    """One heap of the machines to be looked at."""
    seen: Any
    """Whether it is among these."""
    next: Any
    """The next node in the row of a device."""
    last: Any
    """Behind the row of a device."""
    taken: Any
    """The transfer that a link has taken; ``NOTHING``: none."""
    busy: Any
    """Whether it computes or sends."""
    stops: Any
    """How many transfers let a device start nothing."""
    links: Any
    """Where the links of a device begin in ``link``: those that it sends or receives over, where transfers block."""
    link: Any
    arrived: Any
    """By node whether it could start."""
    start: Any
    """By node when it starts."""

    @classmethod
    def of(cls, sizes: Sizes, machine: IntArray, rows: IntArray, links: list[list[int]]) -> State:
        """Before anything has begun. ``machine``: that of each node; ``rows``: where those of the devices begin, and the end;
        ``links``: those of each device."""
        machines = sizes.links + len(rows) - 1
        none = np.zeros(sizes.links, np.int64)
        return cls(
            Heaps.of(np.array([sizes.nodes])),
            Heaps.of(np.bincount(machine, minlength=machines)[: sizes.links]),
            Heaps.of(np.array([machines])),
            np.zeros(machines, np.int64),
            np.concatenate((none, rows[:-1])),
            np.concatenate((none, rows[1:])),
            np.full(machines, NOTHING, np.int64),
            np.zeros(machines, np.int64),
            np.zeros(machines, np.int64),
            np.cumsum([0] * sizes.links + [0, *map(len, links)]),
            np.array([link for own in links for link in own], dtype=np.int64),
            np.zeros(sizes.nodes, np.int64),
            np.zeros(sizes.nodes, np.int64),
        )


def touch(machine: int, state: Any) -> None:
    """A machine is to be looked at."""
    if not state.seen[machine]:
        state.seen[machine] = 1
        push(0, machine, state.touched)


def arrive(node: int, time: int, sizes: Any, nodes: Any, state: Any) -> None:
    """All that a node waits for is there."""
    machine = nodes.machine[node]
    state.arrived[node] = 1
    if machine < sizes.links:
        push(machine, time * sizes.nodes + node, state.waiting)
    touch(machine, state)


def end(node: int, time: int, sizes: Any, nodes: Any, state: Any) -> None:
    """A node ends: what waited for it may arrive, and its machine is free."""
    for i in range(nodes.offset[node], nodes.offset[node + 1]):
        after = nodes.after[i]
        nodes.earliest[after] = max(nodes.earliest[after], time + nodes.lag[i])
        nodes.needs[after] -= 1
        if nodes.needs[after] == 0:
            push(0, nodes.earliest[after] * sizes.stride + after, state.events)
    machine = nodes.machine[node]
    state.busy[machine] = 0
    state.taken[machine] = NOTHING
    touch(machine, state)
    if sizes.blocking:
        if machine >= sizes.links:
            for i in range(state.links[machine], state.links[machine + 1]):
                touch(state.link[i], state)
        else:
            for device in (nodes.source[node], nodes.target[node]):
                state.stops[device] -= 1
                touch(device, state)


def next_of_link(link: int, sizes: Any, nodes: Any, state: Any) -> int:
    """The transfer that a link starts now, or ``NOTHING``: it takes the one that came first, which starts once its ends do not
    compute where it blocks."""
    if state.taken[link] < 0 and count(link, state.waiting) > 0:
        node = pop(link, state.waiting) % sizes.nodes
        state.taken[link] = node
        if sizes.blocking:
            state.stops[nodes.source[node]] += 1
            state.stops[nodes.target[node]] += 1
    node = state.taken[link]
    if node < 0 or state.busy[link]:
        return NOTHING
    if sizes.blocking and (state.busy[nodes.source[node]] or state.busy[nodes.target[node]]):
        return NOTHING
    return int(node)


def next_of_device(device: int, state: Any) -> int:
    """The computation that a device starts now, or ``NOTHING``."""
    node = state.next[device]
    if node == state.last[device] or not state.arrived[node] or state.busy[device] or state.stops[device] > 0:
        return NOTHING
    state.next[device] += 1
    return int(node)


@loop(3.3e-6, ("state.start",), (*HEAPS, touch, arrive, end, next_of_link, next_of_device))
def serve(sizes: Any, nodes: Any, state: Any) -> None:
    """Write down when each node starts, ``state.start``: an order that ends without links ends with them.

    An event is that a node arrives or ends. ``nodes.needs`` and ``nodes.earliest`` change.
    """
    nodes, state = bare(nodes), bare(state)
    for node in range(sizes.nodes):
        if nodes.needs[node] == 0:
            push(0, nodes.earliest[node] * sizes.stride + node, state.events)
    while count(0, state.events) > 0:
        time = first(0, state.events) // sizes.stride
        until = (time + 1) * sizes.stride
        while count(0, state.events) > 0 and first(0, state.events) < until:
            event = pop(0, state.events) % sizes.stride
            if event < sizes.nodes:
                arrive(event, time, sizes, nodes, state)
            else:
                end(event - sizes.nodes, time, sizes, nodes, state)
        while count(0, state.touched) > 0:
            machine = pop(0, state.touched)
            state.seen[machine] = 0
            node = next_of_link(machine, sizes, nodes, state) if machine < sizes.links else next_of_device(machine, state)
            if node >= 0:
                state.busy[machine] = 1
                state.start[node] = time
                push(0, (time + nodes.duration[node]) * sizes.stride + sizes.nodes + node, state.events)
