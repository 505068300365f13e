"""Cut and order among listed cuts: their best, as by solving each of them."""

import math
from fractions import Fraction

from ppopt.clock import Clock
from ppopt.pipeline import Layers, Memory, Pipeline
from ppopt.search.boxes import boxes
from ppopt.search.listed import AmongListed
from ppopt.search.over_cuts import OverCuts
from tests.search.test_boxes import SETTINGS, best_in
from tests.support.layered import on

LAYERS = Layers(
    [
        {"name": "embedding", "forward": 3, "backward": 5, "activation": 2, "weights": 3},
        {"name": "decoder", "count": 6, "forward": 4, "backward": 9, "activation": 3, "weights": 2},
        {"name": "head", "forward": 9, "backward": 17, "activation": 2, "weights": 4},
    ]
)
PIPELINE = Pipeline(2, 3, "wave", 2, layers=LAYERS, memory=Memory(limit=42), partition="best")


def among(over: OverCuts) -> AmongListed:
    return AmongListed(over, lambda counts: on(PIPELINE, counts), SETTINGS, 30.0)


def test_all_cuts_are_settled_by_lists_of_them() -> None:
    best = best_in(PIPELINE, boxes().all_of(8, 4))
    assert best is not None
    value = best[0]
    for below, better in ((value + 20, True), (value, False)):
        over = OverCuts(PIPELINE, "makespan", Fraction(0))
        looks, found = among(over), math.inf
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
    assert over.list_cuts(Fraction(10**6), 100, Clock(60))
    assert over.listed is not None
    first = over.least_listed(10**6)
    assert first is not None
    number = len(over.listed.ends)
    over.leave_out(first)
    assert over.list_cuts(Fraction(10**6), 100, Clock(60))
    assert len(over.listed.ends) == number - 1
    assert over.least_listed(0) is None
