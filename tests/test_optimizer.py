"""The optimizer step: what a device does after its last operation and its reduce-scatter."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from random_pipelines import random_pipeline
from unaided import optimum

import ppopt as pp
from ppopt import cpsat, ilp
from ppopt.constraints import Lead, Tail, cuts_of, rules_of, select
from ppopt.files.chrome_trace import trace_lines
from ppopt.heuristics import baselines
from ppopt.pictures.gantt import legend_handles
from ppopt.pipeline import Costs, DataParallel, Pipeline, PipelineError


def with_optimizer(pipeline: Pipeline, optimizer: Any) -> Pipeline:
    costs = Costs(
        **{**{name: getattr(pipeline.costs, name) for name in pipeline.costs.__dataclass_fields__}, "optimizer": optimizer}
    )
    return pipeline.changed(costs=costs, route_of_microbatch=pipeline.route_of_microbatch)


RANDOM = [random_pipeline(random.Random(seed), 14) for seed in range(60)]


def test_one_device() -> None:
    """F I W of two microbatches, then the step of 5."""
    result = pp.solve(Pipeline(1, 2, costs=Costs(optimizer=5)), seconds=5)
    assert (result.value, result.reason) == (11, "optimal")
    assert result.schedule is not None
    assert result.schedule.work == (6,)
    assert result.schedule.margins == [(0, 6, 11)]


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_the_same_step_everywhere_comes_on_top(objective: Any) -> None:
    compared = 0
    for pipeline in RANDOM[:10]:
        later = with_optimizer(pipeline, 4)
        scale = later.ticks.per_unit / pipeline.ticks.per_unit
        without, with_ = (optimum(cpsat, each, objective, cuts_of(each), seconds=5) for each in (pipeline, later))
        if without is None or with_ is None:
            continue  # operations without duration that pass each other
        compared += 1
        assert with_ == without * scale + 4 * later.ticks.per_unit
    assert compared >= 6


@pytest.mark.parametrize("seed", range(8))
def test_both_solvers_and_the_bounds_agree(seed: int) -> None:
    rng = random.Random(seed)
    pipeline = [each for each in RANDOM if len(each.routes) == 1 and each.index.computations <= 32][seed]
    steps = [rng.randint(0, 9) for _ in range(pipeline.devices)]
    later = with_optimizer(pipeline, steps)
    best = optimum(cpsat, later, "makespan", cuts_of(later))
    if best is None:
        pytest.skip("operations without duration pass each other")
    assert optimum(ilp, later, "makespan", cuts_of(later)) == best
    found = pp.solve(later, seconds=20, workers=1)
    assert found.reason == "optimal"
    assert found.ticks.value == best
    assert pp.check(found) == []
    for _, schedule in baselines(later):
        assert schedule.makespan >= best


def test_it_begins_when_the_reduce_scatter_is_over() -> None:
    both = Pipeline(2, 2, costs=Costs(optimizer=(1, 3)), data_parallel=DataParallel(reduce_scatter=2))
    assert both.ticks.tail.tolist() == [[3, 5]]
    tails = {(str(word.family), word.ticks) for word in select(rules_of(both), Tail)}
    assert tails == {("0F", 3), ("0B", 3), ("0I", 3), ("0W", 3), ("1F", 5), ("1B", 5), ("1I", 5), ("1W", 5)}
    assert not select(rules_of(both), Lead)


def test_a_longer_step_is_found_out_by_the_checker(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    pp.save(pp.solve(Pipeline(2, 3, costs=Costs(optimizer=(0, 2))), seconds=5), str(file))
    assert pp.check(str(file)) == []
    told = json.loads(file.read_text())
    told["model"]["costs"]["optimizer"] = [0, 3]
    file.write_text(json.dumps(told))
    assert any("makespan" in violation.message for violation in pp.check(str(file)))


def test_in_files_on_other_placements_and_in_pictures(tmp_path: Path) -> None:
    file = tmp_path / "model.toml"
    file.write_text("[pipeline]\ndevices = 2\nmicrobatches = 3\n[costs]\noptimizer = [1, 2.5]\n")
    pipeline = pp.read_model(str(file)).pipeline
    assert [float(step) for step in pipeline.costs.optimizer] == [1, 2.5]
    assert pipeline.placed("loop", 2).ticks.tail.tolist() == [[2, 5, 2, 5]]
    result = pp.solve(pipeline, seconds=5)
    assert result.schedule is not None
    labels = legend_handles([result.schedule])[1]
    assert "before the first and after the last operation" in labels
    trace = "".join(trace_lines(result.schedule))
    assert trace.count("after the last operation") == 2
    plain = pp.compare(Pipeline(2, 3))["gpipe"].makespan
    assert plain is not None
    assert pp.compare(pipeline)["gpipe"].makespan == plain + 1  # device 1 ends a forward and a backward before device 0


def test_what_is_no_step() -> None:
    with pytest.raises(PipelineError, match=r"costs\.optimizer: expected one number or a list of 2"):
        Pipeline(2, 2, costs=Costs(optimizer=(1, 2, 3)))
    with pytest.raises(PipelineError, match=r"costs\.optimizer"):
        Costs(optimizer=-1)
