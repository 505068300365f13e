"""Stages that recompute, as if it were written in the costs."""

from fractions import Fraction

import pytest

from ppopt.files import Model, model_dict, model_of
from ppopt.named import Restriction, compare, find
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline, PipelineError
from ppopt.search import solve
from tests.support.command import refused
from tests.support.places import MODELS
from tests.support.recompute import COSTS, MEMORY
from tests.support.shown import SHOWN

MODEL = str(MODELS / "gpt-1.5b-recompute.toml")


@pytest.mark.parametrize("latency", [0, 3])
def test_named_schedules_are_those_of_a_pipeline_with_the_costs_written_out(latency: int) -> None:
    pipeline = Pipeline(4, 8, costs=COSTS, memory=MEMORY, links=Links(latency), recompute="all")
    by_hand = Pipeline(
        4,
        8,
        costs=Costs(forward=(2, 3, 2, 4), backward_input=(4, 4, 2, 2.5), backward_weight=1),
        memory=Memory(activation=(1, 3, 1, 0.5), retained=(2, 2, 0, 1), limit=9, static=1),
        links=Links(latency),
    )
    rows, others = compare(pipeline, (2, 4)), compare(by_hand, (2, 4))
    assert {row.name for row in rows if row.schedule is not None} >= {*SHOWN} - {"chimera", "interleaved-zb"}
    for row, other in zip(rows, others, strict=True):
        assert (row.name, row.placement, row.chunks, row.excluded) == (other.name, other.placement, other.chunks, other.excluded)
        if row.schedule is not None and other.schedule is not None:
            assert row.schedule.order.texts() == other.schedule.order.texts()
            assert row.schedule.pipeline.time(row.schedule.makespan) == other.schedule.pipeline.time(other.schedule.makespan)
            assert list(map(row.schedule.pipeline.amount, row.schedule.peak_memory)) == list(
                map(other.schedule.pipeline.amount, other.schedule.peak_memory)
            )


def test_a_fused_backward_takes_longer_too() -> None:
    costs = Costs(forward=2, backward_input=2, backward_weight=2, backward=3, recompute=2)
    ticks = Pipeline(2, 3, costs=costs, memory=Memory(recompute_saved=1), recompute=[1]).ticks
    assert ticks.duration[0, Kind.B].tolist() == [3, 5]
    assert ticks.duration[0, Kind.I].tolist() == [2, 4]
    assert ticks.duration[0, Kind.W].tolist() == [2, 2]
    alone = Pipeline(2, 3, costs=Costs(backward=3, recompute=2), memory=Memory(recompute_saved=1), recompute="all").ticks
    assert alone.duration[0, Kind.B].tolist() == [5, 5]
    assert (alone.duration[0, Kind.I] == -1).all()


def test_a_chunk_recomputes_its_part() -> None:
    costs = Costs(forward=2, backward_input=4, backward_weight=2, recompute=(2, 6))
    memory = Memory(activation=2, retained=2, recompute_saved=(1, 2))
    pipeline = Pipeline(2, 4, placement="wave", chunks=2, costs=costs, memory=memory, recompute=[0, 1, 2])
    assert pipeline.ticks.duration[0, Kind.I].tolist() == [3, 5, 5, 2]
    amounts = pipeline.amounts
    assert (amounts.activation / amounts.per_unit).tolist() == [[0.5, 0, 0, 1]]
    assert (amounts.retained / amounts.per_unit).tolist() == [[1, 1, 1, 1]]
    assert (amounts.kept / amounts.per_unit).tolist() == [[0.5, 0, 0, 1]]
    assert (amounts.rebuilt / amounts.per_unit).tolist() == [[0.5, 1, 1, 0]]


@pytest.mark.parametrize("place", [("linear", 1), ("loop", 2), ("wave", 2), ("bidirectional", 1)])
@pytest.mark.parametrize("recompute", ["none", "all", [1], [0, 1]])
def test_written_out_is_the_same(place: tuple[str, int], recompute: str | list[int]) -> None:
    costs = Costs(forward=2, backward_input=3, backward_weight=1, recompute=2)
    memory = Memory(activation=3, retained=2, recompute_saved=2)
    pipeline = Pipeline(3, 4, *place, costs=costs, memory=memory, recompute=recompute)  # type: ignore[arg-type]
    written = pipeline.written_out()
    assert (written.recompute, written.costs.recompute, written.memory.recompute_saved) == ("none", None, None)
    for a, b in ((pipeline, written), (pipeline.resolved(recompute), pipeline.per_stage())):  # type: ignore[arg-type]
        assert (a.ticks.duration * b.ticks.per_unit == b.ticks.duration * a.ticks.per_unit).all()
        assert (a.amounts.activation * b.amounts.per_unit == b.amounts.activation * a.amounts.per_unit).all()
        assert (a.amounts.retained * b.amounts.per_unit == b.amounts.retained * a.amounts.per_unit).all()


def test_on_another_placement_a_device_works_as_much() -> None:
    linear = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute=[0, 3])
    wave = linear.placed("wave", 2)
    assert (wave.work / wave.ticks.per_unit).tolist() == (linear.work / linear.ticks.per_unit).tolist()
    everywhere = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute="all").per_stage().placed("loop", 2)
    assert everywhere.recompute == "all"
    assert everywhere.costs.recompute == (1, 2, 0, Fraction(3, 2))


def test_the_words_for_none_and_all_and_the_order_of_a_list_make_no_difference() -> None:
    def given(recompute: object) -> Pipeline:
        return Pipeline(3, 4, costs=Costs(recompute=1), memory=Memory(recompute_saved=1), recompute=recompute)  # type: ignore[arg-type]

    assert given([]) == given("none")
    assert given([2, 0, 1]) == given("all")
    assert given([2, 0]) == given((0, 2)) != given([0, 1])
    for pipeline in (given([2, 0]), given("all"), given("choose")):
        assert model_of(model_dict(Model(pipeline)), "again").pipeline == pipeline


def test_routes_with_different_costs_cannot_choose_by_stage() -> None:
    costs = Costs(forward=1, recompute=(1, 2))
    uneven = Pipeline(2, 4, "bidirectional", costs=costs, memory=Memory(recompute_saved=1), recompute="choose")
    with pytest.raises(PipelineError, match=r"costs\.recompute: the routes have different values"):
        solve(uneven, seconds=1)
    assert uneven.resolved([0]).ticks.duration[:, Kind.I].tolist() == [[2, 1], [3, 1]]


def test_what_is_left_open_cannot_be_timed() -> None:
    pipeline = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute="choose")
    with pytest.raises(PipelineError, match=r'pipeline.recompute: "choose" leaves open'):
        _ = pipeline.ticks
    with pytest.raises(Restriction, match=r'1f1b: pipeline.recompute = "choose" leaves open'):
        find("1f1b").schedule(pipeline)
    assert "pipeline.recompute" in refused("order", "1f1b", MODEL, "--set", "pipeline.recompute=choose")
