"""Weight gradients of equal cost run in the order of their input gradients: no schedule's times are lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from ppopt import bounds, cpsat
from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.constraints import (
    Family,
    always_split,
    cuts_of,
    equal_weights,
    expand,
    free_choices,
    graph_of,
    operations,
    weights_in_order,
)
from ppopt.heuristics import each_baseline
from ppopt.op import Kind
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Offload, Pipeline
from ppopt.schedule import Order, Schedule
from tests.support import tuned
from tests.support.tiers import drawn
from tests.support.unaided import optimum


def cut(**fields: object) -> set[tuple[str, str, int]]:
    """The cut of three devices and eight microbatches, in words."""
    fields = {"placement": "wave", "chunks": 2, "memory": Memory(limit=3)} | fields
    words = weights_in_order(Pipeline(3, 8, **fields))  # type: ignore[arg-type]
    return {(str(word.before), str(word.after), word.shift) for word in words}


def test_what_is_known_of_input_gradients() -> None:
    """By the data the later stage is first; by memory, for which 3 microbatches of two chunks fit, the earlier microbatch."""
    assert {("5W", "0W", 0), ("4W", "1W", 0), ("3W", "2W", 0)} <= cut()
    assert {(a, b) for a, b, _ in cut()} == {(f"{a}W", f"{5 - a}W") for a in range(6)}
    assert {shift for a, _, shift in cut() if a in ("0W", "1W", "2W")} <= set(range(2, 7))
    assert cut(memory=Memory()) == {("5W", "0W", 0), ("4W", "1W", 0), ("3W", "2W", 0)}


@pytest.mark.parametrize(
    "fields",
    [
        {"placement": "linear", "chunks": 1},
        {"costs": Costs(per="stage", backward_weight=[1, 2, 3, 4, 5, 6])},
        {"memory": Memory(activation=[1, 1, 1, 2, 2, 2], retained=[1, 1, 1, 2, 2, 2], limit=9), "costs": Costs(per="stage")},
        {"costs": Costs(backward=2, backward_input=None, backward_weight=None)},
        {"costs": Costs(forward=2, backward=3, backward_input=2, backward_weight=2)},
        {"costs": Costs(backward_weight=0)},
        {"data_parallel": DataParallel(per="stage", reduce_scatter=[1, 2, 3, 4, 5, 6], overlap=True)},
        {"data_parallel": DataParallel(all_gather=1, reduce_scatter=1, per_pass=True)},
        {"placement": "loop", "chunks": 2, "offload": Offload(time=1, stages="all")},
    ],
    ids=[
        "one stage each",
        "other times",
        "other amounts",
        "whole",
        "whole or split",
        "no time",
        "traffic of stages",
        "pauses between passes",
        "given copies",
    ],
)
def test_where_it_is_not_known(fields: dict[str, object]) -> None:
    assert not cut(**fields)


def exchanged(schedule: Schedule) -> Schedule:
    """The schedule whose weight gradients of equal cost are in the order in which their input gradients end."""
    pipeline, rows = schedule.pipeline, [row.copy() for row in schedule.order.rows]
    graph = graph_of(pipeline)
    when = {
        number: (device, place) for device, row in enumerate(schedule.order.rows) for place, number in enumerate(row.tolist())
    }
    for stages in equal_weights(graph):
        couples = [
            tuple(int(operations(pipeline, graph.families[family])[n]) for family in stage)
            for stage in stages
            for n in range(pipeline.microbatches)
        ]
        places = sorted(when[weight] for _, weight in couples)
        for (_, weight), (device, place) in zip(sorted(couples, key=lambda c: when[c[0]]), places, strict=True):
            rows[device][place] = weight
    return replace(schedule, order=Order(schedule.order.index, tuple(rows)))


@st.composite
def chunked(draw: st.DrawFn, most: int = 10) -> Pipeline:
    """A pipeline of few microbatches, with several stages on each device that mostly cost the same."""
    devices, chunks = draw(st.sampled_from([(1, 2), (2, 2), (2, 2), (3, 2), (2, 4)]))
    microbatches = draw(st.integers(2, max(2, most // (devices * chunks))))
    whole = st.integers(1, 3)
    times = [draw(whole) for _ in range(3)]
    per = {
        kind: [time] * (devices * chunks)
        for kind, time in zip(("forward", "backward_input", "backward_weight"), times, strict=True)
    }
    if draw(st.booleans()):
        per[draw(st.sampled_from(sorted(per)))][draw(st.integers(0, devices * chunks - 1))] += 1
    return Pipeline(
        devices,
        microbatches,
        placement=draw(st.sampled_from(["loop", "wave"])),
        chunks=chunks,
        costs=Costs(per="stage", **per),
        links=Links(draw(st.integers(0, 1))),
        memory=Memory(
            activation=2,
            retained=draw(st.integers(0, 2)),
            limit=draw(st.sampled_from([None, *range(2 * chunks, 4 * chunks + 1)])),
        ),
    )


@drawn(10, 200, chunked(48))
def test_schedules_keep_their_times(pipeline: Pipeline) -> None:
    """Exchanged, list schedules pass the checker, run at the same times, and obey the cut."""
    words = weights_in_order(pipeline)
    assume(words)
    for _, schedule in list(each_baseline(pipeline))[:4]:
        other = exchanged(schedule)
        assert violations(pipeline, other) == []
        assert (other.makespan, other.device_span) == (schedule.makespan, schedule.device_span)
        start = dict(zip(np.concatenate(other.order.rows).tolist(), np.concatenate(other.start).tolist(), strict=True))
        before, after, _ = expand(pipeline, words)
        assert all(start[a] < start[b] for a, b in zip(before.tolist(), after.tolist(), strict=True))


@drawn(3, 40, chunked(), st.sampled_from(["makespan", "span"]))
def test_the_optimum_stays(pipeline: Pipeline, objective: Objective) -> None:
    """With the cut it is the same, and no window certificate is above it."""
    words = weights_in_order(pipeline)
    assume(words)
    others = tuple(word for word in cuts_of(pipeline) if word not in words)
    choices = free_choices(pipeline)
    assert choices == always_split(pipeline)
    best = optimum(cpsat, pipeline, objective, (*choices, *others))
    assert best is not None
    assert optimum(cpsat, pipeline, objective, (*choices, *cuts_of(pipeline))) == best
    floor = bounds.machine(pipeline)
    assert floor is not None
    window = tuned.window(pipeline, floor.value // 2, floor.value // 2, objective, makespan=floor.value)
    assert window is None or window.value <= best


def test_memory_is_counted_with_it() -> None:
    """Stages that hold other amounts until then are told apart, but not those that differ before."""
    activation = [1, 1, 1, 2, 2, 2]
    memory = Memory(activation=activation, retained=[1] * 6, limit=9)
    assert cut(memory=memory, costs=Costs(per="stage"))
    assert Family(0, Kind.W) in {
        word.before for word in weights_in_order(Pipeline(2, 9, placement="loop", chunks=2, memory=Memory(limit=2)))
    }
