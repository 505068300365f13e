"""Shaving: when each operation starts and ends in a schedule of at most some makespan.

Where no schedule has an operation start in the first part of the time that it has, by edge finding, it starts later; and with
time running backwards it ends earlier (Martin and Shmoys, "A new approach to computing optimal schedules for the job-shop
scheduling problem", 1996). Every operation is asked about in turn, some times over, as each answer narrows what others have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ppopt.bounds.edge_finding import (
    NEVER,
    OFTEN,
    ROUNDS,
    SECONDS,
    SETTLING,
    EdgeFinding,
    rounds_until_settled,
)
from ppopt.clock import Clock
from ppopt.compiled import bare, loop
from ppopt.pipeline import IntArray

PARTS = 4, 8, 16
"""Every operation is asked about once with each of these: into so many parts what it has is divided, of which the first is asked
about, and the next while it is left out. Measured for 26 cuts of 28 layers in 16 stages, 8 microbatches, which edge finding
leaves: with 4, 8 or 16 each time 24, 24 or 25 are refuted in 3.3, 4.9 or 7.6 s, with 32 no more in 12.7 s; so 24 in 4.4 s."""


class Windows(NamedTuple):
    """Of each operation, family by family, its earliest start and its latest end, in ticks."""

    early: IntArray
    late: IntArray


class Shaving:
    """The windows of operations with some durations in schedules of at most ``most`` ticks; memory does not count.

    It can go on where it stopped (:meth:`go_on`). ``refuted``: there is no such schedule.
    """

    def __init__(self, edges: EdgeFinding, durations: IntArray | Sequence[int], most: int) -> None:
        self.refuted = False
        self._edges, self._work = edges, edges.room()
        lead, tail, time = (np.repeat(np.array(of, dtype=np.int64), edges.count) for of in (*edges.rules[2], durations))
        self._work[0][2][:] = time
        self._early, self._minus_late = lead, tail - most
        self._largest = 2 * (abs(most) + int(time.sum() + lead.max() + tail.max())) - NEVER
        self._state, self._turns = np.zeros(3, np.int64), 0

    @property
    def windows(self) -> Windows:
        """As far as they are known."""
        return Windows(self._early, -self._minus_late)

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to ask."""
        return self.refuted or self._turns == len(PARTS)

    def go_on(self, clock: Clock) -> None:
        """Ask until all is asked, or the clock is over."""
        edges, state = self._edges, self._state
        operations = edges.families * edges.count
        while not self.ended and not clock.over:
            often = min(ROUNDS * operations * (operations - int(state[0])), OFTEN)
            shave(
                often,
                self._largest,
                PARTS[self._turns],
                edges.sizes,
                edges.rules,
                self._early,
                self._minus_late,
                self._work,
                state,
            )
            clock.charge(SECONDS * int(state[1]))
            self.refuted = bool(state[2])
            if state[0] == operations:
                self._turns, state[0] = self._turns + 1, 0


def load(early: Any, minus_late: Any, sizes: Any, work: Any) -> None:
    """Begin with these windows."""
    there, back = work[0][0], work[0][1]
    for operation in range(sizes[2] * sizes[3]):
        there[operation], back[operation] = early[operation], minus_late[operation]


def keep(early: Any, minus_late: Any, sizes: Any, work: Any) -> None:
    """Let what was raised and lowered be the windows."""
    there, back = work[0][0], work[0][1]
    for operation in range(sizes[2] * sizes[3]):
        early[operation], minus_late[operation] = there[operation], back[operation]


@loop(1.6e-5, ("early", "minus_late", "state"), (*SETTLING, load, keep))
def shave(parts: int, sizes: Any, rules: Any, early: Any, minus_late: Any, work: Any, state: Any) -> None:
    """Narrow the windows by asking about the operations from ``state[0]`` on, until enough operations were raised, each counted
    as often as it was: ``state[1]``. ``state[2]``: whether some operation has no time left."""
    rules, work = bare(rules), bare(work)
    _, _, families, count, _ = sizes
    time, there, back = work[0][2], work[0][0], work[0][1]
    operation, spent = state[0], 0
    while operation < families * count and spent < OFTEN:
        for side in range(2):
            refuted = True
            while refuted:
                room = -minus_late[operation] - time[operation] - early[operation]
                if room <= 0:
                    break
                part = room // parts
                load(early, minus_late, sizes, work)
                if side == 0:
                    back[operation] = -early[operation] - part - time[operation]
                else:
                    there[operation] = -minus_late[operation] - time[operation] - part
                rounds = rounds_until_settled(sizes, rules, work)
                spent += abs(rounds) * families * count
                refuted = rounds > 0
                if refuted:
                    if side == 0:
                        early[operation] += part + 1
                    else:
                        minus_late[operation] += part + 1
                    load(early, minus_late, sizes, work)
                    rounds = rounds_until_settled(sizes, rules, work)
                    spent += abs(rounds) * families * count
                    if rounds > 0:
                        state[1], state[2] = spent, 1
                        return
                    keep(early, minus_late, sizes, work)
        operation += 1
    state[0], state[1] = operation, spent
