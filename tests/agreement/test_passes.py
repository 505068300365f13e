"""Weights that are gathered before every pass: all orders played, closed forms, and both solvers."""

import dataclasses
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ppopt import bounds, cpsat, ilp
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import Turns, cuts_of, free_choices, rules_of
from ppopt.named import find
from ppopt.pipeline import Costs, DataParallel, Links, Pipeline, PipelineError
from ppopt.schedule import Order
from ppopt.search import horizon, solve
from ppopt.timing import broken, time_order, time_settings
from tests.agreement.test_data_parallel import orders
from tests.support.strategies import each, objectives
from tests.support.traffic import wave
from tests.support.unaided import optimum

PHASES = [Phase.explicit, Phase.generate]
SHARE = pytest.mark.parametrize("share", [1, pytest.param(3, marks=pytest.mark.thorough)], ids=["few", "more"])


def per_pass(gather: Any, scatter: Any, microbatches: int = 2) -> Pipeline:
    return wave(microbatches, gather, scatter, overlap=False, per_pass=True)


def played(rows: list[list[str]], gather: tuple[int, ...], scatter: tuple[int, ...]) -> int | None:
    """The makespan of an order of unit operations by playing it, buffers and all; ``None``: it gets stuck."""
    ends: dict[str, int] = {}
    queues, free = [list(row) for row in rows], [0, 0]
    holds: list[dict[str, tuple[int, int]]] = [{}, {}]  # by direction the stage whose pass runs, and when that was last
    while any(queues):
        for device, queue in enumerate(queues):
            op = queue[0] if queue else ""
            stage, kind, m = int(op[0]) if op else 0, op[1:2], op[2:]
            need = {"F": f"{stage - 1}F{m}", "B": f"{stage + 1}B{m}", "": ""}[kind]
            need = f"3F{m}" if need.startswith("4") else need
            if op and (need in ends or need.startswith("-")):
                other, last = holds[device].get(kind, (stage, 0))
                ready = gather[stage] if kind not in holds[device] else last
                if other != stage:
                    ready = last + (gather[stage] if kind == "F" else max(gather[stage], scatter[other]))
                free[device] = ends[op] = max(free[device], ends.get(need, 0), ready) + 1
                holds[device][kind] = stage, ends[op]
                queue.pop(0)
                break
        else:
            return None
    return max(max(end for op, end in ends.items() if op.startswith(f"{s}B")) + scatter[s] for s in range(4))


@SHARE
def test_all_orders(share: int) -> None:
    @settings(max_examples=2 * share, phases=PHASES)
    @given(each(0, 3, 4), each(0, 3, 4))
    def on(gather: tuple[int, ...], scatter: tuple[int, ...]) -> None:
        pipeline = per_pass(gather, scatter)
        values = []
        for rows in orders(pipeline):
            value = played(rows, gather, scatter)
            if value is not None:
                values.append(value)
                if len(values) % 40 == 0:
                    schedule = time_order(pipeline, Order.of(pipeline, rows))
                    assert schedule.makespan == value
                    assert violations(pipeline, schedule, earliest=True) == []
                    assert not broken(schedule, rules_of(pipeline))
        least = min(values)
        cut = (*free_choices(pipeline), *cuts_of(pipeline))
        assert optimum(cpsat, pipeline, "makespan", cut) == optimum(ilp, pipeline, "makespan", cut) == least
        assert solve(pipeline, workers=1, seconds=20).ticks.value == least
        for bound in bounds.work(pipeline), bounds.machine(pipeline):
            assert bound is not None
            assert bound.value <= least

    on()


@pytest.mark.thorough
def test_both_solvers_with_split_backwards() -> None:
    @settings(max_examples=3, phases=PHASES)
    @given(
        each(1, 3, 2),
        each(0, 3, 2),
        each(0, 2, 2),
        st.integers(0, 2),
        objectives,
        st.sampled_from(("loop", "wave", "bidirectional")),
    )
    def on(weight: Any, gather: Any, scatter: Any, latency: int, objective: Any, placement: str) -> None:
        chunks = 1 if placement == "bidirectional" else 2
        costs = Costs(forward=2, backward_input=2, backward_weight=weight)
        traffic = DataParallel(gather, scatter, per_pass=True)
        pipeline = Pipeline(2, 2, placement, chunks, costs=costs, links=Links(latency), data_parallel=traffic)
        words = (*free_choices(pipeline), *cuts_of(pipeline))
        best = optimum(cpsat, pipeline, objective, words)
        assert best is not None
        assert best == optimum(cpsat, pipeline, objective, free_choices(pipeline))
        by_ilp = optimum(ilp, pipeline, objective, words)
        assert by_ilp in (best, None)
        assert solve(pipeline, objective=objective, workers=1, seconds=30).ticks.value == best
        for of in bounds.work, bounds.machine:
            bound = of(pipeline, objective)
            assert bound is None or bound.value <= best

    on()


@given(*(st.integers(*limits) for limits in ((1, 4), (1, 5), (1, 3), (1, 3), (0, 4), (0, 4))))
@settings(max_examples=10)
def test_breadth_first_on_one_device(
    chunks: int, microbatches: int, forward: int, backward: int, gather: int, scatter: int
) -> None:
    """All passes of one direction after another: what is exchanged between them is not hidden."""
    costs = Costs("stage", forward=forward, backward=backward)
    traffic = DataParallel(gather, scatter, per="stage", per_pass=True)
    pipeline = Pipeline(1, microbatches, "loop", chunks, costs=costs, data_parallel=traffic)
    schedule = find("looped-bfs").schedule(pipeline, chunks)
    work = chunks * microbatches * (forward + backward)
    between = (chunks - 1) * (gather + max(gather, scatter))
    first = max(0, gather - (gather + (chunks - 1) * gather + chunks * microbatches * forward))
    assert schedule.makespan == gather + work + between + scatter + first


def test_the_rounds_of_interleaving_are_its_groups() -> None:
    """One gather for every group and chunk: groups of 4 of 8 microbatches have half as many pauses as groups of 2."""

    def pauses(name: str, **params: Any) -> int:
        traffic = DataParallel(1, per_pass=True)
        schedule = find(name).schedule(Pipeline(2, 8, "loop", 2, data_parallel=traffic), 2, **params)
        order = [op for op in schedule.order.ops(0) if "F" in str(op)]
        return sum(str(a)[0] != str(b)[0] for a, b in pairwise(order))

    assert pauses("interleaved-1f1b", group_size=2) == 7
    assert pauses("interleaved-1f1b", group_size=4) == 3
    assert pauses("looped-bfs") == 1


def test_without_time_nothing_changes() -> None:
    for changes in {"per_pass": True}, {}:
        pipeline = Pipeline(2, 4, "loop", 2, data_parallel=DataParallel(**changes))
        assert not any(isinstance(word, Turns) for word in rules_of(pipeline))
        result = solve(pipeline, workers=1, seconds=5)
        assert (result.value, result.reason) == (12.5, "optimal")


def test_with_one_stage_per_device_a_pass_is_the_step() -> None:
    for name in "1f1b", "zb-h1":
        values = {
            find(name).schedule(Pipeline(3, 5, data_parallel=DataParallel(2, 3, per_pass=each))).makespan
            for each in (True, False)
        }
        assert len(values) == 1


@pytest.mark.parametrize(("gather", "scatter", "op"), [(2, 0, "2F0"), (2, 0, "0B0"), (0, 2, "0B0")])
def test_what_is_left_out_is_found_out(gather: int, scatter: int, op: str) -> None:
    def of(traffic: DataParallel) -> Pipeline:
        return Pipeline(1, 2, routes=[[0, 0, 0]], costs=Costs("stage", backward=1), data_parallel=traffic)

    without = of(DataParallel())
    schedule = find("looped-bfs").schedule(Pipeline(1, 2, "loop", 3, costs=Costs("stage", backward=1)), 3)
    with_it = of(DataParallel(gather, scatter, per="stage", per_pass=True))
    good = time_order(with_it, schedule.order)
    assert violations(with_it, good) == []
    bad = time_order(without, schedule.order)
    bad = dataclasses.replace(bad, pipeline=with_it, start=tuple(row + gather for row in bad.start))
    found = [each for each in violations(with_it, bad) if each.rule == "pass"]
    assert op in {each.op for each in found}
    assert broken(bad, rules_of(with_it))
    late = dataclasses.replace(good, start=tuple(row + (row >= row[-1]) for row in good.start))
    assert [each.rule for each in violations(with_it, late, earliest=True)] == ["late"]


@pytest.mark.parametrize("solver", [cpsat, ilp], ids=["cp-sat", "ilp"])
def test_a_back_end_without_the_turns_finds_too_little(solver: Any) -> None:
    pipeline = per_pass((3, 0, 1, 6), (4, 2, 1, 5), 1)
    whole = optimum(solver, pipeline, "makespan", cuts_of(pipeline))
    assert whole is not None
    words = [word for word in (*rules_of(pipeline), *cuts_of(pipeline)) if not isinstance(word, Turns)]
    until = horizon(pipeline)
    limits = Limits.of(60, workers=1)
    less = solver.solve(pipeline, words, objective="makespan", lower=0, upper=until, horizon=until, limits=limits)
    assert less.lower_bound < whole


def test_what_is_refused() -> None:
    for changes, message in (
        ({"per_pass": 1}, "data_parallel.per_pass: expected true or false, got 1"),
        (
            {"per_pass": True, "overlap": True},
            "data_parallel.overlap: with per_pass every pass is exchanged beside the other directions anyway, and none ahead; "
            "expected false, got true",
        ),
    ):
        with pytest.raises(PipelineError) as error:
            DataParallel(**changes)  # type: ignore[arg-type]
        assert str(error.value) == message
    traffic = DataParallel(1, per_pass=True)
    with pytest.raises(PipelineError, match=r"pipeline.recompute: .choose. is not decided together with data_parallel.per_pass"):
        Pipeline(2, 4, recompute="choose", costs=Costs(recompute=1), data_parallel=traffic)
    pipeline = Pipeline(2, 4, "loop", 2, data_parallel=traffic)
    with pytest.raises(ValueError, match="not timed at many costs"):
        time_settings(pipeline, find("looped-bfs").schedule(pipeline, 2).order, pipeline.ticks.duration[None])


def test_another_placement_exchanges_as_much() -> None:
    pipeline = Pipeline(2, 4, "loop", 2, data_parallel=DataParallel((2, 4), Fraction(1, 2), per="device", per_pass=True))
    assert pipeline.placed("wave", 2).data_parallel == pipeline.data_parallel
    per_stage = pipeline.changed(data_parallel=DataParallel((1, 2, 1, 2), Fraction(1, 4), per="stage", per_pass=True))
    assert per_stage.placed("wave", 2).data_parallel == dataclasses.replace(
        pipeline.data_parallel, reduce_scatter=(Fraction(1, 2),) * 2
    )
