"""The search over the cuts of layers: what it keeps, what it says, and what it goes on with."""

import dataclasses
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from ppopt.bounds.certificates import durations_of
from ppopt.clock import Clock, Limits
from ppopt.files import result_dict
from ppopt.interrupt import check
from ppopt.named import NAMED, Restriction
from ppopt.pipeline import Layers, Memory, Mix, Pipeline
from ppopt.schedule import Schedule
from ppopt.search import Result, Settings, solve
from ppopt.search.closed import solve_closed
from ppopt.search.cutting import PartitionChoice
from ppopt.search.leaf import Leaf
from ppopt.search.listed import FEW, AmongListed, Promising
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.summary import opinion_lines
from ppopt.search.verifying import verify
from tests.support.every_cut import by_enumeration, cuts
from tests.support.layered import heavy_head
from tests.support.tiers import thorough

PIPELINE = Pipeline(3, 5, layers=heavy_head(12))


@pytest.mark.parametrize("recompute", ["none", "choose"])
def test_the_floor_knows_that_layers_are_whole(recompute: str) -> None:
    given = Pipeline(4, 5, layers=heavy_head(9), partition="best", recompute=recompute)
    search = PartitionChoice(given, "makespan", Settings(seconds=20, workers=1))
    assert search.floor("makespan") == 5 * (3 * 12 + 2), "the embedding and three decoders; the share is 171.25"
    found = search.go_on(Clock(20), math.inf, None)
    assert found.ticks.value is not None
    assert Fraction(found.ticks.value, found.ticks.per_unit) >= search.floor("makespan")


def test_a_heavy_head_moves_the_cut() -> None:
    pipeline = PIPELINE.changed(placement="wave", chunks=2)
    result = solve(pipeline, seconds=30, workers=1)
    assert result.reason == "optimal"
    even, balanced = (solve(pipeline.changed(partition=name), seconds=30, workers=1) for name in ("even", "balanced"))
    assert result.value is not None
    assert result.value < min(even.value or 0, balanced.value or 0)
    assert sum(result.pipeline.counts) == 14
    names = [step.name for step in result.steps]
    assert names[0] == "cuts"
    assert result.steps[0].outcome.startswith(f"{math.comb(13, 5)} in all; ")
    assert {name.split(" cut")[0] for name in names[1:3]} == {"even", "balanced"}


def test_one_model_has_one_answer_and_one_row_whatever_placement_the_question_names() -> None:
    few = PIPELINE.changed(devices=2, microbatches=2, layers=heavy_head(6))
    asked = [few.changed(placement=placement, chunks=chunks) for placement, chunks in (("linear", 1), ("wave", 2), ("loop", 2))]
    results = [solve(pipeline, seconds=30, workers=1) for pipeline in asked]
    best = solve(few.changed(placement="any", chunks=[2]), seconds=30, workers=1)
    assert len({result.named["1f1b"].makespan for result in (*results, best)}) == 1
    assert best.value == min(result.value or 0 for result in results)


def test_the_search_goes_on_where_it_stopped() -> None:
    pipeline = PIPELINE.changed(devices=2, microbatches=3, placement="wave", chunks=2)
    choice = PartitionChoice(pipeline, "makespan", Settings(seconds=60, workers=1, deterministic=True))
    bounds = []
    for _ in range(200):
        result = choice.go_on(Clock(0.02, deterministic=True), math.inf, None)
        bounds.append(result.ticks.lower_bound)
        if result.reason == "optimal":
            break
    assert result.reason == "optimal"
    assert bounds == sorted(bounds)
    whole = solve(pipeline, seconds=60, workers=1)
    assert Fraction(whole.ticks.value or 0, whole.ticks.per_unit) == choice.value


def test_what_is_enough_ends_it_and_is_not_called_a_proof() -> None:
    pipeline = PIPELINE.changed(placement="wave", chunks=2)
    choice = PartitionChoice(pipeline, "makespan", Settings(seconds=30, workers=1))
    result = choice.go_on(Clock(30), Fraction(1), None)
    assert result.reason != "optimal"
    assert result.limit is None


def test_no_bound_is_above_the_optimum_whenever_it_is_reported() -> None:
    best = solve(PIPELINE, seconds=30, workers=1).value
    reported: list[tuple[float | None, float]] = []
    solve(PIPELINE, seconds=30, workers=1, progress=lambda value, bound: reported.append((value, bound)))
    assert reported
    assert all(bound <= best and (value is None or value >= best) for value, bound in reported)


def test_the_same_in_every_deterministic_run() -> None:
    pipeline = PIPELINE.changed(placement="loop", chunks=2)
    one, other = (solve(pipeline, seconds=2, deterministic=True) for _ in range(2))
    told = [result_dict(result, explain=True) for result in (one, other)]
    for tree in told:
        del tree["result"]["seconds"]
        for step in tree["steps"]:
            del step["seconds"]
    assert told[0] == told[1]


def test_a_limit_that_no_cut_keeps_is_infeasible() -> None:
    result = solve(PIPELINE.changed(memory=Memory(limit=8)), seconds=30, workers=1)
    assert result.reason == "infeasible"
    assert result.schedule is None


def test_ctrl_c_keeps_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def interrupted(self: PartitionChoice) -> None:
        looks.append(self.value)
        raise KeyboardInterrupt

    monkeypatch.setattr(PartitionChoice, "_next", interrupted)
    pipeline = PIPELINE.changed(placement="wave", chunks=2, memory=Memory(limit=20))
    result = solve(pipeline, seconds=30, workers=1)
    check()
    if looks:  # not proved by the cuts that it begins with
        assert result.limit == "interrupted"
        assert result.schedule is not None
        assert result.ticks.lower_bound <= (result.ticks.value or 0)


def test_a_second_opinion_is_on_the_cut_of_the_answer() -> None:
    result = solve(PIPELINE, seconds=30, workers=1)
    opinion = verify(result, seconds=30)
    assert (opinion.only, opinion.bound) == (("partition",), result.ticks.lower_bound)
    assert opinion.confirmed is not False
    assert opinion_lines(result, opinion)[0].startswith("Second opinion on the partition of the answer alone: ")
    wrong = dataclasses.replace(result, ticks=result.ticks._replace(lower_bound=(result.ticks.value or 0) + 1))
    assert verify(wrong, seconds=30).confirmed is False
    closed = verify(solve(result.pipeline, seconds=30, workers=1), seconds=30)
    assert (closed.only, closed.confirmed) == ((), opinion.confirmed)


def test_what_is_known_of_the_cuts_that_are_left() -> None:
    """Never above the best of them, and a cut that is left out does not come again."""
    over = OverCuts(PIPELINE, "makespan", Fraction(0))
    seen = []
    while (counts := over.least(Limits.of(10, workers=1), math.inf, None)) is not None:
        cut = PIPELINE.changed(partition=counts)
        if over.learn_from(cut):
            continue
        value = solve_closed(cut, settings=Settings(seconds=30, workers=1)).value
        assert value is not None
        assert over.bound <= value
        assert counts not in seen
        seen.append(counts)
        over.leave_out(counts)
        if len(seen) == 12:
            break
    assert len(seen) == 12
    assert durations_of(cut)
    assert not over.none_left


def test_gap_and_settings_are_kept() -> None:
    result = solve(PIPELINE, dataclasses.replace(Settings(), seconds=30, gap=0.5, workers=1))
    assert result.reason in ("optimal", "feasible")
    assert result.gap is not None
    assert result.gap <= 0.5


def test_without_an_answer_where_what_recomputes_does_not_fit_the_balanced_cut() -> None:
    recompute = [{"decoder": {"full": 8}}, {}, {}]
    result = solve(PIPELINE.changed(recompute=recompute, memory=Memory(limit=6)), seconds=30, workers=1)
    assert (result.reason, result.schedule) == ("infeasible", None)


def test_placements_of_few_stages_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their bounds are; those that stay open then come in the order of their bounds."""
    turns: list[int] = []
    go_on = PartitionChoice.go_on

    def noted(self: PartitionChoice, *args: Any) -> Result:
        turns.append(self.pipeline.stages)
        return go_on(self, *args)

    monkeypatch.setattr(PartitionChoice, "go_on", noted)
    few = PIPELINE.changed(devices=2, microbatches=2, layers=heavy_head(8))
    result = solve(few.changed(placement="any", chunks=[4, 2]), seconds=30, workers=1)
    assert result.reason == "optimal"
    assert turns[:5] == [2, 4, 4, 8, 8]


@pytest.mark.parametrize("settled", [False, True])
def test_a_cut_is_looked_at_where_the_question_was_not_answered(monkeypatch: pytest.MonkeyPatch, settled: bool) -> None:
    """Though more was learned from it: the next question may stay open, too, and nothing would be solved."""
    choice = PartitionChoice(PIPELINE, "makespan", Settings(seconds=60, workers=1))
    choice._clock = Clock(60)
    counts = next(iter(cuts(PIPELINE)))

    def given(self: OverCuts, limits: Limits, below: float, hint: object) -> Counts:
        self.settled = settled
        return counts

    monkeypatch.setattr(OverCuts, "least", given)
    monkeypatch.setattr(OverCuts, "learn_from", lambda self, pipeline: True)
    choice._next_cut()
    assert list(choice.leaves) == ([] if settled else [counts])


def test_of_equal_bounds_a_cut_that_had_no_look_comes_before_a_longer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    first, other, *_ = cuts(PIPELINE)
    monkeypatch.setattr(OverCuts, "least", lambda self, limits, below, hint: other)
    monkeypatch.setattr(OverCuts, "learn_from", lambda self, pipeline: False)

    def looked_at(more: int) -> set[Counts]:
        """Beside the first cut, where the bound of the others is this much more."""
        choice = PartitionChoice(PIPELINE, "makespan", Settings(seconds=60, workers=1))
        choice._clock = Clock(60)
        leaf = choice._leaf(PIPELINE.changed(partition=first))
        choice.over.bound = leaf.bound + more
        choice._next_cut()
        return set(choice.leaves) - {first}

    assert looked_at(0) == {other}
    assert looked_at(1) == set()


def test_a_leaf_below_all_that_are_listed_is_looked_at_as_long_as_these_are_tightened(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = cuts(PIPELINE)
    choice = PartitionChoice(PIPELINE, "makespan", Settings(seconds=60, workers=1))
    choice._clock = Clock(60)
    leaf = choice._leaf(PIPELINE.changed(partition=first))
    taken = list[str]()

    def tighten(self: AmongListed, *_: object) -> None:
        taken.append("tighten")
        self.tightened += 1

    def solve_leaf(self: PartitionChoice, leaf: Leaf, name: str) -> None:
        taken.append(name)
        leaf.seconds *= 2

    monkeypatch.setattr(AmongListed, "tightening", lambda self, look: True)
    monkeypatch.setattr(AmongListed, "tighten", tighten)
    monkeypatch.setattr(PartitionChoice, "_solve", solve_leaf)
    leaf.seconds, choice.over.bound = 1, leaf.bound
    for _ in range(6):
        choice._next_cut()
    assert taken == ["tighten"] * 6, "of equal bounds"
    leaf.bound -= 1
    choice.listed.tightened, taken[:] = 0, []
    for _ in range(6):
        choice._next_cut()
    assert taken == ["tighten", "longer at cut", "tighten", "longer at cut", "tighten", "tighten"]


def test_few_cuts_that_are_left_are_looked_at_as_long() -> None:
    first, other, *_ = cuts(PIPELINE)
    choice = PartitionChoice(PIPELINE, "makespan", Settings(seconds=60, workers=1))
    choice._clock = Clock(60)
    leaf = choice._leaf(PIPELINE.changed(partition=first))
    leaf.bound -= 1
    choice._next_cut((first, other))
    assert set(choice.leaves) == {first, other}  # a first look comes before a longer one, whatever the bounds are
    choice.leaves[other].seconds, choice.leaves[other].settled = leaf.seconds / 2, False
    before = choice.leaves[other].seconds
    choice._next_cut((first, other))
    assert choice.leaves[other].seconds == 2 * before


def test_the_order_of_a_cut_that_cannot_be_good_enough_is_not_searched() -> None:
    best = NAMED["gpipe"].schedule(PIPELINE.changed(partition=(5, 5, 4)))
    choice = PartitionChoice(PIPELINE, "makespan", Settings(seconds=60, workers=1))
    choice._clock = Clock(60)
    choice._found(best, ())
    choice.enough = choice.over.bound_of(best.pipeline)
    assert not choice._improve(best)
    assert not choice.steps
    choice.enough = math.inf
    assert choice._improve(best)
    assert choice.steps[0].name == "the order on 5,5,4"


def test_only_what_is_better_than_enough_is_promising(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another placement has reached counts, too."""
    best = NAMED["gpipe"].schedule(PIPELINE.changed(partition=(5, 5, 4)))
    choice = PartitionChoice(PIPELINE, "makespan", Settings(seconds=60, workers=1))
    choice._found(best, ())
    leaf = choice._leaf(PIPELINE.changed(partition=(5, 4, 5)))
    asked = list[Any]()
    monkeypatch.setattr(choice.listed, "promising", lambda leaves, below: asked.append((leaves, below)))
    choice._promising()
    choice.enough = leaf.bound
    choice._promising()
    assert asked == [([(5, 4, 5)], choice.value), ([], leaf.bound)]


@pytest.mark.parametrize("everywhere", [False, True])
def test_nor_is_that_of_one_that_is_not_among_those_that_are_left(everywhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    best = NAMED["gpipe"].schedule(PIPELINE.changed(partition=(5, 5, 4)))
    choice = PartitionChoice(PIPELINE, "makespan", Settings(seconds=60, workers=1))
    choice._clock, choice._begun = Clock(60), 60.0
    choice._found(best, ())
    choice.iterated._in_vain = 100
    asked = list[Schedule]()

    def improve(schedule: Schedule) -> bool:
        asked.append(schedule)
        return True

    left = Promising([(5, 4, 5)] * (FEW + 1), everywhere)
    monkeypatch.setattr(choice, "_improve", improve)
    monkeypatch.setattr(choice.listed, "promising", lambda leaves, below: left)
    choice._next()
    assert asked == ([best] if everywhere else [])


def test_two_routes_have_certificates() -> None:
    """From them the model of cuts learns more than the work of the devices; never more than the best of all cuts."""
    pipeline = PIPELINE.changed(devices=4, microbatches=4, placement="bidirectional")
    over = OverCuts(pipeline, "makespan", Fraction(0))
    known = []
    for _ in range(9):
        counts = over.least(Limits.of(10, workers=1), math.inf, None)
        assert counts is not None
        known.append(over.bound)
        if not over.learn_from(pipeline.changed(partition=counts, route_of_microbatch=pipeline.route_of_microbatch)):
            break
    best = solve(pipeline, seconds=30, workers=1)
    assert known[0] < known[-1] <= (best.value or 0)


def test_a_route_without_microbatches() -> None:
    layers = Layers([{"name": f"{k}", "forward": 2 + k % 3, "backward": 3} for k in range(5)])
    pipeline = Pipeline(4, 1, routes=[[0, 1], [2, 3]], layers=layers, partition="best")
    result = solve(pipeline, seconds=30, workers=1)
    assert (result.reason, result.value) == ("optimal", 29)


# --- microbatches that differ ---

_GLOBAL = {"forward": 3, "backward": 5, "forward_quadratic": 1, "backward_quadratic": 2, "activation": 1}
ATTENTION = Layers(
    [
        {"name": "local", "count": 3, "forward": 2, "backward": 4, "activation": 1},
        {"name": "global", "count": 2, **_GLOBAL},
    ]
)
LENGTHS = Pipeline(2, 3, layers=ATTENTION, mix=Mix(lengths=[2, 16, 1], length=2, microbatch_order="choose"))


def best_cut_of(pipeline: Pipeline, order: str | None) -> Fraction:
    """The best over all cuts, each solved alone."""
    values = []
    for counts in cuts(pipeline):
        cut = pipeline.changed(partition=counts)
        if order is None:
            result = solve_closed(cut, settings=Settings(seconds=30, workers=1))
        else:
            result = solve(cut, order=order, seconds=30, workers=1, best_cut=False)
        assert result.reason == "optimal"
        values.append(Fraction(result.ticks.value or 0, result.ticks.per_unit))
    return min(values)


@pytest.mark.parametrize("order", [None, pytest.param("1f1b", marks=thorough)])
def test_lengths_move_the_cut(order: str | None) -> None:
    """Also where 1F1B binds, and its microbatches run in any order."""
    result = solve(LENGTHS, order=order, seconds=30, workers=1)
    assert result.reason == "optimal"
    assert result.schedule is not None
    value = Fraction(result.ticks.value or 0, result.ticks.per_unit)
    assert value == best_cut_of(LENGTHS, order)
    alike = solve(LENGTHS.changed(mix=Mix()), seconds=30, workers=1)
    assert alike.pipeline.counts != result.pipeline.counts


def test_what_is_not_decided_together_is_refused() -> None:
    groups = [replace(group, recompute=({"name": "full", "time": 1, "saved": 1},)) for group in ATTENTION.groups]  # type: ignore[arg-type]
    pipeline = LENGTHS.changed(layers=Layers(groups), recompute="choose")
    with pytest.raises(Restriction, match=r"1f1b: the order of microbatches and what recomputes are not decided together"):
        solve(pipeline, order="1f1b", seconds=10, workers=1)


@thorough
def test_tables_of_what_recomputes_count_by_length() -> None:
    """Two stages that recompute one layer each: in the model of the cuts with the linear and the quadratic part of its time."""
    levels = ({"name": "full", "time": 3, "quadratic": 1, "saved": 1},)
    groups = [replace(group, recompute=levels) for group in ATTENTION.groups]  # type: ignore[arg-type]
    tables = [{"local": {"full": 1}}, {"global": {"full": 1}}]
    pipeline = LENGTHS.changed(layers=Layers(groups), recompute=tables)
    result = solve(pipeline, seconds=30, workers=1)
    assert result.reason == "optimal"
    assert Fraction(result.ticks.value or 0, result.ticks.per_unit) == by_enumeration(pipeline, "makespan")


def test_the_model_of_the_cuts_knows_what_the_longest_sequence_holds() -> None:
    """A device has room for two layers of it, or for sixteen of one that the costs are for."""
    pipeline = LENGTHS.changed(devices=3, memory=Memory(limit=16))
    over = OverCuts(pipeline, "makespan", Fraction(0))
    given = set()
    while (counts := over.least(Limits.of(10, workers=1), math.inf, None)) is not None:
        given.add(counts)
        over.leave_out(counts)
    assert given == {counts for counts in cuts(pipeline) if max(counts) <= 2}


def test_where_no_named_schedule_fits_a_cut_is_looked_at_before_all_are_asked() -> None:
    """With hundreds of microbatches there was no time left for a schedule."""
    groups = [replace(group, count=count) for group, count in zip(ATTENTION.groups, (12, 6), strict=True)]
    mix = Mix(lengths=[2, 9, 3, 1, 16, 2, 4, 7, 1, 3, 8, 5], length=2)
    pipeline = Pipeline(4, 12, layers=Layers(groups), partition="best", mix=mix, memory=Memory(limit=56))
    choice = PartitionChoice(pipeline, "makespan", Settings(seconds=0.05, workers=1, deterministic=True))
    result = choice.go_on(Clock(0.05, deterministic=True), math.inf, None)
    assert result.schedule is not None
    assert result.schedule.within_memory
