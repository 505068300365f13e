"""Single operations, by themselves and by their numbers."""

import numpy as np
import pytest

from ppopt.constraints import Listed, chain, operations
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import Pipeline

PIPELINE = Pipeline(3, 4)
OPS = (Op(2, Kind.W, 3), Pair(Op(0, Kind.F, 1), Op(0, Kind.B, 0)), Op(1, Kind.I, 0), Op(0, Kind.F, 0), Op(2, Kind.F, 2))


def test_by_numbers_it_is_the_same_list() -> None:
    plain = Listed(OPS)
    numbered = Listed.of(PIPELINE.index, operations(PIPELINE, Listed(OPS)))
    assert numbered == plain
    assert hash(numbered) == hash(plain)
    assert chain(numbered) == chain(plain)
    assert (len(numbered), str(numbered), repr(numbered)) == (len(plain), str(plain), repr(plain))
    assert numbered.ops == OPS
    assert operations(PIPELINE, numbered).tolist() == [PIPELINE.index.number(op) for op in OPS]


def test_what_differs_is_another_list() -> None:
    numbers = np.array([3, 1, 2, 7, 5])
    first = Listed.of(PIPELINE.index, numbers)
    assert first != Listed.of(PIPELINE.index, numbers[[0, 2, 1, 3, 4]])
    assert first != Listed.of(PIPELINE.index, numbers[:4])
    assert first != Listed(OPS)
    assert first != OPS
    assert Listed(()) == Listed.of(PIPELINE.index, numbers[:0])


def test_in_another_pipeline_the_operations_stay_and_their_numbers_change() -> None:
    larger = Pipeline(5, 9)
    numbered = Listed.of(PIPELINE.index, operations(PIPELINE, Listed(OPS)))
    assert operations(larger, numbered).tolist() == [larger.index.number(op) for op in OPS]
    with pytest.raises(ValueError, match="there is no"):
        operations(Pipeline(2, 2), numbered)


def test_what_is_handed_out_cannot_be_changed() -> None:
    for listed in (Listed(OPS), Listed.of(PIPELINE.index, np.arange(5))):
        with pytest.raises(ValueError, match="read-only"):
            operations(PIPELINE, listed)[0] = 1
