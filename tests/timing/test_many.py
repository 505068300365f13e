"""One order at many costs at once: what timing it at each of them gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppopt.named import find
from ppopt.pipeline import Costs, DataParallel, Links, Pipeline
from ppopt.schedule import Order
from ppopt.timing import OrderError, time_order, time_settings

EVEN = Costs(forward=2, backward_input=2, backward_weight=2)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["1f1b", "zb-h1", "zb-v", "interleaved-1f1b", "chimera"]), st.integers(1, 3))
def test_as_one_after_the_other(seed: int, name: str, groups: int) -> None:
    rng = np.random.default_rng(seed)
    traffic = DataParallel(all_gather=2, reduce_scatter=4) if seed % 2 else DataParallel()
    schedule = find(name).schedule(Pipeline(2, 2 * groups, costs=EVEN, data_parallel=traffic))
    pipeline, order = schedule.pipeline, schedule.order
    duration = rng.integers(1, 9, size=(4, 1, 4, pipeline.stages)).repeat(len(pipeline.routes), axis=1)
    lag = rng.integers(0, 4, size=(4, pipeline.devices, pipeline.devices))
    found = time_settings(pipeline, order, duration, lag)
    for k in range(4):
        forward, full, input_, weight = (tuple(duration[k, 0, kind].tolist()) for kind in range(4))
        costs = Costs(per="stage", forward=forward, backward=full, backward_input=input_, backward_weight=weight)
        latency = [[0 if a == b else int(lag[k, a, b]) for b in range(pipeline.devices)] for a in range(pipeline.devices)]
        flat = pipeline.changed(costs=costs, links=Links(latency), route_of_microbatch=pipeline.route_of_microbatch)
        timed = time_order(flat, order)
        assert flat.ticks.per_unit == pipeline.ticks.per_unit == 1
        assert (found.makespan[k], found.device_spans[k].tolist()) == (timed.makespan, list(timed.device_spans))


def test_what_cannot_be_timed_so_is_said() -> None:
    pipeline = Pipeline(2, 2)
    order = find("1f1b").schedule(pipeline).order
    duration = pipeline.ticks.duration[None]
    assert time_settings(pipeline, order, duration).makespan.tolist() == [time_order(pipeline, order).makespan]
    assert time_settings(pipeline, order, duration[:0]).makespan.tolist() == []
    with pytest.raises(ValueError, match="duration: expected an array of the shape"):
        time_settings(pipeline, order, duration[0])
    with pytest.raises(ValueError, match="expected numbers >= 0"):
        time_settings(pipeline, order, -duration)
    with pytest.raises(ValueError, match="single operations"):
        time_settings(Pipeline(2, 2, links=Links(occupancy=1)), order, duration)
    with pytest.raises(OrderError, match="1B1 is missing"):
        time_settings(pipeline, Order(order.index, (order.rows[0], order.rows[1][:-1])), duration)
    with pytest.raises(OrderError, match="deadlocks"):
        time_settings(pipeline, Order(order.index, tuple(row[::-1].copy() for row in order.rows)), duration)
