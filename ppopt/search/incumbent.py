"""What is known: the best schedule, the best bound, and who found them."""

from __future__ import annotations

from collections.abc import Callable

from ppopt.schedule import Schedule
from ppopt.search.problem import Problem


class Incumbent:
    """The best schedule of a problem so far, and the best lower bound, in ticks of the objective."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.best: Schedule | None = None
        self.source = ""
        """Who found the best schedule."""
        self.lower = 0
        self.proved_by: str | None = None
        """The argument that shows the bound."""
        self.infeasible = False
        """Whether it is shown that there is no schedule at all."""
        self._listener: Callable[[int | None, int], None] | None = None

    @property
    def value(self) -> int:
        """The best objective; there must be a schedule."""
        assert self.best is not None
        return self.best.objective(self.problem.objective)

    @property
    def target(self) -> int | None:
        """The best objective: no more than that can be proved."""
        return None if self.best is None else self.value

    @property
    def to_beat(self) -> int:
        """Only schedules with less are of interest; there must be a schedule."""
        return self.value if self.problem.enough is None else min(self.value, self.problem.enough)

    @property
    def gap(self) -> float:
        """``(value - bound) / value``; 1 without a schedule."""
        if self.best is None:
            return 1.0
        return (self.value - self.lower) / self.value if self.value else 0.0

    @property
    def closed(self) -> bool:
        """Whether the gap is as small as asked for, or nothing can be done about it."""
        return self.infeasible or (self.best is not None and self.value - self.lower <= self.problem.gap * self.value)

    @property
    def open(self) -> bool:
        """Whether the gap is larger than asked for, and what lies in it is of interest."""
        return not self.closed and (self.problem.enough is None or self.lower < self.problem.enough)

    def offer(self, schedule: Schedule, source: str) -> bool:
        """Keep a schedule if it is the best so far; whether it is."""
        better = self.best is None or schedule.objective(self.problem.objective) < self.value
        if better:
            self.best, self.source = schedule, source
            self.report(None, 0)
        return better

    def prove(self, bound: int, argument: str) -> None:
        """Keep a bound if it is the best so far; above the best value it is as good as that."""
        if self.best is not None:
            bound = min(bound, self.value)
        if bound > self.lower or self.proved_by is None:
            self.lower, self.proved_by = bound, argument
            self.report(None, 0)

    def settle(self, argument: str) -> None:
        """The best schedule is optimal."""
        self.lower, self.proved_by = self.value, argument

    def refute(self, argument: str, lower: int | None = None) -> None:
        """There is no schedule at all; ``lower``: nor would one be shorter than that."""
        self.infeasible, self.proved_by = True, argument
        if lower is not None:
            self.lower = lower

    def tell(self, listener: Callable[[int | None, int], None] | None) -> None:
        """Call the ``listener`` with the best value and the bound, with those that are known now and whenever one improves."""
        self._listener = listener
        if self.best is not None or self.lower:
            self.report(None, 0)

    def report(self, value: int | None, bound: int) -> None:
        """Tell who wants to know: of these, or of what is better already."""
        if self._listener is not None:
            values = [v for v in (value, self.target) if v is not None]
            self._listener(min(values, default=None), max(bound, self.lower))

    def text(self, before: Schedule | None = None) -> str:
        """The best value and where it is from; with ``before``, a schedule, also whether it has got better than that."""
        improved = "improved: " if before is not None and self.best is not before else ""
        if self.best is None:
            return "nothing found"
        return f"{improved}best {self.problem.pipeline.time(self.value)} ({self.source})"

    @property
    def text_with_bound(self) -> str:
        """The best value, where it is from, and the bound."""
        return f"{self.text()}, bound {self.problem.pipeline.time(self.lower)}"
