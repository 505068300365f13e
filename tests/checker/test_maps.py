"""What the checker says of schedules that break a map of work and weights."""

import numpy as np
import pytest

from ppopt.checker import Rule, metrics, mismatches, violations, violations_of
from ppopt.files.figures import metrics_dict, usage_dict
from ppopt.named import find
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import OrderError, time_order
from tests.support.checked import records

COSTS = Costs(per="stage", forward=1, backward=2)


def cuckoo(**fields: object) -> Schedule:
    pipeline = Pipeline(4, 6, costs=COSTS, **{"links": Links(latency=1, weights=1), **fields})  # type: ignore[arg-type]
    return find("cuckoo").schedule(pipeline)


def rules(found: list[object]) -> set[Rule]:
    return {violation.rule for violation in found}  # type: ignore[attr-defined]


def test_a_backward_on_the_device_of_its_forward() -> None:
    schedule = cuckoo()
    rows = records(schedule)
    (place,) = [i for i, (op, _, _) in enumerate(rows[3]) if str(op) == "0B0"]
    rows[0].append(rows[3].pop(place))
    rows[0].sort(key=lambda record: record[1])
    found = violations_of(schedule.pipeline, rows)
    assert Rule.DEVICE in rules(found)
    assert any("the backward of stage 0 on 3" in violation.message for violation in found)
    texts = schedule.order.texts()
    texts[3].remove("0B0")
    with pytest.raises(OrderError, match="the backward of its stage is on device 3"):
        time_order(schedule.pipeline, Order.of(schedule.pipeline, [[*texts[0], "0B0"], *texts[1:]]))


def test_a_fetch_left_out() -> None:
    """The backward of a cuckoo takes 3: 1 until the weights are there, and 2."""
    schedule = cuckoo()
    rows = records(schedule)
    for row in rows:
        for i, (op, start, end) in enumerate(row):
            if str(op) == "0B0":
                assert end - start == 3
                row[i] = (op, start + 1, end)
    assert Rule.DURATION in rules(violations_of(schedule.pipeline, rows))


def test_a_backward_before_the_activations_are_there() -> None:
    """They travel from device 0 to device 1 for 3, while nothing else keeps the backward waiting."""
    pipeline = Pipeline(2, 1, routes=[[0]], backward_routes=[[1]], costs=COSTS, links=Links(latency=3))
    order = Order.of(pipeline, [["0F0"], ["0B0"]])
    right = time_order(pipeline, order)
    assert right.start[1].tolist() == [4]
    assert violations(pipeline, right, earliest=True) == []
    for start, rule in ((3, Rule.LATENCY), (0, Rule.DATA)):
        early = Schedule(pipeline, order, (np.array([0]), np.array([start])))
        assert rules(violations(pipeline, early)) == {rule}
    late = Schedule(pipeline, order, (np.array([0]), np.array([5])))
    assert rules(violations(pipeline, late, earliest=True)) == {Rule.LATE}


def test_memory_counts_where_the_backward_runs() -> None:
    """Device 1 holds both microbatches from the starts of their forwards on, although it runs backwards alone."""
    fields = {"routes": [[0]], "backward_routes": [[1]], "costs": COSTS}
    for limit, fits in ((2, True), (1, False)):
        pipeline = Pipeline(2, 2, memory=Memory(limit=(0, limit)), **fields)  # type: ignore[arg-type]
        schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0F1"], ["0B0", "0B1"]]))
        assert schedule.peak_memory == (0, 2)
        assert metrics(pipeline, schedule).peak_memory == (0, 2)
        found = violations(pipeline, schedule)
        assert rules(found) == (set() if fits else {Rule.MEMORY})
        assert {violation.device for violation in found} <= {1}


def test_weights_that_are_kept_are_fetched_before_the_first_operation() -> None:
    memory = Memory(weights=2, weights_on=[[1, 1]], weights_kept="step")
    pipeline = Pipeline(2, 1, routes=[[0, 0]], backward_routes=[[0, 1]], costs=COSTS, links=Links(weights=5), memory=memory)
    order = Order.of(pipeline, [["0F0", "1F0", "0B0"], ["1B0"]])
    schedule = time_order(pipeline, order)
    assert schedule.start[0].tolist() == [10, 11, 14]
    assert (schedule.begin, schedule.makespan) == (0, 16)
    assert schedule.peak_memory == (4 + 1, 4 + 1)
    assert violations(pipeline, schedule, earliest=True) == []
    early = Schedule(pipeline, order, tuple(row - 1 for row in schedule.start))
    assert Rule.NEGATIVE in rules(violations(pipeline, early))


def test_recorded_figures_of_weights_are_derived_anew() -> None:
    schedule = find("fslpp").schedule(Pipeline(4, 8, costs=COSTS, memory=Memory(weights=3), links=Links(weights=1)))
    recorded = {**metrics_dict(schedule), **usage_dict(schedule, weights=True)}
    rows = records(schedule)
    assert mismatches(schedule.pipeline, rows, metrics=recorded) == []
    for name in ("stages_stored", "weights_stored", "weight_fetches", "weights_fetched", "fetch_time"):
        wrong = [dict(each) for each in recorded["devices"]]
        wrong[1][name] += 1
        (found,) = mismatches(schedule.pipeline, rows, metrics={**recorded, "devices": wrong})
        assert f"metrics.devices[1]: {name}" in found.message
