"""The state graph: exact under tight memory, never above the optimum, and not applied where it is not defined."""

from dataclasses import replace
from fractions import Fraction

import pytest

from ppopt import cpsat
from ppopt.bounds import Objective, memory
from ppopt.bounds.least_times import LeastTimes
from ppopt.checker import violations
from ppopt.clock import Clock, Limits
from ppopt.constraints import always_split, cuts_of, relaxed_graph, rules_of
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import solve
from tests.support import tuned
from tests.support.many import each
from tests.support.tiers import SOME, thorough

REAL = Costs(forward=185, backward_input=181, backward_weight=93)


def exact(pipeline: Pipeline, microbatches: int) -> int:
    bound = tuned.throughput(pipeline.changed(microbatches=microbatches))
    assert bound is not None
    return bound.value


def test_room_for_three_on_four_devices() -> None:
    """Ten thirds per microbatch, and a constant that depends on their number modulo three."""
    pipeline = Pipeline(4, 16, memory=Memory(limit=3))
    assert [exact(pipeline, m) for m in (16, 32, 64, 1024)] == [57, 111, 217, 3417]


@pytest.mark.parametrize("microbatches", [1, 2, 7, 1000])
def test_room_for_two_on_four_devices(microbatches: int) -> None:
    assert exact(Pipeline(4, 16, memory=Memory(limit=2)), microbatches) == max(9, 5 * microbatches + 1)


def test_one_at_a_time() -> None:
    """Every microbatch has to be back, its last weight gradient done, before the next: 6 + 6 + 1 each; the last ones wait."""
    assert exact(Pipeline(3, 16, memory=Memory(limit=1)), 100) == 7 * 100


RANDOM = [
    Pipeline(2, 6, memory=Memory(limit=1)),
    Pipeline(3, 6, memory=Memory(limit=2)),
    Pipeline(3, 7, costs=Costs(forward=(1, 2, 1), backward_input=(2, 1, 1), backward_weight=1), memory=Memory(limit=2)),
    Pipeline(2, 6, costs=Costs(forward=2, backward_input=3, backward_weight=1), links=Links(latency=1), memory=Memory(limit=2)),
    Pipeline(3, 6, memory=Memory(limit=2, retained=Fraction(1, 2))),
    Pipeline(3, 6, memory=Memory(limit=(3, 2, 1))),
    Pipeline(3, 6, costs=Costs(backward=2), memory=Memory(limit=2)),
    Pipeline(2, 6, placement="wave", chunks=2, memory=Memory(activation=2, limit=2)),
    Pipeline(2, 6, placement="wave", chunks=2, memory=Memory(activation=2, limit=3)),
    Pipeline(2, 6, placement="loop", chunks=2, costs=Costs(forward=2, backward_input=4), memory=Memory(activation=2, limit=3)),
    Pipeline(
        2,
        5,
        placement="wave",
        chunks=2,
        costs=Costs(forward=4),
        links=Links(latency=Fraction(1, 2)),
        memory=Memory(activation=2, limit=4, retained=1),
    ),
    Pipeline(  # a weight gradient need not wait until the input gradient has reached the device before
        2,
        2,
        placement="loop",
        chunks=2,
        costs=Costs(forward=(2, 4), backward_input=(8, 4), backward_weight=(6, 2)),
        links=Links(latency=1),
        memory=Memory(activation=2, limit=2),
    ),
]

NUMBERED = {str(number): pipeline for number, pipeline in enumerate(RANDOM)}


def optimum(pipeline: Pipeline, objective: Objective) -> int:
    split = always_split(pipeline) if pipeline.costs.split else ()
    horizon = 12 * int(pipeline.work.max())
    found = cpsat.solve(
        pipeline,
        (*rules_of(pipeline), *split, *cuts_of(pipeline)),
        objective=objective,
        lower=0,
        upper=horizon,
        horizon=horizon,
        limits=Limits.of(60, workers=1),
    )
    assert found.schedule is not None
    assert found.lower_bound == found.schedule.objective(objective)
    return found.lower_bound


@SOME
def test_equal_to_the_optimum_of_a_direct_search(every: int) -> None:
    def check(pipeline: Pipeline) -> None:
        bound = tuned.throughput(pipeline)
        assert bound is not None
        assert bound.value == optimum(pipeline, "makespan")
        assert bound.schedule is not None
        assert violations(pipeline, bound.schedule) == []
        assert bound.schedule.makespan == bound.value

    each(list(NUMBERED.items())[::every], check)


@SOME
def test_never_above_the_least_span(every: int) -> None:
    def check(pipeline: Pipeline) -> None:
        bound = tuned.throughput(pipeline, "span")
        makespan = tuned.throughput(pipeline)
        assert bound is not None
        assert makespan is not None
        assert bound.schedule is not None
        assert violations(pipeline, bound.schedule) == []
        assert bound.value <= min(optimum(pipeline, "span"), makespan.value)
        first = bound.schedule
        assert int(first.end[0][-1]) - int(first.start[0][0]) == bound.value  # that of the first device is as short

    each({name: pipeline.changed(microbatches=3) for name, pipeline in list(NUMBERED.items())[::every]}, check)


@SOME
def test_what_follows_from_few_microbatches_is_what_counting_them_all_gives(every: int) -> None:
    def check(pipeline: Pipeline) -> None:
        graph = tuned.state_graph_of(relaxed_graph(pipeline), most=10_000, clock=Clock(60))
        assert graph is not None
        counted = LeastTimes(graph)
        periods = 0
        for microbatches in range(1, 31):
            counted.add()
            found = tuned.least_time(graph, microbatches, Clock(60))
            assert found is not None
            assert found.way is not None
            assert found.time == found.way.time[-1] == counted.rows[-1][0]
            periods += found.period is not None
        assert periods > 10

    each(list(NUMBERED.items())[::every], check)


def test_fewer_ends_and_arrivals_remain_after_every_event() -> None:
    graph = tuned.state_graph_of(
        relaxed_graph(Pipeline(3, 8, costs=REAL, links=Links(latency=6), memory=Memory(limit=2))), most=10_000, clock=Clock(60)
    )
    assert graph is not None
    waits = ~graph.begun
    assert (graph.depth[graph.target] < graph.depth[graph.source])[waits].all()


def test_few_states_are_proved_without_a_solver() -> None:
    for objective in ("makespan", "span"):
        result = solve(Pipeline(2, 32, placement="wave", chunks=2, memory=Memory(activation=2, limit=2)), objective=objective)
        assert (result.reason, result.proved_by, result.versions) == ("optimal", "state graph", {})


def test_no_schedule_comes_with_a_backward_that_may_be_whole_or_split() -> None:
    costs = Costs(forward=2, backward_input=2, backward_weight=2, backward=3)
    bound = tuned.throughput(Pipeline(2, 4, costs=costs, memory=Memory(limit=1)))
    assert bound is not None
    assert bound.schedule is None


@thorough
def test_times_of_three_digits() -> None:
    """585 per microbatch and 684 for their number modulo 3 = 1."""
    pipeline = Pipeline(4, 1024, costs=REAL, links=Links(latency=6), memory=Memory(limit=3))
    bound = tuned.throughput(pipeline, most=1_000_000, limits=Limits.of(120), exact=True)
    assert bound is not None
    assert bound.schedule is not None
    assert bound.value == bound.schedule.makespan == 585 * 1024 + 684
    assert violations(pipeline, bound.schedule) == []


def test_rounding_down_keeps_the_bound_valid() -> None:
    """585 per microbatch and 684 for their number modulo 3 = 1 can be reached; a graph of few states proves nearly as much."""
    pipeline = Pipeline(4, 64, costs=REAL, links=Links(latency=6), memory=Memory(limit=3))
    bound = tuned.throughput(pipeline, most=20_000)
    assert bound is not None
    assert 0.96 * 38124 < bound.value <= 38124
    assert "rounded down" in bound.proof


@thorough
def test_with_the_weight_gradients_of_one_device_alone() -> None:
    """That leaves an eighth of the states, and nothing of the bound: 585 per microbatch and 684 for their number modulo 3 = 1."""
    pipeline = Pipeline(4, 64, costs=REAL, links=Links(latency=6), memory=Memory(limit=3))
    bound = tuned.throughput(pipeline, most=100_000, limits=Limits.of(300))
    assert bound is not None
    assert bound.value == 585 * 64 + 684
    assert bound.proof.endswith("weight gradients of device 0 alone")
    assert bound.schedule is None


def test_no_more_is_asked_for_than_the_best_that_is_known() -> None:
    pipeline = Pipeline(4, 64, costs=REAL, links=Links(latency=6), memory=Memory(limit=3))
    bound = tuned.throughput(pipeline, target=36_000)
    assert bound is not None
    assert 36_000 <= bound.value < 585 * 64 + 684
    assert "rounded down" in bound.proof or "microbatches alone" in bound.proof


@SOME
def test_without_weight_gradients_never_above_the_optimum(every: int) -> None:
    def check(pipeline: Pipeline) -> None:
        graph = relaxed_graph(pipeline)
        for device in range(pipeline.devices):
            others = {o for o in graph.of_kind(Kind.W) if graph.owner[o] != device}
            states = [tuned.state_graph_of(of, most=10_000, clock=Clock(60)) for of in (graph.without(others), graph)]
            for microbatches in (1, 2, 3, 5, 20):
                with_one, with_all = (tuned.least_time(of, microbatches, Clock(60)) for of in states if of is not None)
                assert with_one is not None
                assert with_all is not None
                assert with_one.time <= with_all.time

    each({name: pipeline for name, pipeline in list(NUMBERED.items())[::every] if pipeline.costs.split}, check)


def test_the_last_weight_gradient_is_not_left_out() -> None:
    """What a microbatch takes, the last device decides; the first one has a weight gradient behind the last input gradient."""
    costs, of_three_chunks = Costs(forward=6, backward_input=6, backward_weight=3), Memory(limit=Fraction(3, 2))
    pipeline = Pipeline(3, 9, placement="wave", chunks=2, costs=costs, links=Links(latency=1), memory=of_three_chunks)
    graph = relaxed_graph(pipeline)
    of_one = graph.without({o for o in graph.of_kind(Kind.W) if graph.owner[o] != 2})
    times = list[int]()
    for of in (graph, of_one, replace(of_one, tail=(0,) * len(of_one.families))):
        states = tuned.state_graph_of(of, most=10_000, clock=Clock(60))
        assert states is not None
        found = tuned.least_time(states, 9, Clock(60))
        assert found is not None
        times.append(found.time)
    optimum_, with_the_last, without = times
    assert optimum_ == with_the_last == without + pipeline.ticks.duration[0, Kind.W, 0]


@pytest.mark.parametrize(("kept", "of"), [(1, 2), (2, 3), (2, 5), (3, 4)])
def test_with_fewer_microbatches_never_above_the_optimum(kept: int, of: int) -> None:
    def check(pipeline: Pipeline) -> None:
        relaxed = relaxed_graph(pipeline)
        graph, thin = (
            tuned.state_graph_of(each_, most=20_000, clock=Clock(60)) for each_ in (relaxed, relaxed.thinned(kept, of))
        )
        assert graph is not None
        assert thin is not None
        for microbatches in (1, 2, 3, 5, 8, 20):
            whole, some = (
                tuned.least_time(*each_, Clock(60)) for each_ in ((graph, microbatches), (thin, -(-microbatches * kept // of)))
            )
            assert whole is not None
            assert some is not None
            assert some.time <= whole.time

    each(list(NUMBERED.items())[:9], check)


def test_what_few_microbatches_cost_each_other() -> None:
    """A microbatch is on its way for 33 and memory has room for eight of them; but two on their way cannot both go on at once.

    At 34 for every eight a schedule is known, which the graph of all eight is too large to prove.
    """
    pipeline = Pipeline(16, 512, memory=Memory(limit=8))
    bound, least = tuned.throughput(pipeline, most=2000), memory(pipeline)
    assert bound is not None
    assert least is not None
    assert least.value < 34 * 64 < bound.value
    assert "2 of every 8 microbatches alone" in bound.proof
    assert bound.schedule is None


@SOME
def test_with_one_device_never_above_the_optimum(every: int) -> None:
    def check(pipeline: Pipeline) -> None:
        relaxed = relaxed_graph(pipeline)
        graph = tuned.state_graph_of(relaxed, most=20_000, clock=Clock(60))
        thin = tuned.state_graph_of(relaxed.restricted({0}), most=20_000, clock=Clock(60))
        assert graph is not None
        assert thin is not None
        for microbatches in (1, 2, 3, 5, 20):
            whole, some = (tuned.least_time(of, microbatches, Clock(60)) for of in (graph, thin))
            assert whole is not None
            assert some is not None
            assert some.time <= whole.time

    each(list(NUMBERED.items())[::every], check)


def test_what_two_stages_of_a_device_cost_each_other() -> None:
    """13 per four microbatches: more than memory needs that no two operations fight for."""
    pipeline = Pipeline(6, 64, placement="loop", chunks=2, memory=Memory(limit=3))
    bound, least = tuned.throughput(pipeline, most=40_000), memory(pipeline)
    assert bound is not None
    assert least is not None
    assert pipeline.time(least.value) < 13 * 16 < pipeline.time(bound.value)
    assert bound.proof.endswith("device 0 alone")
    assert "weight" not in bound.proof


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline(2, 8),
        Pipeline(2, 8, links=Links(latency=9), memory=Memory(limit=2)),
        Pipeline(2, 8, placement="bidirectional", memory=Memory(limit=2)),
        Pipeline(2, 8, costs=Costs(backward_input=(0, 1)), memory=Memory(limit=2)),
        Pipeline(2, 8, costs=Costs(forward=250, backward_input=(0, 196), backward_weight=107), memory=Memory(limit=2)),
    ],
    ids=["no limit", "slow links", "two routes", "an operation that takes no time", "no time beside long times"],
)
def test_where_it_does_not_apply(pipeline: Pipeline) -> None:
    assert tuned.throughput(pipeline) is None


def test_too_many_states() -> None:
    assert tuned.throughput(Pipeline(4, 16, memory=Memory(limit=3)), most=100) is None
