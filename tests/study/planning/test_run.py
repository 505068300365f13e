"""Plans: the best of all combinations, whatever their bounds say; what is dropped; stopped and gone on with."""

import math
import os
import pickle
import signal
import subprocess
import sys
import time
import tomllib
from concurrent.futures import Executor, Future
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ppopt as pp
from ppopt.files import model_dict, model_of
from ppopt.files.toml_text import toml_text
from ppopt.named import find
from ppopt.search import solve
from ppopt.study.planning import Plans, plan, question_of, steps
from ppopt.study.planning.space import cases_of
from ppopt.study.store import Store
from ppopt.transformer import EstimateError
from tests.support.planned import tables
from tests.support.tiers import thorough

TIGHT = tables(cluster={"memory": 0.14})


def optimum(question: dict[str, Any]) -> tuple[float, int]:
    """The least step time of all combinations in seconds, each solved by itself; and how many have a schedule."""
    values = []
    for case in cases_of(question_of(question)).possible:
        found = []
        for placement, chunks in case.places:
            result = solve(case.pipeline(placement, chunks), seconds=60, workers=1)
            assert result.reason in ("optimal", "infeasible")
            if result.ticks.value is not None:
                found.append(Fraction(result.ticks.value, result.ticks.per_unit))
        if found:
            values.append(min(found))
        assert case.floors.fits or not found
        assert not found or case.floors.least <= float(min(found))
    return float(min(values, default=Fraction(-1)) / 1000), len(values)


def checked(question: dict[str, Any]) -> Plans:
    plans = plan(question, seconds=60, workers=1)
    assert plans.reason == "optimal"
    assert plans.limit is None
    assert sum(plans.space[1:]) == plans.space.combinations
    assert [one.step_time for one in plans] == sorted(one.step_time for one in plans)
    assert all(one.lower_bound <= one.step_time and not pp.check(one.result) for one in plans)
    return plans


@thorough
def test_the_best_of_all_combinations() -> None:
    question = tables(
        transformer={"layers": 2}, search={"pipeline": [2], "chunks": [2]}, training={"zero": 0, "microbatch": [1, 2]}
    )
    plans = checked(question)
    value, having = optimum(question)
    assert plans[0].step_time == pytest.approx(value)
    assert plans.lower_bound == pytest.approx(value)
    assert plans.space.over_memory == plans.space.combinations - having


def test_the_only_combination_is_its_own_bound() -> None:
    plans = checked(tables(cluster={"gpus": 1}, training={"zero": 0, "microbatch": 4}))
    assert (len(plans), plans.space.combinations, plans.reason) == (1, 1, "optimal")
    assert plans.lower_bound == plans[0].lower_bound == plans[0].step_time


def test_of_equally_fast_schedules_the_plan_has_one_that_holds_least() -> None:
    """On one device all take the same; GPipe holds all microbatches."""
    (best,) = checked(tables(cluster={"gpus": 1}, training={"zero": 0, "microbatch": 1}))
    peaks = {name: find(name).schedule(best.result.pipeline).peak_memory[0] for name in ("1f1b", "gpipe")}
    assert best.result.schedule is not None
    assert best.result.schedule.peak_memory[0] == peaks["1f1b"] < peaks["gpipe"]


@thorough
@pytest.mark.parametrize(
    "question",
    [
        tables(),
        TIGHT,
        pytest.param(tables(cluster={"gpus": 4, "memory": 0.3}), marks=pytest.mark.slow),
        tables(training={"recompute": "none"}),
    ],
)
def test_the_best_of_all_combinations_of_larger_spaces(question: dict[str, Any]) -> None:
    plans, (value, _) = checked(question), optimum(question)
    assert plans[0].step_time == pytest.approx(value)


@thorough
@settings(max_examples=4)
@given(
    memory=st.sampled_from((0.12, 0.16, 0.2, 0.3)),
    layers=st.integers(2, 4),
    microbatch=st.sampled_from((1, 2)),
    recompute=st.sampled_from(("none", "choose")),
    placement=st.sampled_from(("linear", "wave", "loop")),
)
def test_no_combination_that_is_left_out_is_better(
    memory: float, layers: int, microbatch: int, recompute: str, placement: str
) -> None:
    question = tables(
        transformer={"layers": layers},
        cluster={"memory": memory},
        training={"microbatch": microbatch, "recompute": recompute},
        search={"placement": placement, "chunks": 2},
    )
    plans, (value, _) = plan(question, seconds=60, workers=1), optimum(question)
    assert plans.reason == ("infeasible" if value < 0 else "optimal")
    assert not plans or plans[0].step_time == pytest.approx(value)


def test_where_nothing_fits_it_says_what_is_missing() -> None:
    plans = plan(tables(cluster={"memory": 0.01}), seconds=5)
    assert (len(plans), plans.reason, plans.gap) == (0, "infeasible", None)
    assert plans.nearest is not None
    assert plans.nearest["missing"] == pytest.approx(plans.nearest["needed"] - plans.nearest["limit"])
    assert plans.nearest["missing"] > 0
    assert plans.space.over_memory == plans.space.combinations


def test_figures_of_a_plan() -> None:
    """6 x parameters (without the embedding) FLOPs a token and those of attention, over what the GPUs can do."""
    question = tables(search={"pipeline": [1], "tensor": [1], "context": [1]}, training={"microbatch": 2, "zero": 0})
    best = plan(question, seconds=20, workers=1)[0]
    case, tokens = best.case, 4 * 512
    assert best.tokens_per_second_per_gpu == pytest.approx(tokens / best.step_time / 2)
    linear = 3 * (2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 1408) + 512 * 4000
    attention = 3 * 2 * 512 * 512 // 2 * 2
    assert case.estimate.flops_per_token == pytest.approx(6 * linear + 3 * attention, rel=1e-3)
    assert best.mfu == pytest.approx(case.estimate.flops_per_token * tokens / best.step_time / 2 / 1e14)
    assert best.combination.sizes["data"] == 2
    assert best.pipeline.microbatches == 1


def test_the_model_of_a_plan_can_be_read_again() -> None:
    best = plan(tables(search={"pipeline": [2], "placement": "linear"}, training={"microbatch": 1}), seconds=20, workers=1)[0]
    model = model_of(tomllib.loads(toml_text(model_dict(best.model, resolved=True))), "the plan")
    assert model.pipeline == best.pipeline
    assert model.order == best.found.schedule.order
    assert model.pipeline.origin["parallel"]["pipeline"] == 2


# --- the store ---


def test_what_is_in_the_store_is_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = tables(transformer={"layers": 2}, search={"pipeline": [2], "placement": "wave"}, training={"microbatch": 1})
    store = str(tmp_path / "plan.db")
    first = plan(question, seconds=60, workers=1, store=store)
    monkeypatch.setattr(steps, "take", lambda *_: pytest.fail("it was looked at again"))
    again = plan(question, seconds=60, workers=1, store=store)
    assert (again.reason, again.plans[0].step_time) == ("optimal", first.plans[0].step_time)
    assert again.lower_bound == pytest.approx(first.lower_bound)
    with Store(store) as opened:
        kept = opened.results()
    assert {result.status for result in kept} == {"done"}
    assert all(result.changes["plan.pipeline"] == 2 for result in kept)


@thorough
def test_a_plan_that_is_killed_ten_times_has_the_same_answer(tmp_path: Path) -> None:
    file, store = tmp_path / "q.toml", str(tmp_path / "plan.db")
    question = tables(search={"pipeline": [2]})
    file.write_text(toml_text(question), encoding="utf-8")
    command = [sys.executable, "-m", "ppopt", "plan", str(file), "--store", store, "--workers", "1"]
    for k in range(10):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ})
        time.sleep(0.5 + 0.3 * k)
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = plan(question, seconds=120, workers=1, store=store)
    alone = plan(question, seconds=120, workers=1)
    assert (kept.reason, kept[0].step_time) == (alone.reason, alone[0].step_time)
    assert kept[0].combination == alone[0].combination or math.isclose(kept[0].step_time, alone[0].step_time)


# --- elsewhere ---


class Sent(Executor):
    """Runs what it is given at once, after it was sent: pickled, and what comes back as well."""

    def submit(self, task: Any, /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        task, given = pickle.loads(pickle.dumps((task, given)))
        future.set_result(pickle.loads(pickle.dumps(task(*given, **named))))
        return future


def test_steps_in_other_processes_give_the_same_answer() -> None:
    question = tables(transformer={"layers": 2}, search={"pipeline": [2], "placement": "linear"}, training={"microbatch": [1, 2]})
    here = plan(question, seconds=60, workers=1)
    there = plan(question, seconds=60, workers=1, executor=Sent(), slots=3)
    assert (there.reason, there[0].step_time, there.lower_bound) == (here.reason, here[0].step_time, here.lower_bound)
    assert not pp.check(there[0].result)


def test_what_is_deterministic_stays_here() -> None:
    with pytest.raises(ValueError, match="deterministic"):
        plan(tables(), seconds=5, executor=Sent(), deterministic=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_gives_the_same_answer() -> None:
    distributed = pytest.importorskip("distributed")
    from ppopt.study.cluster import connected

    question = tables(search={"pipeline": [2]})
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None, protocol="tcp"
        ) as running,
        connected(running.scheduler_address) as (executor, slots),
    ):
        there = plan(question, seconds=60, workers=1, executor=executor, slots=slots)
    assert there[0].step_time == pytest.approx(plan(question, seconds=60, workers=1)[0].step_time)


# --- a runtime ---


def test_only_what_a_runtime_runs() -> None:
    """Megatron has one schedule on the linear placement, and ZeRO-1 at most; what is left out is what it costs."""
    question = tables(search={"pipeline": [2], "runtime": "megatron"}, training={"zero": [1, 2], "microbatch": [1, 2]})
    plans = plan(question, seconds=30, workers=1)
    assert {(one.found.name, one.pipeline.placement, one.combination.parallel.zero) for one in plans} == {("1f1b", "linear", 1)}
    assert plans.reason == "optimal"
    assert plans.unrestricted is not None
    assert plans.unrestricted.lower_bound <= plans.unrestricted.step_time <= plans[0].step_time  # type: ignore[operator]
    assert "Megatron: " in str(plans)


def test_costs_of_a_runtime() -> None:
    """With PyTorch's costs, no schedule is faster than with those that are given."""
    search = {"pipeline": [2], "placement": "linear"}
    torch = plan(tables(search={**search, "runtime": "torch"}, training={"microbatch": 1}), seconds=20, workers=1)
    free = plan(tables(search=search, training={"microbatch": 1}), seconds=20, workers=1)
    assert torch[0].pipeline.runtime == "torch"
    assert torch[0].step_time >= free.lower_bound
    assert torch.unrestricted is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"search": {"runtime": "megatron", "placement": "wave", "chunks": 2, "pipeline": 2}}, "megatron runs none"),
        ({"search": {"runtime": "megatron"}, "training": {"zero": 3}}, "ZeRO-1"),
        ({"search": {"runtime": "deepspeed"}}, "deepspeed"),
    ],
)
def test_what_a_runtime_does_not_run(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(EstimateError, match=problem) as error:
        plan(tables(**changes), seconds=5)
    assert error.value.key == "search.runtime"


# --- a recipe ---


def test_a_recipe_is_set_beside_the_plan() -> None:
    recipe = {"tensor": 1, "pipeline": 2, "partition": "even", "microbatch": 1, "zero": 0}
    search = {"pipeline": [2], "placement": "linear"}
    plans = plan(tables(search=search, training={"microbatch": 1}, recipe=recipe), seconds=20, workers=1)
    assert plans.recipe is not None
    assert plans.recipe.found.name == "1f1b"
    assert plans.recipe.pipeline.counts == (3, 2)
    assert plans.recipe.step_time >= plans[0].step_time


@pytest.mark.parametrize(
    ("recipe", "problem"),
    [({"tensor": 3}, "does not divide"), ({"pipeline": 2, "chunks": 2, "schedule": "1f1b"}, "chunks"), ({"data": 8}, "8 GPUs")],
)
def test_a_recipe_without_a_schedule_says_why(recipe: dict[str, Any], problem: str) -> None:
    plans = plan(tables(search={"pipeline": [1]}, recipe=recipe), seconds=5, workers=1)
    assert plans.recipe is None
    assert problem in (plans.recipe_problem or "")


def test_a_recipe_that_cannot_be_is_an_error() -> None:
    with pytest.raises(EstimateError, match="nosuch") as error:
        plan(tables(recipe={"pipeline": 2, "schedule": "nosuch"}))
    assert error.value.key == "recipe.schedule"
