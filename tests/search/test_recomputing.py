"""The search for the stages that recompute."""

import random
from fractions import Fraction

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from ppopt.checker import violations
from ppopt.clock import Clock
from ppopt.files import read_model, setting
from ppopt.files.model import model_of_text
from ppopt.named import compare, find
from ppopt.pipeline import Costs, Layers, Memory, Mix, Offload, Pipeline, PipelineError, TooLittleMemory
from ppopt.search import Settings, solve, solve_closed
from ppopt.search.choices import bound_of, value_of
from ppopt.search.recomputing import RecomputeChoice
from tests.support.every_cut import by_enumeration, cuts, levels, mixed
from tests.support.places import MODELS
from tests.support.recompute import random_choice
from tests.support.tiers import drawn, thorough

MODEL = str(MODELS / "gpt-1.5b-recompute.toml")

HALF = Fraction(1, 2)


def test_of_a_large_pipeline_named_schedules_are_made_while_there_is_time() -> None:
    memory = Memory(limit=3, recompute_saved=0.8)
    pipeline = Pipeline(8, 256, costs=Costs(recompute=1), memory=memory, recompute="choose")
    result = solve(pipeline, seconds=1, deterministic=True)
    assert result.schedule is not None
    assert result.lower_bound > 0  # there was time for the search, too
    assert any(row.late for row in result.named)
    assert any(row.schedule is not None for row in result.named)


def test_a_limit_that_only_recomputing_meets() -> None:
    memory = Memory(activation=2, recompute_saved=1, limit=1.5)
    pipeline = Pipeline(3, 4, costs=Costs(recompute=1), memory=memory, recompute="choose")
    with pytest.raises(PipelineError, match=r"memory\.limit"):
        pipeline.resolved("none")
    with pytest.raises(PipelineError, match=r"memory\.limit"):
        pipeline.resolved([0, 1])
    result = solve(pipeline, workers=1, seconds=30)
    assert result.reason == "optimal"
    assert result.pipeline.recompute == "all"
    assert result.value == solve(pipeline.resolved("all"), workers=1, seconds=30).value
    rows = compare(pipeline)
    assert all(row.excluded is not None and "memory.limit" in row.excluded for row in rows if row.recompute == "none")
    assert any(row.schedule is not None for row in rows if row.recompute == "all")


@pytest.mark.parametrize(
    ("mix", "offload"),
    [
        (Mix(pieces=3), None),
        (Mix(pieces=3), Offload(time=0.5)),
        (Mix(microbatch_costs=[1, 2, 1]), None),
        pytest.param(Mix(microbatch_costs=[1, 2, 1]), Offload(time=0.5), marks=thorough),
    ],
)
def test_microbatches_in_turn_and_copies_beside_it(mix: Mix, offload: Offload | None) -> None:
    """The best of every set of stages."""
    costs, memory = Costs(forward=1, backward=2, recompute=1), Memory(recompute_saved=0.5, limit=2.5)
    pipeline = Pipeline(2, 3, costs=costs, memory=memory, recompute="choose", mix=mix, offload=offload)
    result = solve(pipeline, workers=1, seconds=30)
    assert (result.reason, result.schedule is None) == ("optimal", False)
    values = []
    for stages in ([], [0], [1], [0, 1]):
        try:
            values.append(solve_closed(pipeline.resolved(stages), settings=Settings(seconds=30, workers=1)).value)
        except TooLittleMemory:
            assert offload is None
    assert result.value == min(value for value in values if value is not None)


@pytest.mark.parametrize("partition", [pytest.param("best", marks=thorough), (2, 4)])
def test_the_level_that_saves_most_need_not_be_the_last(partition: str | tuple[int, ...]) -> None:
    full, some = ({"name": "full", "time": 4, "saved": 3}, {"name": "some", "time": 1, "saved": 1})
    layers = [
        Layers([{"name": "a", "count": 6, "forward": 4, "backward": 8, "activation": 4, "recompute": of}])
        for of in ([some, full], [full, some])
    ]
    asked = [Pipeline(2, 3, layers=of, partition=partition, memory=Memory(limit=5), recompute="choose") for of in layers]
    results = [solve(pipeline, workers=1, seconds=30, best_cut=False) for pipeline in asked]
    assert [(result.reason, result.value) for result in results] == [("optimal", 224)] * 2
    with pytest.raises(PipelineError, match=r"memory\.limit"):
        asked[1].changed(partition=(3, 3), memory=Memory(limit=2))


def test_without_a_limit_nothing_recomputes() -> None:
    pipeline = Pipeline(3, 6, costs=Costs(recompute=1), memory=Memory(recompute_saved=1), recompute="choose")
    result = solve(pipeline, workers=1, seconds=30)
    assert (result.reason, result.pipeline.recompute) == ("optimal", "none")
    assert len(result.steps) == 1
    assert result.proved_by is not None
    assert result.proved_by.endswith(", whichever stages recompute")


def test_recomputing_for_nothing_is_as_good_as_more_memory() -> None:
    free = Pipeline(3, 6, costs=Costs(recompute=0), memory=Memory(recompute_saved=HALF, limit=1.5), recompute="choose")
    more = Pipeline(3, 6, memory=Memory(activation=HALF, limit=1.5))
    a, b = solve(free, workers=1, seconds=30), solve(more, workers=1, seconds=30)
    assert a.reason == b.reason == "optimal"
    assert a.value == b.value


@pytest.mark.parametrize("limit", [0.05, pytest.param(0.5, marks=thorough)])
def test_with_the_time_up_the_bound_still_holds(limit: float) -> None:
    pipeline = read_model(MODEL, [setting("pipeline.recompute=choose"), setting("pipeline.microbatches=16")]).pipeline
    result = solve(pipeline, seconds=limit, workers=1)
    assert (result.reason, result.limit) == ("feasible", "time")
    assert result.value is not None
    assert result.schedule is not None
    known = find("1f1b").schedule(pipeline.resolved([0, 1, 2, 3]))
    assert known.within_memory
    lower = Fraction(result.ticks.lower_bound, result.ticks.per_unit)
    assert lower <= Fraction(known.makespan, known.pipeline.ticks.per_unit)
    assert lower <= Fraction(result.ticks.value, result.ticks.per_unit)


def test_a_gap_ends_the_search() -> None:
    pipeline = random_choice(random.Random(9))
    exact = solve(pipeline, workers=1, seconds=30)
    rough = solve(pipeline, workers=1, seconds=30, gap=0.5)
    assert exact.reason == "optimal"
    assert exact.value is not None
    assert rough.value is not None
    assert rough.value - rough.lower_bound <= rough.value / 2
    assert len(rough.steps) < len(exact.steps)
    assert rough.reason == "optimal" or rough.limit == "gap"
    assert rough.lower_bound <= exact.value


@pytest.mark.parametrize("number", range(6))
def test_only_what_is_less_than_enough_matters(number: int) -> None:
    """What is enough is a bound then, and the search is over; that is no claim that there is no schedule."""
    pipeline = random_choice(random.Random(number))
    best = Fraction(solve(pipeline, workers=1, seconds=30).value or 0)
    for enough in (best, best - HALF):
        search = RecomputeChoice(pipeline, "makespan", Settings(seconds=30, workers=1))
        result = search.go_on(Clock(30), enough, None)
        assert result.reason in ("no-solution", "feasible", "optimal")
        assert result.limit is None
        assert enough <= bound_of(result) <= best <= value_of(result)


@pytest.mark.parametrize(("layers", "devices", "microbatches", "limit"), [(14, 3, 8, 60), (22, 4, 10, 70)])
def test_hardly_worse_than_where_nothing_recomputes(layers: int, devices: int, microbatches: int, limit: int) -> None:
    """Within a limit where recomputing does not pay, though much of it would fit."""
    level = {"name": "full", "time": 3, "saved": 2.5}
    block = {"forward": 3, "backward_input": 3, "backward_weight": 2, "activation": 3, "weights": 2, "recompute": [level]}
    ends = [{"name": "embedding", "forward": 1, "backward_input": 0, "backward_weight": 0, "activation": 0, "weights": 2},
            {"name": "head", "forward": 4, "backward_input": 4, "backward_weight": 3, "activation": 4, "weights": 2}]  # fmt: skip
    model = Layers([ends[0], {"name": "block", "count": layers, **block}, ends[1]])
    given = Pipeline(
        devices, microbatches, "wave", 2, layers=model, partition="balanced", memory=Memory(limit=limit), recompute="choose"
    )
    found = [
        solve(pipeline, seconds=3, deterministic=True, workers=1, best_cut=False).value
        for pipeline in (given, given.changed(recompute="none"))
    ]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0] <= 1.04 * found[1]


@pytest.mark.parametrize("number", [10, pytest.param(5, marks=thorough)])
def test_deterministic_runs_are_equal(number: int) -> None:
    pipeline = random_choice(random.Random(number))
    a, b = (solve(pipeline, deterministic=True, workers=1, seconds=3, seed=3) for _ in range(2))
    assert a.schedule is not None
    assert b.schedule is not None
    assert a.schedule.order.texts() == b.schedule.order.texts()
    assert [step.name for step in a.steps] == [step.name for step in b.steps]


def test_an_order_of_ones_own_is_shown_both_ways_and_begun_from() -> None:
    text = (
        '[pipeline]\ndevices = 2\nmicrobatches = 2\nrecompute = "choose"\n'
        'order = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]\n'
        "[costs]\nrecompute = 1\n[memory]\nrecompute_saved = 0.5\nlimit = 1\n"
    )
    model = model_of_text(text, "text")
    rows = model.own_rows
    assert [(row.recompute, row.label) for row in rows] == [("none", "own order"), ("all", "own order + recompute")]
    assert [row.schedule is not None and row.schedule.within_memory for row in rows] == [False, True]
    result = solve(model, workers=1, seconds=30)
    assert [row.label for row in result.named if row.name == "own order"] == ["own order + recompute 0"]
    assert result.reason == "optimal"


@st.composite
def cut_and_mixed(draw: st.DrawFn) -> Pipeline:
    """A cut of layers, of which few choices may recompute, and microbatches that differ."""
    pipeline = draw(mixed(4, 6, ("choose",)))
    assume(pipeline.stages * pipeline.microbatches <= 6)
    counts = draw(st.sampled_from(list(cuts(pipeline))))
    assume(sum(1 for _ in levels(pipeline, counts)) <= 12)
    try:
        return pipeline.changed(partition=counts)
    except PipelineError:
        assume(False)
        raise


@drawn(3, 60, cut_and_mixed())
def test_of_microbatches_that_differ_the_best_of_all_choices(pipeline: Pipeline) -> None:
    expected = by_enumeration(pipeline, "makespan")
    result = solve(pipeline, seconds=60, workers=1, best_cut=False)
    assert result.reason == ("infeasible" if expected is None else "optimal")
    if expected is not None:
        assert result.ticks.value is not None
        value, lower = (Fraction(ticks, result.ticks.per_unit) for ticks in (result.ticks.value, result.ticks.lower_bound))
        assert value == lower == expected
        assert violations(result.pipeline, result.schedule) == []  # type: ignore[arg-type]


@thorough
def test_levels_of_which_none_is_the_fastest_are_settled() -> None:
    """Short sequences recompute attention faster, long ones the rest; together they have to recompute something."""
    levels_ = [{"name": "attention", "time": 2, "quadratic": 2, "saved": 2}, {"name": "rest", "time": 3, "saved": 3}]
    layer = {"name": "layer", "count": 3, "forward": 4, "backward": 8, "activation": 4, "recompute": levels_}
    mix = Mix(lengths=[1, 4, 1], length=2)
    pipeline = Pipeline(2, 3, layers=Layers([layer]), partition=(1, 2), recompute="choose", mix=mix, memory=Memory(limit=8))
    result = solve(pipeline, seconds=60, workers=1, best_cut=False)
    assert result.reason == "optimal"
    assert result.ticks.value is not None
    assert Fraction(result.ticks.value, result.ticks.per_unit) == by_enumeration(pipeline, "makespan")
    assert len(result.steps) > 1
