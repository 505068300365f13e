"""Beginning with fewer microbatches, or with fewer devices."""

from __future__ import annotations

import pytest

from ppopt.checker import violations
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Mix, Pipeline
from ppopt.search import solve, tuning
from ppopt.search.step import Step
from ppopt.search.steps.modulo_scheduling import ModuloScheduling
from ppopt.search.steps.smaller_pipelines import FewerDevices, FewMicrobatches, with_few_microbatches
from ppopt.search.steps.state_graph import StateGraph
from ppopt.search.steps.windows import Windows
from ppopt.search.strategies import CLOSED_FORMS
from ppopt.search.turns import Turn
from tests.support.search import reason, run_of, take

MANY = Pipeline(12, 240, memory=Memory(limit=12))


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_few_microbatches_begin_a_search(objective: str) -> None:
    """Modulo scheduling is for makespans, but a schedule of few microbatches is repeated for either objective."""
    run = run_of(Pipeline(2, 200, memory=Memory(limit=2)), objective=objective)
    take(run, FewMicrobatches)
    assert run.step(ModuloScheduling).best is not None
    assert run.incumbent.best is not None
    assert violations(run.problem.pipeline, run.incumbent.best) == []
    assert run.taken[0].name.startswith("kernels of schedules of ")


def test_few_microbatches_tell_nothing_of_others() -> None:
    """Where microbatches differ there is no pipeline with fewer of them, and no kernel is repeated."""
    pipeline = Pipeline(2, 200, memory=Memory(limit=2), mix=Mix(microbatch_costs=(1, 2) * 100))
    assert reason(FewMicrobatches, run_of(pipeline)) == "microbatches differ"


PIECES = Costs(forward=8, backward_input=8, backward_weight=8, weight_pieces=8)
LARGE_MIX = Pipeline(4, 130, costs=PIECES, mix=Mix(microbatch_costs=(1, 2) * 65))


@pytest.mark.parametrize("step", [FewMicrobatches, ModuloScheduling, StateGraph, Windows])
def test_what_takes_long_or_knows_no_differences_is_left_out_of_a_large_problem(step: type[Step]) -> None:
    run = run_of(LARGE_MIX)
    assert run.problem.large
    assert reason(step, run) == "microbatches differ"


def test_a_large_problem_whose_microbatches_differ_is_solved() -> None:
    result = solve(LARGE_MIX, seconds=0.3, deterministic=True)
    assert result.schedule is not None
    assert violations(LARGE_MIX, result.schedule) == []


def test_few_are_fewer_by_a_multiple_of_the_longest_unroll_factor() -> None:
    few = with_few_microbatches(Pipeline(2, 200), 50)
    assert 50 <= few.microbatches < 50 + tuning.LONG_UNROLL
    assert (200 - few.microbatches) % tuning.LONG_UNROLL == 0
    assert with_few_microbatches(Pipeline(2, 30), 50).microbatches == 30


def test_where_fewer_devices_apply() -> None:
    assert reason(FewerDevices, run_of(MANY)) is None
    for pipeline, why in (
        (Pipeline(2, 3), f"fewer than {tuning.MANY_DEVICES} devices"),
        (Pipeline(16, 64, "bidirectional"), "several routes"),
        (Pipeline(16, 64, links=Links(occupancy=1)), "the order on links"),
        (Pipeline(16, 64, data_parallel=DataParallel(1)), "before and after"),
        (Pipeline(16, 64, routes=[[*range(15, -1, -1)]]), "no such placement"),
    ):
        assert why in str(reason(FewerDevices, run_of(pipeline))), why


def test_fewer_devices_are_stretched() -> None:
    """At full speed on four devices, so on twelve."""
    run = run_of(MANY, seconds=60)
    take(run, FewerDevices, 4, strategy=(*CLOSED_FORMS, Turn(ModuloScheduling)))
    assert run.step(ModuloScheduling).full_speed
    assert run.incumbent.best is not None
    assert violations(MANY, run.incumbent.best) == []
    assert f"{tuning.DEVICES} devices: modulo scheduling" in {taken.name for taken in run.taken}


def test_without_a_schedule_of_few_devices_there_is_nothing_to_stretch() -> None:
    run = run_of(MANY)
    take(run, FewerDevices, strategy=CLOSED_FORMS)
    assert run.incumbent.best is None
