"""What a strategy is made of: turns of steps with their shares of the time, and rounds of turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ppopt.search.step import Step

if TYPE_CHECKING:
    from ppopt.clock import Clock
    from ppopt.search.run import Run

When: TypeAlias = Callable[["Run"], bool]


@dataclass(frozen=True)
class Share:
    """A part of the time: of what is left of the clock, or of the whole; within bounds in seconds."""

    part: float
    of_whole: bool = False
    least: float = 0.0
    most: float = math.inf

    def seconds(self, clock: Clock) -> float:
        """In seconds, never more than there is."""
        return min(self.most, max(self.least, self.part * (clock.seconds if self.of_whole else clock.left)), clock.left)


def left(part: float, *, least: float = 0.0, most: float = math.inf) -> Share:
    """That part of what is left."""
    return Share(part, least=least, most=most)


def whole(part: float, *, least: float = 0.0, most: float = math.inf) -> Share:
    """That part of the whole time limit."""
    return Share(part, of_whole=True, least=least, most=most)


def always(run: Run) -> bool:
    """Whenever the step is worth taking."""
    return True


@dataclass(frozen=True)
class Turn:
    """A step, its share of the time, when it is taken, and its options."""

    step: type[Step]
    share: Share = Share(1.0)
    when: When = always
    options: Mapping[str, Any] = field(default_factory=dict)

    def follow(self, run: Run, patience: float = 1.0, most: float = math.inf) -> None:
        """Take it, where it is worth taking; ``patience`` times as long, and no more than ``most`` seconds."""
        if run.wants(self.step.needs) and self.when(run):
            run.take(self, min(patience * self.share.seconds(run.clock), run.clock.left, most))


@dataclass(frozen=True)
class Rounds:
    """Turns again and again, each round twice as long as the one before."""

    turns: tuple[Turn, ...]

    def follow(self, run: Run) -> None:
        """Take them until the gap is closed or the time is over."""
        patience = 1.0
        while run.goes_on:
            for turn in self.turns:
                turn.follow(run, patience)
            patience *= 2


@dataclass(frozen=True)
class WhileGaining:
    """Turns again and again, as long as every round of them finds a better schedule, within a share of the time."""

    turns: tuple[Turn, ...]
    share: Share
    when: When = always

    def follow(self, run: Run) -> None:
        """Take them."""
        if not self.when(run):
            return
        end, gained = run.clock.spent + self.share.seconds(run.clock), True
        while run.goes_on and gained:
            best = run.incumbent.best
            for turn in self.turns:
                if run.clock.spent >= end:
                    return
                turn.follow(run, most=end - run.clock.spent)
            gained = best is not run.incumbent.best


Entry: TypeAlias = Turn | Rounds | WhileGaining


def each_turn(strategy: Iterable[Entry]) -> Iterator[Turn]:
    """The turns of a strategy, those that come again once."""
    for entry in strategy:
        yield from (entry,) if isinstance(entry, Turn) else entry.turns
