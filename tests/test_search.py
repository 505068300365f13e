"""The search as steps: what is asked, what is known, how long; tables of turns."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ppopt.clock import Clock
from ppopt.constraints import Family, Precede
from ppopt.heuristics import baselines
from ppopt.named import rows_of
from ppopt.op import Kind as OpKind
from ppopt.pipeline import Costs, DataParallel, Memory, Pipeline
from ppopt.search import tuning
from ppopt.search.incumbent import Incumbent
from ppopt.search.problem import Problem
from ppopt.search.run import Run
from ppopt.search.step import Kind, Needs, Step
from ppopt.search.steps import decisions
from ppopt.search.steps.binding_order import BindingOrder
from ppopt.search.steps.closed_forms import MemoryBound, OneMachine, Work
from ppopt.search.steps.decisions import Answer, Decide
from ppopt.search.steps.list_schedules import ListSchedules
from ppopt.search.steps.modulo_scheduling import ModuloScheduling
from ppopt.search.steps.neighbourhoods import Neighbourhoods
from ppopt.search.steps.smaller_pipelines import FewerDevices, FewMicrobatches
from ppopt.search.steps.state_graph import StateGraph
from ppopt.search.strategies import BEGIN_LARGE, BEGIN_SMALL, ILP, LARGE, SMALL, SPAN_FIRST, strategy_of
from ppopt.search.turns import Entry, Rounds, Turn, left, whole

CLOSED_FORMS = (Work, OneMachine, MemoryBound, BindingOrder)
TABLES: tuple[tuple[Entry, ...], ...] = (BEGIN_SMALL, BEGIN_LARGE, SMALL, LARGE, ILP, *SPAN_FIRST.values())


def turns(entries: tuple[Entry, ...]) -> list[Turn]:
    return [turn for entry in entries for turn in (entry.turns if isinstance(entry, Rounds) else (entry,))]


def run_of(pipeline: Pipeline, seconds: float = 10, **asked: Any) -> Run:
    problem = Problem(pipeline, **asked)
    return Run(problem, Clock(seconds, deterministic=True), Incumbent(problem), workers=1, rows=lambda: rows_of(pipeline))


class Noted(Step):
    """Notes how long it may take."""

    name = "noted"
    kind = Kind.IMPROVE

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def run(self, run: Run, seconds: float, **options: Any) -> str:
        self.seconds.append(seconds)
        run.clock.charge(options.get("takes", 0))
        return "done"


class Never(Noted):
    """Applies nowhere."""

    name = "never"

    def applies(self, run: Run) -> str | None:
        return "it is a Monday"


def test_shares_of_the_time() -> None:
    clock = Clock(60, deterministic=True)
    clock.charge(20)
    assert left(1 / 4).seconds(clock) == 10
    assert whole(1 / 4).seconds(clock) == 15
    assert left(1 / 4, most=3).seconds(clock) == 3
    assert whole(1 / 100, least=2).seconds(clock) == 2
    assert whole(1 / 100, least=100).seconds(clock) == 40  # there is no more


def test_a_step_keeps_what_it_goes_on_with_and_its_reason_is_said_once() -> None:
    run = run_of(Pipeline(2, 3))
    run.follow((Turn(Noted, left(1 / 2), options={"takes": 4}), Turn(Never), Turn(Noted, left(1 / 2)), Turn(Never)))
    assert run.step(Noted).seconds == pytest.approx([5, (10 - 4 - 2 * tuning.LEAST) / 2], abs=1e-2)
    assert run.step(Never).seconds == []
    assert [(taken.name, taken.outcome) for taken in run.taken] == [
        ("noted", "done"),
        ("never", "left out: it is a Monday"),
        ("noted", "done"),
    ]


def test_rounds_double() -> None:
    run = run_of(Pipeline(2, 3), seconds=20)
    run.follow((Rounds((Turn(Noted, whole(1 / 20), options={"takes": 3}),)),))
    assert run.clock.over
    seconds = run.step(Noted).seconds
    assert seconds[:4] == pytest.approx([1, 2, 4, 8])


def test_what_closes_the_gap_ends_the_search() -> None:
    run = run_of(Pipeline(2, 3))
    best = min((schedule for _, schedule in baselines(run.problem.pipeline)), key=lambda schedule: schedule.makespan)
    run.incumbent.offer(best, "a test")
    run.incumbent.prove(best.makespan, "a test")
    run.follow((Turn(Noted), Turn(Never)))
    assert run.taken == []
    assert [run.wants(needs) for needs in Needs] == [True, False, False, False]


def test_the_incumbent() -> None:
    problem = Problem(Pipeline(2, 3), gap=0.1, enough=20)
    told: list[tuple[int | None, int]] = []
    incumbent = Incumbent(problem)
    incumbent.tell(lambda value, bound: told.append((value, bound)))
    assert told == []  # there is nothing to tell yet
    assert (incumbent.open, incumbent.gap, incumbent.target) == (True, 1.0, None)
    schedules = sorted((schedule for _, schedule in baselines(problem.pipeline)), key=lambda s: -s.makespan)
    worst, best = schedules[0], schedules[-1]
    assert incumbent.offer(worst, "first")
    assert incumbent.offer(best, "second")
    assert not incumbent.offer(worst, "third")
    assert incumbent.source == "second"
    incumbent.prove(5, "a")
    incumbent.prove(4, "b")
    assert (incumbent.lower, incumbent.proved_by) == (5, "a")
    incumbent.prove(best.makespan + 7, "c")  # no bound is above a value
    assert incumbent.lower == incumbent.value == best.makespan
    assert incumbent.closed
    assert told[-1] == (best.makespan, best.makespan)
    told.clear()
    incumbent.tell(lambda value, bound: told.append((value, bound)))
    assert told == [(best.makespan, best.makespan)]


def test_few_microbatches_begin_a_search_for_spans() -> None:
    """Modulo scheduling is for makespans, but a schedule of few microbatches is repeated for either objective."""
    run = run_of(Pipeline(2, 200, memory=Memory(limit=2)), objective="span")
    run.take(Turn(FewMicrobatches), 5)
    assert run.step(ModuloScheduling).best is not None
    assert run.incumbent.best is not None


def test_why_steps_do_not_apply() -> None:
    free, bound = Pipeline(2, 3), (Precede(Family(0, OpKind.F), Family(1, OpKind.F), shift=0),)
    assert ModuloScheduling().applies(run_of(free)) is None
    assert "makespan" in str(ModuloScheduling().applies(run_of(free, objective="span")))
    assert "microbatches apart" in str(ModuloScheduling().applies(run_of(free, words=bound)))
    assert "no schedule" in str(Neighbourhoods().applies(run_of(free)))
    assert "before and after" in str(Neighbourhoods().applies(run_of(Pipeline(2, 3, data_parallel=DataParallel(1)))))
    assert "unlimited" in str(StateGraph().applies(run_of(free)))
    assert StateGraph().applies(run_of(Pipeline(2, 3, memory=Memory(limit=2)))) is None
    assert f"fewer than {tuning.MANY_DEVICES}" in str(FewerDevices().applies(run_of(free)))


def test_every_step_charges_the_clock() -> None:
    """In deterministic mode: no turn of the tables is free."""
    costs = Costs(forward=(7, 9, 8), backward_input=(8, 9, 9), backward_weight=5)
    pipeline, tried = Pipeline(3, 5, costs=costs, memory=Memory(limit=2)), dict[type[Step], Turn]()
    for turn in turns((*BEGIN_SMALL, *SMALL)):
        tried.setdefault(turn.step, turn)
    for turn in tried.values():
        run = run_of(pipeline, seconds=30)
        if turn.step is not ListSchedules:
            run.incumbent.offer(baselines(pipeline)[0][1], "a test")
        before = run.clock.left
        run.take(turn, 0.1)
        if run.taken and not run.taken[-1].outcome.startswith("left out"):
            least = tuning.LEAST if turn.step in CLOSED_FORMS else 1.2 * tuning.LEAST
            assert before - run.clock.left >= least - 1e-9, turn.step.name


def test_tables() -> None:
    steps = {turn.step for entries in TABLES for turn in turns(entries)}
    assert len({step.name for step in steps}) == len(steps)
    for step in steps:
        assert step.kind in Kind
        assert step.__doc__
    small, large = Problem(Pipeline(2, 3)), Problem(Pipeline(8, 512))
    assert strategy_of(small, "auto") == (*BEGIN_SMALL, *SMALL)
    assert strategy_of(large, "auto") == (*BEGIN_LARGE, *LARGE)
    assert strategy_of(Problem(Pipeline(2, 3), "span"), "auto") == (*BEGIN_SMALL, *SPAN_FIRST["small"], *SMALL)
    assert strategy_of(large, "ilp") == ILP


def test_every_number_says_where_it_is_from() -> None:
    body = ast.parse(Path(str(tuning.__file__)).read_text()).body[1:]
    numbers = [node for node in body if isinstance(node, ast.Assign)]
    count = sum(isinstance(node, ast.Constant) and not isinstance(node.value, str) for each in numbers for node in ast.walk(each))
    assert count <= 40
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):  # those have a comment for each number
            assert isinstance(after, ast.Expr), ast.unparse(node)
            assert isinstance(after.value, ast.Constant), ast.unparse(node)


@pytest.mark.parametrize("answer", [Answer.NO, Answer.OPEN])
def test_each_end_is_asked_once(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the bound asked again after each answer, it would rise tick by tick."""
    asked: list[int] = []

    def ask(run: Run, targets: Sequence[int], seconds: float, grid: int) -> list[Answer]:
        asked.extend(targets)
        if answer is Answer.NO and targets[0] == run.incumbent.lower:
            run.incumbent.prove(targets[0] + 1, "a test")
        return [answer if place == 0 else Answer.UNASKED for place in range(len(targets))]

    monkeypatch.setattr(decisions, "ask", ask)
    run = run_of(Pipeline(4, 12))
    run.incumbent.offer(baselines(run.problem.pipeline)[0][1], "a test")
    low, high = run.incumbent.lower, run.incumbent.value
    decide = Decide()
    decide.run(run, 1.0, between=False)
    assert asked == [low, high - 1]
    assert decide.best_undecided == (answer is Answer.OPEN)
