"""One order timed at many costs at once: how many operations a second.

    python scripts/many_costs.py [--schedule zb-v] [--devices 16] [--microbatches 64] [--settings 1000]

Every setting has other durations for every stage and kind, and other latencies. The first line is the time of all settings
together, once numba has loaded (or compiled) its loop; the second, of some of them one after the other, which give the same.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from ppopt.named import find
from ppopt.pipeline import Costs, Links, Pipeline
from ppopt.timing import time_order, time_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", default="zb-v")
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--microbatches", type=int, default=64)
    parser.add_argument("--settings", type=int, default=1000)
    parser.add_argument("--compared", type=int, default=5, help="settings that are also timed one by one (5)")
    given = parser.parse_args()
    schedule = find(given.schedule).schedule(Pipeline(given.devices, given.microbatches))
    pipeline, order = schedule.pipeline, schedule.order
    rng = np.random.default_rng(0)
    duration = rng.integers(50, 150, size=(given.settings, *pipeline.ticks.duration.shape))
    duration[:, :, 1] = duration[:, :, 2] + duration[:, :, 3]
    latency = rng.integers(0, 20, size=(given.settings, pipeline.devices, pipeline.devices))
    latency[:, np.arange(pipeline.devices), np.arange(pipeline.devices)] = 0
    operations = given.settings * sum(map(len, order.rows))
    time_settings(pipeline, order, duration, latency)  # loads the loop
    begin = time.process_time()
    lengths = time_settings(pipeline, order, duration, latency)
    seconds = time.process_time() - begin
    print(f"{given.schedule}, D={given.devices}, M={given.microbatches}: {given.settings} settings, {operations} operations")
    print(f"together:   {seconds:.3f} s, {operations / seconds / 1e6:.0f} million operations a second")
    one_by_one = []
    for k in range(min(given.compared, given.settings)):
        forward, backward, input_, weight = (tuple(duration[k, 0, kind].tolist()) for kind in range(4))
        costs = Costs(per="stage", forward=forward, backward=backward, backward_input=input_, backward_weight=weight)
        at = pipeline.changed(costs=costs, links=Links(latency[k].tolist()))
        begin = time.process_time()
        timed = time_order(at, order)
        one_by_one.append(time.process_time() - begin)
        assert timed.pipeline.ticks.per_unit == 1
        assert (timed.makespan, *timed.device_spans) == (lengths.makespan[k], *lengths.device_spans[k])
    if one_by_one:
        rate = operations / given.settings / min(one_by_one) / 1e6
        print(f"one by one: {given.settings * min(one_by_one):.3f} s, {rate:.0f} million operations a second; the same times")


if __name__ == "__main__":
    main()
