"""Windows as a step."""

from ppopt import bounds
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search.steps.windows import Windows
from tests.support.search import begun, run_of, take

COSTS = Costs("stage", forward=92, backward_input=90, backward_weight=47)
PIPELINE = Pipeline(4, 24, "wave", 2, costs=COSTS, links=Links(6), memory=Memory(activation=1, limit=6))


def test_they_prove_more_than_closed_forms() -> None:
    run = begun(run_of(PIPELINE))
    closed = max(bound.value for of in (bounds.work, bounds.machine, bounds.memory) if (bound := of(PIPELINE)) is not None)
    take(run, Windows)
    assert run.incumbent.lower > closed
    assert run.incumbent.lower <= run.incumbent.value


def test_what_has_been_asked_is_not_asked_again() -> None:
    """Nothing new in the same time, and it takes next to none of it."""
    run = begun(run_of(PIPELINE, seconds=100))
    first = take(run, Windows, 0.5)
    lower = run.incumbent.lower
    again = take(run, Windows, 0.25)
    assert run.taken[-1].outcome == "nothing new"
    assert run.incumbent.lower == lower
    assert again < first
