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
    raised_until_settled,
)
from ppopt.clock import Clock
from ppopt.compiled import bare, loop
from ppopt.pipeline import IntArray

PARTS = 4, 8, 16
"""Every operation is asked about once with each of these: into so many parts what it has is divided, of which the first is asked
about, and more behind it while that is left out (:func:`shave`). Measured, when all parts were as large, for 26 cuts of 28 layers
in 16 stages, 8 microbatches, which edge finding leaves: with 4, 8 or 16 each time 24, 24 or 25 are refuted in 3.3, 4.9 or 7.6 s,
with 32 no more in 12.7 s; so 24 in 4.4 s."""

WHOLE = 8
"""How much a question gains that leaves no time, beside one for each that leaves some out. Measured: with 1 a tenth longer."""
FIRST = 2**40
"""What a question gains that refutes, beside all that others may: half of the cuts are refuted by four questions, and the last
one was needed. Measured: 300 cuts of 28 layers in 16 stages 8.8 s instead of 12.4, 16 of them, which shaving leaves, included."""


class Windows(NamedTuple):
    """Of each operation, family by family, its earliest start and its latest end, in ticks."""

    early: IntArray
    late: IntArray


class Shaving:
    """The windows of operations with some durations in schedules of at most ``most`` ticks; memory does not count.

    It can go on where it stopped (:meth:`go_on`). ``refuted``: there is no such schedule. ``margins``: what is before and behind
    operations, if it is not what ``edges`` says.

    ``gained``: by how much each question has narrowed windows so far, of other durations and other makespans, too: a number for
    each start, and behind it for the end, of each operation. What gained the most is asked first, as what refutes one cut often
    refutes those near it. Measured for 222 cuts of three profiles that edge finding leaves: 27 s instead of 45, and 2 more are
    refuted.
    """

    def __init__(
        self,
        edges: EdgeFinding,
        durations: IntArray | Sequence[int],
        most: int,
        gained: IntArray | None = None,
        margins: IntArray | None = None,
    ) -> None:
        self.refuted = False
        self._edges, self._work = edges, edges.room()
        around = edges.margins if margins is None else margins
        lead, tail, time = (np.repeat(np.array(of, dtype=np.int64), edges.count) for of in (*around, durations))
        self._work[0][2][:] = time
        self._early, self._minus_late = lead, tail - most
        self._settled = self._work[3].copy()
        self._gained = nothing_gained(edges) if gained is None else gained
        self._order = np.argsort(-self._gained, kind="stable")
        self._largest = 2 * (abs(most) + int(time.sum() + lead.max() + tail.max())) * len(time) - NEVER
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
        state, windows = self._state, (self._early, self._minus_late, self._settled)
        given = self._edges.sizes, self._edges.rules, self._order
        while not self.ended and not clock.over:
            often = min(ROUNDS * len(self._early) * (len(self._order) - int(state[0])), OFTEN)
            shave(often, self._largest, PARTS[self._turns], *given, *windows, self._gained, self._work, state)
            clock.charge(SECONDS * int(state[1]))
            self.refuted = bool(state[2])
            if state[0] == len(self._order):
                self._turns, state[0] = self._turns + 1, 0


def nothing_gained(edges: EdgeFinding) -> IntArray:
    """That no question has narrowed anything yet (:class:`Shaving`)."""
    return np.zeros(2 * edges.families * edges.count, dtype=np.int64)


def narrow(question: int, taken: int, part: int, early: Any, minus_late: Any, settled: Any, sizes: Any, work: Any) -> None:
    """Begin with some windows, of which ``taken`` is left out at the side that a question is about, and all but ``part`` of the
    rest; ``part`` < 0: nothing of it."""
    there, back, time = work[0][0], work[0][1], work[0][2]
    for operation in range(sizes[2] * sizes[3]):
        there[operation], back[operation] = early[operation], minus_late[operation]
    for machine in range(sizes[0]):
        work[3][machine] = settled[machine]
    own, side = question // 2, question % 2
    if side == 0:
        there[own] += taken
        if part >= 0:
            back[own] = -there[own] - part - time[own]
    else:
        back[own] += taken
        if part >= 0:
            there[own] = -back[own] - part - time[own]


def keep(early: Any, minus_late: Any, settled: Any, sizes: Any, work: Any) -> None:
    """Let what was raised and lowered be the windows."""
    there, back = work[0][0], work[0][1]
    for operation in range(sizes[2] * sizes[3]):
        early[operation], minus_late[operation] = there[operation], back[operation]
    for machine in range(sizes[0]):
        settled[machine] = work[3][machine]


@loop(1.6e-5, ("early", "minus_late", "settled", "gained", "state"), (*SETTLING, narrow, keep))
def shave(
    parts: int,
    sizes: Any,
    rules: Any,
    order: Any,
    early: Any,
    minus_late: Any,
    settled: Any,
    gained: Any,
    work: Any,
    state: Any,
) -> None:
    """Narrow the windows by asking from ``order[state[0]]`` on, until enough operations were raised, each counted as often as it
    was: ``state[1]``. ``state[2]``: whether some operation has no time left.

    Each time that a part is left out the next one is twice as large; behind one that is not, it is small once more. Measured for
    64 cuts: 14 s, with parts that are always small 21 s.
    """
    rules, work = bare(rules), bare(work)
    time, at, spent = work[0][2], state[0], 0
    while at < len(order) and spent < OFTEN:
        question = order[at]
        operation = question // 2
        room = -minus_late[operation] - time[operation] - early[operation]
        part, taken = room // parts, 0
        while room > 0 and taken <= room:
            narrow(question, taken, part, early, minus_late, settled, sizes, work)
            raised = raised_until_settled(sizes, rules, work)
            spent += abs(raised)
            if raised > 0:
                taken += part + 1
                part = min(2 * part + 1, room - taken)
            elif part > (room - taken) // parts:
                part = (room - taken) // parts
            else:
                break
        if taken:
            gained[question] += 1 + WHOLE * taken // (room + 1)
            narrow(question, taken, -1, early, minus_late, settled, sizes, work)
            raised = raised_until_settled(sizes, rules, work)
            spent += abs(raised)
            if raised > 0:
                gained[question] += FIRST
                state[1], state[2] = spent, 1
                return
            keep(early, minus_late, settled, sizes, work)
        at += 1
    state[0], state[1] = at, spent
