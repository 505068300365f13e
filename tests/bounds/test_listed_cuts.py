"""The cuts of small bounds, listed: exactly those whose bounds are below a value, by looking at every cut."""

from fractions import Fraction
from itertools import accumulate
from random import Random

import numpy as np
import pytest

from ppopt.bounds import listed_cuts
from ppopt.bounds.cut_list import Listed, SomeCuts
from ppopt.bounds.listed_cuts import cuts_below
from ppopt.clock import Clock
from ppopt.pipeline import PipelineError
from ppopt.search.over_cuts import OverCuts
from tests.bounds.test_many_cuts import PLACES, drawn
from tests.support.layered import cuts
from tests.support.tiers import thorough


@pytest.mark.parametrize(
    "place", [*PLACES[:-1], pytest.param(PLACES[-1], marks=thorough)], ids=lambda place: "-".join(map(str, place[:3]))
)
def test_all_of_them_and_no_others(place: tuple[str, int, int, int]) -> None:
    rng, some_listed, some_not = Random(str(place)), 0, 0
    for _ in range(2):
        pipeline = drawn(rng, place)
        over = OverCuts(pipeline, "makespan", Fraction(0))
        assert over.many is not None
        every = list(cuts(len(pipeline.layers or ()), pipeline.stages))
        for counts in rng.sample(every, 3):
            try:
                over.learn_from(pipeline.changed(partition=counts))
            except PipelineError:
                continue
        ends = np.array([list(accumulate(counts))[:-1] for counts in every])
        bounds, fits = over.many.each(ends).max(axis=1), over.many.fits(ends)
        for below in np.quantile(bounds, (0.05, 0.3, 0.8)).astype(int).tolist():
            expected = {
                tuple(of): int(bound)
                for of, bound, room in zip(ends.tolist(), bounds, fits, strict=True)
                if room and bound < below
            }
            found = cuts_below(over.many, below, len(every), Clock(100))
            assert found is not None
            assert dict(zip(map(tuple, found.ends.tolist()), found.bounds.tolist(), strict=True)) == expected
            assert found.bound == min(expected.values(), default=below)
            some_listed += len(expected)
            some_not += len(every) - len(expected)
            if len(expected) > 1:
                assert cuts_below(over.many, below, 1, Clock(100)) is None
                assert cuts_below(over.many, below, len(every), Clock(0)) is None
    assert min(some_listed, some_not) > 4


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place[:3])))
def test_no_cut_of_a_box_has_less(place: tuple[str, int, int, int]) -> None:
    rng, fits = Random(str(place)), np.zeros(1, dtype=np.bool_)
    while not fits.any():
        pipeline = drawn(rng, place)
        over = OverCuts(pipeline, "makespan", Fraction(0))
        assert over.many is not None
        every = np.array([list(accumulate(counts))[:-1] for counts in cuts(len(pipeline.layers or ()), pipeline.stages)])
        bounds, fits = over.many.each(every).max(axis=1), over.many.fits(every)
    boxes = listed_cuts._BoxBounds(over.many)
    for _ in range(40):
        low, high = every[[rng.randrange(len(every)) for _ in range(2)]]
        low, high = np.minimum(low, high), np.maximum(low, high)
        within = np.all((every >= low) & (every <= high), axis=1) & fits
        (found,) = boxes.least(low[None, :], high[None, :], 10**9)
        if within.any():
            assert found <= bounds[within].min()
    singles = boxes.least(every[fits], every[fits], 10**9)
    assert np.all(singles <= bounds[fits])
    assert np.mean(singles == bounds[fits]) > 0.9


def test_numbers_that_floating_point_would_round_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    over = OverCuts(drawn(Random(1), PLACES[1]), "makespan", Fraction(0))
    assert over.many is not None
    assert cuts_below(over.many, 10**9, 10**6, Clock(100)) is not None
    monkeypatch.setattr(listed_cuts, "EXACT", 100.0)
    assert cuts_below(over.many, 10**9, 10**6, Clock(100)) is None


def test_cuts_that_are_left_out_no_longer_count() -> None:
    listed = Listed(np.array([[1, 4], [2, 4], [2, 7]]), np.array([10, 12, 11]), 13)
    listed.leave_out(np.array([[1, 4], [2, 5]]), np.array([[1, 4], [2, 6]]))
    assert listed.ends.tolist() == [[2, 4], [2, 7]]
    assert listed.bound == 11
    listed.leave_out(np.array([[2, 4]]), np.array([[2, 7]]))
    assert listed.bound == 13
    assert SomeCuts(np.array([[2, 4]])).has((2, 2, 3))
    assert not SomeCuts(np.array([[2, 4]])).has((1, 3, 3))
