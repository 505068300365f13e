"""Schedules as files for PyTorch."""

from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppopt.files.torch_check import violations
from ppopt.files.torch_csv import Comm, compute_only, lines_of, rows_of_text
from ppopt.files.torch_export import NotForTorch, actions_of, for_torch, with_comms
from ppopt.named import find
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, Links, Pipeline
from ppopt.pipeline.runtimes import as_torch_runs
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order
from tests.support import golden
from tests.support.strategies import orders
from tests.support.torch_files import Rows, both_sides, ends, on_each, rendezvous, starts


@pytest.mark.parametrize("name", golden.ONE_ROUTE)
def test_golden_orders_become_files_without_violation_that_read_back_unchanged(name: str) -> None:
    def check(schedule: Schedule) -> None:
        runnable = for_torch(schedule).schedule
        assert runnable.makespan <= schedule.makespan
        for rows in (actions_of(runnable), with_comms(runnable)):
            assert violations(rows, schedule.pipeline.microbatches) == []
            assert rows_of_text("".join(lines_of(rows)), "file") == rows
        assert compute_only(with_comms(runnable)) == actions_of(runnable)

    on_each(name, check)


@pytest.mark.parametrize("name", golden.TWO_ROUTES)
def test_two_copies_of_a_stage_are_refused_by_name(name: str) -> None:
    def check(schedule: Schedule) -> None:
        with pytest.raises(NotForTorch, match=f"stage 0 lives on ranks 0 and {schedule.pipeline.devices - 1}"):
            for_torch(schedule)

    on_each(name, check)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Any valid order on any placement, with costs of zero, latencies and backwards fused or split at random."""
    devices = draw(st.integers(1, 4))
    extra = draw(st.lists(st.integers(0, devices - 1), max_size=3))
    route = draw(st.permutations([*range(devices), *extra]))
    duration = st.lists(st.integers(0, 3), min_size=len(route), max_size=len(route)).map(tuple)
    latency = draw(st.sampled_from([0, Fraction(1, 2), 4]))
    costs = Costs("stage", draw(duration), draw(duration), draw(duration), draw(st.none() | duration))
    pipeline = Pipeline(devices, draw(st.integers(1, 5)), routes=(tuple(route),), costs=costs, links=Links(latency))
    return time_order(pipeline, draw(orders(pipeline)))


@settings(max_examples=100)
@given(schedules())
def test_any_order_on_any_placement_can_be_exported(schedule: Schedule) -> None:
    runnable = for_torch(schedule).schedule
    rows = with_comms(runnable)
    assert violations(actions_of(runnable)) == violations(rows) == []
    assert rendezvous(runnable.pipeline, rows) == starts(runnable)
    both_sides(runnable.pipeline, rows)
    assert same_order_on_both_ends(runnable.pipeline, rows)


@settings(max_examples=100)
@given(schedules())
def test_fusing_and_renumbering_make_nothing_later(schedule: Schedule) -> None:
    runnable = for_torch(schedule).schedule
    before = [sorted(row.tolist()) for row in schedule.start]
    number = renumbering(schedule)
    old = {f"{op.stage}{op.kind.name}{number[op.microbatch]}": start for op, start in ops_with(schedule)}
    for op, start in ops_with(runnable):
        known = old.get(str(op), old.get(str(op).replace("B", "I")))
        assert known is not None
        assert start <= known
    assert runnable.makespan <= schedule.makespan
    assert sum(map(len, before)) >= sum(len(row) for row in runnable.start)


def ops_with(schedule: Schedule) -> Iterator[tuple[Op, int]]:
    for device in range(schedule.pipeline.devices):
        for op, start in zip(schedule.order.ops(device), schedule.start[device].tolist(), strict=True):
            assert isinstance(op, Op)
            yield op, start


def renumbering(schedule: Schedule) -> dict[int, int]:
    pipeline = schedule.pipeline
    ops = schedule.order.ops(pipeline.routes[0][-1])
    forwards = [op.microbatch for op in ops if isinstance(op, Op) and op[:2] == (pipeline.stages - 1, Kind.F)]
    return {old: new for new, old in enumerate(forwards)}


def same_order_on_both_ends(pipeline: Pipeline, rows: Rows) -> bool:
    route = pipeline.routes[0]
    seen: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    for rank, row in enumerate(rows):
        for action in row:
            if isinstance(action, Comm) and action.microbatch is not None:
                letter, to, m = ends(pipeline, action)
                source = to - 1 if letter == "F" else to + 1
                peer = route[to] if route[source] == rank else route[source]
                seen.setdefault((rank, peer), []).append((letter, to, m))
    return all(seen[a, b] == seen[b, a] for a, b in seen)


def test_adjacent_i_and_w_become_b_only_where_nobody_waits_longer() -> None:
    pipeline = Pipeline(2, 1)
    # on rank 1 the B would hand its gradient over at 3 instead of 2, when 0I0 starts; nobody waits for rank 0
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0I0", "0W0"], ["1F0", "1I0", "1W0"]]))
    assert [list(map(str, row)) for row in actions_of(for_torch(schedule).schedule)] == [["0F0", "0B0"], ["1F0", "1I0", "1W0"]]


def test_i_and_w_stay_where_b_takes_longer() -> None:
    pipeline = Pipeline(1, 1, costs=Costs(backward_input=1, backward_weight=1, backward=Fraction(5, 2)))
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0I0", "0W0"]]))
    assert list(map(str, actions_of(for_torch(schedule).schedule)[0])) == ["0F0", "0I0", "0W0"]


def test_microbatches_are_renumbered_for_the_last_stage() -> None:
    pipeline = Pipeline(2, 3)
    rows = [["0F2", "0F0", "0F1", "0B2", "0B1", "0B0"], ["1F2", "1F1", "1B2", "1F0", "1B1", "1B0"]]
    rows[0][1:3] = ["0F1", "0F0"]
    runnable = for_torch(time_order(pipeline, Order.of(pipeline, rows)))
    assert [list(map(str, row)) for row in actions_of(runnable.schedule)] == [
        ["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"],
        ["1F0", "1F1", "1B0", "1F2", "1B1", "1B2"],
    ]
    assert "renumbered" in runnable.notes[0]


def test_a_second_route_that_no_microbatch_takes_is_no_obstacle() -> None:
    pipeline = Pipeline(2, 2, routes=((0, 1), (1, 0)), route_of_microbatch=(0, 0))
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]))
    assert violations(with_comms(for_torch(schedule).schedule)) == []


def test_stage_0_with_a_costly_input_gradient_is_remarked() -> None:
    rows = [["0F0", "0F1", "0I0", "0I1", "0W0", "0W1"], ["1F0", "1B0", "1F1", "1B1"]]

    def remarked(pipeline: Pipeline) -> bool:
        runnable = for_torch(time_order(pipeline, Order.of(pipeline, rows)))
        return any("--runtime torch" in note for note in runnable.notes)

    assert remarked(Pipeline(2, 2))
    assert not remarked(as_torch_runs(Pipeline(2, 2)))
    rows[0] = ["0F0", "0F1", "0B0", "0B1"]
    assert not remarked(Pipeline(2, 2))


def test_one_device_has_no_transfers() -> None:
    rows = with_comms(for_torch(find("gpipe").schedule(Pipeline(1, 2))).schedule)
    assert "".join(lines_of(rows)) == "0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\n"


def test_the_rows_of_1f1b_with_communication() -> None:
    """0F1 and 1F0 end together; where ends tie, the lower rank comes first: 1RECV_F1 is posted before 1F0."""
    rows = with_comms(for_torch(find("1f1b").schedule(Pipeline(2, 2))).schedule)
    assert "".join(lines_of(rows)) == (
        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
        "1RECV_F0,1RECV_F1,1UNSHARD,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n"
    )
