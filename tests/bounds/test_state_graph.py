"""The loop that finds states: the same graph compiled or not, whatever room there is at first; what grows without end."""

from fractions import Fraction

import numpy as np
import pytest

from ppopt import compiled
from ppopt.bounds import state_graph
from ppopt.bounds.state_graph import StateGraph
from ppopt.clock import Clock
from ppopt.constraints import relaxed_graph, relaxed_graphs
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from tests.support import tuned

REAL = Costs(forward=185, backward_input=181, backward_weight=93)
EACH = {
    "linear": Pipeline(3, 8, memory=Memory(limit=2)),
    "latency": Pipeline(3, 8, costs=REAL, links=Links(latency=6), memory=Memory(limit=2)),
    "wave": Pipeline(2, 6, placement="wave", chunks=2, links=Links(latency=Fraction(1, 2)), memory=Memory(limit=2)),
    "links": Pipeline(2, 4, links=Links(occupancy=1, blocking=True), memory=Memory(limit=2)),
    "three chunks": Pipeline(2, 4, placement="loop", chunks=3, costs=Costs(forward=3), memory=Memory(limit=1)),
}


def found(pipeline: Pipeline, *, span: bool = False, most: int = 30_000) -> StateGraph | None:
    return tuned.state_graph_of(relaxed_graphs(pipeline, True)[0], span=span, most=most, clock=Clock(60))


def same(one: StateGraph, other: StateGraph) -> bool:
    arrays = ("source", "target", "begun", "time", "rows", "row", "depth")
    return one.open == other.open and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


@pytest.mark.skipif(not compiled.available(), reason="there is no numba")
@pytest.mark.parametrize("span", [False, True])
@pytest.mark.parametrize("name", EACH)
def test_compiled_or_not(name: str, span: bool) -> None:
    with compiled.using(False):
        plain = found(EACH[name], span=span)
    with compiled.using(True):
        quick = found(EACH[name], span=span)
    assert plain is not None
    assert quick is not None
    assert plain.states > 20
    assert same(plain, quick)


@pytest.mark.parametrize("name", EACH)
def test_small_tables_grow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for a few states and edges at first the graph is the same, but for the numbers of states of one depth."""
    usual = found(EACH[name])
    monkeypatch.setattr(state_graph, "_FIRST", 2)
    grown = found(EACH[name])
    assert usual is not None
    assert grown is not None
    assert same(usual, grown)


def test_no_more_states_than_asked_for() -> None:
    graph = found(EACH["latency"])
    assert graph is not None
    assert found(EACH["latency"], most=graph.states + 100) is not None
    assert found(EACH["latency"], most=graph.states - 1) is None


def test_what_grows_without_end_is_given_up_early() -> None:
    """Eight devices with room for as much as 1F1B holds: of 4 million states an eighth is looked at at most."""
    clock = Clock(60, deterministic=True)
    pipeline = Pipeline(8, 64, costs=REAL, memory=Memory(limit=8))
    assert tuned.state_graph_of(relaxed_graph(pipeline), most=4_000_000, clock=clock) is None
    assert clock.spent < 500_000 * state_graph._SECONDS


def test_families_that_are_too_far_apart_for_the_numbers_of_a_table() -> None:
    """The weight gradient holds nothing, so that it may be put off without end."""
    pipeline = Pipeline(1, 100_000, memory=Memory(limit=1, retained=0))
    assert tuned.state_graph_of(relaxed_graph(pipeline), most=4_000_000, clock=Clock(60)) is None
