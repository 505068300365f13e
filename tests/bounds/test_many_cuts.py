"""The bounds of many cuts at once: to the tick what single certificates and limits of memory say of each cut."""

from fractions import Fraction
from itertools import accumulate
from random import Random

import numpy as np
import pytest

from ppopt.bounds import many_fillings
from ppopt.bounds.certificates import Certificate, certificates, durations_of
from ppopt.bounds.filling import fillings
from ppopt.bounds.ways import Way
from ppopt.pipeline import Layer, Layers, Memory, Pipeline, PipelineError
from ppopt.search.over_cuts import Counts, OverCuts
from tests.support.layered import cuts

PLACES = (("linear", 3, 1, 5), ("wave", 2, 2, 4), ("loop", 2, 2, 3), ("wave", 3, 2, 5), ("loop", 2, 3, 3))


def drawn(rng: Random, place: tuple[str, int, int, int]) -> Pipeline:
    """Random layers on a placement, with room for few microbatches; the partition is open."""
    placement, devices, chunks, microbatches = place
    split = rng.random() < 0.5

    def layer(i: int) -> Layer:
        back = (
            {"backward_input": rng.randint(1, 9), "backward_weight": rng.randint(0, 9)}
            if split
            else {"backward": rng.randint(1, 19)}
        )
        amounts = {"activation": rng.randint(0, 6), "weights": rng.randint(0, 4)}
        return Layer(f"l{i}", forward=rng.randint(0, 9), **back, **amounts)

    every = [layer(i) for i in range(devices * chunks + 3)]
    layers = Layers(every)
    limit = max(each.activation + each.weights for each in every) + rng.randint(4, 6) * (chunks + 1)  # too little for some cuts
    return Pipeline(devices, microbatches, placement, chunks, layers=layers, partition="best", memory=Memory(limit=limit))


def single(over: OverCuts, pipeline: Pipeline, counts: Counts) -> tuple[bool, list[int]]:
    """Whether a cut has room, and the bound of each device, by one certificate and one limit of memory after the other."""
    assert over._amounts is not None
    least = over._amounts.least
    sums, room = ([0, *accumulate(of)] for of in (least.held, least.kept, least.own)), least.room
    ends = [0, *accumulate(counts)]
    held, kept, own = ({s: of[ends[s + 1]] - of[ends[s]] for s in range(pipeline.stages)} for of in sums)
    cut = pipeline.changed(partition=counts, memory=Memory(limit=None))
    duration = {part: ticks * over.per_unit // cut.ticks.per_unit for part, ticks in durations_of(cut).items()}
    found = [0] * pipeline.devices
    for certificate in over._known:
        device = pipeline.routes[0][certificate.work.times[0][0].stage]
        found[device] = max(found[device], certificate.value(duration))
    fits = True
    for filling in fillings(over._some):
        left = room[filling.device] - sum(own[s] for s in filling.stages)
        if left < sum(held[s] for s in filling.stages):
            fits = False
            continue
        found[filling.device] = max(found[filling.device], filling.value(duration, held, kept, left))
    return fits, found


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place[:3])))
def test_what_is_said_of_single_cuts(place: tuple[str, int, int, int]) -> None:
    rng, compared, refused = Random(str(place)), 0, 0
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
        some = rng.sample(every, min(12, len(every)))
        ends = np.array([list(accumulate(counts))[:-1] for counts in some])
        for counts, fits, row in zip(some, over.many.fits(ends), over.many.each(ends), strict=True):
            room, each = single(over, pipeline, counts)
            assert room == fits
            refused += not fits
            if fits:
                compared += 1
                assert all(have >= least for have, least in zip(row.tolist(), each, strict=True))
                assert max(row) <= max(max(each), machine(over, pipeline, counts))
    assert compared > 3
    assert refused


def machine(over: OverCuts, pipeline: Pipeline, counts: Counts) -> int:
    """The one-machine bound of a cut, in the ticks of all cuts: certificates of other cuts are never above it."""
    cut = pipeline.changed(partition=counts, memory=Memory(limit=None))
    return certificates(cut, 1)[0].value(durations_of(cut)) * over.per_unit // cut.ticks.per_unit


def test_a_certificate_that_is_known_says_nothing_new() -> None:
    over = OverCuts(drawn(Random(1), PLACES[1]), "makespan", Fraction(0))
    assert over.many is not None
    ends = np.array([[2, 4, 5], [1, 3, 6]])
    before = over.many.each(ends)
    for certificate in over._known:
        over.many.learn(certificate)
    assert np.array_equal(over.many.each(ends), before)


def test_a_certificate_of_several_spans_is_refused() -> None:
    over = OverCuts(drawn(Random(1), PLACES[1]), "makespan", Fraction(0))
    assert over.many is not None
    with pytest.raises(AssertionError, match="several spans"):
        over.many.learn(Certificate((Way(),), Way(), (Way(),), spans=2))


def test_phases_with_too_many_choices_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are smaller then, and not wrong."""
    monkeypatch.setattr(many_fillings, "MOST_TRIED", 3)
    pipeline = drawn(Random(2), PLACES[1])
    over = OverCuts(pipeline, "makespan", Fraction(0))
    assert over.many is not None
    smaller = 0
    for counts in cuts(len(pipeline.layers or ()), pipeline.stages):
        fits, each = single(over, pipeline, counts)
        row = over.many.each(np.array([list(accumulate(counts))[:-1]]))[0]
        assert not fits or max(row) <= max(each)
        smaller += fits and max(row) < max(each)
    assert smaller
