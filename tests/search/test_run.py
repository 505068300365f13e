"""Following a strategy: turns, shares of the time, notes."""

from __future__ import annotations

from typing import Any

import pytest

from ppopt.clock import Clock
from ppopt.heuristics import baselines
from ppopt.pipeline import Pipeline
from ppopt.search import tuning
from ppopt.search.run import Run
from ppopt.search.step import Kind, Needs, Step
from ppopt.search.turns import Rounds, Turn, WhileGaining, left, whole
from tests.support.search import run_of


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


class Gaining(Noted):
    """Finds a better schedule every time while there is one."""

    def run(self, run: Run, seconds: float, **options: Any) -> str:
        best = run.incumbent.best
        better = [each for _, each in baselines(run.problem.pipeline) if best is None or each.makespan < best.makespan]
        if better:
            run.incumbent.offer(max(better, key=lambda schedule: schedule.makespan), "a test")
        return super().run(run, seconds, **options)


def test_turns_come_again_while_they_gain() -> None:
    """Until a round finds nothing better, or their share of the time is over."""
    pipeline = Pipeline(3, 6)
    values = {schedule.makespan for _, schedule in baselines(pipeline)}
    assert len(values) > 1
    run = run_of(pipeline, seconds=80)
    run.follow((WhileGaining((Turn(Gaining, whole(1 / 80), options={"takes": 1}),), left(1 / 2)),))
    assert run.step(Gaining).seconds == pytest.approx([1] * (len(values) + 1))
    assert run.incumbent.value == min(values)
    run = run_of(pipeline, seconds=3)
    run.follow((WhileGaining((Turn(Gaining, options={"takes": 1}), Turn(Noted, options={"takes": 0.25})), left(1 / 2)),))
    assert run.step(Gaining).seconds == pytest.approx([1.5, 0.25], rel=0.01)
    assert run.step(Noted).seconds == pytest.approx([0.5], rel=0.01)
    run = run_of(pipeline)
    run.follow((WhileGaining((Turn(Gaining),), left(1 / 2), lambda run: False),))
    assert run.taken == []


def test_what_closes_the_gap_ends_the_search() -> None:
    run = run_of(Pipeline(2, 3))
    best = min((schedule for _, schedule in baselines(run.problem.pipeline)), key=lambda schedule: schedule.makespan)
    run.incumbent.offer(best, "a test")
    run.incumbent.prove(best.makespan, "a test")
    run.follow((Turn(Noted), Turn(Never)))
    assert run.taken == []
    assert [run.wants(needs) for needs in Needs] == [True, False, False, False]
