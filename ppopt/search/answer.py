"""``solve``: the best schedule of any pipeline, whatever it leaves open, and what is proved about it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Unpack

from ppopt import ilp
from ppopt.bounds.bound import check_objective
from ppopt.clock import bounded
from ppopt.collector import seldom_collecting
from ppopt.constraints import Capacity, Precede, Word, own_words
from ppopt.interrupt import held
from ppopt.layouts.runnable import Policy
from ppopt.named import Row, Table, compare_freely, find, rows_of
from ppopt.named.model import Model
from ppopt.named.registry import shown_chunks
from ppopt.named.verified import verified_rows
from ppopt.pipeline import BEST, CHOOSE, Mix, Pipeline, PipelineError, plain
from ppopt.pipeline.layer_times import shared_work
from ppopt.pipeline.runtimes import TORCH
from ppopt.schedule import Objective
from ppopt.search import running
from ppopt.search.best_cut import BesideBest, Own, all_cuts
from ppopt.search.binding import Binding
from ppopt.search.choices import Branch, ClosedBranch, Later, combined, solve_branches
from ppopt.search.closed import ClosedSearch
from ppopt.search.cutting import PartitionChoice
from ppopt.search.fixed_order import FixedOrder
from ppopt.search.problem import Problem
from ppopt.search.recomputing import RecomputeChoice
from ppopt.search.result import Progress, Result, RunBy
from ppopt.search.settings import Settings, SettingsFields
from ppopt.search.turn_choice import TurnChoice, settled_order
from ppopt.search.whereabouts import at
from ppopt.solvers.outcome import check_for_ilp

if TYPE_CHECKING:
    from ppopt.periodic import PeriodicSchedule


@seldom_collecting()
def solve(
    asked: Pipeline | Model,
    settings: Settings | None = None,
    *,
    objective: Objective = "makespan",
    order: str | Binding | None = None,
    constraints: Iterable[Word] = (),
    runtime: str | None = None,
    beside: Sequence[Row] = (),
    best_cut: bool | None = None,
    progress: Progress | None = None,
    each: Callable[[Result], None] | None = None,
    **changes: Unpack[SettingsFields],
) -> Result:
    """The best schedule that can be found, and what is proved about it, for a pipeline or what a model file says.

    What the pipeline leaves open (:attr:`~ppopt.pipeline.Pipeline.open`) is decided with the order: the answer's ``pipeline`` has
    the choice, its ``scope`` says what was open, and its ``lower_bound`` holds over all of that. Several numbers of microbatches
    are solved one after the other, in ascending order; the time limit is for each, and ``each`` is called with every result.

    - ``settings``: the time limit and how to search; single fields may be given as keywords: ``solve(pipeline, seconds=10)``.
    - ``objective``: ``"makespan"``, or ``"span"``: the largest device span. Starts are whole ticks, in what is found and in what
      is proved; a device span might otherwise be less than one tick smaller, where routes cross.
    - ``order``: a named schedule whose constraints bind, on its own placement.
    - ``constraints``: words of your own (:mod:`ppopt.constraints`: ``Precede``, ``OneOf``, ``Exclusive``, ``Capacity``,
      ``Together``) that bind as well; value, bound and proof are under these.
    - ``runtime``: keep to what it can run, as it runs it; :attr:`Result.runtime` is what that costs.
    - ``beside``: rows of your own, shown before the named schedules and begun from where they have the placement
      (:func:`ppopt.named.of_order`).
    - ``best_cut``: beside a settled cut of the layers, look for the best one on the same placement and with the same recomputing,
      in the same time limit (:attr:`~ppopt.search.Result.best_cut`); by default where the cut is written out.
    - ``progress``: called with the best value and the bound whenever one improves, from any thread.

    Ctrl-C ends the search and keeps its best. Every schedule in the result has passed the checker.

    Raises:
        ValueError: an unknown objective, solver, schedule or runtime, a limit out of range, or constraints that cannot be.
        TypeError: a constraint that is no such word.
        Restriction: ``order`` is not defined for this pipeline.
        PipelineError: ``recompute`` is open, and costs differ between routes; ``best_cut`` where there is no other; or the
            runtime cannot run the pipeline.
        TooLarge: the pipeline is too large for the ILP.
        NoEngine: the engine is not installed, or refuses.
    """
    check_objective(objective)
    settings = dataclasses.replace(settings or Settings(), **changes)
    if settings.engine is not None:
        ilp.check(settings.engine)
    model = asked if isinstance(asked, Model) else Model(asked)
    binding = Binding(order) if isinstance(order, str) else order
    if runtime is not None:
        model, binding = running.asked(model, runtime, binding, tuple(constraints))
        best_cut = running.best_cut_asked(runtime, best_cut)
    binding = None if binding is None else binding.read(model)
    question = _Question(model, settings, objective, binding, tuple(constraints), runtime, tuple(beside), best_cut, progress)
    counts = model.pipeline.microbatches
    return question.answers(counts, each) if isinstance(counts, tuple) else question.answer({})[0]


def branch_of(pipeline: Pipeline, settings: Settings, runtime: str | None = None) -> Branch:
    """The search for the least makespan of a pipeline on one placement, which can stop and go on; nothing is shown beside it.

    For those who share the time among many pipelines (:mod:`ppopt.study.planning`). ``runtime``: as in :func:`solve`, but nothing
    is looked for without the restriction.

    Raises:
        PipelineError: the runtime cannot run it.
    """
    model, binding = Model(pipeline), None
    if runtime is not None:
        model, binding = running.asked(model, runtime, None, ())
        binding = None if binding is None else binding.read(model)
        if runtime != TORCH:
            running.places(model.pipeline, runtime, binding)
    question = _Question(model, settings, "makespan", binding, (), runtime, (), False, None)
    return question._branch(model.pipeline, tuple, {})


@dataclasses.dataclass(frozen=True)
class _Question:
    """The arguments of :func:`solve`, for one number of microbatches."""

    model: Model
    settings: Settings
    objective: Objective
    binding: Binding | None
    constraints: tuple[Word, ...]
    runtime: str | None
    beside: tuple[Row, ...]
    best_cut: bool | None
    progress: Progress | None

    def with_microbatches(self, count: int) -> _Question:
        """The question for another number of microbatches; an order of the user's own may be for the old one."""
        pipeline = self.model.pipeline.changed(microbatches=count)
        order = self.model.order
        kept = order if order is not None and order.index.microbatches == count else None
        return dataclasses.replace(self, model=dataclasses.replace(self.model, pipeline=pipeline, order=kept))

    def answers(self, counts: tuple[int, ...], each: Callable[[Result], None] | None) -> Result:
        """The results for several numbers of microbatches, one after the other."""
        points: list[Result] = []
        known: dict[tuple[str, int], PeriodicSchedule] = {}
        for count in counts:
            with at(f"{count} microbatches"):
                point, known = self.with_microbatches(count).answer(known)
            points.append(point)
            if each is not None:
                each(point)
            if point.interrupted:
                break
        left = tuple(f"{count} microbatches" for count in counts[len(points) :])
        return dataclasses.replace(points[-1], points=tuple(points), untried=(*points[-1].untried, *left))

    def answer(self, known: dict[tuple[str, int], PeriodicSchedule]) -> tuple[Result, dict[tuple[str, int], PeriodicSchedule]]:
        """The result, its rows checked; ``known`` is what modulo scheduling has found for fewer microbatches, by placement."""
        if self.runtime in (None, TORCH):
            result, found = self._answer(known, math.inf)
            return dataclasses.replace(result, runtime=None if self.runtime is None else RunBy(TORCH, None)), found
        free = dataclasses.replace(self, runtime=None, binding=None, progress=None)
        result = running.compared(
            self.runtime,
            self.settings,
            lambda settings: dataclasses.replace(self, settings=settings)._answer({}, math.inf)[0],
            lambda settings, enough: dataclasses.replace(free, settings=settings)._answer({}, enough)[0],
        )
        return result, {}

    def _answer(
        self, known: dict[tuple[str, int], PeriodicSchedule], enough: Fraction | float
    ) -> tuple[Result, dict[tuple[str, int], PeriodicSchedule]]:
        """What one search gives; only values below ``enough`` matter."""
        asked, clock = self.model.pipeline, self.settings.limits().clock
        beside = functools.cache(self._rows)
        branches = [self._branch(pipeline, beside, known) for pipeline in self._places()]
        promise = self._promise if len(branches) > 1 else None
        results = solve_branches(branches, self.objective, self.settings, self._report(), enough, clock, promise)
        result = combined(asked, results, branches, self.settings) if asked.open else results[0]
        result = dataclasses.replace(
            result,
            model=self._model_of(result.pipeline),
            order=self.binding,
            constraints=self.constraints,
            named=self._table(result),
        )
        with held() as came:  # the search is over, and what it found is kept
            verified_rows(result.named, known=result.schedule)
        if came and result.limit is not None:
            result = dataclasses.replace(result, limit="interrupted")
        periodics = {
            (each.pipeline.placement, each.pipeline.chunks): each.periodic for each in results if each.periodic is not None
        }
        return result, known | periodics

    def _table(self, result: Result) -> Table:
        """The rows, and which of them is marked: that of the schedule that binds, where it has a placement of its own."""
        asked, binding = self.model.pipeline, self.binding
        if binding is not None and self._moved(result.pipeline):
            return Table(result.named, asked, binding.schedule, result.pipeline)
        return Table(result.named, asked, self.model.stands_for)

    def _model_of(self, pipeline: Pipeline) -> Model:
        """The model of the answer: the schedule and the order that the question stands for stay where they have its placement."""
        asked, binding = self.model, self.binding
        if binding is not None and self._moved(pipeline):
            return Model(pipeline, binding.schedule, binding.params)
        if asked.schedule is not None:
            own = find(asked.schedule).place(asked.pipeline.placements()[0], None, **asked.params)
            if pipeline.places not in (own.places, asked.pipeline.places):
                return Model(pipeline)
        if asked.order is not None and (asked.placed or asked.pipeline).places != pipeline.places:
            return Model(pipeline, asked.schedule, asked.params, written=asked.written)
        return dataclasses.replace(asked, pipeline=pipeline, placed=None)

    def _moved(self, pipeline: Pipeline) -> bool:
        """Whether the answer is on a placement that the question neither has nor leaves open."""
        return pipeline.places not in [place.places for place in self.model.pipeline.placements()]

    def _places(self) -> list[Pipeline]:
        pipeline = self.model.pipeline
        if self.runtime not in (None, TORCH):
            return list(running.places(pipeline, self.runtime, self.binding))
        return list(pipeline.placements() if self.binding is None else self.binding.places(pipeline))

    def _branch(
        self, pipeline: Pipeline, beside: Callable[[], Sequence[Row]], known: dict[tuple[str, int], PeriodicSchedule]
    ) -> Branch:
        if self.runtime in (None, TORCH):
            return self._search(pipeline, beside, known)
        branches: list[Branch] = []
        for policy, own in running.alternatives(pipeline, self.runtime):
            if isinstance(policy, Policy) and self.runtime in running.ORDERS:
                branches.append(FixedOrder(own, self.objective, self.settings, self._words, policy, beside))
            elif isinstance(policy, Policy) and own is not pipeline:
                branches.append(running.Translated(self._search(own, beside, known), pipeline, policy))
            else:
                branches.append(self._search(own, beside, known))
        return branches[0] if len(branches) == 1 else running.OneOfSeveral(pipeline, branches, self.objective, self.settings)

    def _search(
        self, pipeline: Pipeline, beside: Callable[[], Sequence[Row]], known: dict[tuple[str, int], PeriodicSchedule]
    ) -> Branch:
        if pipeline.partition == BEST:
            if self.best_cut:
                all_cuts(pipeline)  # says that it is open already

            def make() -> Branch:
                return PartitionChoice(pipeline, self.objective, self.settings, self._words, beside, turns_of=self._turns)

            return Later(pipeline, shared_work(pipeline), make) if pipeline.mix.differs else make()
        turns = self._turns(pipeline, beside)
        if turns is not None:
            return turns
        words = self._words(pipeline)
        if pipeline.recompute == CHOOSE:
            return self._with_best(RecomputeChoice(pipeline, self.objective, self.settings, words, beside))
        search = ClosedSearch(Problem(pipeline, self.objective, words, self.settings.gap), self.settings, beside)
        start = None if self.binding is None else self.binding.start(pipeline)
        search.begin(start, 0, known.get((pipeline.placement, pipeline.chunks)))
        return self._with_best(ClosedBranch(search))

    def _promise(self, branch: Branch, floor: Fraction | float) -> Fraction | float:
        """What says how soon a placement has its turn: what is quickly known of it. Of a large one whose microbatches differ
        that is the work alone, about the same on each; so of these what would be known if they were alike."""
        problem, pipeline = Problem(branch.pipeline), branch.pipeline
        bound = self.binding is not None or self.constraints
        if not (problem.large and problem.differing) or pipeline.partition == BEST or bound:
            return floor
        try:
            return self._branch(pipeline.changed(mix=Mix()), tuple, {}).floor(self.objective)
        except PipelineError:
            return floor

    def _turns(self, pipeline: Pipeline, beside: Callable[[], Sequence[Row]] = tuple) -> Branch | None:
        """The search for the order of microbatches in a settled order of operations; ``None``: nothing settles that."""
        order = None if self.constraints else settled_order(pipeline, self.binding)
        if order is None or self.binding is None:
            return None
        return TurnChoice(pipeline, self.objective, self.settings, self.binding, order, beside)

    def _with_best(self, own: Own) -> Branch:
        """The search on one cut; beside it that on all cuts, where it is asked for."""
        layers, partition = own.pipeline.layers, own.pipeline.partition
        asked = self.best_cut
        if asked is None:
            written = layers is not None and isinstance(partition, tuple) and len(layers) >= own.pipeline.stages
            mapped = bool(own.pipeline.backward_routes) or own.pipeline.memory.weights_on is not None
            asked = written and not self._in_ticks and not mapped and not own.pipeline.mix.by_stage
        if not asked:
            return own
        if self._in_ticks:
            raise ValueError("best_cut: lags and amounts of constraints are in ticks, which differ from cut to cut")
        return BesideBest(own, self.objective, self.settings, self._words)

    @property
    def _in_ticks(self) -> bool:
        """Whether the constraints have lags or amounts."""
        return any(isinstance(word, Capacity) or (isinstance(word, Precede) and word.lag) for word in self.constraints)

    def _words(self, pipeline: Pipeline) -> tuple[Word, ...]:
        """What binds beside the rules: the same whatever recomputes, where that is open."""
        bound = () if self.binding is None else self.binding.words(pipeline)
        if not self.constraints:
            return bound
        open_ = self.model.pipeline.open
        if open_ and self._in_ticks:
            raise ValueError(f"lags and amounts of constraints are in ticks, which differ with what is open: {', '.join(open_)}")
        settled = [pipeline]
        if pipeline.recompute == CHOOSE:
            free = pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=None))
            settled = [free.resolved("none"), free.resolved("all")]
        found = {own_words(each, self.constraints, bound) for each in settled}
        if len(found) != 1:
            raise ValueError('the constraints depend on which stages recompute; pipeline.recompute is "choose"')
        words = found.pop()
        if self.settings.solver == "ilp":
            check_for_ilp(settled[0], words)
        return words

    def _rows(self) -> tuple[Row, ...]:
        """The user's own order, and the named schedules on these devices, with the freedom that the answer has."""
        model, pipeline = self.model, self.model.pipeline
        params = dict(model.named_params)
        if self.binding is not None:
            params[self.binding.schedule] = self.binding.params
        with bounded(None):  # they are shown in any case
            mine = () if pipeline.recompute == CHOOSE else model.own_rows
        own = [row for row in self.beside if row.schedule is None or row.schedule.pipeline.microbatches == pipeline.microbatches]
        if pipeline.recompute == CHOOSE:
            return (*model.own_rows_freely(self.objective), *own, *compare_freely(pipeline, (), params, self.objective))
        return (*mine, *own, *rows_of(pipeline.placements()[0], shown_chunks(pipeline), params))

    def _report(self) -> Callable[[Fraction | None, Fraction], None] | None:
        progress = self.progress
        if progress is None:
            return None
        return lambda value, bound: progress(None if value is None else plain(value), plain(bound))
