"""Questions to all cuts of the layers for the one with the least bound."""

import math
from collections.abc import Collection
from fractions import Fraction

import pytest

from ppopt.clock import Clock, Limits
from ppopt.pipeline import Layer, Layers, Memory, Mix, Pipeline
from ppopt.search import Settings
from ppopt.search.cuts import CutPipelines
from ppopt.search.least_cut import LeastCut
from ppopt.search.offered_cuts import OfferedCuts
from ppopt.search.over_cuts import Counts, OverCuts
from tests.support.layered import MODEL, cuts

PIPELINE = Pipeline(2, 4, "loop", 2, layers=MODEL, partition="best")
SETTINGS = Settings(seconds=600, workers=1)


def asking(pipeline: Pipeline, without: Collection[Counts] = ()) -> tuple[LeastCut, OverCuts]:
    """``without``: cuts that are said to have no room for a microbatch."""
    over, pipelines = OverCuts(pipeline, "makespan", Fraction(0)), CutPipelines(pipeline)

    def at(counts: Counts) -> Pipeline | None:
        return None if counts in without else pipelines(counts)

    return LeastCut(over, at, SETTINGS, OfferedCuts(over, at, SETTINGS, (), []), lambda: None, lambda: None), over


@pytest.mark.parametrize("placement", ["loop", "wave"])
def test_questions_and_certificates_lead_to_the_cut_with_the_least_bound(placement: str) -> None:
    least, over = asking(PIPELINE.changed(placement=placement))
    asked = least.learned(math.inf, Clock(600))
    bounds = {counts: over.bound_of(PIPELINE.changed(placement=placement, partition=counts)) for counts in cuts(7, 4)}
    assert min(bounds[counts] for counts in asked) == min(bounds.values())
    assert over.bound == min(bounds.values()), "so much is known of all"


def test_nothing_is_asked_once_the_time_is_over() -> None:
    least, _ = asking(PIPELINE)
    assert least.learned(math.inf, Clock(0)) == []


def test_cuts_without_room_are_left_out() -> None:
    least, over = asking(PIPELINE)
    first = min(least.learned(math.inf, Clock(600)), key=lambda counts: over.bound_of(PIPELINE.changed(partition=counts)))
    least, over = asking(PIPELINE, [first])
    bounds = {counts: over.bound_of(PIPELINE.changed(partition=counts)) for counts in cuts(7, 4) if counts != first}
    asked = least.learned(math.inf, Clock(600))
    assert min(bounds[counts] for counts in asked) == min(bounds.values())


def test_a_question_that_was_not_answered_is_asked_for_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    least, over = asking(PIPELINE)
    seconds = list[float]()

    def unanswered(limits: Limits, below: object, hint: object) -> Counts | None:
        seconds.append(limits.clock.seconds)
        over.settled = False
        return None

    monkeypatch.setattr(over, "least", unanswered)
    for below in (math.inf, 100, 100, 100, 100):
        least.ask(below, Clock(600))
    assert seconds == [30, 30, 60, 100, 100], "at most a sixth of the whole time"


def test_parts_are_asked_for_where_what_recomputes_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as much after an answer, half as much after none; until then nothing of the bound is known to be so little."""
    least, over = asking(PIPELINE.changed(recompute="choose", memory=Memory(limit=30)))
    over.bound = Fraction(0)
    parts, answers = list[Fraction](), iter([True, True, False, False, True, False])

    def asked(limits: Limits, below: Fraction, hint: object) -> Counts | None:
        parts.append((below - over.bound) / (1000 - over.bound))
        over.settled = next(answers)
        over.bound = below if over.settled else over.bound
        return None

    monkeypatch.setattr(over, "least", asked)
    least.raised(1000, Clock(600), 0)
    assert parts == [Fraction(1, 4), Fraction(1, 2), 1]
    least.raised(1000, Clock(600), 0)
    assert len(parts) == 3, "there is no time for more"
    for _ in range(3):
        least.ask(1000, Clock(600))
    assert parts[3:] == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 2)]


def test_what_is_asked_in_parts_leads_to_the_same_bound() -> None:
    pipeline = PIPELINE.changed(recompute="choose", memory=Memory(limit=30))
    least, over = asking(pipeline)
    _, other = asking(pipeline)
    other.least(Limits(Clock(600), 0.0, 1, 0), 1000, None)
    for _ in range(30):
        least.ask(1000, Clock(600))
    assert over.bound == other.bound


def test_many_layers_and_lengths_are_asked_within_the_clock() -> None:
    """Times with squares, and factors of 16 lengths. Half a minute for a question is a hundred times what it takes."""
    window = Layer("window", count=240, forward=4, backward=8, activation=0.5, weights=1)
    quadratic = {"forward_quadratic": 1, "backward_quadratic": 2}
    attention = Layer("attention", count=24, forward=5, backward=10, activation=0.5, weights=1, **quadratic)
    head = Layer("head", forward=3, backward=6, activation=0.1, weights=2)
    lengths = [2048, 8192, 1024, 4096, 16320, 300, 5000, 640]
    layers, memory = Layers([window, attention, head]), Memory(limit=200)
    mix = Mix(lengths=lengths * 2, length=4096)
    least, over = asking(Pipeline(8, 16, layers=layers, partition="best", memory=memory, mix=mix))
    for _ in range(4):
        found = least.ask(math.inf, Clock(600))
        assert over.settled
        assert found is not None
        pipeline = over.pipeline.changed(partition=found)
        over.learn_from(pipeline)
