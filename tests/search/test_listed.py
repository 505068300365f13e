"""Cut and order among listed cuts: their best, as by solving each of them."""

import math
from fractions import Fraction

import pytest

from ppopt import compiled
from ppopt.bounds import halved_cuts
from ppopt.clock import Clock, Limits
from ppopt.op import Kind
from ppopt.pipeline import Layers, Memory, Pipeline
from ppopt.search import listed, strategies
from ppopt.search.boxes import boxes
from ppopt.search.cuts import plain, shown
from ppopt.search.listed import NOTHING_KNOWN, AmongListed, Promising
from ppopt.search.over_cuts import OverCuts
from ppopt.search.step import Taken
from tests.search.test_boxes import SETTINGS, best_in
from tests.support.layered import on

with_numba = pytest.mark.skipif(not compiled.available(), reason="numba is not there")
LAYERS = Layers(
    [
        {"name": "embedding", "forward": 3, "backward": 5, "activation": 2, "weights": 3},
        {"name": "decoder", "count": 6, "forward": 4, "backward": 9, "activation": 3, "weights": 2},
        {"name": "head", "forward": 9, "backward": 17, "activation": 2, "weights": 4},
    ]
)
PIPELINE = Pipeline(2, 3, "wave", 2, layers=LAYERS, memory=Memory(limit=42), partition="best")


FREE = PIPELINE.changed(memory=Memory())


def among(over: OverCuts, pipeline: Pipeline = PIPELINE) -> AmongListed:
    return AmongListed(over, lambda counts: on(pipeline, counts), SETTINGS, 30.0)


@pytest.mark.parametrize("pipeline", [PIPELINE, FREE], ids=["within memory", "free"])
def test_all_cuts_are_settled_by_lists_of_them(pipeline: Pipeline) -> None:
    best = best_in(pipeline, boxes().all_of(8, 4))
    assert best is not None
    value = best[0]
    for below, better in ((value + 20, True), (value, False)):
        over = OverCuts(pipeline, "makespan", Fraction(0))
        looks, found = among(over, pipeline), math.inf
        lower: Fraction | float = Fraction(0)
        looked = 0
        while lower < min(below, found):
            of = looks.look((), lower, min(below, found), Clock(60))
            if of.schedule is not None:
                found = Fraction(of.schedule.makespan, of.schedule.pipeline.ticks.per_unit)
            if of.closed:
                over.leave_out_box(of.box)
            assert over.bound <= max(value, lower) or found == value or not better
            lower, looked = over.bound, looked + 1
            assert looked < 100
        assert (found == value) == better
        assert lower >= min(below, found)


@with_numba
def test_without_a_limit_lists_come_at_once_until_they_say_nothing_new() -> None:
    over = OverCuts(FREE, "makespan", Fraction(0))
    looks = among(over, FREE)
    assert looks.first
    assert looks.due(0)
    looks.look((), Fraction(0), Fraction(10**6), Clock(60))
    assert over.listing
    assert not looks.due(59.9)
    assert looks.due(70)
    looks.in_vain = 1
    assert not looks.due(119.9)  # as rare as others
    assert over.listed is not None
    known = over.many.learned if over.many is not None else 0
    over.listed.shorten(over.listed.bound)  # as where cuts are as many as the least bounds are alike
    assert looks.due(0)
    looks.look((), Fraction(0), Fraction(over.bound), Clock(60))
    assert not over.listing
    assert not looks.due(0)
    assert over.many is not None
    assert over.many.learned == known


@with_numba
def test_where_a_list_takes_longer_than_a_question_it_comes_after_one_that_was_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listed, "_least_seconds", lambda over: strategies.MOST_LISTING * SETTINGS.seconds)
    over = OverCuts(FREE, "makespan", Fraction(0))
    looks = among(over, FREE)
    assert not looks.first
    over.settled = False
    assert looks.first
    assert not among(OverCuts(PIPELINE, "makespan", Fraction(0))).first


def test_without_a_limit_nothing_is_listed_where_nothing_compiles_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halved_cuts, "available", lambda: False)
    monkeypatch.setattr(halved_cuts, "MOST_UNCOMPILED", 0)
    over = OverCuts(FREE, "makespan", Fraction(0))
    looks = among(over, FREE)
    assert not looks.first
    assert not looks.due(10**6)


def test_a_list_that_takes_too_long_is_shorter_and_takes_longer_the_next_time() -> None:
    over = OverCuts(PIPELINE, "makespan", Fraction(0))
    looks = among(over)
    before = looks._listing
    looks.look((), Fraction(0), Fraction(500), Clock(0))
    assert not over.listing
    assert looks._part == Fraction(1, 4)
    assert before < looks._listing
    looks.look((), Fraction(0), Fraction(2000), Clock(60))
    assert over.listing
    assert over.listed is not None
    assert over.bound == Fraction(over.listed.bound, over.per_unit)
    first = over.least_listed(2000)
    assert first is not None
    over.leave_out(first)
    assert over.least_listed(2000) != first


def test_a_cut_that_was_left_out_is_not_listed() -> None:
    over = OverCuts(PIPELINE, "makespan", Fraction(0))
    assert over.list_cuts(Fraction(10**6), 100, Limits(Clock(60)), among(over)._learned, 60)
    assert over.listed is not None
    first = over.least_listed(10**6)
    assert first is not None
    number = len(over.listed.ends)
    over.leave_out(first)
    assert over.list_cuts(Fraction(10**6), 100, Limits(Clock(60)), among(over)._learned, 60)
    assert len(over.listed.ends) == number - 1
    assert over.least_listed(0) is None


@pytest.mark.parametrize("pipeline", [PIPELINE, FREE], ids=["within memory", "free"])
def test_what_a_beam_finds_on_listed_cuts_is_the_best_of_them(pipeline: Pipeline) -> None:
    known = best_in(pipeline, boxes().all_of(8, 4))
    assert known is not None
    best = Fraction(known[0])
    over = OverCuts(pipeline, "makespan", Fraction(0))
    looks = among(over, pipeline)
    assert over.list_cuts(Fraction(best + 5), 100, Limits(Clock(60)), looks._learned, 0)
    steps = list[Taken]()
    found = looks.tighten(Clock(60), steps, look=True)
    assert found is not None
    assert found.makespan == best * found.pipeline.ticks.per_unit
    assert found.within_memory
    assert steps[0].outcome.endswith(f"; best {plain(best)} on {shown(found.pipeline.counts)}")
    over.shorten_list(Fraction(best))
    assert not looks.tightening(look=True)


def test_on_a_cut_of_which_a_stage_has_no_weight_gradient_a_beam_finds_nothing() -> None:
    """The windows are those of all cuts, whose stages have one."""
    group = {"forward": 4, "backward_input": 5}
    frozen = Layers(
        [{"name": "a", "count": 4, **group, "backward_weight": 0}, {"name": "b", "count": 4, **group, "backward_weight": 3}]
    )
    pipeline = Pipeline(2, 3, "loop", 2, layers=frozen, partition="best")
    over = OverCuts(pipeline, "makespan", Fraction(0))
    looks, steps = among(over, pipeline), list[Taken]()
    assert over.list_cuts(Fraction(200), 100, Limits(Clock(60)), looks._learned, 0)
    assert over.listed is not None
    ends = over.listed.ends.tolist()
    assert [2, 4, 6] in ends
    assert [5, 6, 7] in ends
    found = looks.tighten(Clock(60), steps, look=True)
    assert found is None or min(found.pipeline.ticks.duration[0, Kind.W]) > 0


@pytest.mark.parametrize("limit", [None, 42])
def test_bounds_that_rise_make_a_turn_that_was_not_in_vain(limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = PIPELINE.changed(memory=Memory(limit=limit))
    over = OverCuts(pipeline, "makespan", Fraction(0))
    looks, steps = among(over, pipeline), list[Taken]()
    assert over.list_cuts(Fraction(200), 100, Limits(Clock(60)), looks._learned, 60)
    listed_cuts = over.listed
    assert listed_cuts is not None

    def tighten_list(limits: Limits, look: object) -> None:
        listed_cuts.bounds[0] += 1

    monkeypatch.setattr(over, "tighten_list", tighten_list)
    before = looks._tightening
    looks.tighten(Clock(60), steps, look=False)
    assert looks._tightening == before
    assert looks.tightening(look=False)
    monkeypatch.setattr(over, "tighten_list", lambda limits, look: None)
    looks.tighten(Clock(60), steps, look=False)
    assert looks._tightening == 2 * before
    assert looks.tightening(look=False) == (limit is None)


def test_something_better_may_be_on_leaves_and_listed_cuts() -> None:
    over = OverCuts(PIPELINE, "makespan", Fraction(0))
    looks = among(over)
    assert looks.promising([(2, 2)], 10) == NOTHING_KNOWN
    assert over.list_cuts(Fraction(10**6), 100, Limits(Clock(60)), looks._learned, 60)
    leaf = over.least_listed(10**6)
    assert leaf is not None
    over.leave_out(leaf)
    cuts, everywhere = looks.promising([leaf], 10**6)
    assert not everywhere
    assert cuts[0] == leaf
    assert over.listed is not None
    assert len(set(cuts)) == len(cuts) == 1 + len(over.listed.ends)
    assert cuts[1] == over.least_listed(10**6)
    assert Promising(cuts[:2], everywhere=False).few == cuts[:2]
    assert not Promising([*cuts, (1, 3), (3, 1)], everywhere=False).few
    assert looks.promising([], 10**6 + 1).everywhere  # others may take that long
    assert not Promising(cuts[:2], everywhere=True).few
    over.listed.tight = False
    assert looks.promising([leaf], 10) == NOTHING_KNOWN
