"""The search for a plan: bounds of all combinations, a look at those that may be best, then the solver for what is left."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias, Unpack

from ppopt.clock import Clock
from ppopt.files.estimates import read_source
from ppopt.interrupt import noting
from ppopt.pipeline import PipelineError
from ppopt.search import at, tuning
from ppopt.search.cutting import PartitionChoice
from ppopt.search.settings import Settings, SettingsFields
from ppopt.study.planning.looks import Found, look, nearby
from ppopt.study.planning.memo import Memo
from ppopt.study.planning.question import Question, question_of
from ppopt.study.planning.recipe import timed
from ppopt.study.planning.result import MS, Plan, PlanReason, Plans, Space
from ppopt.study.planning.space import Case, cases_of
from ppopt.study.store import Store
from ppopt.text import brief
from ppopt.transformer import EstimateError

Progress: TypeAlias = Callable[[float | None, float], None]
"""Called with the best step time and the bound of all, in seconds, whenever one improves."""
CLOSED = "closed form"
LOOKS = 0.35
"""Part of the time that first looks may take, and then again the cuts near what they found. Measured: of Llama 3 70B all linear
placements that may be best are looked at in 60 s."""
NEAR = 1.2
"""How much slower than the best a schedule may be whose cut is improved."""
LOOK = 0.15
"""Part of the time that one look may take."""
FIRST = 4.0
"""Seconds of the first search on a placement; each later one takes twice as long."""


@dataclass
class _Leaf:
    """A combination on one placement, and what is known of it. Bounds and values are in ms."""

    case: Case
    placement: str
    chunks: int
    bound: float
    number: int
    looked: bool = False
    settled: bool = False
    found: Found | None = None
    search: PartitionChoice | None = None
    seconds: float = FIRST
    proved_by: str = CLOSED

    @property
    def order(self) -> tuple[float, int]:
        """The least bound first."""
        return self.bound, self.number


def plan(
    asked: Question | Mapping[str, Any] | str,
    settings: Settings | None = None,
    *,
    store: str | None = None,
    progress: Progress | None = None,
    **changes: Unpack[SettingsFields],
) -> Plans:
    """The best plan for a transformer on a cluster: sizes, microbatch, placement, cut, what recomputes, and the order.

    Args:
        asked: The question; or a file that asks it (docs/plans.md), or its tables.
        settings: The time limit and how to search; single fields may be given as keywords: ``plan(asked, seconds=30)``.
        store: A file in which every step is kept; a plan that was stopped goes on where it was.
        progress: Called with the best step time and the bound in seconds, whenever one improves.

    Ctrl-C ends the search and keeps its best. Every schedule in the answer has passed the checker.

    Raises:
        EstimateError: the tables, or all combinations, cannot be.
        ModelError: the file cannot be read, or is no question.
        StoreError: the file is no store.
        ValueError: a setting is out of range.
    """
    if isinstance(asked, str):
        source = read_source(asked)
        try:
            asked = question_of(source.tables, source.name)
        except EstimateError as error:
            raise source.error(error) from None
    question = asked if isinstance(asked, Question) else question_of(asked)
    settings = dataclasses.replace(settings or Settings(), **changes)
    with Store(store) if store is not None else nullcontext() as opened:
        run = _Run(question, settings, Memo(opened, question.name), progress)
        run.search()
        return run.answer()


class _Run:
    """The state of a search."""

    def __init__(self, question: Question, settings: Settings, memo: Memo, progress: Progress | None) -> None:
        self.question, self.settings, self.memo, self.progress = question, settings, memo, progress
        self.begun = time.monotonic()
        self.clock = settings.limits().clock
        self.cases: list[Case] = []
        self.over: list[Case] = []
        self.leaves: list[_Leaf] = []
        self.best = math.inf
        self.best_found: Found | None = None
        self.recipe: tuple[Plan | None, str | None] = (None, None)
        self.shown: tuple[float, float] = (math.inf, -1.0)

    # --- what is known ---

    @property
    def lower(self) -> float:
        """No combination takes less, in ms."""
        return min((leaf.bound for leaf in self.leaves if not leaf.settled), default=self.best)

    @property
    def closed(self) -> bool:
        """Whether the gap is no larger than asked for."""
        return self.best < math.inf and self.best - min(self.lower, self.best) <= self.settings.gap * self.best

    def _found(self, leaf: _Leaf, found: Found | None) -> None:
        if found is not None and (leaf.found is None or found.value < leaf.found.value):
            leaf.found = found
            if float(found.value) < self.best:
                self.best, self.best_found = float(found.value), found
        self._report()

    def _report(self) -> None:
        state = (self.best, min(self.lower, self.best))
        if self.progress is not None and state != self.shown and math.isfinite(state[1]):
            self.shown = state
            self.progress(None if self.best == math.inf else self.best / MS, state[1] / MS)

    # --- the search ---

    def search(self) -> None:
        """Until nothing can be better, the gap is closed, or the time is over."""
        self.cases = cases_of(self.question)
        if self.question.recipe is not None:
            self.recipe = timed(self.question, self.question.recipe)
        self.over = [case for case in self.cases if not case.floors.fits]
        for case in self.cases:
            if case.floors.fits:
                for placement, chunks in case.places:
                    self.leaves.append(_Leaf(case, placement, chunks, case.floors.least, len(self.leaves)))
        try:
            with noting():
                self._look_at_all(self.clock.slice(LOOKS * self.settings.seconds))
                self._improve()
                self._deepen()
                self._look_at_all(self.clock)
        except KeyboardInterrupt:
            self.clock.interrupt()

    def _look_at_all(self, clock: Clock) -> None:
        """First looks at what may be better than the best: where the linear bound is small first, which knows most.

        A combination whose linear bound is much above its bound for all placements is short of memory.
        """
        for linear in True, False:
            left = {leaf.number: leaf for leaf in self.leaves if not leaf.looked and (leaf.placement == "linear") == linear}
            likely: dict[int, float] = {}
            while left and not clock.over and not self.closed:
                least = min(left.values(), key=lambda leaf: (likely.get(leaf.number, leaf.bound), leaf.number))
                if least.number not in likely:
                    likely[least.number] = max(least.bound, least.case.floors.linear)
                    if linear:
                        least.bound = likely[least.number]
                        least.settled = least.bound == math.inf
                    continue
                del left[least.number]
                if least.bound < self.best and not least.settled:
                    self._look(least, clock)

    def _look(self, leaf: _Leaf, clock: Clock) -> None:
        case, place = leaf.case, (leaf.placement, leaf.chunks)
        leaf.looked = True
        self._found(leaf, self._remembered(leaf, "look", clock, lambda own: look(case, *place, own)))

    def _improve(self) -> None:
        """The named schedules that were found, on cuts near theirs, the fastest first."""
        clock = self.clock.slice(LOOKS * self.settings.seconds)
        tried: set[int] = set()
        while not clock.over and not self.closed:
            left = [leaf for leaf in self._open() if leaf.found is not None and leaf.number not in tried]
            if not left:
                break
            leaf = min(left, key=lambda leaf: (leaf.found.value, leaf.number))  # type: ignore[union-attr]
            found = leaf.found
            assert found is not None
            if found.value > NEAR * self.best:
                break
            tried.add(leaf.number)
            self._found(leaf, self._remembered(leaf, f"near {found.value}", clock, partial(nearby, leaf.case, found)))

    def _remembered(self, leaf: _Leaf, step: str, clock: Clock, taken: Callable[[Clock], Found | None]) -> Found | None:
        """What a step finds, or has found before; kept where it had time to end."""
        begun = time.monotonic()
        pipeline = leaf.case.pipeline(leaf.placement, leaf.chunks)
        key = self.memo.key(pipeline, step)
        known = self.memo.known(key)
        if known is not None:
            return self.memo.found(pipeline, known)
        own = clock.slice(LOOK * self.settings.seconds)
        with at(self._place(leaf)), at(step.split()[0]):
            found = taken(own)
        if not own.over:
            tree = self.memo.tree(found, lower_bound=leaf.bound / MS, settled=False)
            self.memo.keep(key, leaf.case, pipeline, step.split()[0], tree, time.monotonic() - begun)
        return found

    def _place(self, leaf: _Leaf) -> str:
        """A combination on a placement, in words."""
        return f"[{leaf.number + 1}/{len(self.leaves)}] {leaf.case.combination}, {brief(leaf)}"

    def _open(self) -> list[_Leaf]:
        """What may still have the best, the least bound first."""
        found = [leaf for leaf in self.leaves if not leaf.settled and leaf.bound < self.best]
        return sorted(found, key=lambda leaf: leaf.order)

    def _deepen(self) -> None:
        """Search on the placement with the least bound, again and again."""
        while not self.clock.over and not self.closed:
            leaf = next((leaf for leaf in self._open() if self._affordable(leaf)), None)
            if leaf is None:
                break
            if leaf.placement == "linear" and leaf.bound < leaf.case.floors.linear:
                leaf.bound = leaf.case.floors.linear
                leaf.settled = leaf.bound == math.inf
            else:
                self._solve(leaf)

    def _affordable(self, leaf: _Leaf) -> bool:
        """Whether there is time for the first look at one of its cuts, which takes longer the more operations there are."""
        operations = 3 * leaf.case.combination.parallel.pipeline * leaf.chunks * leaf.case.microbatches
        return leaf.search is not None or operations / tuning.LEAF <= max(self.clock.left, 1.0)

    def _solve(self, leaf: _Leaf) -> None:
        begun = time.monotonic()
        pipeline = leaf.case.pipeline(leaf.placement, leaf.chunks)
        key = self.memo.key(pipeline, "solve")
        known = self.memo.known(key)
        leaf.looked = True
        if known is not None:  # it was settled, for a best that is no worse than what is found again
            leaf.bound, leaf.proved_by = max(leaf.bound, MS * known["lower_bound"]), known["proved_by"]
            found = self.memo.found(pipeline, known)
            if found is not None:
                self._found(leaf, found)
            if leaf.bound >= self.best * (1 - 1e-12) or known["settled"] == "all":
                leaf.settled = True
                return
        if leaf.search is None:
            leaf.search = self._begun(leaf)
        search = leaf.search
        if search is None:  # it is too large
            leaf.settled = False
            leaf.seconds *= 2
            return
        most = math.inf if self.best_found is None else self.best_found.value
        with at(self._place(leaf)):
            result = search.go_on(self.clock.slice(leaf.seconds), most, None)
        leaf.seconds *= 2
        bound = float(Fraction(result.ticks.lower_bound, result.ticks.per_unit))
        if bound > leaf.bound:
            leaf.bound, leaf.proved_by = bound, result.proved_by or CLOSED
        whole = result.reason in ("optimal", "infeasible")
        leaf.settled = whole or float(search.lower) >= self.best
        if search.best is not None and (leaf.found is None or Fraction(search.value) < leaf.found.value):
            self._found(leaf, Found("ppopt", search.best))
        if leaf.settled:
            if result.reason == "infeasible":
                leaf.bound = math.inf
            settled = "all" if whole else "best"
            lower = leaf.bound if leaf.bound < math.inf else 1e300
            tree = self.memo.tree(leaf.found, lower_bound=lower / MS, settled=settled, proved_by=leaf.proved_by)
            self.memo.keep(key, leaf.case, pipeline, "solve", tree, time.monotonic() - begun)
        self._report()

    def _begun(self, leaf: _Leaf) -> PartitionChoice | None:
        """The search over the cuts, from what is known."""
        pipeline = leaf.case.pipeline(leaf.placement, leaf.chunks)
        settings = dataclasses.replace(self.settings, gap=0.0, seconds=max(self.clock.left, 1.0))
        found = leaf.found
        try:
            search = PartitionChoice(pipeline, "makespan", settings, named=())
        except PipelineError:
            return None
        if found is not None:
            search.best, search.value = found.schedule, found.value
        search.over.bound = max(search.over.bound, Fraction(leaf.bound))
        return search

    # --- the answer ---

    def answer(self) -> Plans:
        """What was found, best first."""
        plans, solved, pruned = [], 0, 0
        for case in self.cases:
            own = [leaf for leaf in self.leaves if leaf.case is case]
            found = min((leaf.found for leaf in own if leaf.found is not None), key=lambda one: one.value, default=None)
            solved += any(leaf.looked for leaf in own)
            if own and not any(leaf.looked for leaf in own):
                pruned += all(leaf.settled or leaf.bound >= self.best for leaf in own)
            if found is not None:
                opened = [leaf for leaf in own if not leaf.settled]
                weakest = min(opened or own, key=lambda leaf: leaf.order)
                lower = min([float(found.value), *(leaf.bound for leaf in opened)]) / MS
                plans.append(Plan(case, found, min(lower, float(found.value / MS)), weakest.proved_by))
        plans.sort(key=lambda one: (one.step_time, one.lower_bound))
        over = len(self.over)
        space = Space(len(self.cases), over, pruned, solved, len(self.cases) - over - pruned - solved)
        lower = min(self.lower, self.best)
        reason: PlanReason = "no-solution"
        if plans:
            reason = "optimal" if lower >= self.best * (1 - 1e-12) else "feasible"
        elif not self.leaves or all(leaf.settled for leaf in self.leaves):
            reason = "infeasible"
        limit: Any = None
        if reason in ("feasible", "no-solution"):
            limit = "interrupted" if self.clock.interrupted else "gap" if self.closed else "time"
        return Plans(
            tuple(plans),
            min([lower / MS, *(one.step_time for one in plans[:1])]) if lower < math.inf else 0.0,
            space,
            reason,
            limit,
            None if plans or not self.over else self._nearest(),
            *self.recipe,
            seconds=time.monotonic() - self.begun,
        )

    def _nearest(self) -> dict[str, Any]:
        """Of what does not fit, the combination that lacks least."""
        lacking: list[tuple[float, int, int, float, Case]] = []
        for case in self.over:
            needs, device = case.floors.fullest()
            lacking.append((needs - case.floors.room, len(lacking), device, needs, case))
        missing, _, device, needs, case = min(lacking)
        static = float(case.memory.static)  # type: ignore[arg-type]
        return {
            **case.combination.sizes,
            "device": device,
            "needed": needs + static,
            "limit": float(case.memory.limit or 0),  # type: ignore[arg-type]
            "missing": missing,
        }
