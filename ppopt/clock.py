"""How long a search may take: one clock for all its steps, and how they go about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


class Clock:
    """The time that is left to a search, in seconds; every step charges it.

    Seconds go by on their own. In ``deterministic`` mode they are counted instead: whoever works says how much that was
    (:meth:`charge`), in CP-SAT's deterministic time or about as long as it takes, so that the same search ends at the same place
    on every machine. After an interrupt (Ctrl-C) nothing is left.
    """

    def __init__(self, seconds: float, *, deterministic: bool = False, parent: Clock | None = None) -> None:
        self.seconds, self.deterministic = seconds, deterministic
        self._parent = parent
        self._begun = time.monotonic()
        self._charged = 0.0
        self._interrupted = False

    @property
    def spent(self) -> float:
        """Seconds since this clock began to run."""
        return self._charged if self.deterministic else time.monotonic() - self._begun

    @property
    def left(self) -> float:
        """Seconds; never below 0, and no more than the clock has left that this is a slice of."""
        if self.interrupted:
            return 0.0
        left = max(0.0, self.seconds - self.spent)
        return left if self._parent is None else min(left, self._parent.left)

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0

    @property
    def interrupted(self) -> bool:
        """Whether somebody asked to stop."""
        return self._interrupted if self._parent is None else self._parent.interrupted

    def interrupt(self) -> None:
        """Let nothing be left, of this clock and of all that it is a slice of."""
        if self._parent is None:
            self._interrupted = True
        else:
            self._parent.interrupt()

    def charge(self, seconds: float) -> None:
        """Count work: it matters in deterministic mode alone, where it is all that is counted."""
        self._charged += seconds
        if self._parent is not None:
            self._parent.charge(seconds)

    def slice(self, seconds: float) -> Clock:
        """A clock for the next ``seconds`` of this one; what is charged to it is charged to this one."""
        return Clock(min(seconds, self.left), deterministic=self.deterministic, parent=self)


class OutOfTime(Exception):
    """What was asked for within a clock's time could not be done (:func:`bounded`)."""


_BOUND: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextmanager
def bounded(clock: Clock | None) -> Iterator[None]:
    """While this lasts, :func:`check_time` raises once the clock is over (``None``: it never does): for work that has no clock of
    its own, such as making an order of constraints."""
    token = _BOUND.set(clock)
    try:
        yield
    finally:
        _BOUND.reset(token)


def check_time(seconds: float = 0.0) -> None:
    """Raise where the clock is over that bounds what is done (:func:`bounded`); long loops ask now and then.

    ``seconds``: about what is done next, in deterministic seconds; the clock is charged with it.

    Raises:
        OutOfTime: it is.
    """
    clock = _BOUND.get()
    if clock is not None:
        if clock.over:
            raise OutOfTime
        clock.charge(seconds)


def check_room(seconds: float) -> None:
    """Raise where the clock that bounds what is done (:func:`bounded`) has less than this left: for what cannot be interrupted.

    A deterministic clock counts no such seconds: it has room while it is not over.

    Raises:
        OutOfTime: it has.
    """
    clock = _BOUND.get()
    if clock is not None and (clock.over or (clock.left < seconds and not clock.deterministic)):
        raise OutOfTime


@dataclass(frozen=True)
class Limits:
    """When a step has to stop, and how it goes about its search.

    ``gap``: it may stop once ``(value - bound) / value`` is at most that. ``workers``: threads, by default one per processor;
    in deterministic mode there is one. ``seed``: of everything random.
    """

    clock: Clock
    gap: float = 0.0
    workers: int | None = None
    seed: int = 0

    @classmethod
    def of(
        cls, seconds: float, gap: float = 0.0, workers: int | None = None, seed: int = 0, deterministic: bool = False
    ) -> Limits:
        """Limits with a clock of their own, which runs from now on."""
        return cls(Clock(seconds, deterministic=deterministic), gap, workers, seed)

    @property
    def threads(self) -> int:
        """How many search at a time."""
        return 1 if self.clock.deterministic else self.workers or os.cpu_count() or 1

    def slice(self, seconds: float) -> Limits:
        """These limits for the next ``seconds``."""
        return replace(self, clock=self.clock.slice(seconds))


def in_threads(task: Callable[[int], None], limits: Limits) -> None:
    """Run a task in as many threads as the limits have, each with its number, until all have ended; in this one where that is
    one. Ctrl-C among several is noted in the clock, which ends them."""
    if limits.threads == 1:
        task(0)
        return
    with ThreadPoolExecutor(limits.threads) as pool:
        try:
            for going in [pool.submit(task, number) for number in range(limits.threads)]:
                going.result()
        except KeyboardInterrupt:
            limits.clock.interrupt()
