"""The partition left open: which cut of the layers has the best schedule, with a bound over all of them.

Two problems take turns (logic-based Benders decomposition). That over the cuts (:class:`OverCuts`) gives the cut with the least
bound, by the certificates that are known. The cut's own one-machine bound comes with new certificates
(:mod:`ppopt.bounds.certificates`), which hold for every cut. Where they say no more, the cut is solved as any pipeline (a leaf),
as far as it may beat the best. No cut has less than the least of what is known of those that are left and of unsettled leaves.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from ppopt.clock import Clock
from ppopt.constraints import Word
from ppopt.interrupt import noting
from ppopt.named import Row, Table
from ppopt.named.model import Model
from ppopt.pipeline import CHOOSE, Pipeline
from ppopt.pipeline.layer_times import shared_work
from ppopt.schedule import Objective, Schedule
from ppopt.search import tuning
from ppopt.search.alike import AlikeLayers
from ppopt.search.best_order import BestOrder
from ppopt.search.boxes import Around, AroundSettled, Everywhere
from ppopt.search.choices import Branch, ClosedBranch, Report, Time, rows_in_time
from ppopt.search.closed import ClosedSearch, check_found
from ppopt.search.cuts import CutPipelines, fastest, plain, shown, without_an_answer
from ppopt.search.cuts_of_others import CutsOfOthers
from ppopt.search.iterated import IteratedSearch
from ppopt.search.leaf import Leaf
from ppopt.search.least_cut import LeastCut
from ppopt.search.listed import AmongListed, Promising
from ppopt.search.near_cuts import retimed, value_of
from ppopt.search.offered_cuts import OfferedCuts
from ppopt.search.order_on_cuts import OrderOnCuts
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.problem import Problem
from ppopt.search.recomputing import RecomputeChoice
from ppopt.search.result import Limit, Reason, Result, Ticks
from ppopt.search.settings import Settings
from ppopt.search.step import Taken
from ppopt.search.whereabouts import at

AnyLooks: TypeAlias = AmongListed | Around | AroundSettled | Everywhere


@dataclass
class PartitionChoice:
    """The best schedule over every cut of the layers, for a pipeline that leaves that open, and maybe what recomputes.

    It can go on where it stopped (:meth:`go_on`). ``result``: what it has shown so far; ``words``: what binds on the best cut.
    ``words_of`` gives what binds beside the rules on a cut; ``beside`` gives rows to show; ``turns_of`` the search on a cut where
    what binds leaves the order of microbatches alone open. Times of the objective are in the user's unit.
    """

    pipeline: Pipeline
    objective: Objective
    settings: Settings
    words_of: Callable[[Pipeline], tuple[Word, ...]] = lambda pipeline: ()
    beside: Callable[[], Sequence[Row]] = lambda: ()
    turns_of: Callable[[Pipeline], Branch | None] = lambda pipeline: None
    result: Result | None = None
    best: Schedule | None = None
    value: Time = math.inf
    enough: Time = math.inf
    leaves: dict[Counts, Leaf] = field(default_factory=dict)
    steps: list[Taken] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    named: tuple[Row, ...] | None = None
    words: tuple[Word, ...] = ()
    seconds: float = 0.0
    progress: Report | None = None

    def __post_init__(self) -> None:
        self._clock, self._at = Clock(0), CutPipelines(self.pipeline)
        self.over = OverCuts(self.pipeline, self.objective, shared_work(self.pipeline))
        looks = self.over, self._at, self.settings, self._first_look
        self.settled = AroundSettled(*looks)
        self.listed = AmongListed(*looks)
        self.looks: tuple[AnyLooks, ...] = self.listed, self.settled, Around(*looks), Everywhere(*looks)
        self.offered = OfferedCuts(self.over, self._at.fastest, self.settings, self.leaves, self.steps)
        on_cuts = OrderOnCuts(self.over, self._at, self.settings.seed)
        self.least = LeastCut(self.over, self._at.fastest, self.settings, self.offered, self._best_cut, self._report)
        self.order = BestOrder(self.objective, self.settings, self._at, self._first_look, on_cuts)
        self.iterated = IteratedSearch(self.settings, self._first_look, on_cuts)
        self.alike = AlikeLayers(self.pipeline, self.objective, self._first_look, self._settled)
        self._begun = self._spent = 0.0
        self.others = CutsOfOthers(self.over, self._at, self.settings, self.words_of, self._found, self.steps)

    # --- the branch ---

    def floor(self, objective: Objective) -> Time:
        """A quick lower bound: the devices share the work of all layers, and what these take once per step; layers are whole."""
        return self.over.bound

    def begin(self, start: Schedule | None, bound: Fraction) -> None:
        """Take over a schedule of some cut, and a bound that holds for all."""
        if start is not None:
            self._found(start, ())
        self.over.bound = max(self.over.bound, bound)

    def go_on(self, clock: Clock, enough: Time, progress: Report | None) -> Result:
        """Search until the clock is over, or until no cut has less than ``enough``, which never rises."""
        self.progress, self.enough, self._clock, begun = progress, enough, clock, time.monotonic()
        self.over.shorten_list(enough)
        try:
            with noting():
                if self.named is None:
                    if not self.listed.first:
                        self.least.ask(math.inf, self._clock)  # a bound for all, whatever the rest takes
                    self.named = rows_in_time(self.beside, self.pipeline, clock)
                    self.others.begin(self.named)
                    self._all_alike()
                    self._first_looks()
                    self._begun = clock.spent
                else:
                    self._all_alike()
                while not self.closed and not self._clock.over and self.lower < self.most:
                    self._next()
        except KeyboardInterrupt:
            clock.interrupt()
        self.seconds += time.monotonic() - begun
        self.result = self._result()
        return self.result

    def begin_with(self, result: Result) -> None:
        """Take over what is known of one cut, where every stage has a layer; of another one there is nothing to know here."""
        counts = result.pipeline.counts
        pipeline = self._at(counts) if min(counts) else None
        if pipeline is None:
            return
        if result.schedule is not None:
            self._found(result.schedule, result.binding)
        leaf = self.leaves.get(counts) or self._leaf(pipeline)
        leaf.bound = max(leaf.bound, Fraction(result.ticks.lower_bound, result.ticks.per_unit))
        leaf.settled = leaf.settled or result.reason in ("optimal", "infeasible")

    # --- what is known ---

    @property
    def most(self) -> Time:
        """Only what takes less matters."""
        return min(self.value, self.enough)

    @property
    def lower(self) -> Time:
        """No cut has a schedule that takes less."""
        opened = (leaf.bound for leaf in self.leaves.values() if not leaf.settled)
        return min(self.over.bound, self.value, *opened)

    @property
    def closed(self) -> bool:
        """Whether the gap is no larger than asked for."""
        return self.best is not None and self.value - self.lower <= Fraction(self.settings.gap) * self.value

    def _found(self, schedule: Schedule, words: tuple[Word, ...]) -> None:
        value = value_of(schedule, self.objective)
        if schedule.within_memory and value < self.value:
            self.best, self.value, self.words = schedule, value, words
            self.over.shorten_list(value)
            self._report()

    def _best_cut(self) -> Counts | None:
        return None if self.best is None else self.best.pipeline.counts

    def _report(self) -> None:
        if self.progress is not None:
            lower = self.lower
            self.progress(Fraction(self.value) if self.best is not None else None, Fraction(lower if lower < math.inf else 0))

    # --- the search ---

    def _settled(self, pipeline: Pipeline, seconds: float) -> PartitionChoice:
        """The search where it is settled what recomputes."""
        settings = dataclasses.replace(self.settings, seconds=seconds, gap=0.0)
        return PartitionChoice(pipeline, self.objective, settings, self.words_of, turns_of=self.turns_of)

    def _all_alike(self) -> None:
        """Search where all layers are treated alike, if it is open what recomputes; then ask what all cuts take."""
        lower = self.lower

        def report(value: Fraction) -> None:
            if self.progress is not None:
                self.progress(value, Fraction(lower))

        if lower < self.most and (found := self.alike.improved(self.most, self._clock, report)) is not None:
            self._follow(*found)
        self.least.raised(self.most, self._clock, self.seconds + self._clock.spent)

    def _first_looks(self) -> None:
        """Run the named schedules on cuts that others make, and look at cuts with small bounds: near these, and of all."""
        others = self.others.cuts(self._clock, self.best is not None)
        if self.best is None and others and self.pipeline.mix.differs:  # what all cuts are asked may take all of the time
            self._look(min(others, key=self.offered.bound), "cut")
        asked = list[Counts]()
        if not self.offered.local and not self.listed.first:
            asked = self.least.learned(self.most, self._clock.slice(self._first_look))
        for schedule in self.others.schedules:
            self._follow(schedule, ())
        if self._clock.over:
            return
        near = self.offered.first(others, asked, self.most, self._clock)
        if self.best is not None and self.pipeline.recompute == CHOOSE:
            near = [self.best.pipeline.counts, *near]
        if self.offered.local and (found := self.least.ask(self.most, self._clock)) is not None:
            near = [self.offered.near(found, self.most, self._clock)]
        for counts in near:
            if counts not in self.leaves and not self._clock.over and self.lower < self.most:
                self._look(counts, "cut")

    def _next(self) -> None:
        """Improve the best order, or order and cut in turn; look at another cut, into a box of cuts, or at all cuts at once."""
        promising = self._promising()
        others = self._begun + self._spent
        best = None if promising.few else self.best  # few cuts are solved one by one, each with searches of its own
        known = self.over.bound < self.most  # else what is open is in leaves
        if best is not None and not self.words and known and self.listed.first and self.iterated.spent:
            self._look_with_order(self.listed, best.pipeline.counts)
            return
        if best is not None and self.iterated.due(best, self.words, others):
            if (found := self.iterated.improved(best, self.lower, self._clock, self.steps, promising)) is not best:
                self._follow(found, ())
            return
        here = best is not None and promising.may_hold(best.pipeline.counts) and self.order.due(best, self.words, others)
        if best is not None and here and self._improve(best):
            return
        for looks in () if self.listed.alone else self.looks:
            if best is not None and not self.words and (known or looks is not self.listed) and looks.due(self._spent):
                self._look_with_order(looks, best.pipeline.counts)
                return
        before = self._clock.spent
        self._next_cut(promising.few)
        self._spent += self._clock.spent - before

    def _promising(self) -> Promising:
        """Where something better may be: on the leaves that are not settled, and on listed cuts."""
        leaves = (leaf for leaf in self.leaves.values() if not leaf.settled and leaf.bound < self.most)
        return self.listed.promising([leaf.pipeline.counts for leaf in sorted(leaves, key=lambda leaf: leaf.bound)], self.most)

    def _improve(self, best: Schedule) -> bool:
        """Search for a better order of the best cut; ``False``: none of that cut is good enough."""
        leaf = self.leaves.get(best.pipeline.counts)
        least = self.over.bound_of(fastest(best.pipeline)) if leaf is None else self.value if leaf.settled else leaf.bound
        if least >= self.most:
            return False
        if leaf is not None and self.pipeline.recompute == CHOOSE:  # with what recomputes there
            before, value = self._clock.spent, self.value
            self._solve(leaf, "longer at cut")
            self.order.took(self._clock.spent - before, self.value < value)
        elif (found := self.order.improved(best, max(self.lower, least), self._clock, self.steps)) is not best:
            self._follow(found, ())
        return True

    def _look_with_order(self, looks: AnyLooks, counts: Counts) -> None:
        """Search for cut and order together."""
        begun, name, before = time.monotonic(), looks.name(counts), self.over.listed
        with at("cuts and orders"):
            looked = looks.look(counts, self.lower, self.most, self._clock)
        if self.over.listed is not before:
            self.iterated.again()
        if looked.schedule is not None:
            self._follow(looked.schedule, ())
        if looked.closed:
            self.over.leave_out_box(looked.box)
        for of_leaf, leaf in self.leaves.items():
            if looked.box.has(of_leaf):
                leaf.bound, leaf.settled = max(leaf.bound, looked.bound), leaf.settled or looked.closed
        self.steps.append(Taken(name, time.monotonic() - begun, str(looked)))
        self._report()

    def _next_cut(self, few: Sequence[Counts] = ()) -> None:
        """Look at the cut that has the least bound, or longer at such a leaf; where ``few`` are left, at each as long."""
        useful = self.best is not None and self.iterated.useful(self.best, self.words)
        some = [leaf for counts in few if (leaf := self.leaves.get(counts)) is not None]
        leaves = some or [leaf for leaf in self.leaves.values() if not leaf.settled]
        leaf = min(leaves, key=lambda leaf: (leaf.seconds if few else 0, leaf.bound), default=None)
        below = leaf is not None and leaf.bound < self.over.bound  # the bound of all waits for it
        longer = leaf is None or not below or leaf.seconds > self.listed.tightened
        if self.over.bound < self.most and longer and self.listed.tightening(useful):
            if (schedule := self.listed.tighten(self._clock, self.steps, useful)) is not None:
                self._follow(schedule, ())
            self._report()
            return
        if few and few[-1] not in self.leaves:  # leaves come first
            self._look(few[-1], "cut")
            return
        if leaf is not None and (few or below or self.over.bound >= self.most):
            self._solve(leaf, "longer at cut")
            return
        says = self.offered.below > self.over.bound  # else the answer is known
        asked = says and not self.over.listing and self.least.allowed(self._clock.spent)
        if not asked and (offered := self.offered.unasked(self.most, self._clock)) is not None:
            self._look(offered, "cut")
            return
        if (found := self.least.ask(self.most, self._clock)) is None:
            return
        if self.offered.local:
            self._look(self.offered.near(found, self.most, self._clock), "cut")
        elif (pipeline := self._at(found)) is None:
            self.over.leave_out(found)
        elif not self.over.learn_from(fastest(pipeline)) or not self.over.settled:
            # better orders come from elsewhere, and to look at it is as quick where that takes a second
            long = self.best is not None and not useful and self._first_look > 1
            self._look(self.offered.near(found, self.most, self._clock) if long else found, "cut")

    def _look(self, counts: Counts, name: str) -> None:
        """Solve a cut for the first time."""
        if (pipeline := self._at(counts)) is None:
            self.over.leave_out(counts)
            self.steps.append(Taken(f"{name} {shown(counts)}", 0.0, "no room for a microbatch"))
            return
        self.over.learn_from(fastest(pipeline))
        self._solve(self._leaf(pipeline), name)

    def _leaf(self, pipeline: Pipeline) -> Leaf:
        """A cut that is looked at from now on."""
        counts, words, search = pipeline.counts, self.words_of(pipeline), self.turns_of(pipeline)
        settings = dataclasses.replace(self.settings, gap=0.0)
        if search is None and pipeline.recompute == CHOOSE:
            search = RecomputeChoice(pipeline, self.objective, settings, words, start=self.best)
        elif search is None:
            search = closed = ClosedBranch(ClosedSearch(Problem(pipeline, self.objective, words), settings))
            closed.begin(None if self.best is None else retimed(self.best, pipeline, self.objective))
        bound = max(Fraction(self.over.bound), self.over.bound_of(fastest(pipeline)))
        leaf = self.leaves[counts] = Leaf(pipeline, search, bound, self._first_look)
        self.over.leave_out(counts)
        return leaf

    def _follow(self, schedule: Schedule, words: tuple[Word, ...]) -> None:
        """Take over a schedule, and its order on another cut where nothing binds: if it is the best, or that is quickly found."""
        self._found(schedule, words)
        if not self.closed and not self._clock.over and (schedule is self.best or self.order.on_cuts.useful(schedule)):
            settled = [counts for counts, leaf in self.leaves.items() if leaf.settled]
            self._found(self.order.on_other_cuts(schedule, words, settled, self._clock, self.steps), words)

    def _solve(self, leaf: Leaf, name: str) -> None:
        begun, most, before = time.monotonic(), self.most, self.value
        with at(f"{name} {shown(leaf.pipeline.counts)}"):
            result = leaf.search.go_on(self._clock.slice(leaf.seconds), most, None)
        leaf.seconds *= 2
        leaf.bound = max(leaf.bound, Fraction(result.ticks.lower_bound, result.ticks.per_unit))
        leaf.settled = result.limit is None or leaf.bound >= most
        self.versions.update(result.versions)
        if result.schedule is not None:
            self._found(result.schedule, result.binding)
        value = "nothing found" if result.value is None else f"best {result.value}"
        outcome = f"{value}, bound {result.lower_bound}" + ("" if leaf.settled else ": stays open")
        self.steps.append(Taken(f"{name} {shown(leaf.pipeline.counts)}", time.monotonic() - begun, outcome))
        if self.over.limited and result.schedule is not None and not leaf.settled and self.value >= before:
            words = result.binding
            self._found(self.order.raced(result.schedule, words, leaf.bound, most, self._clock, self.steps), words)
        self.settled.cut = leaf.pipeline.counts if leaf.settled else self.settled.cut
        if result.schedule is not None and (self.value < before or not leaf.settled):
            self._follow(result.schedule, result.binding)
        self._report()

    @property
    def _first_look(self) -> float:
        """Seconds."""
        return max(1.0, 3 * self.pipeline.stages * self.pipeline.microbatches / tuning.LEAF)

    # --- the answer ---

    def _result(self) -> Result:
        """The answer, its schedule checked; without one, on the balanced cut."""
        pipeline = without_an_answer(self.pipeline) if self.best is None else self.best.pipeline
        lower = math.floor(self.lower * pipeline.ticks.per_unit) if self.lower < math.inf else 0
        if self.best is not None:
            check_found(self.best, self.words)
        done = self.over.none_left and all(leaf.settled for leaf in self.leaves.values())
        reason: Reason = "infeasible" if done and self.enough == math.inf else "no-solution"
        if self.best is not None:
            reason = "optimal" if self.lower >= self.value else "feasible"
        limit: Limit | None = None
        if reason in ("feasible", "no-solution") and self.lower < self.enough:
            limit = "interrupted" if self._clock.interrupted else "gap" if self.closed else "time"
        cuts = math.comb(len(self.pipeline.layers or ()) - 1, self.pipeline.stages - 1)
        summary = f"{cuts} in all; {self.over.learned} certificates, {len(self.leaves)} solved"
        told = Taken("cuts", self.over.seconds, f"{summary}, bound of the others {plain(self.over.bound)}")
        return Result(
            model=Model(pipeline),
            objective=self.objective,
            schedule=self.best,
            reason=reason,
            limit=limit,
            ticks=Ticks.of(pipeline, self.objective, self.best, lower),
            proved_by=f"certificates over {cuts} cuts ({len(self.leaves)} solved)",
            seconds=self.seconds,
            seed=self.settings.seed,
            versions=self.versions,
            named=Table(self.named or (), self.pipeline),
            steps=(told, *self.steps, *self.alike.steps),
            binding=self.words,
        )
