"""The cuts of small bounds where memory is not limited: exactly those whose bounds are below a value, by looking at every cut."""

import dataclasses
from fractions import Fraction
from itertools import accumulate
from random import Random

import numpy as np
import pytest

from ppopt.bounds import halved_cuts
from ppopt.bounds.halved_cuts import cuts_of_halves, seconds_of_halves
from ppopt.bounds.many_cuts import ManyCuts, counts_of
from ppopt.clock import Clock
from ppopt.pipeline import IntArray, Pipeline
from ppopt.search.over_cuts import OverCuts
from tests.bounds.test_many_cuts import PLACES, drawn
from tests.support.layered import cuts

SMALL = (("linear", 2, 1, 3), ("linear", 1, 1, 3), *PLACES)


def without_limit(rng: Random, place: tuple[str, int, int, int]) -> Pipeline:
    pipeline = drawn(rng, place)
    return pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=None))


def of(pipeline: Pipeline) -> tuple[OverCuts, ManyCuts, IntArray]:
    """What is known of all cuts, and these, by their ends."""
    over = OverCuts(pipeline, "makespan", Fraction(0))
    assert over.many is not None
    assert not over.limited
    every = [list(accumulate(counts))[:-1] for counts in cuts(len(pipeline.layers or ()), pipeline.stages)]
    return over, over.many, np.array(every, dtype=np.int64)


def nothing(ends: IntArray) -> None:
    """Nothing is learned."""


@pytest.mark.parametrize("place", [SMALL[0], *PLACES], ids=lambda place: "-".join(map(str, place[:3])))
def test_all_of_them_and_no_others(place: tuple[str, int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halved_cuts, "AT_ONCE", 16)  # so that they come in several parts
    monkeypatch.setattr(halved_cuts, "ROOM", 1)
    rng, some_listed, some_not = Random(str(place)), 0, 0
    for _ in range(3):
        over, many, every = of(without_limit(rng, place))
        for ends in every[[rng.randrange(len(every)) for _ in range(2)]]:
            over.learn_from(over.pipeline.changed(partition=counts_of(ends, many.layers)))
        bounds = many.each(every).max(axis=1)
        for below in np.quantile(bounds, (0.05, 0.3, 0.9)).astype(int).tolist():
            expected = {tuple(ends): int(bound) for ends, bound in zip(every.tolist(), bounds, strict=True) if bound < below}
            found = cuts_of_halves(many, below, len(every), Clock(100), nothing)
            assert found is not None
            assert dict(zip(map(tuple, found.ends.tolist()), found.bounds.tolist(), strict=True)) == expected
            assert found.bound == min(expected.values(), default=below)
            some_listed += len(expected)
            some_not += len(every) - len(expected)
    assert min(some_listed, some_not) > 4


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place[:3])))
def test_those_of_the_least_bounds_where_there_are_too_many(
    place: tuple[str, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halved_cuts, "AT_ONCE", 8)
    rng, shorter = Random(f"few {place}"), 0
    for most in (1, 5, 20):
        over, many, every = of(without_limit(rng, place))

        def learn(ends: IntArray, over: OverCuts = over, many: ManyCuts = many) -> None:
            over.learn_from(over.pipeline.changed(partition=counts_of(ends, many.layers)))

        below = int(many.each(every).max()) + 1
        found = cuts_of_halves(many, below, most, Clock(100), learn)
        assert found is not None
        assert len(found.ends) <= most
        bounds = many.each(every).max(axis=1)  # with what was learned meanwhile
        expected = {tuple(ends): int(bound) for ends, bound in zip(every.tolist(), bounds, strict=True) if bound < found.below}
        assert dict(zip(map(tuple, found.ends.tolist()), found.bounds.tolist(), strict=True)) == expected
        known = many.learned
        if len(found.ends):
            learn(found.ends[int(np.argmin(found.bounds))])
        assert many.learned == known  # nothing is left to learn from the least
        shorter += found.below < below
    assert shorter


def test_one_stage_has_one_cut() -> None:
    over = OverCuts(without_limit(Random(1), SMALL[1]), "makespan", Fraction(0))
    assert over.many is None
    assert not over.limited


def test_it_ends_with_the_clock_and_where_numbers_would_be_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _, many, every = of(without_limit(Random(2), PLACES[1]))
    below = int(many.each(every).max())
    assert cuts_of_halves(many, below, len(every), Clock(0), nothing) is None
    monkeypatch.setattr(halved_cuts, "EXACT", 100)
    assert cuts_of_halves(many, below, len(every), Clock(100), nothing) is None


def test_too_many_halves_would_take_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    _, many, _ = of(without_limit(Random(2), PLACES[1]))
    monkeypatch.setattr(halved_cuts, "available", lambda: False)
    assert 0 < seconds_of_halves(many) < 1  # few are looked for without
    monkeypatch.setattr(halved_cuts, "MOST_HALVES", 1)
    assert seconds_of_halves(many) == float("inf")
    monkeypatch.setattr(halved_cuts, "MOST_HALVES", 10**6)
    monkeypatch.setattr(halved_cuts, "MOST_UNCOMPILED", 0)
    assert seconds_of_halves(many) == float("inf")
    monkeypatch.setattr(halved_cuts, "available", lambda: True)
    assert 0 < seconds_of_halves(many) < 1


def test_each_half_is_placed_once() -> None:
    rows = halved_cuts._placed(7, 3)
    assert len(rows) == len({tuple(row) for row in rows.tolist()}) == 35
    assert np.all(np.diff(rows, axis=1) > 0)
    assert rows.min() == 1
    assert rows.max() == 7
    assert np.all(np.diff(rows[:, -1]) >= 0)
    assert halved_cuts._placed(7, 0).shape == (1, 0)
