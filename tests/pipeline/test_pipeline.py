"""A pipeline and its parts: routes, costs, memory, ticks, and what is refused."""

import dataclasses
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ppopt.op import Kind
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Offload, Pipeline, PipelineError, fewer_devices


def test_placements() -> None:
    assert Pipeline(3, 1).routes == ((0, 1, 2),)
    assert Pipeline(3, 1, placement="loop", chunks=2).routes == ((0, 1, 2, 0, 1, 2),)
    assert Pipeline(3, 1, placement="wave", chunks=3).routes == ((0, 1, 2, 2, 1, 0, 0, 1, 2),)
    assert Pipeline(2, 4, placement="bidirectional").routes == ((0, 1), (1, 0))
    assert Pipeline(2, 4, routes=[[0, 1, 0]]).routes == ((0, 1, 0),)


def test_microbatches_are_split_over_the_routes() -> None:
    assert Pipeline(2, 4, placement="bidirectional").route_of_microbatch == (0, 0, 1, 1)
    assert Pipeline(2, 3, placement="bidirectional").route_of_microbatch == (0, 0, 1)
    pipeline = Pipeline(2, 3, placement="bidirectional", route_of_microbatch=(1, 0, 1))
    assert [of_route.tolist() for of_route in pipeline.microbatches_of] == [[1], [0, 2]]


def test_is_frozen_and_hashable() -> None:
    pipeline = Pipeline(2, 4, costs=Costs(forward=[1, 2]))
    assert hash(pipeline) == hash(Pipeline(2, 4, costs=Costs(forward=(Fraction(1), Fraction(2)))))
    assert pipeline == Pipeline(2, 4, costs=Costs(forward=(1, 2)), name="a label")
    with pytest.raises(dataclasses.FrozenInstanceError):
        pipeline.devices = 3


def test_a_chunk_takes_its_part_of_the_device() -> None:
    pipeline = Pipeline(2, 1, placement="wave", chunks=2, costs=Costs(forward=(2, 5), backward_input=1))
    ticks = pipeline.ticks
    assert ticks.per_unit == 2
    assert ticks.duration[0, Kind.F].tolist() == [2, 5, 5, 2]
    assert ticks.duration[0, Kind.I].tolist() == [1, 1, 1, 1]
    assert ticks.duration[0, Kind.B].tolist() == [2, 2, 2, 2]
    uneven = Pipeline(2, 1, routes=[[0, 1, 0]], costs=Costs(forward=6))
    assert uneven.ticks.duration[0, Kind.F].tolist() == [6, 12, 6]  # in halves: device 0 holds two stages
    per_stage = Pipeline(2, 1, placement="loop", chunks=2, costs=Costs(per="stage", forward=(1, 2, 3, 4)))
    assert per_stage.ticks.duration[0, Kind.F].tolist() == [1, 2, 3, 4]


def test_decimals_are_exact() -> None:
    pipeline = Pipeline(8, 24, costs=Costs(forward=18.522, backward_input=18.086, backward_weight=9.337), links=Links(0.601))
    ticks = pipeline.ticks
    assert ticks.per_unit == 1000
    assert ticks.duration[0, :, 0].tolist() == [18522, 27423, 18086, 9337]
    assert ticks.latency[0, 1] == 601
    assert ticks.latency[3, 3] == 0
    assert pipeline.time(18522) == 18.522


def test_backward_alone_is_fused_throughout() -> None:
    assert not Costs(backward=2).split
    assert Pipeline(1, 1, costs=Costs(backward=2)).ticks.duration[0, Kind.I, 0] == -1
    both = Costs(backward=2, backward_input=1)
    assert both.split
    assert both.backward_weight == 1


def test_memory_counts_a_copy_of_the_weights_per_direction() -> None:
    memory = Memory(activation=3, static=10, retained=1)
    two = Pipeline(2, 4, placement="bidirectional", memory=memory).amounts
    assert two.static.tolist() == [20, 20]
    assert two.activation.tolist() == [[3, 3], [3, 3]]
    chunked = Pipeline(2, 4, placement="wave", chunks=2, memory=memory).amounts
    assert (chunked.static / chunked.per_unit).tolist() == [10, 10]
    assert (chunked.activation / chunked.per_unit).tolist() == [[1.5] * 4]
    same_twice = Pipeline(2, 4, routes=[[0, 1], [0, 1]], memory=memory).amounts
    assert same_twice.static.tolist() == [10, 10]


def test_work_uses_the_cheaper_backward() -> None:
    split = Pipeline(2, 3, costs=Costs(forward=1, backward_input=2, backward_weight=2, backward=5))
    assert split.work.tolist() == [15, 15]
    fused = Pipeline(2, 3, costs=Costs(forward=1, backward_input=2, backward_weight=2, backward=3))
    assert fused.work.tolist() == [12, 12]


def test_changing_the_placement_keeps_the_costs_per_device() -> None:
    costs = Costs(per="stage", forward=(1, 2, 3, 4), backward=(2, 2, 4, 4))
    pipeline = Pipeline(2, 3, placement="wave", chunks=2, costs=costs)
    linear = pipeline.placed("linear")
    assert linear.costs.forward == (5, 5) or linear.costs.forward == 5
    assert linear.costs.backward == 6
    assert linear.work.tolist() == pipeline.work.tolist()
    assert pipeline.placed("wave", 2) is pipeline


def test_changing_sizes_derives_the_rest_anew() -> None:
    pipeline = Pipeline(2, 4, placement="bidirectional").changed(devices=4, microbatches=8)
    assert pipeline.routes == ((0, 1, 2, 3), (3, 2, 1, 0))
    assert len(pipeline.route_of_microbatch) == 8
    explicit = Pipeline(2, 4, routes=[[0, 1, 0]]).changed(microbatches=2)
    assert explicit.routes == ((0, 1, 0),)
    assert explicit.changed(placement="loop", chunks=2).routes == ((0, 1, 0, 1),)


def test_fewer_devices_are_like_those_in_their_place() -> None:
    pipeline = Pipeline(
        6,
        10,
        placement="wave",
        chunks=2,
        costs=Costs(per="stage", forward=tuple(range(1, 13)), backward=3),
        links=Links(latency=[[a + b if a != b else 0 for b in range(6)] for a in range(6)], occupancy=1),
        memory=Memory(activation=tuple(range(1, 13)), static=(1, 2, 3, 4, 5, 6), limit=61),
        data_parallel=DataParallel(all_gather=7),
    )
    few = fewer_devices(pipeline, 3)
    assert few.routes == ((0, 1, 2, 2, 1, 0),)
    assert few.costs == Costs(per="stage", forward=(2, 4, 6, 8, 10, 12), backward=3)
    assert few.memory == Memory(activation=(2, 4, 6, 8, 10, 12), static=(2, 4, 6), limit=(31.5, 32.5, 33.5))
    assert few.links == Links(latency=[[0, 5, 7], [5, 0, 9], [7, 9, 0]])
    assert not few.ticks.margins
    assert few.microbatches == 10
    assert fewer_devices(Pipeline(6, 10, memory=Memory(limit=4)), 3) == Pipeline(3, 10, memory=Memory(limit=(2, 2, 2)))
    times = Offload(time=[1, 2, 3, 4, 5, 6], shared=[[4, 5]], stages="none")
    assert fewer_devices(Pipeline(6, 10, offload=times), 3) == Pipeline(3, 10)
    with pytest.raises(PipelineError, match="limit"):
        fewer_devices(Pipeline(6, 10, memory=Memory(limit=1)), 3)
    with pytest.raises(PipelineError, match="routes"):
        fewer_devices(Pipeline(2, 4, routes=[[0, 1, 0]]), 1)


@pytest.mark.parametrize(
    ("key", "build"),
    [
        ("pipeline.devices", lambda: Pipeline(0, 1)),
        ("pipeline.devices", lambda: Pipeline(10**9, 1)),
        ("pipeline.devices", lambda: Pipeline(2.0, 1)),
        ("pipeline.devices", lambda: Pipeline(True, 1)),
        ("pipeline.microbatches", lambda: Pipeline(2, -3)),
        ("pipeline.microbatches", lambda: Pipeline(1024, 2**18)),
        ("pipeline.chunks", lambda: Pipeline(2, 2, chunks=2)),
        ("pipeline.chunks", lambda: Pipeline(2, 2, placement="bidirectional", chunks=2)),
        ("pipeline.chunks", lambda: Pipeline(1000, 2, placement="loop", chunks=1000)),
        ("pipeline.placement", lambda: Pipeline(2, 2, placement="spiral")),
        ("pipeline.routes[1]", lambda: Pipeline(2, 2, routes=[[0, 1], [1]])),
        ("pipeline.routes[0][1]", lambda: Pipeline(2, 2, routes=[[0, 2]])),
        ("pipeline.routes", lambda: Pipeline(3, 2, routes=[[0, 1]])),
        ("pipeline.route_of_microbatch", lambda: Pipeline(2, 2, placement="bidirectional", route_of_microbatch=(0,))),
        ("pipeline.route_of_microbatch[1]", lambda: Pipeline(2, 2, placement="bidirectional", route_of_microbatch=(0, 2))),
        ("costs.per", lambda: Costs(per="chunk")),
        ("costs.forward", lambda: Costs(forward=-1)),
        ("costs.forward[1]", lambda: Costs(forward=[1, float("nan")])),
        ("costs.forward", lambda: Costs(forward="1")),
        ("costs.forward", lambda: Costs(forward=1e300)),
        ("costs.backward", lambda: Pipeline(2, 2, costs=Costs(backward=[1, 2, 3]))),
        ("costs.overlap", lambda: Pipeline(2, 2, placement="loop", chunks=2, costs=Costs(per="stage", overlap=[1, 2]))),
        ("links.latency", lambda: Pipeline(2, 2, links=Links([[0, 1]]))),
        ("links.latency[1]", lambda: Pipeline(2, 2, links=Links([[0, 1], [1]]))),
        ("links.latency[0][0]", lambda: Pipeline(2, 2, links=Links([[1, 1], [1, 0]]))),
        ("links.shared[0][0]", lambda: Pipeline(2, 2, links=Links(shared=[[[0, 5]]]))),
        ("memory.limit", lambda: Pipeline(2, 2, memory=Memory(limit=0.5))),
        ("memory.limit[1]", lambda: Pipeline(2, 2, memory=Memory(limit=[2, 0.5]))),
        ("memory.limit", lambda: Pipeline(2, 2, memory=Memory(limit=[2, 2, 2]))),
        ("memory.limit", lambda: Pipeline(2, 2, memory=Memory(static=4, limit=4))),
    ],
)  # fmt: skip
def test_errors_name_the_key(key: str, build: Any) -> None:
    with pytest.raises(PipelineError) as error:
        build()
    assert error.value.key == key
    assert str(error.value).startswith(f"{key}: ")


def test_what_cannot_be_held_in_ticks_is_refused() -> None:
    with pytest.raises(PipelineError, match="fewer digits"):
        Pipeline(2, 10**5, costs=Costs(forward=1.23456789012e9, backward=1.1e-9))


def test_ticks_scale_with_the_costs() -> None:
    rng = random.Random(1)
    for _ in range(50):
        values = [Fraction(rng.randint(0, 99), rng.choice([1, 2, 3, 10, 100])) for _ in range(4)]
        costs = Costs(forward=values[0], backward_input=values[1], backward_weight=values[2])
        pipeline = Pipeline(3, 2, placement="loop", chunks=2, costs=costs, links=Links(values[3]))
        ticks = pipeline.ticks
        per_op = [values[0], values[1] + values[2], values[1], values[2]]
        expected = [[value / 2 * ticks.per_unit] * 6 for value in per_op]
        assert np.array_equal(ticks.duration[0], np.array(expected, dtype=np.int64))
