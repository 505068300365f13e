"""Dynamic programming as a step: it proves what it finds, leaves the rest alone, and goes on where it stopped."""

import pytest

from ppopt.clock import Clock
from ppopt.heuristics import baselines
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline
from ppopt.search.incumbent import Incumbent
from ppopt.search.problem import Problem
from ppopt.search.run import Run
from ppopt.search.steps.dynamic_programming import DynamicProgramming
from ppopt.timing import time_order
from tests.support.plain_model import optimum

COSTS = Costs(per="stage", forward=(3, 4, 2, 5), backward=(7, 6, 8, 5))
PIPELINE = Pipeline(2, 4, "loop", 2, costs=COSTS)


def run_of(pipeline: Pipeline, seconds: float = 60, **more: object) -> Run:
    problem = Problem(pipeline, **more)  # type: ignore[arg-type]
    run = Run(problem, Clock(seconds), Incumbent(problem), workers=1)
    run.incumbent.offer(max((schedule for _, schedule in baselines(pipeline)), key=lambda each: each.makespan), "a test")
    return run


@pytest.mark.parametrize("pipeline", [PIPELINE, PIPELINE.changed(memory=Memory(limit=3))], ids=["free", "within memory"])
def test_the_best_is_found_and_proved(pipeline: Pipeline) -> None:
    run = run_of(pipeline)
    step = run.step(DynamicProgramming)
    assert step.applies(run) is None
    assert "dynamic programming" in step.run(run, 60)
    best = optimum(pipeline, "makespan", patience=5)
    assert run.incumbent.value == run.incumbent.lower == best
    assert time_order(pipeline, run.incumbent.best.order).makespan == best


def test_what_is_enough_is_refuted() -> None:
    best = optimum(PIPELINE, "makespan", patience=5)
    assert best is not None
    run = run_of(PIPELINE, enough=best)
    assert run.step(DynamicProgramming).run(run, 60) == f"none of {PIPELINE.time(best - 1)}"
    assert run.incumbent.lower == best


def test_margins_are_proved_by_a_second_question() -> None:
    pipeline = PIPELINE.changed(costs=Costs(per="stage", forward=(3, 4, 2, 5), backward=(7, 6, 8, 5), optimizer=3))
    run = run_of(pipeline)
    assert run.step(DynamicProgramming).run(run, 60).startswith("none of")
    assert run.incumbent.value == run.incumbent.lower


def test_it_goes_on_where_it_stopped() -> None:
    run = run_of(PIPELINE)
    run.clock = Clock(60, deterministic=True)
    step, turns = run.step(DynamicProgramming), 0
    while run.incumbent.value > run.incumbent.lower:
        step.run(run, 0.001)
        turns += 1
        assert turns < 5000
    assert turns > 2
    assert run.incumbent.value == optimum(PIPELINE, "makespan", patience=5)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda: run_of(PIPELINE, objective="span"), "makespans alone"),
        (lambda: run_of(Pipeline(2, 4, costs=Costs(backward_input=1, backward_weight=1))), "too many states"),
        (lambda: run_of(PIPELINE.changed(links=Links(latency=1))), "latency"),
        (lambda: run_of(PIPELINE.changed(links=Links(occupancy=1))), "links"),
        (
            lambda: run_of(PIPELINE.changed(data_parallel=DataParallel(all_gather=3, reduce_scatter=3, per_pass=True))),
            "pauses",
        ),
    ],
    ids=["span", "split", "latency", "links", "pauses"],
)
def test_what_it_does_not_know_is_left_out(run: object, reason: str) -> None:
    made = run()  # type: ignore[operator]
    said = made.step(DynamicProgramming).applies(made)
    assert said is not None
    assert reason in said
