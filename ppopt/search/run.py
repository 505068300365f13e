"""Following a strategy: one step after the other, until the gap is closed or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ppopt.clock import Clock, Limits
from ppopt.interrupt import check
from ppopt.search import tuning
from ppopt.search.incumbent import Incumbent
from ppopt.search.step import Needs, Step, Taken
from ppopt.search.whereabouts import at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppopt.named import Row
    from ppopt.search.problem import Problem
    from ppopt.search.turns import Entry, Turn

Taking = TypeVar("Taking", bound=Step)


@dataclass
class Run:
    """One search: its problem, clock and incumbent, the steps that it has taken, and how they go about it.

    A derived problem (fewer microbatches, fewer devices, the makespan before the span) has a run of its own with a slice of the
    clock (:meth:`derived`).
    """

    problem: Problem
    clock: Clock
    incumbent: Incumbent
    workers: int | None = None
    seed: int = 0
    rows: Callable[[], Sequence[Row]] = lambda: ()
    """The rows to show beside the answer, and to begin from where they have its placement."""
    named: tuple[Row, ...] = ()
    taken: list[Taken] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    """Of the solvers that were used."""
    _steps: dict[type[Step], Step] = field(default_factory=dict)
    _left_out: set[tuple[str, str]] = field(default_factory=set)

    def follow(self, strategy: Iterable[Entry]) -> None:
        """Take its turns, as far as they are worth taking."""
        for entry in strategy:
            entry.follow(self)

    def step(self, kind: type[Taking]) -> Taking:
        """The run's step of this kind."""
        found = self._steps.setdefault(kind, kind())
        assert isinstance(found, kind)
        return found

    def limits(self, seconds: float) -> Limits:
        """Those of a step for the next ``seconds``."""
        return Limits(self.clock.slice(seconds), self.problem.gap, self.workers, self.seed)

    def wants(self, needs: Needs) -> bool:
        """Whether a step of these needs is worth taking."""
        incumbent = self.incumbent
        if self.clock.interrupted:
            return False
        if needs is Needs.NOTHING:
            return True
        if needs is Needs.GAP:
            return not incumbent.closed
        return incumbent.open and (needs is Needs.INTEREST or not self.clock.over)

    @property
    def goes_on(self) -> bool:
        """Whether there is something left to do, and time to do it."""
        return self.wants(Needs.TIME)

    def take(self, turn: Turn, seconds: float) -> None:
        """Take a step, if it applies, for about ``seconds``."""
        step = self.step(turn.step)
        unknown = bool(self.problem.pipeline.engines) and not step.copies
        reason = "it knows nothing of copies to the host" if unknown else step.applies(self)
        if reason is not None:
            if (step.name, reason) not in self._left_out:
                self._left_out.add((step.name, reason))
                self.taken.append(Taken(step.name, 0.0, f"left out: {reason}"))
            return
        self.do(step, seconds, **turn.options)

    def do(self, step: Step, seconds: float, **options: Any) -> None:
        """Take a step for about ``seconds``, and note it."""
        best, lower = self.incumbent.best, self.incumbent.lower
        with at(step.name), self.note(step.name) as say:
            self.clock.charge(tuning.LEAST)
            say(step.run(self, seconds, **options))
        step.gained = best is not self.incumbent.best or lower < self.incumbent.lower

    def ask(self, problem: Problem) -> None:
        """Go on with another ``enough`` or gap for the same pipeline and objective."""
        self.problem = self.incumbent.problem = problem

    @contextmanager
    def note(self, name: str) -> Iterator[Callable[[str | None], None]]:
        """Note what was done, and how long it took, even if it is interrupted; above what is noted within.

        Raises:
            KeyboardInterrupt: the user asked to stop meanwhile.
        """
        begun, place = time.monotonic(), len(self.taken)
        said: list[str | None] = ["interrupted"]
        try:
            yield lambda text: said.__setitem__(0, text)
        finally:
            if said[0] is not None:
                self.taken.insert(place, Taken(name, time.monotonic() - begun, said[0]))
        check()
        if self.clock.interrupted:
            raise KeyboardInterrupt

    def derived(self, problem: Problem, seconds: float) -> Run:
        """A run for a problem that follows from this one, with a slice of the clock."""
        return Run(problem, self.clock.slice(seconds), Incumbent(problem), self.workers, self.seed)

    def learn(self, of: Run, prefix: str) -> None:
        """Note what the run of a derived problem did."""
        self.versions |= of.versions
        self.taken += [step._replace(name=f"{prefix}: {step.name}") for step in of.taken]
