"""What memory implies where microbatches differ: waits of each for some earlier one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import reject
from hypothesis import strategies as st

from ppopt import bounds, cpsat
from ppopt.bounds.closed_form import makespan_of
from ppopt.clock import Limits
from ppopt.constraints import Family, FamilyGraph, cuts_of, free_choices, graph_of, relaxed_graph, rules_of, waiting_in_turn
from ppopt.constraints.shifts import Earlier
from ppopt.heuristics import each_baseline
from ppopt.op import Kind
from ppopt.pipeline import Costs, Memory, Mix, Pipeline, PipelineError
from ppopt.pipeline.ticks import horizon_of
from ppopt.schedule import Objective
from tests.constraints.test_families import started
from tests.support.tiers import drawn


def waits_of(graph: FamilyGraph) -> set[tuple[str, str, int]]:
    return {(graph.label[before], graph.label[after], lag) for before, after, shift, lag in graph.precedences if not shift}


def added(graph: FamilyGraph) -> set[tuple[str, str, int]]:
    return waits_of(waiting_in_turn(graph)) - waits_of(graph)


@st.composite
def mixed(draw: st.DrawFn, most: int) -> Pipeline:
    """Microbatches that differ, in the given order, with little memory."""
    devices, chunks = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    many = draw(st.integers(2, most))
    sizes, held = (draw(st.lists(st.integers(1, 4), min_size=many, max_size=many)) for _ in range(2))
    each = st.lists(st.integers(1, 4), min_size=devices, max_size=devices)
    costs = Costs(forward=draw(each), backward_input=draw(each), backward_weight=draw(each))
    limit, retained = draw(st.integers(2, 12)), draw(st.sampled_from([None, 0, 0.5, 1]))
    try:
        return Pipeline(
            devices,
            many,
            chunks=chunks,
            placement="linear" if chunks == 1 else draw(st.sampled_from(["loop", "wave"])),
            costs=costs,
            memory=Memory(activation=1, retained=retained, limit=limit),
            mix=Mix(microbatch_costs=sizes, microbatch_activations=held),
        )
    except PipelineError:
        reject()


def by_definition(pipeline: Pipeline) -> Iterator[tuple[str, str, int]]:
    """The waits, each by its own sum."""
    amounts, ticks, many = pipeline.amounts, pipeline.ticks, pipeline.microbatches
    route, device = pipeline.route_of_microbatch, pipeline.device_of

    def holds(m: int, first: int, stage: int) -> int:
        """From a stage up to another one of its device."""
        own = (s for s in range(first, stage + 1) if device[route[m], s] == device[route[m], stage])
        return sum(int(amounts.activation[route[m], s]) for s in own)

    def time(kind: Kind, m: int, stage: int) -> int:
        return int(ticks.duration[route[m], kind, stage])

    def name(kind: str, m: int, stage: int) -> str:
        return f"{stage}{kind}@{route[m]}" if route[m] else f"{stage}{kind}"

    for stage in range(pipeline.stages):
        room = int(amounts.room[device[0, stage]])
        for n in range(many):
            over = [j for j in range(n) if sum(holds(m, 0, stage) for m in range(j, n + 1)) > room]
            if over:
                j = max(over)
                lag, left = 0, room - sum(holds(m, 0, stage) for m in range(j + 1, n + 1))
                if amounts.kept[route[j], stage] > left:
                    lag = time(Kind.W, j, stage) if j + 1 == n else min(time(Kind.W, j, stage), time(Kind.I, j + 1, stage))
                yield name("I", j, stage), name("F", n, stage), lag
        for later in (s for s in range(stage + 1, pipeline.stages) if device[0, s] == device[0, stage]):
            for m in range(many):
                between = holds(m, stage + 1, later)
                over = [n for n in range(m + 1, many) if sum(holds(k, 0, stage) for k in range(m, n + 1)) + between > room]
                if over:
                    yield name("F", m, later), name("F", min(over), stage), 0


@drawn(60, 400, mixed(7))
def test_each_waits_by_its_own_sum_and_every_schedule_obeys(pipeline: Pipeline) -> None:
    graph = graph_of(pipeline)
    if graph.routes < 2:
        assert waiting_in_turn(graph) is graph
        return
    assert added(graph) == set(by_definition(pipeline)) - waits_of(graph)
    waiting = waiting_in_turn(graph)
    assert set(waiting.families) == set(graph.families)
    assert all(before < after for before, after, *_ in waiting.precedences)
    names = [f"{f.stage}{f.kind.name}{pipeline.microbatches_of[f.route][0]}" for f in waiting.families]
    for _, schedule in list(each_baseline(pipeline))[:6]:
        begin = started(schedule)
        for before, after, _, lag in waiting.precedences:
            first, second = names[before], names[after]
            if first in begin and second in begin:
                assert begin[second] >= begin[first] + waiting.duration[before] + lag


@drawn(10, 30, mixed(4))
def test_no_bound_within_memory_is_above_the_optimum(pipeline: Pipeline) -> None:
    """By CP-SAT, which knows the rules alone."""
    words, horizon = (*rules_of(pipeline), *free_choices(pipeline)), horizon_of(pipeline)
    objectives: tuple[Objective, ...] = ("makespan", "span")
    for objective in objectives:
        found, limits = bounds.memory(pipeline, objective), Limits.of(5, deterministic=True)
        best = cpsat.solve(pipeline, words, objective=objective, lower=0, upper=horizon, horizon=horizon, limits=limits)
        assert found is not None
        assert best.schedule is not None
        assert found.value <= best.schedule.objective(objective)


def test_the_waits_are_cuts_and_tell_cpsat_what_comes_before_what() -> None:
    """One fits at a time: each forward waits for the backward before it, and for all that this one waits for."""
    pipeline = Pipeline(1, 3, memory=Memory(limit=3), mix=Mix(microbatch_costs=[3, 2, 2.5]))
    words = (*rules_of(pipeline), *free_choices(pipeline), *cuts_of(pipeline))
    run = [Family(0, kind, route) for kind in (Kind.F, Kind.I, Kind.W) for route in range(3)]
    earlier = Earlier(words, run)
    assert {route for route in range(3) if earlier(Family(0, Kind.I, route), Family(0, Kind.F, 2))} == {0, 1}
    assert earlier(Family(0, Kind.F, 0), Family(0, Kind.W, 2))
    assert not earlier(Family(0, Kind.W, 0), Family(0, Kind.F, 2)), "the order of weight gradients is open"
    assert not earlier(Family(0, Kind.F, 2), Family(0, Kind.I, 0))
    assert not Earlier(words, [])(Family(0, Kind.F, 0), Family(0, Kind.W, 2)), "nothing is passed through but what is run"
    lags = {word.lag for word in cuts_of(pipeline) if word.after == Family(0, Kind.F, 1) and word.before == Family(0, Kind.I)}
    assert lags == {6}, "W of the first, in half units: it holds until then"


def test_without_an_order_nothing_is_said() -> None:
    mix = Mix(microbatch_costs=[1, 2, 3, 4], microbatch_order="choose")
    pipeline = Pipeline(2, 4, memory=Memory(limit=5), mix=mix)
    assert not added(graph_of(pipeline))
    assert added(graph_of(pipeline.changed(mix=Mix(microbatch_costs=[1, 2, 3, 4]))))


@pytest.mark.parametrize("placement", ["linear", "wave", "loop"])
@pytest.mark.parametrize("limit", [2, 3, 4, 5])
def test_as_strong_as_of_alike_microbatches(placement: str, limit: int) -> None:
    """Microbatches that hold the same, where every other one takes a little longer, have nearly the bound of alike ones."""
    costs = Costs(forward=2, backward_input=3, backward_weight=2)
    chunks = 1 if placement == "linear" else 2
    alike = Pipeline(8, 48, placement=placement, chunks=chunks, costs=costs, memory=Memory(limit=limit))
    differ = alike.changed(mix=Mix(microbatch_costs=[1, 1.00001] * 24, microbatch_activations=[1] * 48))
    one, other = (bounds.memory(each).value / each.ticks.per_unit for each in (alike, differ))
    assert 0.99 * one <= other <= 1.01 * one


def test_a_kernel_of_alike_microbatches_is_as_it_was() -> None:
    """Waits of families for each other over several microbatches are said by the graph itself."""
    graph = relaxed_graph(Pipeline(4, 16, memory=Memory(limit=2)))
    assert waiting_in_turn(graph) is graph
    assert makespan_of(graph) == bounds.memory(Pipeline(4, 16, memory=Memory(limit=2))).value
