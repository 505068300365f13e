"""Decisions and minimising."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from ppopt.clock import Clock
from ppopt.constraints import Family, Precede
from ppopt.heuristics import baselines
from ppopt.op import Kind
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.search.run import Run
from ppopt.search.steps import decisions
from ppopt.search.steps.decisions import Answer, Decide, Minimise
from tests.support.search import begun, reason, run_of, take


@pytest.mark.parametrize("answer", [Answer.NO, Answer.OPEN])
def test_each_end_is_asked_once(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the bound asked again after each answer, it would rise tick by tick."""
    asked: list[int] = []

    def ask(run: Run, targets: Sequence[int], seconds: float, decisions: object) -> list[Answer]:
        asked.extend(targets)
        if answer is Answer.NO and targets[0] == run.incumbent.lower:
            run.incumbent.prove(targets[0] + 1, "a test")
        return [answer if place == 0 else Answer.GOING for place in range(len(targets))]

    monkeypatch.setattr(decisions, "ask", ask)
    run = run_of(Pipeline(4, 12))
    run.incumbent.offer(baselines(run.problem.pipeline)[0][1], "a test")
    low, high = run.incumbent.lower, run.incumbent.value
    Decide().run(run, 1.0, between=False)
    assert asked == [low, high - 1]


def test_the_bound_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only whether the best can be beaten is asked then, with all workers."""
    asked: list[list[int]] = []

    def ask(run: Run, targets: Sequence[int], seconds: float, decisions: object) -> list[Answer]:
        asked.append(list(targets))
        return [Answer.OPEN]

    monkeypatch.setattr(decisions, "ask", ask)
    run = run_of(Pipeline(4, 12))
    run.incumbent.offer(baselines(run.problem.pipeline)[0][1], "a test")
    Decide().run(run, 1.0, between=False, bound=False)
    assert asked == [[run.incumbent.value - 1]]


@pytest.mark.parametrize(("patience", "open_", "asked_between"), [(1, 1, 0), (2, 1, 1), (3, 1, 2), (2, 0, 2)])
def test_questions_that_stay_open_end_it(patience: int, open_: int, asked_between: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those at the ends count; below the best nothing is asked here."""
    asked: list[int] = []

    def ask(run: Run, targets: Sequence[int], seconds: float, decisions: object) -> list[Answer]:
        asked.extend(targets)
        if len(asked) > open_ and targets[0] == run.incumbent.lower:
            run.incumbent.prove(targets[0] + 1, "a test")
            return [Answer.NO]
        return [Answer.OPEN]

    monkeypatch.setattr(decisions, "ask", ask)
    run = run_of(Pipeline(4, 12), objective="span")
    run.incumbent.offer(baselines(run.problem.pipeline)[0][1], "a test")
    low, high = run.incumbent.lower, run.incumbent.value
    Decide().run(run, 1.0, best=False, patience=patience)
    assert asked[0] == low
    assert len(asked) == 1 + asked_between
    assert all(low < target < high - 1 for target in asked[1:])


@pytest.mark.parametrize("leap", [False, True])
def test_below_the_best_is_asked_once_where_two_are_refuted(leap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """That may end the search; where it stays open, bisection goes on."""
    asked: list[int] = []

    def ask(run: Run, targets: Sequence[int], seconds: float, decisions: object) -> list[Answer]:
        asked.extend(targets)
        if targets[0] == run.incumbent.value - 1 or len(asked) > 6:
            return [Answer.OPEN]
        run.incumbent.prove(targets[0] + 1, "a test")
        return [Answer.NO]

    monkeypatch.setattr(decisions, "ask", ask)
    run = run_of(Pipeline(4, 12, costs=Costs(forward=1000, backward_input=1000, backward_weight=1)), objective="span")
    run.incumbent.offer(baselines(run.problem.pipeline)[0][1], "a test")
    best = run.incumbent.value
    Decide().run(run, 1.0, ends=False, patience=1, leap=leap)
    assert asked.count(best - 1) == int(leap)
    assert len(asked) == 7
    if leap:
        assert asked.index(best - 1) == 2
    else:
        assert asked == sorted(asked)


@pytest.mark.parametrize(("objective", "workers"), [("span", 1), ("makespan", 1), ("span", 2), ("makespan", 2)])
@pytest.mark.parametrize("over", [0, 1])
def test_where_an_operation_or_less_is_open_the_proof_is_asked_for(
    over: int, objective: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; where that stays open, bisection goes on. Of two questions on spans it is one, of those on makespans none."""
    asked: list[list[int]] = []

    def ask(run: Run, targets: Sequence[int], seconds: float, decisions: object) -> list[Answer]:
        asked.append(list(targets))
        return [Answer.OPEN] * len(targets)

    monkeypatch.setattr(decisions, "ask", ask)
    run = run_of(Pipeline(4, 12, costs=Costs(forward=900, backward_input=1000, backward_weight=800)), objective=objective)
    if workers > 1:
        run = replace(run, clock=Clock(60), workers=workers)
    run.incumbent.offer(baselines(run.problem.pipeline)[0][1], "a test")
    best = run.incumbent.value
    run.incumbent.prove(best - 800 - over, "a test")
    Decide().run(run, 1.0, ends=False, patience=3)
    if not over and (workers == 1 or objective == "span"):
        assert asked[0] == [best - 401, best - 1][2 - workers :]
        asked.pop(0)
    assert asked
    assert all(best - 1 not in targets for targets in asked)


def test_a_question_goes_on_beside_the_next_one_where_it_still_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refuted or found ends those that this answers, too; no question is asked anew."""
    asked: list[list[int]] = []
    began: list[int] = []

    class Questions:
        going: tuple[int, ...] = ()

        def __enter__(self) -> Questions:
            return self

        def __exit__(self, *error: object) -> None:
            self.going = ()

    questions = Questions()

    def ask(run: Run, targets: Sequence[int], seconds: float, decisions: object) -> list[Answer]:
        """The lower one is refuted first as long as there is none; the upper one then has had its time."""
        asked.append(list(targets))
        began.extend(target for target in targets if target not in questions.going)
        if len(asked) == 4:
            questions.going = (targets[0],)
            return [Answer.GOING, Answer.OPEN]
        run.incumbent.prove(targets[0] + 1, "a test")
        questions.going = tuple(targets[1:])
        return [Answer.NO, *[Answer.GOING] * (len(targets) - 1)]

    monkeypatch.setattr(decisions, "questions", lambda run, grid: questions)
    monkeypatch.setattr(decisions, "ask", ask)
    run = replace(
        run_of(Pipeline(4, 12, costs=Costs(forward=1000, backward_input=1000, backward_weight=1))), clock=Clock(60), workers=2
    )
    run.incumbent.offer(baselines(run.problem.pipeline)[0][1], "a test")
    low, high = run.incumbent.lower, run.incumbent.value
    Decide().run(run, 1.0, patience=1)
    assert asked[0] == [low, high - 1]
    assert len(asked) == 4
    assert [before[1] in after for before, after in pairwise(asked)] == [True] * 3
    assert len(began) == len(set(began))


@pytest.mark.parametrize(
    ("low", "high", "undecided", "going", "targets"),
    [
        (0, 90, [], [], [30, 60]),
        (31, 90, [], [60], [60, 75]),
        (0, 90, [], [20], [20, 55]),
        (0, 90, [], [20, 60], [20, 60]),
        (0, 90, [40], [20], [20, 65]),
        (0, 90, [40], [], [65, 20]),
        (0, 90, [5], [2], [33, 61]),  # there is little left below 5
        (9, 10, [], [9], [9]),
        (8, 10, [], [8], [8, 9]),
        (8, 10, [], [9], [8, 9]),
        (0, 90, [5, 80], [2], []),
    ],
)
def test_what_goes_on_is_asked_and_another_target_where_most_is_open(
    low: int, high: int, undecided: list[int], going: list[int], targets: list[int]
) -> None:
    found = decisions.between(low, high, undecided, 2, going)
    assert found == targets
    assert all(low <= target < high for target in found)


PIPELINE = Pipeline(4, 6, costs=Costs(forward=4, backward_input=4, backward_weight=3), memory=Memory(limit=2))
OPTIMUM = 119
"""By CP-SAT, and by the ILP."""


def test_decisions_need_a_schedule() -> None:
    assert reason(Decide, run_of(PIPELINE)) == "there is no schedule yet"
    assert reason(Decide, begun(run_of(PIPELINE))) is None


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_decisions_close_the_gap(objective: str) -> None:
    run = begun(run_of(PIPELINE, seconds=60, objective=objective))
    take(run, Decide, 20)
    assert run.incumbent.closed
    assert all("CP-SAT: is there one of" in taken.name for taken in run.taken)
    other = run_of(PIPELINE, seconds=60, objective=objective)
    take(other, Minimise, 30)
    assert other.incumbent.closed
    assert other.incumbent.value == run.incumbent.value
    assert "ortools" in other.versions


def test_minimising_finds_the_optimum_or_that_there_is_none() -> None:
    run = run_of(PIPELINE, seconds=60)
    take(run, Minimise, 30)
    assert run.incumbent.value == run.incumbent.lower == OPTIMUM
    words = tuple(Precede(Family(0, kind), Family(0, Kind.F)) for kind in (Kind.B, Kind.I))
    stuck = run_of(Pipeline(1, 2), seconds=60, words=words)
    take(stuck, Minimise, 30)
    assert stuck.incumbent.infeasible
    assert stuck.taken[-1].outcome == "there is no schedule"


def test_a_target_is_refuted_or_met() -> None:
    run = begun(run_of(PIPELINE, seconds=60))
    assert decisions.ask(run, [OPTIMUM - 1], 30, decisions.questions(run, 1)) == [Answer.NO]
    assert run.incumbent.lower == OPTIMUM
    assert decisions.ask(run, [OPTIMUM], 30, decisions.questions(run, 1)) == [Answer.YES]
    assert run.incumbent.closed


@pytest.mark.parametrize(
    ("low", "high", "undecided", "count", "targets"),
    [
        (0, 60, [], 1, [30]),
        (0, 60, [], 2, [20, 40]),
        (0, 60, [30], 2, [15, 45]),  # on both sides of what stayed open
        (0, 60, [30, 55], 2, [10, 20]),  # above there is little left
        (0, 60, [5, 55], 2, []),
        (0, 1, [], 2, [0]),
        (0, 2, [0, 1], 1, []),
    ],
)
def test_bisection(low: int, high: int, undecided: list[int], count: int, targets: list[int]) -> None:
    assert decisions.between(low, high, undecided, count) == targets
