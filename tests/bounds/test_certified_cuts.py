"""The bounds of many cuts in a compiled loop are those of each certificate."""

from random import Random

import numpy as np
import pytest

import ppopt.compiled
from ppopt.bounds import certified_cuts
from ppopt.bounds.certified_cuts import CertifiedCuts
from ppopt.bounds.many_cuts import ManyCuts, counts_of
from ppopt.pipeline import IntArray
from tests.bounds.test_halved_cuts import SMALL, of, without_limit
from tests.bounds.test_many_cuts import PLACES


def learned(seed: int, place: tuple[str, int, int, int]) -> tuple[ManyCuts, IntArray]:
    """What certificates of some cuts say of all, and these."""
    rng = Random(seed)
    over, many, every = of(without_limit(rng, place))
    for ends in every[[rng.randrange(len(every)) for _ in range(4)]]:
        over.learn_from(over.pipeline.changed(partition=counts_of(ends, many.layers)))
    return many, every


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("place", [SMALL[0], *PLACES], ids=lambda place: "-".join(map(str, place[:3])))
def test_they_are_those_of_the_certificates(
    place: tuple[str, int, int, int], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certified_cuts, "FEW", 0)
    several = 0
    for seed in range(4):
        many, every = learned(seed, place)
        for since in (0, many.learned // 2, many.learned - 1):
            expected = many.each(every, range(since, many.learned)).max(axis=1)
            with ppopt.compiled.using(compiled):
                assert np.array_equal(CertifiedCuts(many, since).bounds(every), expected)
            several += len(set(expected.tolist())) > 1
    assert several


def test_numbers_that_are_too_large_are_left_to_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certified_cuts, "FEW", 0)
    many, every = learned(1, SMALL[-1])
    expected = many.each(every).max(axis=1)
    certified = CertifiedCuts(many)
    monkeypatch.setattr(certified_cuts, "EXACT", 0)
    certified._tables[-1][:] = 0  # not looked at
    assert np.array_equal(certified.bounds(every), expected)


def test_of_nothing_learned_nothing_is_known() -> None:
    many, every = learned(1, SMALL[-1])
    assert not CertifiedCuts(many, many.learned).bounds(every).any()
