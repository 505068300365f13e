"""The model of all cuts: the least of what certificates say, as by hand for every cut."""

from collections.abc import Sequence
from random import Random

import pytest

from ppopt.bounds.certificates import Certificate
from ppopt.bounds.cuts import CutModel
from ppopt.bounds.ways import Part, Way
from ppopt.clock import Limits
from ppopt.op import Kind
from tests.support.layered import cuts, stages_of

KINDS = (Kind.F, Kind.I, Kind.W)


class Drawn:
    """Random layers and certificates, in the model and for brute force."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.layers, self.stages = rng.randint(4, 9), rng.randint(2, 4)
        self.times = {kind: [rng.randint(0, 9) for _ in range(self.layers)] for kind in KINDS}
        self.certificates = [self._certificate(rng) for _ in range(rng.randint(1, 6))]
        self.model = CutModel(self.times, self.stages)
        for certificate in self.certificates:
            self.model.learn(certificate)

    def _way(self, rng: Random, most: int) -> Way:
        times = {Part(rng.choice(KINDS), rng.randrange(self.stages)): rng.randint(1, most) for _ in range(rng.randint(0, 4))}
        return Way.of(times, rng.randint(0, 5))

    def _certificate(self, rng: Random) -> Certificate:
        first, last = (tuple(self._way(rng, 2) for _ in range(rng.randint(1, 3))) for _ in range(2))
        return Certificate(first, self._way(rng, 6), last)

    @property
    def cuts(self) -> list[tuple[int, ...]]:
        return list(cuts(self.layers, self.stages))

    def bound(self, counts: Sequence[int]) -> int:
        """The largest that a certificate says of a cut."""
        duration = {}
        for kind, of in self.times.items():
            duration |= {Part(kind, s): sum(values) for s, values in enumerate(stages_of(of, counts))}
        return max(0, *(certificate.value(duration) for certificate in self.certificates))


def limits() -> Limits:
    return Limits.of(20, workers=1)


def test_the_least_cut_is_that_of_brute_force() -> None:
    for seed in range(25):
        drawn = Drawn(seed)
        least = min(map(drawn.bound, drawn.cuts))
        found = drawn.model.least(limits(), 0, 10**6)
        assert (found.bound, found.value, found.none) == (least, least, False)
        assert found.counts in drawn.cuts
        assert drawn.bound(found.counts) == least


def test_cuts_that_are_left_out_are_not_given_again() -> None:
    """One after the other, each once, by what they are worth; then none is left."""
    drawn = Drawn(3)
    left, given = sorted(map(drawn.bound, drawn.cuts)), []
    for worth in left:
        found = drawn.model.least(limits(), 0, 10**6)
        assert found.counts is not None
        assert found.value == drawn.bound(found.counts) == worth
        given.append(found.counts)
        drawn.model.leave_out(found.counts)
    assert sorted(given) == sorted(drawn.cuts)
    found = drawn.model.least(limits(), 0, 10**6)
    assert (found.none, found.counts, found.bound) == (True, None, 10**6 + 1)


def test_only_bounds_that_are_asked_for() -> None:
    """None is left below the least; from a bound on that is known, no cut is worth less than it."""
    drawn = Drawn(5)
    least = min(map(drawn.bound, drawn.cuts))
    below = drawn.model.least(limits(), 0, least - 1)
    assert (below.none, below.bound) == (True, least)
    again = drawn.model.least(limits(), 0, least)
    assert (again.value, again.none) == (least, False)
    from_there = drawn.model.least(limits(), least + 3, 10**6)
    assert from_there.bound == from_there.value == least + 3  # a bound that is known counts for every cut
    assert drawn.model.least(limits(), 5, 4).none


def test_a_hint_changes_nothing() -> None:
    for seed in range(6):
        drawn = Drawn(seed)
        least = min(map(drawn.bound, drawn.cuts))
        assert drawn.model.least(limits(), 0, 10**6, hint=drawn.cuts[-1]).value == least


def test_what_stages_hold_is_kept_at_a_limit() -> None:
    for seed in range(10):
        drawn = Drawn(seed)
        rng = Random(seed)
        amounts = [rng.randint(0, 5) for _ in range(drawn.layers)]
        stages = sorted(rng.sample(range(drawn.stages), rng.randint(1, 2)))
        most = rng.randint(2, 12)
        drawn.model.hold([(drawn.model.ends(amounts), stages)], most)
        fit = [cut for cut in drawn.cuts if sum(sum(stages_of(amounts, cut)[s]) for s in stages) <= most]
        found = drawn.model.least(limits(), 0, 10**6)
        if fit:
            assert found.counts in fit
            assert found.value == min(map(drawn.bound, fit))
        else:
            assert found.none


@pytest.mark.parametrize(("layers", "stages"), [(3, 3), (5, 1), (5, 5), (6, 2)])
def test_every_stage_has_a_layer(layers: int, stages: int) -> None:
    model = CutModel({kind: [1] * layers for kind in KINDS}, stages)
    seen = set()
    while (found := model.least(limits(), 0, 10)).counts is not None:
        seen.add(found.counts)
        model.leave_out(found.counts)
    assert seen == set(cuts(layers, stages))


def test_amounts_in_proportion_have_the_same_variables() -> None:
    """So that no solver has to find out that they say the same."""
    drawn = Drawn(4)
    model, amounts = drawn.model, [2 * layer + 1 for layer in range(drawn.layers)]
    once = model.ends([3 * amount for amount in amounts])
    known = len(model.model.proto.variables), len(model.model.proto.constraints)
    twice = model.ends([6 * amount for amount in amounts])
    assert (len(model.model.proto.variables), len(model.model.proto.constraints)) == known
    most = max(sum(stages_of(amounts, cut)[0]) for cut in drawn.cuts)
    for ends, unit in ((once, 3), (twice, 6)):
        model.model.add(ends[1] - ends[0] >= unit * most)
    found = model.least(limits(), 0, 10**6)
    assert found.counts is not None
    assert sum(stages_of(amounts, found.counts)[0]) == most
