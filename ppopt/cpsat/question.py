"""CP-SAT searches for a schedule of a whole pipeline, or proves that there is none, within limits and interruptible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version

from ortools.sat.python import cp_model

from ppopt.clock import Limits
from ppopt.constraints import Word
from ppopt.cpsat import engine
from ppopt.cpsat.model import Model, OutOfTime
from ppopt.cpsat.operations import NoRoom
from ppopt.cpsat.running import Answer, Known, Watch
from ppopt.heuristics import Stuck
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective, Schedule
from ppopt.solvers.device_times import NOTHING_KNOWN, DeviceTimes
from ppopt.solvers.outcome import Outcome, Progress, timed
from ppopt.timing.timed import CyclicOrder

NAME = "CP-SAT"
VERSION = version("ortools")


def solve(
    pipeline: Pipeline,
    words: Iterable[Word],
    *,
    objective: Objective,
    lower: int,
    upper: int,
    horizon: int,
    limits: Limits,
    hint: Schedule | None = None,
    grid: int = 1,
    progress: Progress | None = None,
    strict: bool = False,
    known: DeviceTimes = NOTHING_KNOWN,
) -> Outcome:
    """Search for a schedule that keeps ``words`` with an objective in ``lower..upper`` and every end by ``horizon``.

    All in ticks. With ``lower == upper`` this asks for any schedule of that makespan. With a ``grid`` of several ticks,
    durations and lags are rounded down to it: what is refuted stays refuted, and the found order is timed with the true ones,
    so its value may exceed ``upper``. Where operations without duration passed each other in what was found, the search is made
    again with a ``strict`` model (:class:`~ppopt.cpsat.model.Model`). ``known``: for spans, what is proved of the times of
    devices (:func:`ppopt.bounds.device_times.device_times`). Ctrl-C stops it and is noted in the outcome.

    On a grid a span is rounded up: begins and ends may both lie between two steps. Within a whole number of steps all times can
    be rounded down to steps.

    Raises:
        TypeError: a word that the model does not know.
        ValueError: words that contradict each other.
        KeyboardInterrupt: a signal came before the search.
    """
    question = _Question(pipeline, tuple(words), objective, lower, upper, horizon, limits, grid=grid, strict=strict, known=known)
    return question.answered(hint, progress)


@dataclass(frozen=True)
class _Question:
    """The arguments of :func:`solve`."""

    pipeline: Pipeline
    words: tuple[Word, ...]
    objective: Objective
    lower: int
    upper: int
    horizon: int
    limits: Limits
    grid: int = 1
    strict: bool = False
    known: DeviceTimes = NOTHING_KNOWN

    def answered(self, hint: Schedule | None, progress: Progress | None) -> Outcome:
        """What a search shows."""
        model, limits = self.model(), self.limits
        if isinstance(model, Outcome):
            return model
        if hint is not None:
            model.hint(hint)
        if not model.decision:
            watch = None if progress is None else self.watch(progress)
            answer = engine.search(model.model, limits, engine.MINIMISING, gap=limits.gap, watch=watch)
        else:
            answer = self.decided(model.model)
        return self.outcome(model, answer, progress)

    def decided(self, model: cp_model.CpModel) -> Answer:
        """What a search of a decision shows."""
        if self.objective == "span":
            return engine.race(model, self.limits, (engine.DECIDING, engine.BEGINS_FIRST))
        return engine.search(model, self.limits, engine.DECIDING, workers=1)

    @property
    def steps(self) -> int:
        """The most steps of the grid that the objective may be."""
        return -(-self.upper // self.grid) if self.objective == "span" else self.upper // self.grid

    @property
    def beyond(self) -> int:
        """The least objective beyond these steps, which is beyond ``upper``."""
        return _ticks(self.steps + 1, self.grid, self.objective)

    def model(self) -> Model | Outcome:
        """The model, if one is needed and there is time to make it."""
        grid, span = self.grid, self.objective == "span"
        lowest, highest = self.lower // grid, self.steps
        none = Outcome(None, self.beyond)
        if highest < lowest:
            return none
        try:
            return Model(
                self.pipeline,
                self.words,
                objective=self.objective,
                horizon=self.horizon // grid if span else highest,
                lower=highest if self.lower == self.upper else lowest,
                upper=highest,
                grid=grid,
                strict=self.strict,
                known=self.known.rounded_down(grid),
                clock=self.limits.clock,
            )
        except NoRoom:
            return none
        except OutOfTime:
            return Outcome(None, self.lower)

    def outcome(self, model: Model, answer: Answer, progress: Progress | None = None) -> Outcome:
        """What a search has shown."""
        grid = self.grid
        if answer.known is Known.NONE:
            return Outcome(None, self.beyond, interrupted=answer.interrupted)
        bound = self.lower if model.decision else max(self.lower, _ticks(answer.bound, grid, self.objective))
        if answer.known is Known.OPEN:
            return Outcome(None, bound, interrupted=answer.interrupted)
        schedule = None
        with suppress(Stuck, CyclicOrder):  # operations without duration that pass each other; no schedule, but the bound holds
            schedule = timed(self.pipeline, self.words, *model.found(answer), self.objective, grid, model.parts)
        if schedule is not None and not schedule.within_memory:  # intervals tell nothing of what takes no time
            schedule = None
        outcome = Outcome(schedule, bound if schedule is not None else min(bound, self.upper), interrupted=answer.interrupted)
        missed = grid == 1 and (schedule is None or schedule.objective(self.objective) > min(self.steps, model.value(answer)))
        if not missed or self.strict or answer.interrupted or self.limits.clock.over:
            return outcome
        strictly = replace(self, lower=self.lower if model.decision else outcome.lower_bound, strict=True)
        again = strictly.answered(None, progress)
        found = [one for one in (again.schedule, schedule) if one is not None]
        best = min(found, key=lambda one: one.objective(self.objective), default=None)
        return Outcome(best, again.lower_bound, interrupted=again.interrupted)

    def watch(self, progress: Progress) -> Watch:
        """Passes on what the search reports, in ticks; found values only where a step is a tick, so that they are exact."""
        return lambda best, bound: progress(best if self.grid == 1 else None, _ticks(bound, self.grid, self.objective))


@dataclass
class Decisions:
    """Questions whether there is a schedule with an objective of at most so many ticks, none more than ``most``.

    The model for that is kept, and those for less are copies of it. Otherwise as :func:`solve` with ``lower == upper``. As a
    context manager it stops the searches that still go on at its end.
    """

    pipeline: Pipeline
    words: tuple[Word, ...]
    objective: Objective
    most: int
    horizon: int
    grid: int = 1
    known: DeviceTimes = NOTHING_KNOWN
    _model: Model | None = field(default=None, init=False, repr=False)
    _searches: engine.Searches = field(default_factory=lambda: engine.Searches(engine.DECIDING), init=False, repr=False)

    def __enter__(self) -> Decisions:
        return self

    def __exit__(self, *error: object) -> None:
        self._searches.__exit__(*error)

    @property
    def going(self) -> tuple[int, ...]:
        """The targets of questions that still go on."""
        return self._searches.names

    def ask(self, targets: Sequence[int], limits: Limits) -> list[Outcome | None]:
        """Whether there are schedules with an objective of at most each of ``targets``.

        One has all workers. Several are asked at once, with a worker each, until the first is answered or has had its time; the
        others go on (``None``) if they are asked again the next time. There are never more than the ``limits`` have threads.
        """
        most = self.most
        largest = _Question(
            self.pipeline, self.words, self.objective, most, most, self.horizon, limits, grid=self.grid, known=self.known
        )
        asked = [replace(largest, lower=target, upper=target) for target in targets]
        if self._model is None:
            made = largest.model()
            if isinstance(made, Outcome):
                refuted = made.lower_bound > largest.upper
                return [Outcome(None, of.beyond if refuted else of.upper) for of in asked]
            self._model = made
        model = self._model
        if len(asked) == 1 and not self.going:
            (of,) = asked
            return [of.outcome(model, of.decided(model.at_most(of.steps)))]
        models = {of.upper: partial(model.at_most, of.steps) for of in asked}
        answers = self._searches.until_one_ends(models, limits)
        return [of.outcome(model, answers[of.upper]) if of.upper in answers else None for of in asked]


def _ticks(steps: int, grid: int, objective: Objective) -> int:
    """The least objective in ticks, where it is ``steps`` of ``grid`` ticks at least."""
    return grid * steps if objective == "makespan" else max(0, grid * (steps - 1) + 1)
