"""Bounds where pairs save time."""

from fractions import Fraction

from ppopt import bounds
from ppopt.pipeline import Costs, Links, Pipeline
from ppopt.search import solve
from tests.support import tuned
from tests.support.pairs import setting


def test_bounds_that_count_pairs_in_full_are_too_high() -> None:
    """The flags matter: without them the same bounds miss the optimum."""
    pipeline = Pipeline(1, 3, costs=Costs(forward=2, backward=3, overlap=4))
    best = solve(pipeline, workers=1).value
    assert best == 2 + 4 + 4 + 3
    for of in (bounds.work, bounds.machine):
        assert of(pipeline).value == 15  # type: ignore[union-attr]
        assert of(pipeline, pairs=True).value <= best  # type: ignore[union-attr]
    assert bounds.machine(pipeline, pairs=True).value == best  # type: ignore[union-attr]  # a first F and a last B are alone


def test_forwards_that_wait_for_a_pair_leave_the_time_before_the_first_backward_idle() -> None:
    # Device 3 begins at 3, and its first backward can at 11: 8 forwards find room before that. With n of its 16 forwards in pairs
    # everything takes 3 + 48 - n / 2; and the backwards take 11 + 32 + n / 2. Each alone allows 46.5 or less.
    bound = bounds.machine(setting(8, Fraction(5, 2)), pairs=True)
    assert bound is not None
    assert bound.value == 2 * 47


def test_a_window_of_spans_counts_on_the_makespan_of_its_own_relaxation() -> None:
    """The makespan is 14, that of the operations as they count beside pairs 13; windows of 14 would count idle time twice."""
    costs = Costs("stage", forward=(2, 4, 0), backward_input=(0, 0, 1), backward_weight=(0, 3, 1), backward=(3, 2, 4), overlap=4)
    latency = ((0, 3, 0), (1, 0, 1), (0, 1, 0))
    pipeline = Pipeline(3, 1, costs=costs, links=Links(latency))
    floor = bounds.machine(pipeline, pairs=True)
    assert floor is not None
    assert floor.value == 14
    assert tuned.window(pipeline, 7, 7, "span", makespan=floor.value, pairs=True) is None
    assert solve(pipeline, objective="span", workers=1).value == 13


def test_the_pair_that_saves_most_counts() -> None:
    """Two stages on a device, whose pairs save different times: were the least of them counted, the bound would be 26."""
    costs = Costs("stage", forward=(1, 2), backward=(2, 3), overlap=(3, 3))
    pipeline = Pipeline(1, 4, routes=[[0, 0]], costs=costs)
    bound = bounds.machine(pipeline, pairs=True)
    assert bound is not None
    assert bound.value == 23
    value = solve(pipeline, workers=1).value
    assert value is not None
    assert bound.value <= value
