"""One order on all cuts: compared with timing it anew on each of them."""

import dataclasses
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
from tests.support.layered import MODEL, cuts, on

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
    return OrderOnCuts(over, lambda counts: on(pipeline, counts), 0)


def any_order(pipeline: Pipeline, counts: Counts) -> Schedule:
    """Whatever it holds."""
    at = pipeline.changed(partition=counts, memory=Memory())
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


def heavy(chance: Random, split: bool) -> Layers:
    """Seven that hold different amounts; split, they keep a part of it until ``W``."""

    def amounts() -> dict[str, int]:
        kept = {"retained": chance.randint(1, 3)} if split else {}
        return {"activation": chance.randint(3, 9), "weights": chance.randint(0, 2), **kept}

    return Layers(tuple(dataclasses.replace(of, **amounts()) for of in layers(chance, split).groups))


def within(pipeline: Pipeline) -> Pipeline:
    """With the memory that about half of the cuts need for some order."""
    peaks = [int(max(schedule.peak_memory)) for schedule in (any_order(pipeline, counts) for counts in cuts(7, pipeline.stages))]
    per_unit = any_order(pipeline, (1, 1, 1, 4)).pipeline.amounts.per_unit
    return pipeline.changed(memory=Memory(limit=Fraction(sorted(peaks)[len(peaks) // 2], per_unit)))


def exchanging(seed: int) -> Layers:
    """Layers that gather, scatter and step once."""
    chance, names = Random(seed), ("all_gather", "reduce_scatter", "optimizer")
    return Layers(
        tuple(dataclasses.replace(of, **{name: chance.randint(0, 9) for name in names}) for of in layers(chance, True).groups)
    )


EXCHANGING = [
    *(
        pytest.param(Pipeline(2, 3, placed, 2, layers=exchanging(n)), id=f"{placed}-{n}")
        for n in (0, 1)
        for placed in ("loop", "wave")
    ),
    pytest.param(WAVE.changed(data_parallel=DataParallel((2, 0), (1, 30))), id="by device"),
    pytest.param(Pipeline(2, 4, "wave", 2, costs=Costs(optimizer=(2, 9)), layers=MODEL), id="optimizer"),
]

LIMITED = [
    pytest.param(within(Pipeline(2, 4, placement, 2, layers=heavy(Random(seed), split))), id=f"memory-{placement}-{seed}")
    for seed, (placement, split) in enumerate([("wave", False), ("loop", True), ("wave", True)])
]


@pytest.mark.parametrize("pipeline", PIPELINES + EXCHANGING + LIMITED)
def test_it_is_the_best_of_all_cuts_for_the_order(pipeline: Pipeline) -> None:
    every, searched = list(cuts(7, pipeline.stages)), search(pipeline)
    places = [place for counts in every if (place := on(pipeline, counts)) is not None]
    gained = 0
    for own in Random(0).sample(places, 4):
        schedule = retimed(any_order(pipeline, own.counts), own, "makespan")
        assert schedule is not None
        on_each = [timed for place in places if (timed := retimed(schedule, place, "makespan")) is not None]
        least = min(value_of(timed, "makespan") for timed in on_each if timed.within_memory)
        assert searched.useful(schedule)
        found = searched.best(schedule, Clock(60))
        assert found.within_memory
        assert value_of(found, "makespan") == least
        assert found.order == schedule.order
        gained += found is not schedule
    assert gained


def test_nothing_is_given_where_an_order_fits_on_no_cut() -> None:
    tight = Pipeline(2, 4, "wave", 2, layers=heavy(Random(0), False), memory=Memory(limit=34))
    own = on(tight, (2, 2, 1, 2))
    assert own is not None
    schedule = retimed(any_order(tight, own.counts), own, "makespan")
    assert schedule is not None
    assert not schedule.within_memory
    assert search(tight).best(schedule, Clock(60)) is schedule


def test_one_stage_has_one_cut() -> None:
    one = Pipeline(1, 3, layers=MODEL)
    schedule = any_order(one, (7,))
    assert search(one).useful(schedule)
    assert search(one).best(schedule, Clock(60)) is schedule


def test_nothing_else_is_given_where_no_time_is_left() -> None:
    schedule = any_order(WAVE, (1, 1, 1, 4))
    assert search(WAVE).best(schedule, Clock(0)) is schedule


NOT_USEFUL = {
    "links": WAVE.changed(links=Links(occupancy=1)),
    "exchange stage by stage": Pipeline(2, 4, "loop", 2, layers=exchanging(0), data_parallel=DataParallel(overlap=True)),
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
