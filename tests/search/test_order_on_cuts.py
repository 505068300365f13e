"""One order on all cuts: compared with timing it anew on each of them."""

from fractions import Fraction
from random import Random

import pytest

from ppopt.clock import Clock
from ppopt.constraints import rules_of
from ppopt.heuristics import list_schedule
from ppopt.pipeline import Costs, DataParallel, Layer, Layers, Links, Memory, Pipeline
from ppopt.schedule import Schedule
from ppopt.search.near_cuts import retimed, value_of
from ppopt.search.order_on_cuts import OrderOnCuts
from ppopt.search.over_cuts import Counts, OverCuts
from tests.support.layered import MODEL, cuts

WAVE = Pipeline(2, 4, "wave", 2, layers=MODEL)


def layers(chance: Random, split: bool, unit: Fraction = Fraction(1)) -> Layers:
    """Seven of two kinds."""

    def time() -> Fraction:
        return chance.randint(1, 30) * unit

    backward = {"backward_input": time(), "backward_weight": time()} if split else {"backward": time()}
    two = [Layer(name, count, time(), **backward, activation=1) for name, count in (("a", 4), ("b", 3))]
    return Layers(tuple(two))


def search(pipeline: Pipeline) -> OrderOnCuts:
    over = OverCuts(pipeline.changed(partition="best"), "makespan", Fraction(0))
    return OrderOnCuts(over, lambda counts: pipeline.changed(partition=counts), 0)


def any_order(pipeline: Pipeline, counts: Counts) -> Schedule:
    at = pipeline.changed(partition=counts)
    schedule = list_schedule(at, rules_of(at))
    assert schedule is not None
    return schedule


PIPELINES = [
    pytest.param(Pipeline(2, 3, placement, 2, links=Links(latency=latency), layers=layers(Random(seed), split, unit)), id=name)
    for seed, (name, placement, latency, split, unit) in enumerate(
        [
            ("wave", "wave", 0, False, Fraction(1)),
            ("loop", "loop", 0, True, Fraction(1)),
            ("latency", "loop", 3, False, Fraction(1)),
            ("fractions", "wave", Fraction(1, 2), True, Fraction(1, 3)),
        ]
    )
]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_it_is_the_best_of_all_cuts_for_the_order(pipeline: Pipeline) -> None:
    every, searched = list(cuts(7, pipeline.stages)), search(pipeline)
    gained = 0
    for counts in Random(0).sample(every, 4):
        schedule = any_order(pipeline, counts)
        on_each = [retimed(schedule, pipeline.changed(partition=other), "makespan") for other in every]
        least = min(value_of(timed, "makespan") for timed in on_each if timed is not None)
        assert searched.useful(schedule)
        found = searched.best(schedule, Clock(60))
        assert value_of(found, "makespan") == least
        assert found.order == schedule.order
        assert found is schedule or least < value_of(schedule, "makespan")
        gained += found is not schedule
    assert gained


def test_one_stage_has_one_cut() -> None:
    one = Pipeline(1, 3, layers=MODEL)
    schedule = any_order(one, (7,))
    assert search(one).useful(schedule)
    assert search(one).best(schedule, Clock(60)) is schedule


def test_nothing_else_is_given_where_no_time_is_left() -> None:
    schedule = any_order(WAVE, (1, 1, 1, 4))
    assert search(WAVE).best(schedule, Clock(0)) is schedule


NOT_USEFUL = {
    "memory": WAVE.changed(memory=Memory(limit=100)),
    "links": WAVE.changed(links=Links(occupancy=1)),
    "margins": WAVE.changed(data_parallel=DataParallel(reduce_scatter=1)),
    "optimizer": Pipeline(2, 4, "wave", 2, costs=Costs(optimizer=2), layers=MODEL),
}


@pytest.mark.parametrize("pipeline", NOT_USEFUL.values(), ids=NOT_USEFUL)
def test_it_is_of_no_use_where_more_than_layers_counts(pipeline: Pipeline) -> None:
    assert not search(pipeline).useful(any_order(pipeline, (2, 2, 2, 1)))


def test_it_is_about_makespans_alone() -> None:
    over = OverCuts(WAVE.changed(partition="best"), "span", Fraction(0))
    spans = OrderOnCuts(over, lambda counts: WAVE.changed(partition=counts), 0)
    own = any_order(WAVE, (2, 2, 2, 1))
    assert search(WAVE).useful(own)
    assert not spans.useful(own)
