"""Bounds by closed forms: work, one machine, memory."""

from __future__ import annotations

import random
from itertools import islice, product

import numpy as np
import pytest

from ppopt import bounds
from ppopt.bounds import closed_form
from ppopt.bounds.closed_form import best_set
from ppopt.bounds.heads import FAR, heads
from ppopt.clock import Limits
from ppopt.constraints import relaxed_graph
from ppopt.heuristics import baselines, each_baseline
from ppopt.op import Kind
from ppopt.pipeline import Costs, Memory, Mix, Pipeline
from ppopt.schedule import Objective
from tests.support import tuned
from tests.support.plain_model import idle, linear, optimum


@pytest.mark.parametrize(("limit", "expected", "optimal"), [(8, 3, 3), (6, 5, 5), (5, 7, 8), (4, 9, 11)])
def test_what_a_device_cannot_do_while_it_fills_and_empties(limit, expected, optimal):
    """Two stages share a device's memory; windows prove the optimal idle time, and there are schedules with it."""
    pipeline = linear(4, 1024, limit=limit, placement="wave", chunks=2)
    assert idle(bounds.memory(pipeline), pipeline) == expected <= optimal


def test_before_the_first_release_a_device_runs_forwards_alone_and_no_more_than_fit():
    """The last device of a V begins 7 * 98 ticks after the first; 1542 ticks later the first gradient is back, and 16 forwards
    take 1472 of these."""
    pipeline = linear(8, 1024, 92, 90, 47, 6, limit=16, placement="wave", chunks=2)
    assert idle(bounds.memory(pipeline), pipeline) == 7 * 98 + 1542 - 16 * 92


def test_the_cheaper_way_of_the_backward():
    """A fused backward of 3 instead of 2 + 2, and one of 5 that nobody would run."""
    cheap, dear = (Pipeline(1, 3, costs=Costs(forward=1, backward_input=2, backward_weight=2, backward=b)) for b in (3, 5))
    assert [bound.value for bound in tuned.best(cheap)] == [12]
    assert [bound.value for bound in tuned.best(dear)] == [15]


def test_a_backward_that_has_no_room_to_be_split_is_whole():
    """I + W take 2 and B takes 5; split, a microbatch would hold 3."""
    costs = Costs(backward_input=1, backward_weight=1, backward=5)
    for limit, least in ((3, 3 * 3), (2, 3 * 6)):
        pipeline = Pipeline(1, 3, costs=costs, memory=Memory(retained=3, limit=limit))
        assert bounds.work(pipeline).value == least == optimum(pipeline, "makespan")


def test_a_route_that_nobody_takes():
    pipeline = Pipeline(3, 2, routes=((0, 1), (2, 1)), route_of_microbatch=(0, 0))
    last = list(tuned.best(pipeline, limits=Limits.of(1, workers=1)))[-1]
    assert last.value == optimum(pipeline, "makespan")


def test_unknown_objective():
    with pytest.raises(ValueError, match='expected "makespan" or "span"'):
        bounds.machine(linear(2, 2), "time")


def test_forwards_of_early_stages_wait_for_those_of_later_ones_where_several_share_a_memory():
    """In every schedule in order, forwards and reversed; what is claimed at least is not loose."""
    rng, near = random.Random(5), 0
    for _ in range(12):
        placement, chunks = rng.choice([("wave", 2), ("wave", 4), ("loop", 3)])
        stages = 3 * chunks
        activation = [rng.randint(1, 3) for _ in range(stages)]
        costs = Costs(per="stage", forward=[rng.randint(1, 4) for _ in range(stages)])
        retained = [rng.randint(0, amount) for amount in activation]
        memory = Memory(activation=activation, retained=retained, limit=rng.randint(3 * chunks, 6 * chunks))
        pipeline = Pipeline(3, 6, placement=placement, chunks=chunks, costs=costs, memory=memory)
        graph = relaxed_graph(pipeline)
        assert any(graph.families[wait.before].kind == Kind.F for wait in graph.implied)
        for _, schedule in baselines(pipeline)[:4]:
            begin = {
                str(pipeline.index.op(number)): start
                for row, starts in zip(schedule.order.rows, schedule.start, strict=True)
                for number, start in zip(row.tolist(), starts.tolist(), strict=True)
            }
            for before, after, shift, lag in graph.implied:
                ends = [begin[f"{graph.label[before]}{n - shift}"] + graph.duration[before] for n in range(shift, 6)]
                waits = [begin[f"{graph.label[after]}{n}"] - end for n, end in zip(range(shift, 6), ends, strict=True)]
                assert all(wait >= lag for wait in waits)
                near += sum(wait <= lag + 4 for wait in waits)
            back = graph.reversed()
            for before, after, shift, lag in back.implied:
                for n in range(shift, 6):
                    end = begin[f"{back.label[after]}{5 - n}"] + back.duration[after]
                    assert begin[f"{back.label[before]}{5 - n + shift}"] >= end + lag
    assert near


@pytest.mark.parametrize("alone", [closed_form._ALONE, 1, -1])
@pytest.mark.parametrize("seed", range(20))
def test_the_best_set_is_the_best_of_all_thresholds(seed: int, alone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With families of one operation, of several, and of both; all instances at once, or some or all family by family."""
    monkeypatch.setattr(closed_form, "_ALONE", alone)
    rng = random.Random(seed)
    counts = [rng.choice((1, 1, 3)) for _ in range(6)]
    times = [rng.randint(0, 5) for _ in counts]
    rows = [tuple(np.array(sorted(rng.choices(range(30), k=count))) for _ in range(2)) for count in counts]
    sets = []
    for a, b in product(*({int(x) for row in rows for x in row[side]} for side in (0, 1))):
        left = [max(0, int((row[0] >= a).sum() + (row[1] >= b).sum()) - len(row[0])) for row in rows]
        if any(left):
            sets.append(a + b + sum(n * time for n, time in zip(left, times, strict=True)))
    assert best_set(rows, times, counts).value == max(sets, default=0)


def test_instances_of_which_nothing_is_known_count_for_nothing() -> None:
    unknown, known = np.array([-FAR, -FAR]), np.array([2, 3])
    assert best_set([(unknown, known)], [4], [2]).value == 0
    assert best_set([(unknown, known), (known, known)], [4, 1], [2, 2]).value == 2 + 2 + 2


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_more_families_than_thresholds(objective: Objective) -> None:
    """300 microbatches that differ, 600 families on each device: the bounds hold, and count what fills and empties."""
    pipeline = Pipeline(3, 300, memory=Memory(limit=6), mix=Mix(microbatch_costs=(1, 2, 4) * 100))
    best = min(schedule.objective(objective) for _, schedule in islice(each_baseline(pipeline), 4))
    least, *others = (of(pipeline, objective) for of in (bounds.work, bounds.machine, bounds.memory))
    for bound in others:
        assert least is not None
        assert bound is not None
        assert least.value <= bound.value <= best
    assert others[-1].value > least.value


def test_memory_times_time_and_the_ways_there_and_back() -> None:
    """The middle device holds each of 4 microbatches for 4, one at a time; the first reaches it at 1, the last ends 1 later."""
    pipeline = Pipeline(3, 4, "bidirectional", costs=Costs(forward=1, backward=1), memory=Memory(limit=1))
    bound = bounds.memory(pipeline)
    assert bound is not None
    assert (bound.value, bound.proof) == (1 + 4 * 4 + 1, "memory times time of device 1")
    assert optimum(pipeline, "makespan") == bound.value


@pytest.mark.parametrize("seed", range(10))
def test_of_very_many_families_paths_alone_tell(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With microbatches that differ, where heads count no work: bounds all the same."""
    rng = random.Random(seed)
    forward, gradient, weight = ([rng.randint(1, 4) for _ in range(3)] for _ in range(3))
    costs = Costs(forward=forward, backward_input=gradient, backward_weight=weight)
    sizes = [rng.choice([1, 2, 3]) for _ in range(8)]
    pipeline = Pipeline(
        3, 8, costs=costs, memory=Memory(limit=6), mix=Mix(microbatch_costs=sizes, microbatch_activations=[1] * 8)
    )
    fastest = min(schedule.makespan for _, schedule in each_baseline(pipeline) if schedule.within_memory)
    graph = relaxed_graph(pipeline)
    paths = heads(graph, memory=False, work=False)
    starts = list(graph.lead)
    for _ in graph.families:  # no way has more steps
        for before, after, _, lag in graph.precedences:
            starts[after] = max(starts[after], starts[before] + graph.duration[before] + lag)
    assert [row.tolist() for row in paths] == [[start] for start in starts]
    work = bounds.work(pipeline)
    assert work is not None
    monkeypatch.setattr(bounds.heads, "FAMILIES", 0)
    monkeypatch.setattr(bounds.closed_form, "FAMILIES", 0)
    assert [row.tolist() for row in heads(graph, memory=False)] == [row.tolist() for row in paths]
    for of in (bounds.machine, bounds.memory):
        found = of(pipeline)
        assert found is not None
        assert work.value <= found.value <= fastest
