"""What stages cost and hold: sums over their layers."""

from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from ppopt.op import Kind
from ppopt.pipeline import Costs, Layer, Layers, Memory, Pipeline, PipelineError
from ppopt.pipeline.cutting import groups_of
from tests.support.layered import MODEL, a_pipeline, each_layer, stages_of
from tests.support.many import each


def on_two(**fields: Any) -> Pipeline:
    return Pipeline(2, 4, layers=MODEL, **{"partition": [3, 4], **fields})


def test_sums_by_hand() -> None:
    """Embedding and two decoders; three decoders and the head."""
    pipeline = on_two()
    assert groups_of(MODEL, (3, 4)) == [[1, 2, 0], [0, 3, 1]]
    assert pipeline.costs.per == "stage"
    assert pipeline.costs.forward == (1 + 3 + 3, 3 + 3 + 3 + 2)
    assert pipeline.costs.backward_input == (4 + 4, 4 + 4 + 4 + 2)
    assert pipeline.costs.backward_weight == (1 + 2 + 2, 2 + 2 + 2 + 2)
    assert pipeline.costs.backward is None
    assert pipeline.memory.activation == (1 + 3 + 3, 3 + 3 + 3 + 1)
    assert pipeline.memory.retained is None
    assert pipeline.amounts.static.tolist() == [5 + 2 + 2, 2 + 2 + 2 + 5]


def test_sums_of_random_layers() -> None:
    rng = Random(1)
    for _ in range(60):
        pipeline = a_pipeline(rng, recompute="none")
        layers = each_layer(pipeline.layers)  # type: ignore[arg-type]
        if any(layer.frozen for layer in layers):
            continue
        for name, found in (("forward", pipeline.costs.forward), ("activation", pipeline.memory.activation)):
            values = [getattr(layer, name) for layer in layers]
            assert found == tuple(map(sum, stages_of(values, pipeline.counts)))
        cheaper = [
            layer.backward if layer.backward_input is None else layer.backward or layer.backward_input + layer.backward_weight  # type: ignore[operator]
            for layer in layers
        ]
        if pipeline.costs.backward is not None:
            assert pipeline.costs.backward == tuple(map(sum, stages_of(cheaper, pipeline.counts)))
        held = [layer.activation if layer.retained is None else layer.retained for layer in layers]
        if pipeline.memory.retained is not None:
            assert pipeline.memory.retained == tuple(map(sum, stages_of(held, pipeline.counts)))


def test_frozen_layers_before_all_that_is_trained_have_no_backward_in_any_way_to_run_it() -> None:
    """Also where another layer says what a fused backward takes."""
    fields: dict[str, Any] = {"forward": 1, "backward_input": 4, "backward_weight": 2}
    layers = Layers([Layer("tower", 2, frozen=True, **fields), Layer("decoder", 2, backward=5, **fields)])
    costs = Pipeline(2, 4, layers=layers, partition=[3, 1]).costs
    assert (costs.backward_input, costs.backward_weight, costs.backward) == ((4, 4), (2, 2), (5, 5))


def test_where_only_frozen_layers_list_a_level_nothing_recomputes_at_it() -> None:
    level = [{"name": "full", "time": 1, "saved": 1}]
    fields: dict[str, Any] = {"forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 1}
    layers = Layers([Layer("tower", 2, frozen=True, recompute=level, **fields), Layer("decoder", 2, **fields)])
    pipeline = Pipeline(2, 4, layers=layers, partition="even", recompute="full")
    assert pipeline.recomputing == frozenset()
    assert np.array_equal(pipeline.ticks.duration, pipeline.changed(recompute="none").ticks.duration)


@pytest.mark.parametrize(
    ("recompute", "again", "saved", "stages"),
    [
        ("none", None, None, set()),
        ("full", (6, 9), (4, 6), {0, 1}),
        ("half", (2, 3), (2, 3), {0, 1}),
        ("all", (6, 9), (4, 6), {0, 1}),  # the last level that is listed
        ([{}, {"decoder": {"full": 2}}], (0, 6), (0, 4), {1}),
        ([{"decoder": {"half": 1, "full": 1}}, {"decoder": {"half": 2}}], (4, 2), (3, 2), {0, 1}),
        ([], None, None, set()),
        ([{}, {"decoder": {"full": 0}}], None, None, set()),
    ],
)
def test_recompute(recompute: Any, again: Any, saved: Any, stages: set[int]) -> None:
    pipeline = on_two(recompute=recompute)
    assert pipeline.costs.recompute == again
    assert pipeline.memory.recompute_saved == saved
    assert pipeline.recomputing == stages
    plain = on_two()
    for stage in range(2):
        more = 0 if again is None else again[stage]
        less = 0 if saved is None else saved[stage]
        kinds = ((Kind.F, 0), (Kind.I, more), (Kind.W, 0))
        for kind, longer in kinds:
            assert pipeline.ticks.duration[0, kind][stage] == plain.ticks.duration[0, kind][stage] + longer
        assert pipeline.amounts.activation[0, stage] == plain.amounts.activation[0, stage] - less


def test_what_is_retained_where_layers_recompute() -> None:
    """A layer that says what it retains keeps that; one that does not retains what it holds."""
    level = [{"name": "full", "time": 1, "saved": 2}]
    fields: dict[str, Any] = {"forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 3, "recompute": level}
    layers = Layers([Layer("says", 2, retained=1, **fields), Layer("not", 2, **fields)])
    pipeline = Pipeline(2, 4, layers=layers, partition=[1, 3])
    assert pipeline.memory.retained == (1, 1 + 3 + 3)
    assert pipeline.changed(recompute="full").amounts.retained[0].tolist() == [1, 1 + 1 + 1]


def test_errors_of_recompute_name_the_key() -> None:
    cases: dict[str, tuple[str, str, Any]] = {
        "word": ("pipeline.recompute", "expected one of none, all, choose, half, full", "ful"),
        "number": ("pipeline.recompute", "or one table per stage", 3),
        "length": ("pipeline.recompute", "expected one table per stage (2), got 1", [{}]),
        "stages": ("pipeline.recompute[0]", "expected a table such as", [0, 1]),
        "group": (
            "pipeline.recompute[1].layer",
            "there are no such layers; expected one of embedding, decoder, head",
            [{}, {"layer": {}}],
        ),
        "no table": ("pipeline.recompute[0].decoder", "expected a table such as {full = 3}", [{"decoder": 3}, {}]),
        "level": ("pipeline.recompute[0].decoder.ful", "expected one of half, full", [{"decoder": {"ful": 1}}, {}]),
        "no level": ("pipeline.recompute[1].head.full", "none at all", [{}, {"head": {"full": 1}}]),
        "count": ("pipeline.recompute[0].decoder.full", "expected a whole number >= 0", [{"decoder": {"full": -1}}, {}]),
        "true": ("pipeline.recompute[0].decoder.full", "expected a whole number >= 0", [{"decoder": {"full": True}}, {}]),
        "too many": (
            "pipeline.recompute[0].decoder",
            "stage 0 has 2 layers 'decoder'",
            [{"decoder": {"half": 2, "full": 1}}, {}],
        ),
    }

    def check(case: tuple[str, str, Any]) -> None:
        key, text, recompute = case
        with pytest.raises(PipelineError) as raised:
            on_two(recompute=recompute)
        assert raised.value.key == key
        assert text in str(raised.value)

    each(cases, check)


@pytest.mark.parametrize("word", ["all", "choose"])
def test_recomputing_needs_a_level(word: str) -> None:
    layers = Layers([Layer("x", 4, forward=1, backward=2)])
    with pytest.raises(PipelineError, match=f"'{word}' needs layers that list a way to recompute.*expected \"none\"") as raised:
        Pipeline(2, 4, layers=layers, partition="even", recompute=word)
    assert raised.value.key == "pipeline.recompute"


def test_weights_are_held_by_who_holds_the_layer() -> None:
    """Once for each stage that a device has, whatever its routes; beside them what is static, once per copy."""
    wave = Pipeline(2, 4, "wave", 2, layers=MODEL, partition=[1, 2, 3, 1], memory=Memory(static=[1, 2]))
    assert wave.amounts.static.tolist() == [5 + 5 + 1, 4 + 6 + 2]
    both = Pipeline(2, 4, "bidirectional", layers=MODEL, partition=[3, 4], memory=Memory(static=1))
    assert both.amounts.static.tolist() == [20 + 2, 20 + 2]


def test_a_limit_counts_the_weights() -> None:
    least = 9 + 7, 11 + 10  # weights, and one microbatch
    on_two(memory=Memory(limit=least))
    with pytest.raises(PipelineError, match=r"memory\.limit: device 1 needs at least 21 .*, got 20"):
        on_two(memory=Memory(limit=20))


def same(one: Pipeline, other: Pipeline) -> None:
    """In ticks and amounts alike, up to their units."""
    ratio = Fraction(one.ticks.per_unit, other.ticks.per_unit)
    own, theirs = one.ticks.duration, other.ticks.duration
    assert np.array_equal(own < 0, theirs < 0)  # kinds that are not run
    assert np.array_equal(np.maximum(own, 0) * ratio.denominator, np.maximum(theirs, 0) * ratio.numerator)
    scale = Fraction(one.amounts.per_unit, other.amounts.per_unit)
    for name in ("activation", "retained", "static"):
        own, theirs = getattr(one.amounts, name), getattr(other.amounts, name)
        assert np.array_equal(own * scale.denominator, theirs * scale.numerator)


def test_flat_is_the_same_without_layers() -> None:
    rng = Random(2)
    for _ in range(60):
        pipeline = a_pipeline(rng)
        flat = pipeline.flat()
        assert flat.layers is None
        assert flat.partition == ""
        assert (flat.routes, flat.route_of_microbatch) == (pipeline.routes, pipeline.route_of_microbatch)
        assert flat.recomputing == pipeline.recomputing
        same(pipeline, flat)
    plain = Pipeline(2, 4)
    assert plain.flat() is plain


def test_another_placement_is_another_cut() -> None:
    """Even where the file says so, else balanced; numbers of layers are those of one placement."""
    elsewhere = Pipeline(2, 4, "loop", 2, layers=MODEL, partition="balanced")
    assert on_two(partition="even").placed("loop", 2).counts == (3, 1, 1, 2)
    assert on_two(partition="balanced").placed("loop", 2).counts == elsewhere.counts
    assert on_two().placed("loop", 2).counts == elsewhere.counts
    assert on_two(partition="best").placed("loop", 2).partition == "best"
    assert on_two().rerouted(((0, 1, 0),)).counts == Pipeline(2, 4, routes=[[0, 1, 0]], layers=MODEL, partition="balanced").counts
    assert on_two(recompute="full").placed("loop", 2).recomputing == {0, 1, 2, 3} - {
        stage for stage, row in enumerate(groups_of(MODEL, elsewhere.counts)) if not row[1]
    }
    with pytest.raises(PipelineError, match="said stage by stage, for another cut"):
        on_two(recompute=[{}, {"decoder": {"full": 2}}]).placed("loop", 2)


def test_with_other_costs_it_is_no_longer_of_layers() -> None:
    pipeline = on_two(recompute="full", memory=Memory(static=1, limit=40))
    changed = pipeline.changed(costs=Costs(per="stage", forward=(1, 2)), recompute="none")
    assert (changed.layers, changed.partition) == (None, "")
    assert changed.costs.forward == (1, 2)
    assert changed.amounts.static.tolist() == [9 + 1, 11 + 1]
    assert changed.memory.activation == (7, 10)


def test_other_fields_leave_it_of_layers() -> None:
    changed = on_two().changed(microbatches=6)
    assert (changed.layers, changed.partition, changed.costs.forward) == (MODEL, (3, 4), (7, 11))
    assert on_two().changed(partition="even").counts == (4, 3)
