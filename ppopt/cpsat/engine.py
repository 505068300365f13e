"""The one place that makes solvers of CP-SAT: how each searches, how long, with which others, and what ends it.

Every search charges the clock that it is given with CP-SAT's deterministic time and with what it takes to build the model, and
stops when nothing is left of it. CP-SAT swallows Ctrl-C; so it searches in other threads, and on Ctrl-C it is stopped from here
and the clock is told.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from ppopt.clock import Clock, Limits
from ppopt.cpsat.running import Answer, Known, Run, Thread, Watch, stop, wait
from ppopt.interrupt import check, held

BUILD = 5e-5
"""Deterministic seconds for making a constraint; about what it takes."""


@dataclass(frozen=True)
class Preset:
    """How a solver searches, where that is not up to CP-SAT: its parameters, as far as any of the presets changes them."""

    presolve: bool = True
    probing: bool = True
    inprocessing: bool = True
    """Probing between restarts."""
    relaxed: bool = True
    """Whether it solves linear relaxations."""
    new_conflicts: bool = False
    """The newer resolution of conflicts between integer bounds."""
    precedences: bool = True
    """Whether a machine's propagation looks at known precedences."""
    model_first: bool = False
    """Whether the decision strategy of the model comes first, and what CP-SAT would do then."""

    def solver(self) -> cp_model.CpSolver:
        """A new solver that searches so."""
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.cp_model_presolve = self.presolve
        parameters.linearization_level = int(self.relaxed)
        parameters.use_new_integer_conflict_resolution = self.new_conflicts
        parameters.use_precedences_in_disjunctive_constraint = self.precedences
        # wrong in CP-SAT 9.15: from coefficients of about 2**31 on, models that had solutions were infeasible (tests/laws)
        parameters.auto_detect_greater_than_at_least_one_of = False
        parameters.presolve_inclusion_work_limit = 0
        if not self.probing:
            parameters.cp_model_probing_level = 0
        if not self.inprocessing:
            parameters.inprocessing_probing_dtime = 0.0
        if self.model_first:
            parameters.search_branching = cp_model.PARTIAL_FIXED_SEARCH
        parameters.catch_sigint_signal = False  # its own handler would swallow Ctrl-C, or abort the process
        return solver


MINIMISING = Preset()
"""For the best schedule of a whole pipeline: CP-SAT's own way, whose workers share what they find."""
DECIDING = Preset(
    presolve=False, probing=False, inprocessing=False, relaxed=False, new_conflicts=True, precedences=False
)  # fmt: skip
"""For decisions, and for windows of a schedule. Measured: propagation decides, not presolve, relaxations or probing; often ten
times faster. A makespan that is given says so much of all starts that known precedences add nothing."""
DECIDING_PRESOLVED = replace(DECIDING, presolve=True)
"""``DECIDING`` after presolve, for models in which the durations are open as well: now the one, now the other is faster."""
SPANS = replace(DECIDING, precedences=True)
"""``DECIDING`` where device spans are minimised: starts are not known that well, and known precedences help."""
BEGINS_FIRST = replace(DECIDING, model_first=True)
"""For decisions on spans: it settles first when the devices begin, since all starts are known well then. Measured on eight
targets: where the times since each device's own begin are known well, too, ``DECIDING`` takes less than three fifths of the time
for four of them, about as long for three, and 1.2 times as long for one."""
WINDOW = Preset(presolve=False, probing=False, relaxed=False, new_conflicts=True)
"""For bounds from the first and last ticks. The relaxations of intervals cost far more than they bring there; probing takes
longer than the rest of presolve, and seldom helps."""
WINDOW_PRESOLVED = replace(WINDOW, presolve=True)
"""``WINDOW`` after presolve: now the one, now the other is by far the faster."""
SMALL = Preset(presolve=False, probing=False, relaxed=False)
"""For small models with tight ranges: presolve, probing above all, often takes ten times as long as the search itself."""
SMALL_RELAXED = replace(SMALL, relaxed=True)
"""``SMALL`` and linear relaxations: what one way does not find another may."""
SMALL_PRESOLVED = replace(SMALL_RELAXED, presolve=True)
"""``SMALL_RELAXED`` after presolve, which pays now and then where starts are fine-grained."""

CUTS = Preset(probing=False, relaxed=False)
"""For cuts of layers. Measured on 56 layers in 8 to 16 stages: 5 to 10 times as fast as with relaxations or probing."""
CUTS_RELAXED = Preset(probing=False)
"""``CUTS`` and linear relaxations: with four stages to a device and many layers nothing else raises the bound."""
CUTS_OF_SIZES = replace(CUTS, presolve=False), replace(CUTS_RELAXED, presolve=False)
"""Both where microbatches differ in their sizes. Presolve does not look at the clock, and the domains that it makes of times with
squares are lists of many thousands of intervals. Measured on 265 layers of three kinds in 8 stages: with a limit of 1 s presolve
alone took 35 s, or all of the memory; without it the answer came in 0.25 s. Where microbatches are alike presolve is as quick."""


def no_time_to_build(model: cp_model.CpModel, clock: Clock) -> bool:
    """Whether nothing will be left of the clock by the time that a model is charged which is being built."""
    return clock.left <= (BUILD * len(model.proto.constraints) if clock.deterministic else 0.0)


def search(
    model: cp_model.CpModel,
    limits: Limits,
    preset: Preset,
    *,
    seconds: float = math.inf,
    workers: int | None = None,
    gap: float = 0.0,
    watch: Watch | None = None,
) -> Answer:
    """Search with one solver, whose ``workers`` share what they find; by default as many as the ``limits`` have threads.

    ``seconds``: most for the search, after the model is built. With a ``gap`` a solution is the best where it is within that part
    of the bound.

    Raises:
        AssertionError: CP-SAT refuses the model.
        KeyboardInterrupt: a signal came before the search.
    """
    run = Run(model, preset.solver(), limits.seed, workers or limits.threads, watch)
    run.solver.parameters.relative_gap_limit = gap
    _charge_building([model], limits.clock)
    return _answers([run], limits.clock, seconds)[0]


def race(model: cp_model.CpModel, limits: Limits, presets: Sequence[Preset], *, seconds: float = math.inf) -> Answer:
    """Search one model in several ways, with one worker each, until the first has ended; the best answer of all.

    Measured: often ten times as fast as workers that share what they find. Only as many ways are taken as the ``limits`` have
    threads, the first ones. Otherwise as :func:`search`.
    """
    _charge_building([model], limits.clock)
    return _raced(model, limits, presets[: limits.threads], seconds)


def in_every_way(model: cp_model.CpModel, limits: Limits, presets: Sequence[Preset], seconds: float) -> Answer:
    """Search a small model in several ways: with several workers they race, with one each has its share of the time.

    The first way has half of it. Otherwise as :func:`search`.
    """
    ways = len(presets)
    if ways == 1:
        return search(model, limits, presets[0], seconds=seconds)
    if limits.threads > 1:
        return race(model, limits, presets, seconds=seconds)
    _charge_building([model], limits.clock)
    answer = Answer(Known.OPEN)
    for place, preset in enumerate(presets):
        share = seconds / 2 if place == 0 else seconds / (2 * (ways - 1))
        answer = _raced(model, limits, [preset], share)
        if answer.found or answer.certain or answer.interrupted:
            break
    return answer


def at_once(
    models: Sequence[cp_model.CpModel], limits: Limits, preset: Preset, *, seconds: float, seeds: Sequence[int]
) -> list[Answer]:
    """Search several models at once, with one worker each and a seed of its own. Otherwise as :func:`search`."""
    _charge_building(models, limits.clock)
    runs = [Run(model, preset.solver(), seed) for model, seed in zip(models, seeds, strict=True)]
    return _answers(runs, limits.clock, seconds)


def _charge_building(models: Sequence[cp_model.CpModel], clock: Clock) -> None:
    clock.charge(BUILD * sum(len(model.proto.constraints) for model in models))


class Searches:
    """Searches in one way that go on at the same time, with one worker each, while what the first to end has shown is looked at.

    As a context manager it stops those that still go on at its end. Not for deterministic mode, which has one thread.
    """

    def __init__(self, preset: Preset) -> None:
        self._preset = preset
        self._going: dict[int, Thread] = {}
        self._ended = threading.Event()
        self._clock: Clock | None = None

    def __enter__(self) -> Searches:
        return self

    def __exit__(self, *error: object) -> None:
        with held() as came:
            stop(self._going.values())
        self._going.clear()
        if came and self._clock is not None:
            self._clock.interrupt()

    @property
    def names(self) -> tuple[int, ...]:
        """Of those that go on."""
        return tuple(self._going)

    def until_one_ends(self, models: Mapping[int, Callable[[], cp_model.CpModel]], limits: Limits) -> dict[int, Answer]:
        """What those of ``models`` have shown that have ended, one at least; the others go on.

        ``models`` are made by name, unless a search of that name goes on already; those of other names are stopped. Each has the
        time that the ``limits`` had when it began.

        Raises:
            AssertionError: CP-SAT refuses a model.
            KeyboardInterrupt: a signal came before the search.
        """
        check()
        self._clock = clock = limits.clock
        with held() as came:
            stop([self._going.pop(name) for name in self.names if name not in models])
            for name, make in models.items():
                if name not in self._going and not came:
                    self._going[name] = Thread(self._run(make(), limits), self._ended)
            wait(self._going.values(), self._ended, came, first_ends=True)
            if came:
                stop(self._going.values())
        if came:
            clock.interrupt()
        ended = {name: thread for name, thread in self._going.items() if not thread.alive}
        for name in ended:
            del self._going[name]
        return {name: thread.answer(bool(came)) for name, thread in ended.items()}

    def _run(self, model: cp_model.CpModel, limits: Limits) -> Run:
        run = Run(model, self._preset.solver(), limits.seed)
        run.limit(limits.clock.left, limits.clock)
        return run


def _raced(model: cp_model.CpModel, limits: Limits, presets: Sequence[Preset], seconds: float) -> Answer:
    """One answer of solvers that search in these ways, until the first has ended."""
    models = [model, *(model.clone() for _ in presets[1:])]  # threads share none
    runs = [Run(of, preset.solver(), limits.seed) for of, preset in zip(models, presets, strict=True)]
    answers = _answers(runs, limits.clock, seconds, first_ends=True)
    best = min(answers, key=lambda answer: (not answer.certain, list(Known).index(answer.known)))
    return replace(best, bound=max(answer.bound for answer in answers))


def _answers(runs: Sequence[Run], clock: Clock, seconds: float, *, first_ends: bool = False) -> list[Answer]:
    """What each of the runs shows within what is left of the clock."""
    check()
    seconds = min(seconds, clock.left)
    if seconds <= 0:
        return [Answer(Known.OPEN, interrupted=clock.interrupted) for _ in runs]
    for run in runs:
        run.limit(seconds, clock)
    ended = threading.Event()
    with held() as came:
        threads = [Thread(run, ended) for run in runs]
        wait(threads, ended, came, first_ends=first_ends)
        stop(threads)
    if came:
        clock.interrupt()
    answers = [thread.answer(bool(came)) for thread in threads]
    clock.charge(sum(run.solver.response_proto.deterministic_time for run in runs))
    return answers
