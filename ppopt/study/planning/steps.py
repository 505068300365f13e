"""The steps of a plan that take time, each about one combination on one placement: here, or in another process."""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from ppopt.clock import Clock
from ppopt.pipeline import Pipeline, PipelineError
from ppopt.search.answer import branch_of
from ppopt.search.choices import Branch, bound_of, value_of
from ppopt.search.cutting import PartitionChoice
from ppopt.search.settings import Settings
from ppopt.study.planning.looks import Counts, Found, first_cut, look, nearby
from ppopt.study.planning.memo import Memo
from ppopt.study.planning.question import Question
from ppopt.study.planning.space import Case, Combination

CLOSED = "closed form"
EVEN = 1.02
"""How far above the least bound of a cut that of a more even one may be that is looked at: named schedules expect alike stages.
Not measured."""


@dataclass
class Leaf:
    """A combination on one placement, and what is known of it. Bounds and values are in ms."""

    case: Case
    placement: str
    chunks: int
    number: int
    seconds: float
    bound: float = 0.0
    known: int = 0
    """How many of its bounds in closed form are known."""
    likely: float = 0.0
    """About what its schedules take at least, once its bounds are known."""
    counts: Counts | None = None
    """A cut with a small bound."""
    looked: bool = False
    settled: bool = False
    busy: bool = False
    found: Found | None = None
    search: Branch | None = None
    proved_by: str = CLOSED
    spent: float = 0.0
    """Seconds of its steps."""

    @property
    def order(self) -> tuple[float, int, int]:
        """The least bound first; of equal ones that of fewer stages, whose bound says more."""
        return self.bound, self.chunks, self.number

    @property
    def hope(self) -> tuple[float, int, int]:
        """What is likely to be fast first."""
        return max(self.bound, self.likely), self.chunks, self.number

    @property
    def pipeline(self) -> Pipeline:
        """Its pipeline, the partition left open."""
        return self.case.pipeline(self.placement, self.chunks)


@dataclass(frozen=True)
class Task:
    """A step as it is sent to another process: ``kind`` is ``look``, ``near`` or ``solve``; ``found`` is a schedule as a tree.

    ``bound`` holds for all cuts, and only schedules of less than ``most`` matter, in ms.
    """

    question: Question
    combination: Combination
    placement: str
    chunks: int
    kind: str
    settings: Settings
    seconds: float
    bound: float
    most: float
    counts: Counts | None = None
    found: dict[str, Any] | None = None


class Outcome(NamedTuple):
    """What came of a step: a schedule, maybe; of a search also a bound for all cuts in ms, how it is proved, and whether all is
    settled (``all``), or all that might be below the best (``best``); ``whole``: whether it had the time it wanted."""

    found: Found | None
    bound: float = 0.0
    proved_by: str = CLOSED
    settled: str = ""
    whole: bool = True
    seconds: float = 0.0


def take(leaf: Leaf, kind: str, settings: Settings, clock: Clock, most: float) -> Outcome:
    """Take a step in this process; a search goes on where it was."""
    begun = clock.spent
    if kind == "solve":
        outcome = _solved(leaf, settings, clock, most)
    elif kind == "look":
        outcome = Outcome(look(leaf.case, leaf.placement, leaf.chunks, _cut(leaf), clock))
    else:
        assert leaf.found is not None
        outcome = Outcome(nearby(leaf.case, leaf.found, clock))
    return outcome._replace(whole=not clock.over, seconds=clock.spent - begun)


def _cut(leaf: Leaf) -> Counts | None:
    if leaf.chunks == 1 or leaf.counts is None:
        return leaf.counts
    floors, route = leaf.case.floors, leaf.pipeline.routes[0]
    even = first_cut(floors, leaf.placement, leaf.chunks)
    return even if even is not None and floors.of_cut(even, route) <= EVEN * leaf.bound else leaf.counts


def _solved(leaf: Leaf, settings: Settings, clock: Clock, most: float) -> Outcome:
    """The search over the cuts, for a while; from the schedule that is known, and the bound."""
    if leaf.search is None:
        try:
            leaf.search = _begun(leaf, settings)
        except PipelineError:
            return Outcome(None)  # it is too large
    result = leaf.search.go_on(clock, most if most == math.inf else Fraction(most), None)
    whole = result.reason in ("optimal", "infeasible")
    found = None if result.schedule is None else Found("ppopt", result.schedule)
    settled = "all" if whole else "best" if result.limit is None else ""
    bound = float(bound_of(result))
    if settled == "best":  # no cut has less than that
        bound = max(bound, min(most, float(value_of(result))))
    return Outcome(found, bound, result.proved_by or CLOSED, settled)


def _begun(leaf: Leaf, settings: Settings) -> Branch:
    runtime = leaf.case.question.search.runtime
    branch = branch_of(leaf.pipeline, dataclasses.replace(settings, gap=0.0), runtime or None)
    if isinstance(branch, PartitionChoice):
        branch.begin(None if leaf.found is None else leaf.found.schedule, Fraction(leaf.bound))
        branch.named = ()  # looks have tried them
    return branch


# --- in other processes ---


class Elsewhere:
    """Steps that an executor takes, so many at once; without one they are taken here, one after the other."""

    def __init__(self, executor: Executor | None, slots: int) -> None:
        self.executor, self.slots = executor, max(1, slots) if executor is not None else 1

    def begin(self, leaf: Leaf, kind: str, settings: Settings, clock: Clock, most: float) -> Future[Any]:
        """Begin a step; the future has an :class:`Outcome`, or its tree."""
        if self.executor is None:
            done: Future[Any] = Future()
            done.set_result(take(leaf, kind, settings, clock, most))
            return done
        found = None if leaf.found is None else Memo.tree(leaf.found)
        case = leaf.case
        task = Task(
            case.question,
            case.combination,
            leaf.placement,
            leaf.chunks,
            kind,
            settings,
            clock.left,
            leaf.bound,
            most,
            leaf.counts,
            found,
        )
        return self.executor.submit(run_task, task)


def run_task(task: Task) -> dict[str, Any]:
    """A step from its beginning, what came of it as a tree that :func:`outcome_of` reads."""
    leaf = Leaf(
        Case.of(task.question, task.combination), task.placement, task.chunks, 0, task.seconds, task.bound, counts=task.counts
    )
    if task.found is not None:
        leaf.found = Memo.found(leaf.pipeline, task.found)
    outcome = take(leaf, task.kind, task.settings, Clock(task.seconds), task.most)
    rest = {name: value for name, value in outcome._asdict().items() if name != "found"}
    return {**Memo.tree(outcome.found), "outcome": rest}


def outcome_of(leaf: Leaf, done: Any) -> Outcome:
    """What came of a step, its schedule made again where it was found elsewhere."""
    if isinstance(done, Outcome):
        return done
    return Outcome(Memo.found(leaf.pipeline, done), **done["outcome"])
