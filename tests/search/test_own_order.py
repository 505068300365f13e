"""A search that begins from the user's own order."""

from ppopt.files import Model
from ppopt.pipeline import Costs, Pipeline
from ppopt.search import solve


def test_an_order_better_than_all_others_is_kept() -> None:
    """The user's order is optimal, and nothing that is tried before the solver reaches it."""
    pipeline = Pipeline(3, 5, costs=Costs(forward=(5, 2, 7), backward_input=(1, 6, 3), backward_weight=(4, 1, 2)))
    best = solve(pipeline, workers=1)
    assert best.schedule is not None
    model = Model(pipeline, order=best.schedule.order)
    again = solve(model, workers=1, seconds=0.001)
    assert again.value == best.value
    assert again.named[0].name == "own order"


def test_named_pairs_that_save_time_are_a_start() -> None:
    pipeline = Pipeline(4, 8, costs=Costs(overlap=2))
    result = solve(pipeline, workers=1, seconds=2)
    (paired,) = [row for row in result.named if row.name == "1f1b-overlap"]
    assert paired.schedule is not None
    assert result.value is not None
    assert result.lower_bound <= result.value <= paired.schedule.makespan == 26
    assert solve(pipeline, order="1f1b-overlap", workers=1).value == 26  # nothing but its own pairs
