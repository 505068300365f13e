"""The checker reads layers by itself."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from ppopt.checker import violations
from ppopt.checker.layers import by_stage
from ppopt.named import find
from ppopt.op import Kind
from ppopt.pipeline import Costs, Layers, Memory, Pipeline, PipelineError
from ppopt.timing import time_order
from tests.support.layered import MODEL, a_pipeline
from tests.support.tiers import thorough


def figures(pipeline: Pipeline) -> dict[str, Any]:
    """Durations and amounts in the user's units, as fractions."""
    ticks, amounts = pipeline.ticks, pipeline.amounts
    found = {f"duration {kind.name}": ticks.duration[:, kind] / ticks.per_unit for kind in Kind}
    return found | {name: getattr(amounts, name) / amounts.per_unit for name in ("activation", "retained", "static")}


def differ(one: Pipeline, other: Pipeline) -> list[str]:
    own, theirs = figures(one), figures(other)
    return [name for name in own if not np.allclose(np.maximum(own[name], -1e-9), np.maximum(theirs[name], -1e-9), atol=1e-9)]


@pytest.mark.parametrize("number", [80, pytest.param(250, marks=thorough)], ids=["few", "all"])
def test_it_reads_what_the_pipeline_reads(number: int) -> None:
    """Durations of all kinds, amounts, weights: on random cuts with frozen layers, levels, and what is retained."""
    rng, frozen, recomputing = Random(1), 0, 0
    for _ in range(number):
        pipeline = a_pipeline(rng)
        read = by_stage(pipeline)
        assert (read.layers, read.recompute) == (None, "none")
        if not pipeline.costs.split:
            assert not read.costs.split
        assert not differ(pipeline, read), pipeline
        frozen += any(group.frozen for group in pipeline.layers.groups)  # type: ignore[union-attr]
        recomputing += bool(pipeline.recomputing)
    assert min(frozen, recomputing) > number / 5


def test_levels_stage_by_stage() -> None:
    recompute = [{"decoder": {"half": 1, "full": 1}}, {"decoder": {"full": 2}}]
    pipeline = Pipeline(2, 4, layers=MODEL, partition=[3, 4], recompute=recompute)
    read = by_stage(pipeline)
    assert read.costs.backward_input == (8 + 1 + 3, 14 + 3 + 3)
    assert read.memory.activation == (7 - 1 - 2, 10 - 2 - 2)
    assert not differ(pipeline, read)


def test_without_layers_it_is_the_same() -> None:
    plain = Pipeline(2, 4)
    assert by_stage(plain) is plain


@pytest.mark.parametrize("change", ["forward", "backward_input", "backward_weight", "activation", "weights"])
def test_a_planted_difference_is_found(change: str) -> None:
    """One layer of the pipeline has another number than the layer that the checker reads."""
    pipeline = Pipeline(2, 4, layers=MODEL, partition=[3, 4])
    wrong = Pipeline(2, 4, layers=_with(change), partition=[3, 4])
    assert differ(wrong, by_stage(pipeline))


def _with(change: str) -> Layers:
    head = MODEL.groups[2]
    return Layers([*MODEL.groups[:2], replace(head, **{change: getattr(head, change) + 1})])


def test_schedules_of_layers_are_checked() -> None:
    pipeline = Pipeline(2, 4, layers=MODEL, partition=[3, 4], recompute="full", memory=Memory(static=1, limit=60))
    schedule = find("1f1b").schedule(pipeline)
    assert schedule.pipeline.layers == MODEL
    assert violations(schedule.pipeline, schedule) == []


def test_a_schedule_that_was_timed_with_other_costs_is_found_out() -> None:
    """As if a stage's layers had been summed up wrong, one tick too little or too much."""
    pipeline = Pipeline(2, 4, layers=MODEL, partition=[3, 4])
    right = find("1f1b").schedule(pipeline)
    assert violations(pipeline, right, earliest=True) == []
    for forward in ((6, 11), (7, 12)):
        costs = Costs(
            per="stage",
            forward=forward,
            backward_input=pipeline.costs.backward_input,
            backward_weight=pipeline.costs.backward_weight,
        )
        schedule = time_order(pipeline.changed(costs=costs), right.order)
        assert violations(pipeline, schedule, earliest=True)


def test_a_limit_that_weights_exceed_is_found_out() -> None:
    pipeline = Pipeline(2, 4, layers=MODEL, partition=[3, 4])
    schedule = find("1f1b").schedule(pipeline)
    peak = max(schedule.peak_memory)
    tight = pipeline.changed(memory=Memory(limit=peak - 1))
    assert {found.rule for found in violations(tight, schedule)} == {"memory"}
    assert violations(pipeline.changed(memory=Memory(limit=peak)), schedule) == []


def test_what_is_open_cannot_be_checked() -> None:
    with pytest.raises(PipelineError, match=r"pipeline\.partition"):
        by_stage(Pipeline(2, 4, layers=MODEL))
