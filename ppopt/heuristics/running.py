"""What a list schedule is run on (:mod:`ppopt.heuristics.loops`): tuples of columns, which compiled loops take."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppopt.compiled.heaps import Heaps


class Work(NamedTuple):
    """By job what it takes, where, and when; and who waits for it."""

    duration: Any
    machine: Any
    awaited: Any
    """Whether a patient device waits for it."""
    needs: Any
    """How many it still waits for."""
    arrival: Any
    """When it arrives, as far as that is known."""
    offset: Any
    """Entries ``offset[j]`` to ``offset[j + 1]`` of what follows are about the jobs that wait for job j."""
    after: Any
    lag: Any


class Use(NamedTuple):
    """By job what it does to memories: :class:`~ppopt.heuristics.claims.Claims`."""

    memory: Any
    amount: Any
    returned: Any
    claimer: Any
    finishes: Any


class Memories(NamedTuple):
    """By memory, and by claimer of all of them."""

    limit: Any
    reserves: Any
    """0: nothing; 1: for what forwards claim; 2: for what input gradients claim, too."""
    first: Any
    """Where the claimers of a memory begin."""
    route: Any
    amount: Any
    more: Any
    begun: Any
    """How many microbatches it has."""


class Account(NamedTuple):
    """What is held, by memory; and how far its claimers have come."""

    held: Any
    claimed: Any
    """How many microbatches have claimed."""
    back: Any
    """How many of their input gradients have claimed more."""
    finished: Any
    """How many of them hold nothing any more."""


class Ends(NamedTuple):
    """The transfers that block."""

    devices: int
    """How many of the machines are devices."""
    blocking: bool
    """Whether there are such transfers."""
    source: Any
    target: Any
    """By job its devices."""
    first: Any
    links: Any
    """Entries ``first[d]`` to ``first[d + 1]`` are the links of device d."""


class Sizes(NamedTuple):
    """How much there is."""

    jobs: int
    """How many there are."""
    width: int
    """Queues of a machine: one for jobs that claim nothing, and one for each claimer that its memory may have."""
    stride: int
    """Jobs and machines. An event is its time times that, and a job that arrives, or behind these a machine to be looked at."""


class State(NamedTuple):
    """What is going on."""

    events: Heaps
    """One heap."""
    queues: Heaps
    """The jobs that have arrived, those of a machine side by side."""
    coming: Heaps
    """By device the times at which awaited jobs arrive."""
    touched: Heaps
    """One heap of the machines to be looked at, or of their negative numbers where the larger ones come first."""
    seen: Any
    """By machine whether it is among these."""
    running: Any
    """By machine its job."""
    taken: Any
    """By link the transfer that it has taken on."""
    stops: Any
    """By machine how many blocking transfers let it start nothing new."""
    later: Any
    """The jobs that start once everything that takes no time has been started."""
    sequence: Any
    """The jobs in the order of their starts; -1: not known yet."""
    heads: Any
    """By device the first job that has arrived and claims memory at the end; -1: none."""
