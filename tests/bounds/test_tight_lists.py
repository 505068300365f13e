"""Listed cuts that are refuted, looked at and decided: compared with the optimum of each."""

import math
from collections import Counter
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from ppopt.bounds import cut_list
from ppopt.bounds.cut_list import GIVEN_UP, HARD, LOOKED, Listed
from ppopt.bounds.many_cuts import counts_of
from ppopt.bounds.tight_lists import Decision, OnCut, asked_by
from ppopt.clock import Clock, Limits
from ppopt.search.over_cuts import Counts, OverCuts
from tests.bounds.test_edge_finding import left_of, limits, over_cuts, values_of
from tests.bounds.test_many_cuts import PLACES

Times = dict[Counts, int]


class Known:
    """Looks at cuts whose optima are known, and finds those of ``quick``; else what is below that is decided, if it ``decides``,
    a tick of the clock later, where that has so many ``seconds``."""

    def __init__(self, values: Times, quick: bool = True, decides: bool = False, seconds: float = 0.0) -> None:
        self._values, self._quick, self.decides, self._seconds = values, quick, decides, seconds
        self.looked, self.decided = list[tuple[Counts, int]](), list[tuple[Counts, int]]()
        self.found: int | None = None
        self.too_late = 0
        """How many were decided though something as good was found."""

    def look(self, cut: OnCut, clock: Clock) -> int | None:
        counts = self._counts(cut)
        self.looked.append((counts, cut.most))
        return self._less(cut) if self._quick else None

    def decide(self, cut: OnCut, limits: Limits) -> Decision:
        if limits.clock.over or limits.clock.left < self._seconds:
            limits.clock.charge(limits.clock.left)
            return Decision()
        limits.clock.charge(1e-5)
        self.decided.append((self._counts(cut), cut.most))
        self.too_late += self.found is not None and self.found <= cut.most
        return Decision(self._less(cut), cut.most + 1 if self._less(cut) is None else self._values[self._counts(cut)])

    def _less(self, cut: OnCut) -> int | None:
        """The optimum of a cut, where that is little enough."""
        assert cut.windows.late.max() - cut.windows.early.min() <= cut.most
        value = self._values[self._counts(cut)]
        if value > cut.most:
            return None
        self.found = min(self.found or value, value)
        return value

    def _counts(self, cut: OnCut) -> Counts:
        return counts_of(cut.ends, sum(next(iter(self._values))))


def of_cuts(seed: int, place: int, more: int = 1) -> tuple[OverCuts, Times, Listed, int]:
    """All cuts of random layers, with their optima, listed below so much more than the largest."""
    over = over_cuts(Random(seed), PLACES[place])
    values = values_of(over)
    below = max(values.values()) + more
    assert over.list_cuts(Fraction(below, over.per_unit), len(values), limits(), lambda counts: False, 0)
    assert over.listed is not None
    return over, values, over.listed, below


def test_all_are_asked_for_less_than_what_is_found_on_one() -> None:
    """Those behind a cut on which something is found, and that cut once more."""
    over, values, listed, below = of_cuts(11, 0)
    least, looks = min(values.values()), Known(values)
    over.tighten_list(limits(), looks)
    assert looks.looked[0][1] < below - 1, "some way from the bound"
    assert looks.found == least
    for number, (_, most) in enumerate(looks.looked):
        known = [values[counts] for counts, asked in looks.looked[:number] if values[counts] <= asked]
        assert most < min(known, default=below)
    left_of(over, values, least)
    assert listed.below == least
    before = len(looks.looked)
    over.tighten_list(limits(), looks)
    assert len(looks.looked) == before, "all were asked"


@pytest.mark.parametrize("few", [0, 1, 4])
@pytest.mark.parametrize("quick", [False, True])
def test_what_is_left_is_decided_until_the_best_is_known(few: int, quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_list, "DECIDED", few)
    decided = 0
    for seed in range(6):
        over, values, listed, _ = of_cuts(seed, seed % 3, more=7)
        looks = Known(values, quick, decides=True)
        over.tighten_list(limits(workers=1 + seed % 2), looks)
        assert looks.found == min(values.values())
        assert listed.below == looks.found
        assert not len(listed.ends)
        assert over.bound == Fraction(looks.found, over.per_unit)
        assert listed.target(*asked_by(looks)) is None
        assert max(Counter(looks.decided).values(), default=1) == 1
        assert not looks.too_late or seed % 2, "one thread knows what it has found"
        decided += len(looks.decided)
    assert decided or quick


def test_where_many_are_left_those_near_the_bound_are_decided_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """For less above the optimum than where all that are left are decided at once, which takes states longer."""
    above = list[int]()
    for few in (cut_list.DECIDED, 10**6):
        monkeypatch.setattr(cut_list, "DECIDED", few)
        above.append(0)
        for seed in range(3):
            over, values, _, _ = of_cuts(seed, seed % 3, more=40)
            looks, least = Known(values, quick=False, decides=True, seconds=1), min(values.values())
            over.tighten_list(Limits(Clock(10**6, deterministic=True), 0.0, 1), looks)
            above[-1] += sum(max(most - least, 0) for _, most in looks.decided)
    assert 2 * above[0] < above[1]


def test_what_takes_longer_than_shaving_is_decided_in_the_end() -> None:
    """Where a decision comes no further in a short time, as within a layer of states, and time goes by for all that is done."""
    over, values, listed, _ = of_cuts(2, 2, more=40)
    looks = Known(values, quick=False, decides=True, seconds=0.3)
    over.tighten_list(limits(), looks)
    assert looks.found == listed.below == min(values.values())
    assert not len(listed.ends)


@pytest.mark.parametrize("by", ["shaving", "looking", "deciding"])
def test_with_little_time_in_each_turn_all_are_asked_in_the_end(by: str) -> None:
    """What did not come to its end goes on in the next turn, and no cut is asked twice for as little."""
    turns = 0
    for place in (0, 2) if by == "deciding" else (0,):  # most are decided in the turn that shaves them
        over, values, listed, below = of_cuts(11, place)
        looks = None if by == "shaving" else Known(values, quick=False, decides=by == "deciding")
        while listed.target(*asked_by(looks)) is not None:
            over.tighten_list(Limits(Clock(2e-5, deterministic=True), 0.0, 1), looks)
            turns += 1
            assert turns < 3000
            left = left_of(over, values, listed.below)
        if looks is None or not looks.decides:
            assert {counts for counts, value in values.items() if value < below} == set(left)
        else:
            assert looks.found == listed.below == min(values.values())
            assert max(Counter(looks.decided).values()) == 1
        if looks is not None:
            assert max(Counter(looks.looked).values()) <= 2, "once, or once more where the clock was over"
    assert turns > 10


def test_listed_cuts_are_left_out_only_where_none_is_better() -> None:
    rng, left_out = Random(11), 0
    for place in (*PLACES[:3], *PLACES[:3]):
        over = over_cuts(rng, place)
        values = values_of(over)
        below = min(values.values()) + 1
        assert over.list_cuts(Fraction(below, over.per_unit), len(values), limits(), lambda counts: False, 0)
        assert over.listed is not None
        assert not over.listed.tight
        before = len(over.listed.ends)
        over.tighten_list(limits(workers=2))
        assert over.listed.tight
        assert (over.listed.asked[:, :LOOKED] <= below).all()
        left_out += before - len(left_of(over, values, below))
    assert left_out > 1


def test_a_target_is_halved_while_too_many_are_hard_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_list, "DECIDED", 4)
    listed = Listed(np.arange(10)[:, None], np.full(10, 100), 200, least=100)
    asked, ever = (LOOKED, True), math.inf
    assert listed.target(*asked) == (150, 4, 0)
    listed.asked[:4, HARD] = 150
    assert listed.target(*asked) == (150, 4, 0)
    listed.asked[4, HARD] = 150
    assert listed.target(*asked) == (125, 4, ever)
    listed.asked[:5, HARD] = 125
    assert listed.target(*asked) == (112, 4, ever)
    listed.asked[:5, HARD] = 112
    assert listed.target(*asked) == (112, 10, ever), "near the bound as many may be left as there are"
    listed.bounds[:5] = 112  # they were decided
    assert listed.target(*asked) == (150, 4, 0)
    listed.bounds[:] = 150
    assert listed.target(*asked) == (175, 4, 0)
    listed.bounds[:] = 175
    assert listed.target(*asked) == (200, 4, 0)
    listed.bounds[:] = 200
    assert listed.target(*asked) is None


def test_hard_cuts_are_decided_for_the_best_and_on_the_way_as_long_as_shaving_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_list, "DECIDED", 4)
    listed = Listed(np.arange(10)[:, None], np.full(10, 150), 200, least=100)
    asked, ever = (LOOKED, True), math.inf
    listed.bounds[:3], listed.asked[:3, HARD] = 100, 150
    assert listed.target(*asked) == (175, 4, 0)
    listed.spare = 2.5
    assert listed.target(*asked) == (150, 4, 2.5)
    listed.spare, listed.bounds[3:] = -1, 175
    assert listed.target(*asked) == (200, 4, 0), "the others come before these"
    listed.bounds[3:] = 200
    assert listed.target(*asked) == (200, 4, ever)
    listed.spare = 1
    assert listed.target(*asked) == (150, 4, 1)
    listed.asked[1, GIVEN_UP] = 200
    listed.spare = 0
    assert listed.target(*asked) == (150, 4, ever), "it may be decided for less"
    listed.bounds[:3] = 190
    assert listed.target(*asked) == (195, 4, ever)
    listed.bounds[:3] = 199
    assert listed.target(*asked) == (200, 10, 0), "nothing more is decided"
    listed.asked[:3, LOOKED] = 200
    assert listed.target(*asked) is None
