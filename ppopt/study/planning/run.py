"""The search for a plan: bounds of all combinations, a look at those that may be best, then the solver for what is left."""

from __future__ import annotations

import dataclasses
import heapq
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import nullcontext
from typing import Any, Unpack

from ppopt.clock import Clock
from ppopt.files.estimates import read_source
from ppopt.interrupt import noting
from ppopt.pipeline.runtimes import TORCH
from ppopt.search import at, tuning
from ppopt.search.settings import Settings, SettingsFields
from ppopt.study.planning.answer import answered
from ppopt.study.planning.least_cuts import least_cut
from ppopt.study.planning.looks import Found
from ppopt.study.planning.memo import Memo
from ppopt.study.planning.question import Question, question_of
from ppopt.study.planning.recipe import timed
from ppopt.study.planning.restricted import Progress, restricted
from ppopt.study.planning.result import MS, Plan, Plans
from ppopt.study.planning.space import Case, Cases, cases_of
from ppopt.study.planning.steps import Elsewhere, Leaf, Outcome, outcome_of
from ppopt.study.store import Store
from ppopt.text import brief
from ppopt.transformer import EstimateError

LOOKS = 0.35
"""Part of the time that first looks may take, and then again the cuts near what they found. Measured: Llama 3 70B needs 12 s."""
NEAR = 1.2
"""How much slower than the best a schedule may be whose cut is improved."""
MUCH = 0.97
"""What is likely to take less than that part of the best is looked at before known schedules are improved. Not measured."""
LOOK = 0.15
"""Part of the time that one look may take."""
FIRST = 4.0
"""Seconds of the first search on a placement; each later one takes twice as long."""
STRETCH = 1.4
"""How many times as long as it has to be a microbatch is in flight in good schedules, about. 1F1B of equal operations: 1.5, as
the gradients of the weights are on the way, too."""
BOUNDS = 3
"""Of bounds in closed form for a placement: that of all placements, that of all cuts, and what is likely."""
DISAPPOINTED = 1.5
"""What a look that finds nothing counts as, over what was likely. Not measured."""
BEAT = 0.2
"""Seconds until somebody who waits for steps elsewhere sees to an interruption."""


def plan(
    asked: Question | Mapping[str, Any] | str,
    settings: Settings | None = None,
    *,
    store: str | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    slots: int = 1,
    **changes: Unpack[SettingsFields],
) -> Plans:
    """The best plan for a transformer on a cluster: sizes, microbatch, placement, cut, what recomputes, and the order.

    Args:
        asked: The question; or a file that asks it (docs/plans.md), or its tables.
        settings: The time limit and how to search; single fields may be given as keywords: ``plan(asked, seconds=30)``.
        store: A file in which every step is kept; a plan that was stopped goes on where it was.
        progress: Called with the best step time and the bound in seconds, whenever one improves.
        executor: Where steps are taken, ``slots`` of them at once; by default here, one after the other.

    Where the question names a runtime, half of the time at most goes to what that can run, the rest to the same question without
    the restriction (:attr:`Plans.unrestricted`). Ctrl-C ends the search and keeps its best. Every schedule in the answer has
    passed the checker.

    Raises:
        EstimateError: the tables, or all combinations, cannot be.
        ModelError: the file cannot be read, or is no question.
        StoreError: the file is no store.
        ValueError: a setting is out of range; deterministic steps elsewhere.
    """
    if isinstance(asked, str):
        source = read_source(asked)
        try:
            asked = question_of(source.tables, source.name)
        except EstimateError as error:
            raise source.error(error) from None
    question = asked if isinstance(asked, Question) else question_of(asked)
    settings = dataclasses.replace(settings or Settings(), **changes)
    if executor is not None and settings.deterministic:
        raise ValueError("deterministic: steps elsewhere end when they end; expected no executor")
    with Store(store) if store is not None else nullcontext() as opened:
        memo, where = Memo(opened, question.name), Elsewhere(executor, slots)

        def run(asked: Question, seconds: float, enough: float, clock: Clock | None, shown: Progress | None) -> Plans:
            own = dataclasses.replace(settings, seconds=seconds)
            search = _Run(asked, own, memo, where, shown, enough, clock)
            search.search()
            return search.answer()

        if question.search.runtime in ("", TORCH):
            return run(question, settings.seconds, math.inf, None, progress)
        return restricted(question, settings, run, progress)


class _Run:
    """The state of a search; only what is below ``enough`` ms matters."""

    def __init__(
        self,
        question: Question,
        settings: Settings,
        memo: Memo,
        where: Elsewhere,
        progress: Progress | None,
        enough: float,
        clock: Clock | None,
    ) -> None:
        self.question, self.settings, self.memo, self.where, self.progress = question, settings, memo, where, progress
        self.begun = time.monotonic()
        self.clock = clock or settings.limits().clock
        self.cases = Cases()
        self.over: list[Case] = []
        self.leaves: list[Leaf] = []
        self.best = enough
        self.best_found: Found | None = None
        self.recipe: tuple[Plan | None, str | None] = (None, None)
        self.shown: tuple[float, float] = (math.inf, -1.0)
        self.running: dict[Future[Any], tuple[Leaf, str, str]] = {}

    # --- what is known ---

    @property
    def lower(self) -> float:
        """No combination takes less, in ms."""
        return min((leaf.bound for leaf in self.leaves if not leaf.settled), default=self.best)

    @property
    def closed(self) -> bool:
        """Whether the gap is no larger than asked for."""
        return self.best_found is not None and self.best - min(self.lower, self.best) <= self.settings.gap * self.best

    def _found(self, leaf: Leaf, found: Found | None) -> None:
        if found is not None and (leaf.found is None or found.value < leaf.found.value):
            leaf.found = found
            if float(found.value) < self.best or self.best_found is None:
                self.best, self.best_found = min(self.best, float(found.value)), found
        self._report()

    def _report(self) -> None:
        if self.progress is not None:
            state = (self.best, min(self.lower, self.best))
            if state != self.shown and math.isfinite(state[1]):
                self.shown = state
                self.progress(None if self.best == math.inf else self.best / MS, state[1] / MS)

    # --- the search ---

    def search(self) -> None:
        """Until nothing can be better, the gap is closed, or the time is over."""
        try:
            with noting():
                self._begin()
                self._look_at_all()
                self._improve(self.clock.slice(LOOKS * self.settings.seconds))
                self._deepen()
        except KeyboardInterrupt:
            self.clock.interrupt()
            for future in self.running:
                future.cancel()

    def _begin(self) -> None:
        """All combinations, those that fit on each of their placements."""
        self.cases = cases_of(self.question)
        if self.question.recipe is not None:
            self.recipe = timed(self.question, self.question.recipe)
        for case in self.cases.possible:
            floors = case.floors
            if not floors.fits:
                self.over.append(case)
                continue
            for placement, chunks in case.places:
                self.leaves.append(Leaf(case, placement, chunks, len(self.leaves), FIRST, floors.shared))
        self._report()

    def _promising(self, clock: Clock, looked: bool) -> Iterator[Leaf]:
        """What may have the best, as long as there is time: what was not looked at yet, what is likely to be fast first; or, with
        ``looked``, all, the least bound first.

        Bounds in closed form that are not all known are made one after the other, as their turn comes.
        """

        def order(leaf: Leaf) -> tuple[float, int, int]:
            return leaf.order if looked else leaf.hope

        heap = [order(leaf) for leaf in self.leaves if not leaf.settled and (looked or not leaf.looked)]
        heapq.heapify(heap)
        while heap and not clock.over:
            known = heapq.heappop(heap)
            leaf = self.leaves[known[-1]]
            if leaf.settled or leaf.busy or leaf.bound >= self.best:
                continue
            if known != order(leaf) or self._raised(leaf):
                heapq.heappush(heap, order(leaf))
                continue
            yield leaf
            if looked and not leaf.settled and not leaf.busy:
                heapq.heappush(heap, order(leaf))

    def _raised(self, leaf: Leaf) -> bool:
        """Make the next of its bounds in closed form, and at last what is likely; ``False``: all are known."""
        if leaf.known == BOUNDS:
            return False
        floors, place = leaf.case.floors, (leaf.placement, leaf.chunks)
        if leaf.known == 0:
            leaf.bound = max(leaf.bound, floors.least)
        elif leaf.known == 1:
            found = least_cut(floors, *place, self.best)
            leaf.bound, leaf.counts = max(leaf.bound, found.bound), found.counts
        else:
            if leaf.chunks > 2 or (leaf.counts is None and leaf.bound <= floors.least):  # the linear cuts tell as much
                place = ("linear", 1)
            leaf.likely = least_cut(floors, *place, self.best, STRETCH).bound
        self.clock.charge(tuning.LEAST)
        leaf.known += 1
        leaf.settled = leaf.bound == math.inf
        return True

    def _look_at_all(self) -> None:
        """First looks at what may be better than the best; after a while only at what is likely to be much better."""
        first, seconds = self.clock.slice(LOOKS * self.settings.seconds), LOOKS * self.settings.seconds

        def worth() -> Iterator[tuple[Leaf, str, str]]:
            for leaf in self._promising(self.clock.slice(2 * seconds), False):
                if first.over and leaf.hope[0] >= MUCH * self.best:
                    return
                yield leaf, "look", "look"

        self._take(worth())

    def _improve(self, clock: Clock) -> None:
        """The named schedules that were found, on cuts near theirs, the fastest first."""
        self._take(self._improvable(clock))

    def _improvable(self, clock: Clock) -> Iterator[tuple[Leaf, str, str]]:
        tried: set[int] = set()
        while not clock.over:
            left = [
                leaf
                for leaf in self.leaves
                if leaf.found is not None and leaf.found.name != "ppopt" and leaf.number not in tried
                if not leaf.settled and leaf.bound < self.best
            ]
            leaf = min(left, key=lambda leaf: (leaf.found.value, leaf.number), default=None)  # type: ignore[union-attr]
            if leaf is None or leaf.found is None or leaf.found.value > NEAR * self.best:
                return
            tried.add(leaf.number)
            yield leaf, "near", f"near {leaf.found.value}"

    def _deepen(self) -> None:
        """Search on the placement with the least bound, again and again; first a look, where there was none."""
        while not self.clock.over and not self.closed:
            if not self._take(self._deepenable()):
                break

    def _deepenable(self) -> Iterator[tuple[Leaf, str, str]]:
        for leaf in self._promising(self.clock, True):
            if not leaf.looked:
                yield leaf, "look", "look"
            elif self._affordable(leaf):
                yield leaf, "solve", "solve"
                if self.where.slots == 1:
                    return  # whose bound is least now is seen anew
            else:
                leaf.busy = True  # set aside

    def _affordable(self, leaf: Leaf) -> bool:
        """Whether there is time for the first look at one of its cuts, which takes longer the more operations there are."""
        operations = 3 * leaf.case.combination.parallel.pipeline * leaf.chunks * leaf.case.microbatches
        return leaf.search is not None or operations / tuning.LEAF <= max(self.clock.left, 1.0)

    # --- steps ---

    def _take(self, steps: Iterator[tuple[Leaf, str, str]]) -> int:
        """Take steps, as many at once as there is room for; how many were taken."""
        taken = 0
        while not self.closed:
            while len(self.running) < self.where.slots and (step := next(steps, None)) is not None:
                taken += 1
                self._start(*step)
            if not self.running:
                break
            self._finish()
        while self.running and not self.clock.over:
            self._finish()
        return taken

    def _start(self, leaf: Leaf, kind: str, step: str) -> None:
        """Begin a step, unless it is known what comes of it."""
        leaf.busy = True
        key = self.memo.key(leaf.pipeline, step)
        known = self.memo.known(key)
        future: Future[Any] = Future()
        if known is not None and (kind != "solve" or self._still_settled(known)):
            future.set_result(self._remembered(leaf, known))
            key = ""
        else:
            clock = self.clock.slice(leaf.seconds if kind == "solve" else LOOK * self.settings.seconds)
            with at(f"[{leaf.number + 1}/{len(self.leaves)}] {leaf.case.combination}, {brief(leaf)}"), at(kind):
                future = self.where.begin(leaf, kind, self.settings, clock, self.best)
        self.running[future] = leaf, kind, key

    def _still_settled(self, known: dict[str, Any]) -> bool:
        """Whether what a search once settled is settled still: for a best that is no worse, or for all."""
        return bool(known["settled"] == "all" or MS * known["lower_bound"] >= self.best * (1 - 1e-12))

    def _remembered(self, leaf: Leaf, known: dict[str, Any]) -> Outcome:
        found = self.memo.found(leaf.pipeline, known)
        return Outcome(found, MS * known["lower_bound"], known.get("proved_by") or leaf.proved_by, known.get("settled") or "")

    def _finish(self) -> None:
        """Wait for a step, and note what came of it."""
        done, _ = wait(self.running, timeout=BEAT, return_when=FIRST_COMPLETED)
        for future in done:
            leaf, kind, key = self.running.pop(future)
            outcome = outcome_of(leaf, future.result())
            leaf.busy, leaf.looked = False, True
            leaf.spent += outcome.seconds
            if kind == "solve":
                leaf.seconds *= 2
                if outcome.bound > leaf.bound:
                    leaf.bound, leaf.proved_by = outcome.bound, outcome.proved_by
                leaf.settled = bool(outcome.settled) or leaf.bound >= self.best
            elif kind == "look":
                self._expect(leaf, outcome.found)
            self._found(leaf, outcome.found)
            if key and (leaf.settled if kind == "solve" else outcome.whole):
                lower = leaf.bound if leaf.bound < math.inf else 1e300
                settled = (outcome.settled or "best") if kind == "solve" else False
                tree = self.memo.tree(
                    leaf.found if kind == "solve" else outcome.found,
                    lower_bound=lower / MS,
                    settled=settled,
                    proved_by=leaf.proved_by,
                )
                self.memo.keep(key, leaf.case, leaf.pipeline, kind, tree, outcome.seconds)

    def _expect(self, leaf: Leaf, found: Found | None) -> None:
        """The other placements of a combination are likely to disappoint as this one did."""
        expected = leaf.hope[0]
        value = DISAPPOINTED * expected if found is None else float(found.value)
        for other in self.leaves:
            if other.case is leaf.case and other.known == BOUNDS and not other.looked:
                other.likely = max(other.likely, other.hope[0] * (1 + value / expected) / 2)

    # --- the answer ---

    def answer(self) -> Plans:
        """What was found, best first."""
        return answered(
            self.question,
            self.cases,
            self.over,
            self.leaves,
            self.best,
            self.lower,
            interrupted=self.clock.interrupted,
            closed=self.closed,
            recipe=self.recipe,
            seconds=time.monotonic() - self.begun,
            seed=self.settings.seed,
        )
