"""The graph of families: what the words say, what memory implies, and the graphs that are made of it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given, settings

from ppopt import cpsat, ilp
from ppopt.bounds.heads import heads
from ppopt.clock import Limits
from ppopt.constraints import (
    Family,
    FamilyGraph,
    always_split,
    check_words,
    chosen,
    cuts_of,
    expand,
    free_choices,
    graph_of,
    graphs_of,
    in_order,
    own_words,
    relaxed_graph,
    rules_of,
    spread,
    without_links,
)
from ppopt.constraints.binding import binding
from ppopt.constraints.couples import couples
from ppopt.heuristics import PRIORITIES, covers, each_baseline, list_schedule, order_of
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline, room_to_split, splitting_takes_memory
from ppopt.schedule import Schedule
from ppopt.timing import broken
from ppopt.timing.demands import demands_of, settled, when
from tests.support.strategies import machines, pipelines
from tests.support.tiers import drawn

WAVE = Pipeline(4, 16, placement="wave", chunks=2, memory=Memory(activation=1, retained=0.5, limit=3))


def starts(graph: FamilyGraph, pipeline: Pipeline) -> list[dict[str, int]]:
    """The starts of some list schedules, which are in order, by the names of operations."""
    return [started(schedule) for _, schedule in list(each_baseline(pipeline))[:6]]


def started(schedule: Schedule) -> dict[str, int]:
    """Starts by the names of operations."""
    return {
        str(schedule.pipeline.index.op(number)): start
        for row, times in zip(schedule.order.rows, schedule.start, strict=True)
        for number, start in zip(row.tolist(), times.tolist(), strict=True)
    }


def test_what_memory_implies_is_derived_once() -> None:
    """Microbatches that wait for their W hold a quarter each on stage 4, whose device also holds the forward of stage 3."""
    graph = graph_of(WAVE)
    (wait,) = [
        wait
        for wait in graph.implied
        if graph.families[wait.before] == Family(4, Kind.W) and graph.families[wait.after] == Family(4, Kind.F)
    ]
    # the limit of 3 less the activations of stages 3 and 4 of a new microbatch, 1, leaves room for 8 that retain a quarter
    assert wait.shift == 9
    (cut,) = [cut for cut in cuts_of(WAVE) if (cut.before, cut.after) == (Family(4, Kind.W), Family(4, Kind.F))]
    assert cut.shift == wait.shift
    for other in (relaxed_graph(WAVE), *graphs_of(WAVE)):
        assert other.implied == graph.implied


@settings(max_examples=40)
@given(
    pipelines(60, limited=True).filter(lambda pipeline: len(pipeline.routes) == 1)
)  # names of operations say nothing of routes
def test_what_memory_implies_holds_in_schedules(pipeline: Pipeline) -> None:
    graph, microbatches = graph_of(pipeline), pipeline.microbatches
    for begin in starts(graph, pipeline):
        for before, after, shift, lag in graph.implied:
            for n in range(shift, microbatches):
                first, second = (f"{graph.label[o]}{m}" for o, m in ((before, n - shift), (after, n)))
                if first in begin and second in begin:
                    assert begin[second] >= begin[first] + graph.duration[before] + lag


def test_what_an_input_gradient_takes_makes_forwards_and_it_wait() -> None:
    """F takes 1, I takes 2 more, W gives back 3, and 8 fit.

    While an I takes 2, there is room for 6 forwards, so the 6th after n waits for I(n). Where c others hold 3, an I has room for
    1 and 2 beside as long as c is 1, so the second after n waits for W(n). Where backwards are whole 8 microbatches fit, and of
    neither wait anything is said.
    """
    pipeline = Pipeline(1, 20, memory=Memory(activation=1, retained=3, limit=8))
    split, (whole, ways) = graph_of(pipeline), graphs_of(pipeline)
    assert ways == split.endless()
    label = split.label
    waits = {(label[before], label[after], shift) for before, after, shift, _ in split.implied}
    assert waits == {("0I", "0F", 8), ("0W", "0F", 8), ("0I", "0F", 6), ("0W", "0I", 2)}
    relaxed = relaxed_graph(pipeline)
    assert {wait.shift for wait in (*relaxed.implied, *whole.implied)} == {8}
    assert [held.amount for held in relaxed.held] == [1]
    assert {word.shift for word in cuts_of(pipeline)} == {1, 8}


@drawn(
    10,
    30,
    pipelines(60, limited=True).filter(
        lambda pipeline: len(pipeline.routes) == 1 and splitting_takes_memory(pipeline) and room_to_split(pipeline).any()
    ),
)
def test_what_memory_implies_holds_in_schedules_that_split(pipeline: Pipeline) -> None:
    words, room = (*rules_of(pipeline), *always_split(pipeline)), room_to_split(pipeline)[0].tolist()
    graph = graph_of(pipeline, [Kind.I if fits else Kind.B for fits in room])
    for rule in PRIORITIES:
        begin = started(list_schedule(pipeline, words, rule))
        for before, after, shift, lag in graph.implied:
            for n in range(shift, pipeline.microbatches):
                first, second = (f"{graph.label[o]}{m}" for o, m in ((before, n - shift), (after, n)))
                assert begin[second] >= begin[first] + graph.duration[before] + lag


@settings(max_examples=60)
@given(machines(60))
def test_graphs_of_graphs(pipeline: Pipeline) -> None:
    graph = relaxed_graph(pipeline)
    assert graph.reversed().reversed() == graph
    assert graph.rounded_down(1) == graph
    assert pipeline.lines or graph.restricted(range(graph.devices)) == graph
    assert graph.thinned(1, 1) == graph if graph.routes == 1 else True
    for number, precedences in enumerate(graph.into):
        assert all(precedence.before < number for precedence in precedences)
    for machine in graph.machines:
        assert list(machine.families) == sorted(machine.families)


@settings(max_examples=60)
@given(machines(60))
def test_links_make_no_difference_where_transfers_hold_none(pipeline: Pipeline) -> None:
    """Then one relaxed graph serves bounds with links and without, and it is made once."""
    same = graph_of(pipeline) == graph_of(pipeline, links=False)
    assert same == (not pipeline.lines)
    assert (relaxed_graph(pipeline) is relaxed_graph(pipeline, links=False)) == same


def test_heads_are_shared_and_cannot_be_written() -> None:
    """Who asks again gets the same numbers, whatever became of the answer."""
    graph = relaxed_graph(Pipeline(2, 4, memory=Memory(limit=3)))
    for own in (False, True):
        first = heads(graph, memory=True, own=own)
        for row in first:
            with pytest.raises(ValueError, match="read-only"):
                row += 1
        first.clear()
        assert len(heads(graph, memory=True, own=own)) == len(graph.families)
    assert all(len(row) == 2 for row in heads(graph, memory=True, most=2))


@settings(max_examples=25)
@given(pipelines(40))
def test_rounding_down_is_a_relaxation(pipeline: Pipeline) -> None:
    graph = relaxed_graph(pipeline)
    for grid in (2, 3, Fraction(5, 2)):
        coarse = graph.rounded_down(grid)
        for some, all_ in zip(heads(coarse, memory=True), heads(graph, memory=True), strict=True):
            assert (some <= all_ / float(grid)).all()


def optimum(pipeline: Pipeline, objective: str, cuts: tuple[object, ...]) -> int:
    words = (*rules_of(pipeline), *free_choices(pipeline), *cuts)
    outcome = cpsat.solve(pipeline, words, objective=objective, lower=0, upper=200, horizon=200, limits=Limits.of(60, workers=1))
    assert outcome.schedule is not None
    assert outcome.schedule.objective(objective) == outcome.lower_bound
    return outcome.lower_bound


TOLD_APART = [
    Pipeline(
        2,
        3,
        costs=Costs(forward=(1, 3), backward_input=(3, 1), backward_weight=(1, 4), backward=(4, 3)),
        links=Links(latency=1),
        memory=Memory(activation=2, limit=5),
    ),
    Pipeline(
        2,
        4,
        costs=Costs(forward=(2, 1), backward_input=(1, 1), backward_weight=(2, 4), backward=(3, 4)),
        memory=Memory(activation=2, retained=1, limit=4),
    ),
]


@pytest.mark.parametrize(("pipeline", "least"), list(zip(TOLD_APART, (23, 22), strict=True)), ids=str)
def test_a_wait_for_w_is_no_cut_where_another_microbatch_may_run_b(pipeline: Pipeline, least: int) -> None:
    """One W may wait to the end while the other microbatches run B and hold nothing."""
    assert optimum(pipeline, "span", cuts_of(pipeline)) == optimum(pipeline, "span", in_order(pipeline)) == least


@dataclass(frozen=True)
class Unheard:
    """A word that nobody knows."""

    stream: str = "0F"


READERS = {
    "check_words": lambda words: check_words(PLAIN, words),
    "chosen": lambda words: chosen(PLAIN, words),
    "expand": lambda words: expand(PLAIN, words),
    "cuts_of": lambda words: cuts_of(PLAIN, words),
    "own_words": lambda words: own_words(PLAIN, words),
    "without_links": lambda words: without_links(PLAIN, words),
    "demands_of": lambda words: demands_of(PLAIN, words),
    "settled": lambda words: settled(PLAIN, words, *when(each(PLAIN))),
    "broken": lambda words: broken(each(PLAIN), words),
    "binding": lambda words: binding(PLAIN, words, (Kind.W,)),
    "spread": lambda words: [spread(PLAIN, word) for word in words],
    "couples": lambda words: couples(PLAIN, words, ()),
    "CP-SAT": lambda words: cpsat.solve(PLAIN, words, objective="makespan", lower=0, upper=99, horizon=99, limits=Limits.of(5)),
    "ILP": lambda words: ilp.solve(PLAIN, words, objective="makespan", lower=0, upper=99, horizon=99, limits=Limits.of(5)),
    "list scheduler": lambda words: list_schedule(PLAIN, words, next(iter(PRIORITIES.values()))),
    "order_of": lambda words: order_of(PLAIN, words),
    "covers": lambda words: covers(PLAIN, words),
}

PLAIN = Pipeline(2, 3)


def each(pipeline: Pipeline) -> Schedule:
    return next(each_baseline(pipeline))[1]


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_raises_on_a_word_that_it_does_not_know(reader: str) -> None:
    with pytest.raises(TypeError, match="Unheard"):
        READERS[reader]((*rules_of(PLAIN), Unheard()))
