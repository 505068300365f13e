"""Orders, schedules and what follows from them, by hand on pipelines that fit into a head."""

from fractions import Fraction

import numpy as np
import pytest

from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, DataParallel, Layer, Layers, Level, Links, Memory, Pipeline, PipelineError, Units
from ppopt.schedule import Order, Schedule, devices_of, durations, in_sequence, memory_changes, of_stages
from ppopt.timing import time_order

COSTS = Costs(forward=(1, 2), backward_input=3, backward_weight=(4, 5))
ROWS = [["0F0", "0F1", "0I0", "0W0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]


def scheduled(pipeline: Pipeline, rows: list[list[str]], starts: list[list[int]]) -> Schedule:
    return Schedule(pipeline, Order.of(pipeline, rows), tuple(np.array(row, dtype=np.int64) for row in starts))


@pytest.fixture
def schedule() -> Schedule:
    """Device 1: 1F0 2-4, 1B0 4-12, 1F1 12-14, 1B1 14-22. Device 0: 0F0 1-2, 0F1 2-3, 0I0 12-15, 0W0 15-19, 0B1 22-29."""
    return scheduled(Pipeline(2, 2, costs=COSTS), ROWS, [[1, 2, 12, 15, 22], [2, 4, 12, 14]])


def test_an_order_is_what_was_written() -> None:
    order = Order.of(Pipeline(2, 2), ROWS)
    assert order.texts() == ROWS
    assert order.ops(0)[:2] == [Op(0, Kind.F, 0), Op(0, Kind.F, 1)]
    assert order == Order.of(Pipeline(2, 2), [map(str, order.ops(0)), order.ops(1)])
    assert hash(order) == hash(Order.of(Pipeline(2, 2), ROWS))
    assert not order.paired


def test_orders_differ_by_one_swap_and_by_size() -> None:
    order = Order.of(Pipeline(2, 2), ROWS)
    assert order != Order.of(Pipeline(2, 2), [[ROWS[0][1], ROWS[0][0], *ROWS[0][2:]], ROWS[1]])
    assert order != Order.of(Pipeline(2, 2), ROWS[:1])
    assert order != Order.of(Pipeline(2, 3), ROWS)
    assert order != ROWS


@pytest.mark.parametrize("text", ["0F2", "2F0", "0X0", "F"])
def test_what_is_no_operation_of_the_pipeline_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Order.of(Pipeline(2, 2), [[text], []])


def test_times_of_a_schedule(schedule: Schedule) -> None:
    assert [row.tolist() for row in schedule.duration] == [[1, 1, 3, 4, 7], [2, 8, 2, 8]]
    assert [row.tolist() for row in schedule.end] == [[2, 3, 15, 19, 29], [4, 12, 14, 22]]
    assert (schedule.begin, schedule.makespan) == (1, 28)
    assert schedule.spans == [(1, 29), (2, 22)]
    assert (schedule.device_spans, schedule.device_span) == ((28, 20), 28)
    assert schedule.work == (16, 20)
    assert (schedule.objective("makespan"), schedule.objective("span")) == (28, 28)
    assert schedule.bubble_ratio == pytest.approx(1 - 36 / 56)
    assert schedule.span_bubble_ratio == pytest.approx(1 - 20 / 28)
    assert schedule.summed_span_bubble_ratio == pytest.approx(1 - 36 / 48)
    assert schedule.overhead == pytest.approx(28 / 18 - 1)


def test_makespan_and_device_span_are_not_the_same() -> None:
    late = scheduled(Pipeline(2, 1, costs=COSTS), [["0F0", "0B0"], ["1F0", "1B0"]], [[0, 17], [5, 7]])
    assert (late.makespan, late.device_spans) == (24, (24, 10))
    apart = scheduled(
        Pipeline(2, 2, routes=((0,), (1,)), route_of_microbatch=(0, 1)), [["0F0", "0B0"], ["0F1", "0B1"]], [[0, 1], [5, 6]]
    )
    assert (apart.makespan, apart.device_span) == (8, 3)
    assert (apart.objective("makespan"), apart.objective("span")) == (8, 3)


def test_an_idle_device_has_no_span_and_counts_as_idle() -> None:
    pipeline = Pipeline(2, 1, routes=((0,), (1,)), route_of_microbatch=(0,))
    alone = scheduled(pipeline, [["0F0", "0B0"], []], [[0, 1], []])
    assert (alone.spans, alone.device_spans) == ([(0, 3), None], (3, 0))
    assert alone.bubble_ratio == 0.5
    assert alone.peak_memory[1] == 0


def test_a_pair_takes_what_overlapping_takes_or_both() -> None:
    pair = [["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"]]
    for overlap, expected in ((4, [2, 4, 3]), (None, [2, 5, 3])):
        pipeline = Pipeline(1, 2, costs=Costs(forward=2, backward_input=2, backward_weight=1, overlap=overlap))
        order = Order.of(pipeline, pair)
        assert order.paired
        assert durations(pipeline, order.rows[0]).tolist() == expected


def test_what_frames_the_work_belongs_to_the_span() -> None:
    pipeline = Pipeline(2, 1, data_parallel=DataParallel(2, (0, 3)))
    whole = scheduled(pipeline, [["0F0", "0B0"], ["1F0", "1B0"]], [[2, 6], [3, 4]])
    assert whole.spans == [(0, 8), (1, 9)]
    assert whole.margins == [(0, 0, 2), (1, 1, 3), (1, 6, 9)]
    assert whole.makespan == 9


def test_memory_is_claimed_at_a_forward_and_given_back_at_the_end_of_the_backward() -> None:
    memory = Memory(activation=(4, 2), retained=(1, 2), static=(10, 0), limit=(18, 2))
    pipeline = Pipeline(2, 2, costs=COSTS, memory=memory)
    schedule = scheduled(pipeline, ROWS, [[1, 2, 12, 15, 22], [2, 4, 12, 14]])
    claimed, released = memory_changes(pipeline, schedule.order.rows[0])
    assert (claimed.tolist(), released.tolist()) == ([4, 4, 0, 0, 0], [0, 0, 3, 1, 4])
    assert schedule.peak_memory == (18, 2)
    assert schedule.within_memory
    assert not scheduled(
        pipeline.changed(memory=Memory(activation=(4, 2), retained=(1, 2), static=(10, 0), limit=(17, 2))),
        ROWS,
        [[0] * 5, [0] * 4],
    ).within_memory


def test_a_pair_holds_its_forward_before_its_backward_is_done() -> None:
    order = Order.of(Pipeline(1, 2), [["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"]])
    assert time_order(Pipeline(1, 2, costs=Costs(overlap=2)), order).peak_memory == (2,)


def test_a_sequence_becomes_rows_and_transfers_are_left_out() -> None:
    pipeline = Pipeline(2, 2, "bidirectional", links=Links(1, occupancy=1), costs=Costs(overlap=2))
    order = time_order(pipeline, Order.of(pipeline, [["0F0", "1F1", "1B1", "0B0"], ["1F0", "0F1", "1B0", "0B1"]]))
    numbers = np.concatenate([*order.order.rows, *order.transfers.rows])
    assert len(numbers) > 8
    assert in_sequence(pipeline, numbers) == order.order
    assert devices_of(pipeline, order.order.rows[1]).tolist() == [1] * 4
    for line, row in zip(pipeline.lines, order.transfers.rows, strict=True):
        assert {(device,) for device in devices_of(pipeline, row).tolist()} <= {ends[:1] for ends in line}


def test_a_pair_has_the_larger_of_a_tables_values() -> None:
    pipeline = Pipeline(2, 2, "bidirectional", costs=Costs(overlap=2))
    order = Order.of(pipeline, [["0F0", "(1F1;0B0)OVERLAP_F_B", "1B1"], []])
    forward, backward = [[5, 7], [1, 9]], [[6, 0], [0, 3]]  # [route][stage]
    table = np.array([[f, b, b, b] for f, b in zip(forward, backward, strict=True)])
    assert of_stages(pipeline, order.rows[0], table).tolist() == [5, 9, 3]


def test_a_schedule_that_takes_no_time_has_no_bubbles() -> None:
    pipeline = Pipeline(1, 1, costs=Costs(forward=0, backward_input=0, backward_weight=0))
    empty = scheduled(pipeline, [["0F0", "0B0"]], [[0, 0]])
    assert (empty.bubble_ratio, empty.span_bubble_ratio, empty.overhead) == (0, 0, 0)


# --- what a schedule is worth ---


def test_repeated_work_is_no_efficiency() -> None:
    plain = Pipeline(2, 2)
    again = Pipeline(2, 2, costs=Costs(recompute=1), memory=Memory(recompute_saved=0.5), recompute=(0,))
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    once, twice = (time_order(each, Order.of(each, rows)) for each in (plain, again))
    assert (once.repeated, twice.repeated) == (0, 2)
    assert once.efficiency == pytest.approx(1 - once.bubble_ratio)
    assert twice.efficiency == pytest.approx(12 / (2 * twice.makespan))
    assert 1 - twice.bubble_ratio == pytest.approx(14 / (2 * twice.makespan))


def test_layers_that_recompute_at_levels_repeat_their_times() -> None:
    level = Level("full", 2, 1)
    group = Layer("decoder", count=4, forward=1, backward_input=1, backward_weight=1, activation=2, recompute=(level,))
    chosen = [{"decoder": {"full": 1}}, {"decoder": {"full": 2}}]
    pipeline = Pipeline(2, 3, layers=Layers([group]), partition=(2, 2), recompute=chosen)
    rows = [[f"{stage}{kind}{m}" for kind in "FB" for m in range(3)] for stage in range(2)]
    schedule = time_order(pipeline, Order.of(pipeline, rows))
    assert schedule.repeated == 3 * (1 + 2) * 2
    assert schedule.efficiency == pytest.approx(3 * 4 * 3 / (2 * schedule.makespan))


@pytest.mark.parametrize(
    ("units", "rate"),
    [
        (Units(), None),
        (Units("ms", samples_per_microbatch=4), (8 / 0.029, "samples/s")),
        (Units("0.1 ms", tokens_per_microbatch=100), (200 / 0.0029, "tokens/s")),
        (Units("s", samples_per_microbatch=1, tokens_per_microbatch=100), (2 / 29, "samples/s")),
        (Units("cells", samples_per_microbatch=Fraction(1, 2)), (1 / 29, "samples/cells")),
        (Units(tokens_per_microbatch=1), (2 / 29, "tokens/time unit")),
    ],
)
def test_throughput(units: Units, rate: tuple[float, str] | None) -> None:
    pipeline = Pipeline(2, 2, costs=COSTS, units=units)
    found = scheduled(pipeline, ROWS, [[0, 1, 12, 15, 22], [2, 4, 12, 14]]).throughput
    assert (found is None) == (rate is None)
    assert found is None or rate is None or (found[1] == rate[1] and found[0] == pytest.approx(rate[0]))


@pytest.mark.parametrize("value", [0, -1, "4", float("nan")])
def test_what_a_microbatch_has_is_more_than_nothing(value: object) -> None:
    with pytest.raises(PipelineError, match=r"units\.samples_per_microbatch"):
        Units(samples_per_microbatch=value)
