"""The best cut beside one that is settled."""

import dataclasses
from random import Random

import pytest

from ppopt.constraints import Family, Precede
from ppopt.files import result_dict
from ppopt.op import Kind
from ppopt.pipeline import Layers, Memory, Pipeline, PipelineError
from ppopt.search import Result, Settings, solve, solve_closed, strategies
from ppopt.search.cutting import PartitionChoice
from ppopt.search.summary import best_cut_lines
from tests.support.every_cut import by_enumeration, cuts
from tests.support.layered import MODEL, a_pipeline
from tests.support.tiers import thorough

PIPELINE = Pipeline(2, 4, layers=MODEL)
"""Seven layers that take 2, 9, 9, 9, 9, 9 and 6 for a microbatch."""


def solved(pipeline: Pipeline, best_cut: bool | None = None) -> Result:
    return solve(pipeline, seconds=30, workers=1, best_cut=best_cut)


def beside(result: Result) -> Result:
    assert result.best_cut is not None
    return result.best_cut


def test_each_cut_is_set_against_the_best() -> None:
    """The cut's own answer is what it is without that; the best is that of every cut solved by itself."""
    settings = Settings(seconds=30, workers=1)
    values = {counts: solve_closed(PIPELINE.changed(partition=counts), settings=settings).value for counts in cuts(PIPELINE)}
    least = min(value for value in values.values() if value is not None)
    assert len(set(values.values())) > 3
    for counts in list(values)[1::3]:
        result = solved(PIPELINE.changed(partition=counts))
        best = beside(result)
        assert (result.value, result.reason) == (values[counts], "optimal")
        assert (best.value, best.lower_bound, best.reason) == (least, least, "optimal")
        assert values[best.pipeline.counts] == least
        assert result.pipeline.counts == counts


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=thorough) for seed in range(1, 8))])
def test_the_best_is_the_one_that_is_left_open(seed: int) -> None:
    rng = Random(seed)
    pipeline = a_pipeline(rng, (("linear", 3, 1), ("wave", 2, 2), ("loop", 2, 2), ("bidirectional", 2, 1)))
    open_ = pipeline.changed(partition="best", route_of_microbatch=pipeline.route_of_microbatch)
    assert beside(solved(pipeline)).value == solved(open_).value


def test_where_a_table_says_what_recomputes() -> None:
    """Only cuts that have these layers in these stages; what they take and hold counts in the bound over all."""
    for first, second, limit in ((0, 1, None), (2, 1, 20), (2, 2, 18), (0, 2, 20)):
        recompute = [{"decoder": {"full": first}} if first else {}, {"decoder": {"full": second}}]
        pipeline = PIPELINE.changed(recompute=recompute, memory=Memory(limit=limit))
        result = solved(pipeline)
        expected = by_enumeration(pipeline, "makespan")
        assert result.value == expected
        assert result.reason == ("infeasible" if expected is None else "optimal")


def test_a_stage_without_layers_is_no_cut_of_the_others() -> None:
    result = solved(PIPELINE.changed(partition=(0, 7)))
    best = beside(result)
    assert min(best.pipeline.counts) > 0
    assert best.value == by_enumeration(PIPELINE, "makespan")
    tight = Layers([{"name": "a", "count": 1, "forward": 1, "backward": 2}])
    assert solved(Pipeline(2, 2, layers=tight, partition=(0, 1))).best_cut is None  # no other cut has a layer for each stage


def test_a_cut_without_room_is_set_against_one_with_room() -> None:
    tight = PIPELINE.changed(memory=Memory(limit=26))
    result = solved(tight.changed(partition=(5, 2)))
    assert result.value is None or result.value > (beside(result).value or 0)
    assert beside(result).value == by_enumeration(tight, "makespan")


def test_where_it_is_looked_for() -> None:
    few = PIPELINE.changed(microbatches=1)
    assert solved(few.changed(partition="even")).best_cut is None
    assert beside(solved(few.changed(partition="even"), best_cut=True)).value == by_enumeration(few, "makespan")
    assert solved(few.changed(partition=(4, 3)), best_cut=False).best_cut is None
    assert solved(Pipeline(2, 1)).best_cut is None
    with pytest.raises(PipelineError, match="there are no layers to cut otherwise"):
        solved(Pipeline(2, 2), best_cut=True)
    with pytest.raises(PipelineError, match='"best" looks for the best cut anyway'):
        solved(PIPELINE, best_cut=True)


def test_constraints_bind_on_all_cuts_unless_they_are_in_ticks() -> None:
    forwards_first = Precede(Family(1, Kind.F), Family(1, Kind.B), shift=-1)
    late = Precede(Family(1, Kind.F), Family(1, Kind.B), lag=3)
    pipeline = PIPELINE.changed(partition=(4, 3), layers=Layers([{"name": "a", "count": 7, "forward": 1, "backward": 2}]))
    result = solve(pipeline, seconds=30, workers=1, constraints=[forwards_first])
    assert beside(result).value == solve(pipeline.changed(partition="best"), seconds=30, constraints=[forwards_first]).value
    assert solve(pipeline, seconds=30, workers=1, constraints=[late]).best_cut is None
    with pytest.raises(ValueError, match="best_cut: lags and amounts"):
        solve(pipeline, seconds=30, workers=1, constraints=[late], best_cut=True)


def test_the_cut_has_what_the_search_over_all_cuts_finds_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time of its own, at first, it is solved with all the others, and told what they found."""
    monkeypatch.setattr(strategies, "OWN_CUT", 0.0)
    result = solved(PIPELINE.changed(partition=(4, 3)))
    assert result.reason == "optimal"
    assert result.value == beside(result).value


@pytest.mark.parametrize("at", ["begin_with", "_next"])
def test_ctrl_c_keeps_the_cuts_own_answer(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PartitionChoice, at, interrupted)
    result = solved(PIPELINE.changed(partition=(5, 2)))
    assert (result.value, result.reason, result.limit) == (152, "optimal", None)
    if at == "begin_with":
        assert result.best_cut is None


@thorough
def test_what_recomputes_is_chosen_on_every_cut() -> None:
    tight = PIPELINE.changed(memory=Memory(limit=22), recompute="choose", microbatches=2)
    result = solved(tight.changed(partition=(5, 2)))
    assert beside(result).value == solved(tight).value == by_enumeration(tight, "makespan")
    assert (result.value or 0) >= (beside(result).value or 0)


def test_in_words_and_in_json() -> None:
    result = solved(PIPELINE.changed(partition=(5, 2)))
    best = beside(result)
    assert (result.value, best.value) == (152, 116)
    lines = best_cut_lines(result)
    assert lines[0] == "this cut: 152; best cut: 116 (lower bound 116): 31.0 % more than the best cut"
    assert lines[1].startswith("layers of each stage of the best cut: ")
    assert lines[0] in str(result)
    same = best_cut_lines(dataclasses.replace(best, best_cut=best))
    assert same == ["this cut: 116; best cut: 116 (lower bound 116): no cut that takes less was found"]
    found = result_dict(result)["result"]["best_cut"]
    kept = ("partition", "recompute", "value", "lower_bound", "reason")
    assert [found[key] for key in kept] == [list(best.pipeline.counts), "none", 116, 116, "optimal"]
    assert any(step.name == "best cut: cuts" for step in result.steps)


def test_for_each_number_of_microbatches() -> None:
    several = solved(PIPELINE.changed(partition=(5, 2), microbatches=(1, 2)))
    for point in several.points:
        alone = PIPELINE.changed(microbatches=point.pipeline.microbatches)
        least = by_enumeration(alone, "makespan")
        assert beside(point).value == least
        assert f" {least} " in str(several)
    assert "best cut" in str(several)


def test_a_runtime_that_restricts_is_set_against_what_it_leaves_out_instead() -> None:
    pipeline = Pipeline(2, 4, layers=MODEL, partition=(3, 4))
    assert solve(pipeline, seconds=5, workers=1, runtime="torch").best_cut is not None
    assert solve(pipeline, seconds=5, workers=1, runtime="torchtitan").best_cut is None
    with pytest.raises(ValueError, match="without it"):
        solve(pipeline, seconds=5, workers=1, runtime="torchtitan", best_cut=True)
