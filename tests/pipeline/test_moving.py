"""On another placement a device does the same work, whichever devices the microbatches visit and whatever costs are given per."""

import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ppopt.checker import violations
from ppopt.files.exported import _placed_as
from ppopt.heuristics import baselines
from ppopt.named import Restriction, compare, find
from ppopt.named.bidirectional import two_waves
from ppopt.op import Kind
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline, PipelineError
from tests.support.shown import SHOWN
from tests.support.tiers import drawn

LOOPED = {"routes": [[0, 1, 2, 0, 1, 2], [3, 4, 5, 3, 4, 5]]}
"""Each microbatch visits three of six devices twice."""


def work(pipeline: Pipeline) -> list[Fraction]:
    """Per device, in the user's unit."""
    return [Fraction(int(ticks), pipeline.ticks.per_unit) for ticks in pipeline.work]


@pytest.mark.parametrize("place", [{"routes": [[0, 1], [2, 3]]}, {"routes": [[0, 1, 0, 1], [2, 3, 2, 3]]}])
def test_half_of_the_microbatches_are_half_of_the_work(place: dict[str, Any]) -> None:
    pipeline = Pipeline(4, 8, costs=Costs(forward=2), memory=Memory(activation=6, static=10, retained=3), **place)
    assert work(pipeline) == [16] * 4
    for where, chunks in (("linear", 1), ("loop", 2), ("wave", 4), ("bidirectional", 1)):
        other = pipeline.placed(where, chunks)
        assert work(other) == [16] * 4
        assert other.costs == Costs(forward=1, backward_input=Fraction(1, 2), backward_weight=Fraction(1, 2))
        assert other.memory == Memory(activation=3, retained=Fraction(3, 2), static=5)


def test_an_uneven_split_of_the_microbatches_counts() -> None:
    pipeline = Pipeline(
        4,
        4,
        routes=[[0, 1], [2, 3]],
        route_of_microbatch=(0, 0, 0, 1),
        costs=Costs(forward=(4, 8, 12, 16)),
        memory=Memory(activation=(1, 2, 3, 4), static=8, limit=12),
    )
    linear = pipeline.placed("linear")
    assert linear.costs.forward == (3, 6, 3, 4)
    assert linear.memory.activation == (Fraction(3, 4), Fraction(3, 2), Fraction(3, 4), 1)
    assert linear.memory.static == (6, 6, 2, 2)
    assert linear.memory.limit == 12


def test_stages_that_two_routes_have_on_different_devices() -> None:
    pipeline = Pipeline(2, 4, "bidirectional", costs=Costs("stage", forward=(1, 3)), route_of_microbatch=(0, 0, 0, 1))
    assert pipeline.placed("linear").costs.forward == (Fraction(3, 2), Fraction(5, 2))
    assert work(pipeline.placed("linear")) == work(pipeline) == [14, 18]


def test_all_named_schedules_have_the_work_of_the_model() -> None:
    pipeline = Pipeline(6, 12, costs=Costs(forward=(1, 2, 3, 1, 2, 3)), **LOOPED)
    rows = [row for row in compare(pipeline, (2, 4)) if row.schedule is not None]
    assert {row.name for row in rows} >= {*SHOWN} - {"dualpipe"}
    for row in rows:
        assert row.schedule is not None
        assert work(row.schedule.pipeline) == work(pipeline), row.name


def test_what_is_exchanged_elsewhere_is_not_known() -> None:
    pipeline = Pipeline(4, 8, routes=[[0, 1], [2, 3]], data_parallel=DataParallel(1, 2))
    with pytest.raises(PipelineError, match=r"data_parallel: what a device exchanges on another placement is not known"):
        pipeline.placed("linear")
    with pytest.raises(Restriction, match=r"bitpipe: data_parallel: what a device exchanges"):
        find("bitpipe").place(pipeline)
    rows = compare(pipeline)
    assert all(row.excluded is not None and row.excluded.startswith(f"{row.name}: data_parallel: ") for row in rows)
    free = dataclasses.replace(pipeline, data_parallel=DataParallel(0, (0, 0), per="stage"))
    assert work(find("1f1b").schedule(free).pipeline) == [12] * 4


def test_a_device_that_would_have_nothing_to_do() -> None:
    pipeline = Pipeline(4, 1, "linear")
    with pytest.raises(PipelineError, match=r"pipeline\.routes: device 2 would have no work: no microbatch visits it"):
        pipeline.rerouted(((0, 1), (2, 3)))
    idle = Pipeline(4, 1, routes=[[0, 1], [2, 3]])
    assert work(idle) == work(idle.placed("linear")) == [3, 3, 0, 0]


def test_the_same_routes_keep_what_is_given() -> None:
    costs = Costs("stage", forward=(1, 2, 3, 4), backward=5)
    pipeline = Pipeline(2, 4, routes=[[0, 1, 0, 1]], costs=costs, data_parallel=DataParallel((1, 2, 3, 4), per="stage"))
    loop = pipeline.placed("loop", 2)
    assert (loop.placement, loop.routes, loop.costs, loop.data_parallel) == (
        "loop",
        pipeline.routes,
        costs,
        pipeline.data_parallel,
    )
    two = Pipeline(2, 4, "bidirectional", costs=Costs("stage", forward=(1, 2)), route_of_microbatch=(1, 0, 1, 1))
    assert two.rerouted(two.routes).route_of_microbatch == (1, 0, 1, 1)
    assert two.rerouted(two.routes).costs == two.costs
    assert two.rerouted(two.routes, (0, 0, 1, 1)).route_of_microbatch == (0, 0, 1, 1)


NUMBERS = st.sampled_from([Fraction(n, d) for n in range(6) for d in (1, 2, 3)])


@st.composite
def places(draw: st.DrawFn, devices: int) -> dict[str, Any]:
    """One to three routes over some of the devices, all of them on one at least."""
    routes, stages = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    assume(routes * stages >= devices)
    flat = draw(
        st.permutations(
            [*range(devices), *draw(st.lists(st.integers(0, devices - 1), min_size=18, max_size=18))][: routes * stages]
        )
    )
    return {"routes": [flat[r * stages : (r + 1) * stages] for r in range(routes)]}


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    devices, microbatches = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    place = draw(places(devices))
    stages = len(place["routes"][0])
    per = draw(st.sampled_from(["device", "stage"]))
    length = stages if per == "stage" else devices

    def some() -> Any:
        return draw(st.one_of(NUMBERS, st.lists(NUMBERS, min_size=length, max_size=length)))

    costs: dict[str, Any] = {"forward": some()}
    if draw(st.booleans()):
        costs |= {"backward_input": some(), "backward_weight": some()}
    if len(costs) == 1 or draw(st.booleans()):
        costs["backward"] = some()
    recompute = draw(st.sampled_from(["none", "all", [0]]))
    if recompute == "none" and draw(st.booleans()):
        costs["overlap"] = some()
    costs["recompute"] = some()
    split = draw(st.lists(st.integers(0, len(place["routes"]) - 1), min_size=microbatches, max_size=microbatches))
    held = draw(st.lists(NUMBERS, min_size=length, max_size=length))
    memory = Memory(
        activation=[2 * amount for amount in held],
        retained=draw(st.sampled_from([None, [amount / 3 for amount in held], [amount * 3 for amount in held]])),
        recompute_saved=[amount * draw(st.sampled_from([0, 1, 2])) for amount in held],
        static=draw(st.lists(NUMBERS, min_size=devices, max_size=devices)),
    )
    return Pipeline(
        devices,
        microbatches,
        costs=Costs(per, **costs),
        memory=memory,
        route_of_microbatch=tuple(split),
        recompute=recompute,
        **place,
    )


def spent(pipeline: Pipeline) -> dict[str, list[Fraction]]:
    """By what it is, per device: the sum over all microbatches of what their stages take, ``-1`` where there is no such thing."""
    ticks, amounts = pipeline.ticks, pipeline.amounts
    tables = {kind.name: (ticks.duration[:, kind], ticks.per_unit) for kind in Kind}
    tables["overlap"] = ticks.overlap, ticks.per_unit
    tables["activation"] = amounts.activation, amounts.per_unit
    tables["retained"] = amounts.retained, amounts.per_unit
    result = {}
    for name, (table, per_unit) in tables.items():
        total = [Fraction(0)] * pipeline.devices
        for route in pipeline.route_of_microbatch:
            for stage, device in enumerate(pipeline.routes[route]):
                total[device] += Fraction(int(table[route, stage]), per_unit)
        result[name] = [Fraction(-1)] * pipeline.devices if (table < 0).all() else total
    return result


OTHERS: list[tuple[str, int]] = [("linear", 1), ("loop", 1), ("loop", 2), ("wave", 2), ("wave", 3), ("bidirectional", 1)]


@drawn(50, 150, pipelines(), st.sampled_from(OTHERS))
def test_the_work_is_the_same_on_every_placement(pipeline: Pipeline, where: tuple[str, int]) -> None:
    other = pipeline.placed(*where)
    assert spent(other) == spent(pipeline)
    static = [
        pipeline.memory.static[d] if isinstance(pipeline.memory.static, tuple) else pipeline.memory.static
        for d in range(pipeline.devices)
    ]
    visited = [
        sum(device in pipeline.routes[route] for route in pipeline.route_of_microbatch) for device in range(pipeline.devices)
    ]
    kept = other.memory.static if isinstance(other.memory.static, tuple) else (other.memory.static,) * pipeline.devices
    if other.routes != pipeline.routes:
        assert list(kept) == [
            amount * Fraction(count, pipeline.microbatches) for amount, count in zip(static, visited, strict=True)
        ]


@drawn(30, 100, pipelines(), st.data())
def test_the_work_is_the_same_on_any_routes(pipeline: Pipeline, data: st.DataObject) -> None:
    devices = pipeline.devices
    place = data.draw(st.one_of(places(devices), st.just({"routes": two_waves(devices)})))
    split = tuple(
        data.draw(
            st.lists(st.integers(0, len(place["routes"]) - 1), min_size=pipeline.microbatches, max_size=pipeline.microbatches)
        )
    )
    own = Pipeline(devices, pipeline.microbatches, route_of_microbatch=split, **place)
    assume(own.routes != pipeline.routes)
    try:
        other = pipeline.rerouted(own.routes, split)
    except PipelineError as error:
        assert "would have no work" in str(error)  # noqa: PT017 - not every map of routes is refused
        return
    assert (other.routes, other.route_of_microbatch) == (own.routes, own.route_of_microbatch)
    assert spent(other) == spent(pipeline)
    assert spent(_placed_as(own, pipeline)) == spent(pipeline)


@settings(deadline=None, max_examples=25)
@given(pipelines(), st.sampled_from(OTHERS))
def test_schedules_elsewhere_pass_the_checker(pipeline: Pipeline, where: tuple[str, int]) -> None:
    other = pipeline.changed(links=Links(1), route_of_microbatch=pipeline.route_of_microbatch).placed(*where)
    for _, schedule in list(baselines(other))[:1]:
        assert violations(other, schedule) == []


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4), st.data())
def test_where_every_device_is_visited_the_costs_per_device_stay(devices: int, data: st.DataObject) -> None:
    routes = [data.draw(st.permutations(range(devices))) for _ in range(data.draw(st.integers(1, 3)))]
    values = data.draw(st.lists(NUMBERS, min_size=devices, max_size=devices))
    memory = Memory(activation=values, static=values)
    pipeline = Pipeline(devices, 5, routes=routes, costs=Costs(forward=values, overlap=values), memory=memory)
    for where in OTHERS:
        other = pipeline.placed(*where)
        assert (other.costs, other.memory) == (pipeline.costs, pipeline.memory)
        assert (other.placement, other.chunks) == where or other is pipeline


def test_from_an_open_placement_to_a_settled_one() -> None:
    costs = Costs(forward=3, backward_input=(1, 2, 3, 4))
    settled, several = Pipeline(4, 8, costs=costs), Pipeline(4, 8, placement="any", chunks=(2, 3), costs=costs)
    for placement, chunks in (("linear", 1), ("loop", 3), ("bidirectional", 1)):
        assert several.placed(placement, chunks) == settled.placed(placement, chunks)
    assert several.rerouted(((3, 2, 1, 0),)) == settled.rerouted(((3, 2, 1, 0),))
