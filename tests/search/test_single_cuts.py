"""Single listed cuts that are decided by dynamic programming: compared with the best order of every cut."""

from collections import Counter
from fractions import Fraction

import pytest

from ppopt import dynamic
from ppopt.bounds import cut_list
from ppopt.bounds.cut_list import GIVEN_UP, NEVER
from ppopt.bounds.tight_lists import OnCut
from ppopt.clock import Clock, Limits
from ppopt.dynamic import layers
from ppopt.pipeline import Layers, Links, Pipeline
from ppopt.schedule import Schedule
from ppopt.search.boxes import boxes
from ppopt.search.over_cuts import OverCuts
from ppopt.search.single_cuts import SingleCuts
from ppopt.search.step import Taken
from tests.search.test_boxes import best_in
from tests.search.test_listed import FREE, PIPELINE, among
from tests.support.layered import on


def of_all(pipeline: Pipeline, more: int) -> tuple[OverCuts, SingleCuts, Fraction]:
    """All cuts, listed below so much more than the best, which is known."""
    known = best_in(pipeline, boxes().all_of(8, 4))
    assert known is not None
    over = OverCuts(pipeline, "makespan", Fraction(0))
    learned = among(over, pipeline)._learned
    assert over.list_cuts(Fraction(known[0] + more), 100, Limits(Clock(60)), learned, 0)
    return over, SingleCuts(over, lambda counts: on(pipeline, counts)), Fraction(known[0])


@pytest.mark.parametrize("more", [1, 20])
def test_what_is_decided_is_the_best_of_all_cuts(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    over, single, best = of_all(FREE, more)
    monkeypatch.setattr(SingleCuts, "look", lambda self, cut, clock: None)
    assert single.decides
    over.tighten_list(Limits(Clock(60), 0.0, 2), single)
    assert single.best is not None
    assert single.best.makespan == best * single.best.pipeline.ticks.per_unit
    assert over.bound == best
    assert not over.listing


def test_it_is_decided_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun goes on: of each cut and makespan there is one question. What matters no more takes no room."""
    over, single, best = of_all(FREE, 20)
    monkeypatch.setattr(SingleCuts, "look", lambda self, cut, clock: None)
    asked, turns = Counter[tuple[bytes, int]](), 0
    question = SingleCuts._question

    def counted(self: SingleCuts, cut: OnCut, clock: Clock) -> tuple[Pipeline, dynamic.Question] | None:
        asked[cut.ends.tobytes(), cut.most] += 1
        return question(self, cut, clock)

    monkeypatch.setattr(SingleCuts, "_question", counted)
    known = 0
    while over.listing:
        over.tighten_list(Limits(Clock(1e-3, deterministic=True), 0.0, 1), single)
        assert over.bound <= best
        turns += 1
        assert turns < 1000
        assert over.listed is not None
        assert {most for _, most in single._begun} <= set(range(known, over.listed.below))
        known = over.listed.bound
    assert turns > 2
    assert over.bound == best
    assert set(asked.values()) == {1}
    assert not single._begun


def test_nothing_stays_begun_once_the_list_has_come_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    over, single, best = of_all(FREE, 20)
    looks = among(over, FREE)
    looks._single, steps = single, list[Taken]()
    monkeypatch.setattr(SingleCuts, "look", lambda self, cut, clock: None)
    begun = 0
    while over.listing:
        looks.tighten(Clock(1e-3, deterministic=True), steps, look=True)
        begun += len(single._begun)
    assert begun
    assert not single._begun
    assert over.bound == best
    assert {step.name for step in steps} == {"edge finding, shaving and dynamic programming on the cuts that are left"}


@pytest.mark.parametrize("few", [0, 4])
def test_what_has_too_many_states_is_given_up(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for less then, which may have fewer, and in the end nothing more is asked."""
    over, single, best = of_all(FREE, 20)
    monkeypatch.setattr(SingleCuts, "look", lambda self, cut, clock: None)
    monkeypatch.setattr(cut_list, "DECIDED", few)
    monkeypatch.setattr(layers, "MOST", 1)
    looks = among(over, FREE)
    looks._single = single
    assert looks.tightening(look=True)
    looks.tighten(Clock(60), [], look=True)
    assert not looks.tightening(look=True)
    assert not single._begun
    assert single.best is None
    assert over.listing
    assert over.bound <= best
    assert over.listed is not None
    given_up = over.listed.asked[:, GIVEN_UP] < NEVER
    assert given_up.any()


def test_a_schedule_beyond_the_limit_of_memory_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where memory is more than the states know of."""
    over, single, best = of_all(FREE, 20)
    monkeypatch.setattr(Schedule, "within_memory", property(lambda self: False))
    over.tighten_list(Limits(Clock(60), 0.0, 1), single)
    assert not single.decides
    assert single.best is None
    assert over.bound <= best


def test_with_latency_nothing_is_decided() -> None:
    assert not of_all(FREE.changed(links=Links(latency=1)), 20)[1].decides


def test_within_memory_nothing_is_decided() -> None:
    assert not of_all(PIPELINE, 20)[1].decides


def test_with_weight_gradients_of_their_own_nothing_is_decided() -> None:
    parts = [{"name": name, "count": 4, "forward": 4, "backward_input": 5, "backward_weight": 3} for name in "ab"]
    pipeline = Pipeline(2, 3, "loop", 2, layers=Layers(parts), partition="best")
    assert not SingleCuts(OverCuts(pipeline, "makespan", Fraction(0)), lambda counts: None).decides
