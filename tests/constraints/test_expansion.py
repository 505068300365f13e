"""Words expanded to single operations: all at once as one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from ppopt.constraints import Dealt, Family, Precede, expand, instances
from ppopt.op import Kind
from ppopt.pipeline import Costs, Mix, Pipeline

SPLIT = Costs(forward=1, backward_input=1, backward_weight=1)
MIXED = Pipeline(2, 6, costs=SPLIT, mix=Mix(microbatch_costs=[1, 2, 1, 3, 3, 1], microbatch_order="choose"))


def words_of(pipeline: Pipeline, rng: Random) -> list[Precede]:
    """Of families of any routes, now and then of dealt ones."""

    def family() -> Family:
        return Family(rng.randrange(2), rng.choice(list(Kind)), rng.randrange(len(pipeline.routes)))

    words = [Precede(family(), family(), rng.randint(-2, 3), rng.randint(0, 4)) for _ in range(12)]
    return [*words, Precede(Dealt((family(), family()), 2), family(), 1), words[0]]


@pytest.mark.parametrize("pipeline", [MIXED, Pipeline(2, 5, "routes", routes=[[0, 1], [1, 0]], costs=SPLIT)])
def test_all_words_at_once_say_what_each_says(pipeline: Pipeline) -> None:
    rng = Random(1)
    for _ in range(20):
        words = words_of(pipeline, rng)
        one_by_one = [
            (*pair, word.lag) for word in words for pair in zip(*map(np.ndarray.tolist, instances(pipeline, word)), strict=True)
        ]
        at_once = zip(*map(np.ndarray.tolist, expand(pipeline, words)), strict=True)
        assert sorted(at_once) == sorted(one_by_one)
    assert [len(column) for column in expand(pipeline, [])] == [0, 0, 0]


def test_pieces_that_are_not_there_are_named() -> None:
    with pytest.raises(ValueError, match="there is no piece 1; weight gradients are whole"):
        expand(MIXED, [Precede(Family(0, Kind.F), Family(0, Kind.W, 0, 1))])
