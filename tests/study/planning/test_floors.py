"""Bounds in closed form: never above what is possible, on any placement and cut; and equal to it where nothing is in the way."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppopt.pipeline import Layer, Layers, Pipeline
from ppopt.study.planning.floors import Floors, Rows, linear_cut
from ppopt.study.planning.least_cuts import least_cut
from ppopt.study.planning.question import question_of
from ppopt.study.planning.space import Case, cases_of
from tests.support.every_cut import by_enumeration, layered
from tests.support.planned import tables
from tests.support.tiers import drawn


def floors_of(pipeline: Pipeline) -> Floors:
    assert pipeline.layers is not None
    limit, static = pipeline.memory.limit, pipeline.memory.static
    room = None if limit is None else float(limit - static)  # type: ignore[operator, arg-type]
    recompute = pipeline.recompute
    assert isinstance(recompute, str)
    return Floors(
        Rows.of(pipeline.layers, recompute), pipeline.devices, pipeline.microbatches, room, float(pipeline.links.latency)
    )  # type: ignore[arg-type]


def compare(pipeline: Pipeline) -> None:
    if pipeline.placement == "bidirectional":  # plans do not take it
        return
    optimum = by_enumeration(pipeline, "makespan")
    floors = floors_of(pipeline)
    if optimum is None:
        return
    assert floors.fits
    assert floors.least <= float(optimum)
    found = least_cut(floors, pipeline.placement, pipeline.chunks)
    assert found.bound <= float(optimum)


@drawn(4, 60, layered(5, 6, ("none", "none", "choose")))
def test_no_cut_and_no_choice_takes_less(pipeline: Pipeline) -> None:
    compare(pipeline)


def test_what_alike_layers_cannot_be_dealt_evenly() -> None:
    """Ten layers on four devices: one has three of them, so 3 x 4 x 5 = 60, where an equal share were 50. On the linear
    placement it also waits for those before it, or they for it."""
    layers = Layers([Layer("decoder", 10, forward=2, backward=2)])
    floors = Floors(Rows.of(layers, "none"), 4, 5, None, 0.0)
    assert floors.least == pytest.approx(60, rel=1e-3)
    assert least_cut(floors, "linear", 1).bound > 60


def test_memory_that_makes_layers_recompute() -> None:
    """One device with room for half of what it would hold: a microbatch holds 8 for its whole way of 16. With room for 4 two
    layers recompute, which takes 20 more, if the other half of the time holds nothing."""
    layers = Layers(
        [Layer("decoder", 4, forward=2, backward=2, activation=2, recompute=[{"name": "full", "time": 1, "saved": 2}])]
    )
    free, tight = (Floors(Rows.of(layers, "choose"), 1, 10, room, 0.0).least for room in (8.0, 4.0))
    assert free == pytest.approx(160, rel=1e-3)
    assert 160 < tight <= 180


def test_whole_layers_recompute() -> None:
    """As above with room for 4: two whole layers recompute, and then there is room for one microbatch after the other. With room
    for 5, the average over the time asks for less than two; but no layer can recompute in part of the microbatches."""
    layers = Layers(
        [Layer("decoder", 4, forward=2, backward=2, activation=2, recompute=[{"name": "full", "time": 1, "saved": 2}])]
    )
    for room in (4.0, 5.0):
        floors = Floors(Rows.of(layers, "choose"), 1, 10, room, 0.0)
        assert least_cut(floors, "linear", 1).bound == pytest.approx(180, rel=1e-3)
        assert floors.least < 180


def test_room_for_whole_microbatches() -> None:
    """Two devices with a layer each that takes 1 + 1 and holds 2; room for 3 is room for one microbatch. So the 6 microbatches
    pass through both layers one after the other, 4 each."""
    layers = Layers([Layer("decoder", 2, forward=1, backward=1, activation=2)])
    floors = Floors(Rows.of(layers, "none"), 2, 6, 3.0, 0.0)
    assert least_cut(floors, "linear", 1).bound == pytest.approx(24)
    assert least_cut(floors, "linear", 1).counts == (1, 1)


@pytest.mark.parametrize("placement", ["loop", "wave"])
def test_what_is_later_is_not_told_apart(placement: str) -> None:
    layers = Layers([Layer("decoder", 12, forward=2, backward=4, activation=1)])
    floors = Floors(Rows.of(layers, "none"), 3, 8, 9.0, 0.1)
    found = least_cut(floors, placement, 2)
    assert found.counts is not None
    assert sum(found.counts) == 12
    early = least_cut(floors, placement, 2, found.bound * 0.99)
    assert early.counts is None
    assert early.bound == pytest.approx(max(floors.least, found.bound * 0.99))


def test_no_cut_where_nothing_fits() -> None:
    layers = Layers([Layer("decoder", 4, forward=2, backward=4, activation=1, weights=5)])
    for placement, chunks in (("linear", 1), ("wave", 2), ("loop", 2)):
        assert least_cut(Floors(Rows.of(layers, "none"), 2, 4, 9.0, 0.0), placement, chunks).bound == math.inf


def test_rows_of_an_estimate_are_those_of_its_layers() -> None:
    for chosen in ("choose", "none", "full"):
        for case in cases_of(question_of(tables(training={"recompute": chosen}))).possible:
            rows = Rows.of(case.layers, chosen)
            for name, values in case.floors.rows._asdict().items():
                assert np.allclose(values, getattr(rows, name), rtol=1e-12), name


def test_weights_alone_tell_what_does_not_fit() -> None:
    """What is not even estimated has no room for its layers, however they are cut."""
    question = question_of(tables(cluster={"gpus": 4, "memory": 0.15}))
    cases = cases_of(question)
    assert cases.heavy
    for heavy in cases.heavy:
        floors = Case.of(question, heavy.combination).floors
        assert not floors.fits
        assert floors.fullest()[0] - floors.room >= heavy.missing


def test_a_plan_without_room_says_which_device_is_fullest() -> None:
    layers = Layers([Layer("a", forward=1, backward=1, weights=7), Layer("b", 3, forward=1, backward=1, weights=2)])
    floors = Floors(Rows.of(layers, "none"), 2, 1, 6.0, 0.0)
    assert not floors.fits
    assert floors.fullest() == (7.0, 0)
    assert floors.least == math.inf


@given(st.lists(st.integers(0, 9), min_size=3, max_size=8), st.integers(1, 3))
def test_the_most_even_cut_is_the_most_even(sizes: list[int], parts: int) -> None:
    counts = linear_cut(np.array(sizes, dtype=float), parts)
    assert sum(counts) == len(sizes)
    assert min(counts) > 0

    def largest(ends: tuple[int, ...]) -> int:
        return max(sum(sizes[a:b]) for a, b in pairwise(ends))

    ends = tuple(int(end) for end in np.cumsum([0, *counts]))
    assert largest(ends) == min(largest((0, *each, len(sizes))) for each in combinations(range(1, len(sizes)), parts - 1))
