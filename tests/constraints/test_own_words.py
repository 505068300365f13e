"""Words of the user's own that are not taken, and why."""

from fractions import Fraction
from typing import Any

import pytest

from ppopt.constraints import Capacity, Exclusive, Family, Hold, Listed, OneOf, Pairable, Precede, Together, chain, own_words
from ppopt.op import Kind, Op, Pair, Send
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.search import solve

F, B, I, W = Kind  # noqa: E741


@pytest.mark.parametrize(
    ("word", "error", "text"),
    [
        ("0F before 0B", TypeError, "expected a word of ppopt.constraints"),
        (Pairable((Family(0, F),), (Family(0, B),)), TypeError, "Pairable is not taken"),
        (Precede(Family(0, F), "0B"), TypeError, "expected a stream"),  # type: ignore[arg-type]
        (Precede(Family(4, F), Family(0, F)), ValueError, "there is no stage 4; stages are 0..1"),
        (Precede(Family(0, F, 1), Family(0, F)), ValueError, "there is no route 1"),
        (Precede(Listed((Op(0, F, 7),)), Family(0, F)), ValueError, "there is no microbatch 7"),
        (Precede(Family(0, F), Family(0, B), lag=-1), ValueError, "lag: expected ticks >= 0, got -1"),
        (Precede(Family(0, F), Family(0, B), lag=Fraction(1, 2)), TypeError, "lag: expected a whole number"),  # type: ignore[arg-type]
        (Precede(Family(0, Send.SEND_F), Family(0, B)), ValueError, "transfers are not taken in constraints"),
        (OneOf(()), ValueError, "at least one alternative"),
        (OneOf(((Family(0, B),), (Listed((Op(1, B, 0),)),))), ValueError, "the same number of operations"),
        (OneOf(((Family(0, B),), (Family(0, B), Family(1, B)))), ValueError, "0B0 is in it more than once"),
        (Together(Family(0, B), Family(0, F)), ValueError, "a pair is a forward and a full backward"),
        (Together(Family(0, F), Family(1, B)), ValueError, "0F0 is on device 0 and 1B0 on device 1"),
        (Exclusive((Listed((Pair(Op(0, F, 1), Op(0, B, 0)),)),)), ValueError, "expected single operations"),
        (Capacity((Hold(Family(0, B), (Family(0, W),), 1),), 1), ValueError, "a Hold begins with a forward"),
        (Capacity((Hold(Family(1, F), (Family(0, F),), 1),), 1), ValueError, "comes later than its begin"),
        (Capacity((Hold(Family(0, F), (Family(0, B),), 1),), 1), ValueError, "exactly one operation that is run"),
        (Capacity((Hold(Family(0, F), (Family(0, B), Family(0, W)), 1),), -1), ValueError, "a limit >= 0"),
    ],
)
def test_words_that_are_not_taken_say_why(word: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        solve(Pipeline(2, 2), constraints=[word])


def test_words_that_contradict_each_other_are_refused_before_any_search() -> None:
    words = [OneOf(((Family(0, B),),)), OneOf(((Listed((Op(0, I, 1),)),),))]
    with pytest.raises(ValueError, match=r"the constraints contradict each other: 0[BIW]1 is both required and excluded"):
        solve(Pipeline(2, 2), constraints=words)
    with pytest.raises(ValueError, match="contradict each other"):
        solve(Pipeline(2, 2), order="1f1b", constraints=[OneOf(((Family(0, I), Family(0, W)),))])
    fused = Pipeline(2, 2, costs=Costs(forward=1, backward=2))
    with pytest.raises(ValueError, match="the costs give backward alone"):
        solve(fused, constraints=[Precede(Family(0, I), Family(0, F))])
    with pytest.raises(ValueError, match='recompute is "choose"'):
        own_words(
            Pipeline(2, 2, costs=Costs(recompute=1), memory=Memory(recompute_saved=1), recompute="choose"), [chain(Family(0, F))]
        )
