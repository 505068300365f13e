"""Times of all cuts as integers: whole ticks, rounded down where these are too fine, with what grows by tokens and by squares."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import strategies as st

from ppopt.clock import Limits
from ppopt.pipeline import Layers, Memory, Mix, Pipeline, PipelineError
from ppopt.search import cut_ticks, solve
from ppopt.search.over_cuts import OverCuts
from tests.support.every_cut import by_enumeration, cuts, layered, mixed
from tests.support.tiers import drawn

GLOBAL = {"forward": 3, "backward": 5, "forward_quadratic": 1, "backward_quadratic": 2, "activation": 1}
ATTENTION = Layers([{"name": "local", "count": 3, "forward": 2, "backward": 4}, {"name": "global", "count": 2, **GLOBAL}])
LENGTHS = Pipeline(2, 3, layers=ATTENTION, mix=Mix(lengths=[2, 16, 1], length=2, microbatch_order="choose"))


# --- ticks ---

THIRDS = Layers([{"name": f"layer {k}", "forward": Fraction(k, 3), "backward": Fraction(9, k + 7)} for k in range(1, 6)])


@pytest.mark.parametrize("pipeline", [LENGTHS, Pipeline(2, 3, layers=THIRDS)], ids=["lengths", "alike"])
def test_times_that_are_rounded_down_lose_no_optimum(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = solve(pipeline, seconds=30, workers=1)
    exact = OverCuts(pipeline, "makespan", Fraction(0))
    monkeypatch.setattr(cut_ticks, "MOST", exact.per_unit)
    assert OverCuts(pipeline, "makespan", Fraction(0)).per_unit < exact.per_unit
    result = solve(pipeline, seconds=30, workers=1)
    assert (result.reason, result.value) == (expected.reason, expected.value) == ("optimal", expected.value)


def test_times_without_a_common_tick_are_not_taken_for_cuts_without_room() -> None:
    times = (Fraction(1, 10**9 + 7), Fraction(1, 998244353), Fraction(1, 10**9 + 9))
    layers = Layers([{"name": f"layer {k}", "forward": time, "backward": 1} for k, time in enumerate(times)])
    with pytest.raises(PipelineError, match="no common tick that is coarse enough"):
        solve(Pipeline(2, 2, layers=layers), seconds=10, workers=1)


def test_amounts_without_a_common_unit_are_not_taken_for_cuts_without_room() -> None:
    """Of two layers together they have one."""
    amounts = (Fraction("0.30000000000000004"), Fraction("0.69999999999999996"), 1, 1, 1, 1)
    times = [{"name": f"layer {k}", "forward": t, "backward": t} for k, t in enumerate((30, 5, 5, 5, 5, 5))]
    layers = Layers([time | {"activation": amount} for time, amount in zip(times, amounts, strict=True)])
    with pytest.raises(PipelineError, match="the amounts have no common unit that is coarse enough"):
        solve(Pipeline(2, 8, layers=layers, partition="best", memory=Memory(limit=40)), seconds=10, workers=1)


@pytest.mark.parametrize("activation", [1, Fraction(1, 10**15 + 37), Fraction(10**15 + 37, 10**15)])
def test_amounts_that_are_rounded_leave_room(activation: Fraction) -> None:
    layers = Layers([{"name": "layer", "count": 6, "forward": 1, "backward": 2, "activation": activation}])
    pipeline = Pipeline(2, 4, layers=layers, partition="best", memory=Memory(limit=6 * activation))
    over = OverCuts(pipeline, "makespan", Fraction(0))
    assert over.least(Limits.of(10, workers=1), Fraction(1000), None) is not None
    assert over.bound <= (solve(pipeline.changed(partition=(3, 3)), seconds=10, workers=1, best_cut=False).value or 0)


TORCH = [
    pytest.param([{"forward_quadratic": 2, "backward_input_quadratic": 1}, {}], None, id="input"),
    pytest.param([{"backward": 9, "backward_quadratic": 3}, {"forward_quadratic": 1}], None, id="whole"),
    pytest.param([{"backward_input_quadratic": 2}, {"backward_input_quadratic": 1}], "full", id="recompute"),
]


@pytest.mark.parametrize(("parts", "level"), TORCH)
def test_in_pytorch_the_squares_of_the_first_stage_are_in_its_weight_gradient(parts, level) -> None:
    """As many tokens in each microbatch, in sequences of other lengths."""
    plain = {"forward": 4, "backward_input": 3, "backward_weight": 2}
    again = {"recompute": [{"name": "full", "time": 3, "quadratic": 1, "saved": 0}]} if level else {}
    layers = Layers([{"name": f"layer {k}", "count": 2, **plain, **again, **part} for k, part in enumerate(parts)])
    mix = Mix(lengths=[[8, 8], [16], [4, 4, 8]], length=[8])
    pipeline = Pipeline(2, 3, layers=layers, partition="best", runtime="torch", mix=mix, recompute=level or "none")
    result = solve(pipeline, seconds=30, workers=1)
    assert result.reason == "optimal"
    assert Fraction(result.ticks.value or 0, result.ticks.per_unit) == by_enumeration(pipeline, "makespan")
    over = OverCuts(pipeline, "makespan", Fraction(0))
    for counts in cuts(pipeline):
        over.learn_from(pipeline.changed(partition=counts))
    assert over.least(Limits.of(10, workers=1), Fraction(10**6), None) is not None
    assert over.bound <= (result.value or 0)


@drawn(6, 60, st.one_of(layered(6, 20, ("none", "full", "choose")), mixed(6, 20, ("none", "full", "choose"))))
def test_makespans_of_all_cuts_are_whole_ticks(pipeline: Pipeline) -> None:
    """Else a bound that is rounded up to a tick could be above one."""
    over = OverCuts(pipeline, "makespan", Fraction(0))
    free = pipeline.changed(memory=replace(pipeline.memory, limit=None), route_of_microbatch=pipeline.route_of_microbatch)
    for counts in cuts(pipeline):
        cut = free.changed(partition=counts, route_of_microbatch=free.route_of_microbatch)
        for choice in ("none", "all") if pipeline.recompute == "choose" else (pipeline.recompute,):
            assert over.per_unit % cut.resolved(choice).ticks.per_unit == 0
