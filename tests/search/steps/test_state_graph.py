"""The state graph as a step."""

from ppopt.pipeline import Costs, Links, Memory, Offload, Pipeline
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


def test_what_is_tight() -> None:
    """A microbatch is held for nine units on four devices, and the work is three: room for two costs throughput, for three it
    need not. With copies to the host, or without a limit, nothing is said of that."""
    memory = Memory(limit=2)
    each = [
        Pipeline(4, 16, memory=memory),
        Pipeline(4, 16, memory=Memory(limit=3)),
        Pipeline(4, 16, memory=memory, offload=Offload(time=1)),
        Pipeline(4, 16),
    ]
    runs = [run_of(pipeline) for pipeline in each]
    assert [run.step(StateGraph).tight(run) for run in runs] == [True, False, False, False]


def test_what_was_found_is_not_found_again() -> None:
    run = run_of(Pipeline(4, 16, memory=Memory(limit=2)))
    take(run, StateGraph, most=10, exact=True)
    assert not run.step(StateGraph).known
    take(run, StateGraph, most=tuning.STATE_GRAPH, exact=True)
    assert run.step(StateGraph).known
    take(run, StateGraph, most=tuning.LARGE_STATE_GRAPH)
    assert run.taken[-1].outcome == "nothing new"
