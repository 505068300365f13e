"""What is chosen for a runtime, against everything that it can run, each solved alone."""

from collections import Counter
from fractions import Fraction

import pytest

from ppopt.named import find
from ppopt.pipeline import Layers, Memory, Pipeline, PipelineError
from ppopt.search import solve, solve_closed
from tests.agreement.test_layers import holds
from tests.support.every_cut import cuts, layered
from tests.support.tiers import drawn, thorough

LAYERS = Layers(
    [
        {"name": "embedding", "forward": 1, "backward_input": 0, "backward_weight": 1, "activation": 1},
        {
            "name": "decoder",
            "count": 4,
            "forward": 2,
            "backward_input": 2,
            "backward_weight": 2,
            "activation": 4,
            "recompute": [{"name": "selective", "time": 1, "saved": 1}, {"name": "full", "time": 2, "saved": 3}],
        },
        {"name": "head", "forward": 3, "backward_input": 3, "backward_weight": 3, "activation": 1},
    ]
)
"""Under the limits below some layers have to recompute."""


@drawn(5, 30, layered(6, 12, ("none", "full", "choose")).filter(lambda pipeline: len(pipeline.routes) == 1))
def test_the_best_cut_as_pytorch_runs_it(pipeline: Pipeline) -> None:
    if pipeline.recompute == "choose" and len(pipeline.layers or ()) > 4:
        pipeline = pipeline.changed(recompute="full")  # or there are too many choices to try out
    holds(pipeline.changed(runtime="torch"), "makespan", Counter())


@thorough
def test_torchtitan_has_the_best_of_its_ways_to_recompute() -> None:
    pipeline = Pipeline(2, 4, layers=LAYERS, recompute="choose", memory=Memory(limit=14))
    result = solve(pipeline, runtime="torchtitan", seconds=60, workers=1)
    values = []
    for counts in cuts(pipeline):
        decoders = [count - 1 for count in counts]
        for level in (None, "selective", "full"):
            tables = "none" if level is None else [{"decoder": {level: n}} for n in decoders]
            try:
                own = pipeline.changed(partition=counts, recompute=tables, runtime="torch")
            except PipelineError:
                continue
            found = solve_closed(own)
            if found.reason != "infeasible":
                assert found.reason == "optimal"
                values.append(Fraction(found.ticks.value or 0, found.ticks.per_unit))
    assert (result.reason, Fraction(result.ticks.value or 0, result.ticks.per_unit)) == ("optimal", min(values))
    assert result.pipeline.layers == LAYERS
    assert {level for stage in result.pipeline.recompute for _, level, _ in stage} <= {"selective", "full"}  # type: ignore[union-attr, misc]
    assert result.runtime is not None
    assert result.runtime.unrestricted is not None
    value, bound = result.runtime.unrestricted
    free = solve(pipeline.changed(runtime="torch"), seconds=60, workers=1)
    assert bound <= (free.value or 0) <= (value or 0) <= (result.value or 0)


@pytest.mark.parametrize(
    ("runtime", "name"), [pytest.param("megatron", "1f1b", marks=thorough), ("megatron-interleaved", "interleaved-1f1b")]
)
def test_megatron_has_its_own_order_on_the_best_cut(runtime: str, name: str) -> None:
    pipeline = Pipeline(2, 4, "any", [2], layers=LAYERS)
    result = solve(pipeline, runtime=runtime, seconds=60, workers=1)
    own = pipeline.placements()[0 if runtime == "megatron" else 1]
    each = [find(name).schedule(own.changed(partition=counts), own.chunks) for counts in cuts(own)]
    assert result.reason == "optimal"
    assert result.ticks.value == min(schedule.makespan for schedule in each)
    assert result.scope is not None
    assert (result.scope.placements, result.scope.partition) == ((own.placement,), "best")
    assert result.runtime is not None
    assert result.runtime.name == runtime
