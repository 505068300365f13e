"""The state graph as a step."""

from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import tuning
from ppopt.search.steps.state_graph import StateGraph
from tests.support.search import reason, run_of, take

PIPELINE = Pipeline(2, 32, "wave", 2, memory=Memory(activation=2, limit=2))


def test_it_needs_a_limit() -> None:
    assert reason(StateGraph, run_of(Pipeline(2, 8))) == "memory is unlimited"
    assert reason(StateGraph, run_of(PIPELINE)) is None


def test_few_states_are_the_optimum() -> None:
    run = run_of(PIPELINE)
    charged = take(run, StateGraph, most=tuning.STATE_GRAPH, exact=True)
    assert run.incumbent.closed
    assert run.incumbent.proved_by == "state graph"
    assert charged > tuning.LEAST


def test_too_many_states_are_given_up_or_relaxed() -> None:
    costs = Costs(forward=185, backward_input=181, backward_weight=93)
    pipeline = Pipeline(4, 64, costs=costs, links=Links(6), memory=Memory(limit=3))
    exact, relaxed = run_of(pipeline, seconds=60), run_of(pipeline, seconds=60)
    take(exact, StateGraph, 5, most=500, exact=True)
    assert exact.taken[-1].outcome == "does not apply"
    take(relaxed, StateGraph, 20, most=20_000)
    assert 0.96 * 38124 < relaxed.incumbent.lower <= 38124
