"""What operations wait for, the critical path, and why devices are idle: by hand, and instant by instant."""

from contextlib import suppress
from itertools import pairwise

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from ppopt.checker import violations
from ppopt.op import Kind, Op, Pair
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline
from ppopt.schedule import Order, Schedule, of_stages
from ppopt.timing import OrderError, Wait, Waited, time_order
from ppopt.timing.paths import Paths, shortest_spans
from tests.support.drawn import named
from tests.support.instants import Instants
from tests.support.links import two
from tests.support.strategies import machines, orders, paired
from tests.support.tiers import drawn

DATA, DEVICE, MEMORY, LINK, CRITICAL, GATHER = Wait


def causes(schedule: Schedule, device: int) -> list[tuple[int, int, str]]:
    return [(since, until, str(cause)) for since, until, cause, _ in Waited(schedule).idle[device]]


def flags(schedule: Schedule, device: int) -> dict[str, Wait]:
    shown = zip(schedule.order.texts()[device], Waited(schedule).operations[device].tolist(), strict=True)
    return {op: Wait(flag) & ~CRITICAL for op, flag in shown}


def path(schedule: Schedule) -> list[str]:
    return [str(schedule.pipeline.index.op(step.number)) for step in Waited(schedule).path]


def test_one_f_one_b_waits_for_memory_in_its_warm_up() -> None:
    # F 1, B 2, latency 1: 1F0 2-3, 1B0 3-5; 0F0 0-1, 0F1 1-2, 0B0 6-8
    schedule = named("1f1b", 2, 4, links=Links(1), memory=Memory(limit=2))
    assert causes(schedule, 0)[:2] == [(2, 5, "memory"), (5, 6, "link")]
    shown = flags(schedule, 0)
    assert [shown[op] for op in ("0F0", "0F1", "0B0", "0F2")] == [Wait(0), DEVICE, DATA, DEVICE | MEMORY]
    assert causes(named("1f1b", 2, 4, links=Links(1)), 0)[:2] == [(2, 5, "order"), (5, 6, "link")]  # nothing limits it
    assert causes(named("gpipe", 2, 2, links=Links(1)), 0) == [(2, 6, "data"), (6, 7, "link")]
    assert causes(schedule, 1)[0] == (0, 2, "start")


def test_transfers_that_queue_are_waited_for() -> None:
    schedule = two(latency=1, occupancy=2)  # F ends at 1, 2, 3; the link is held 1-3, 3-5, 5-7; results arrive at 4, 6, 8
    assert flags(schedule, 1) == {
        **{"1F0": DATA, "1F1": DATA | LINK, "1F2": DATA | LINK},
        **{"1B0": DEVICE, "1B1": DEVICE, "1B2": DEVICE},
    }
    assert [flag & ~CRITICAL for flag in Waited(schedule).transfers[0].tolist()] == [DATA, LINK, LINK]
    assert causes(schedule, 1)[:3] == [(0, 4, "start"), (5, 6, "link"), (7, 8, "link")]
    assert path(schedule) == ["0F0", "0SEND_F0", "0SEND_F1", "0SEND_F2", "1F2", "1B0", "1B1", "1B2", "1SEND_B2", "0B2"]


def test_blocking_transfers_are_causes() -> None:
    schedule = two(latency=1, occupancy=2, blocking=True)  # the first device sends 1-3, 4-6, 7-9 and computes between
    assert causes(schedule, 0)[:2] == [(1, 3, "link"), (4, 6, "link")]
    assert flags(schedule, 0)["0F1"] == LINK


def test_all_gathers_are_waited_for() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(optimizer=3), data_parallel=DataParallel(4, 1))
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]))
    assert flags(schedule, 0)["0F0"] == GATHER
    assert causes(schedule, 0) == [(0, 4, "start"), (6, 8, "data"), (10, 11, "data"), (13, 17, "end")]
    assert path(schedule) == ["0F0", "1F0", "1B0", "1F1", "1B1", "0B1"]


def test_what_a_schedule_lets_wait_is_its_order_and_begins_a_path() -> None:
    pipeline = Pipeline(1, 1)
    order = Order.of(pipeline, [["0F0", "0B0"]])
    earliest = time_order(pipeline, order)
    late = Schedule(pipeline, order, (earliest.start[0] + [0, 5],))
    assert causes(late, 0) == [(1, 6, "order")]
    assert flags(late, 0) == {"0F0": Wait(0), "0B0": Wait(0)}
    assert path(late) == ["0B0"]


@st.composite
def schedules(draw: st.DrawFn, pipeline: Pipeline) -> Schedule:
    """A random order, with a pair where these have a time of their own; sometimes with what may wait, waiting."""
    schedule = time_order(pipeline, draw(orders(pipeline)))
    neighbours = [(d, i) for d in range(pipeline.devices) for i in range(len(schedule.order.rows[d]) - 1)]
    if pipeline.costs.overlap is not None and neighbours:
        device, place = draw(st.sampled_from(neighbours))
        rows = [schedule.order.ops(each) for each in range(pipeline.devices)]
        first, second = rows[device][place : place + 2]
        if isinstance(first, Op) and isinstance(second, Op) and (first.kind, second.kind) == (Kind.F, Kind.B):
            rows[device][place : place + 2] = [Pair(first, second)]
            with suppress(OrderError):
                schedule = time_order(pipeline, Order.of(pipeline, rows))
    return shortest_spans(schedule) if draw(st.booleans()) and not pipeline.links.blocking else schedule


any_schedule = (machines(24) | paired(24)).flatmap(schedules)


@drawn(8, 500, any_schedule)
def test_causes_are_what_the_definitions_say_at_every_instant(schedule: Schedule) -> None:
    instants, waited = Instants(schedule), Waited(schedule)
    begin, end = schedule.begin, schedule.begin + schedule.makespan
    if end - begin > 150:
        reject()
    for device, idle in enumerate(waited.idle):
        assert sum(gap.until - gap.since for gap in idle) == schedule.makespan - schedule.work[device]
        assert all(a.until <= b.since for a, b in pairwise(idle))
        shown = {time: str(gap.cause) for gap in idle for time in range(gap.since, gap.until)}
        assert {time: shown.get(time, "") for time in range(begin, end)} == {
            time: instants.why(device, time) for time in range(begin, end)
        }


@drawn(8, 150, any_schedule)
def test_the_critical_path_has_no_gap_but_latencies(schedule: Schedule) -> None:
    pipeline = schedule.pipeline
    waited, ticks = Waited(schedule), pipeline.ticks
    latencies = {0, *ticks.latency.flat, *(ticks.lag.flat if not pipeline.lines else ())}
    assert {b.start - a.end for a, b in pairwise(waited.path)} <= latencies
    assert all(a.machine != b.machine for a, b in pairwise(waited.path) if b.start > a.end)
    first, last = waited.path[0], waited.path[-1]
    before, after = (
        int(of_stages(pipeline, np.array([step.number]), table)[0]) for step, table in ((first, ticks.lead), (last, ticks.tail))
    )
    assert last.end + after == schedule.begin + schedule.makespan
    if violations(pipeline, schedule, earliest=True) == []:
        assert first.start - before == schedule.begin
    if violations(pipeline, schedule, earliest=True) == [] and not ticks.margins:
        paths = Paths(schedule)  # what is critical has no slack: the longest paths to it and from it are as long as the makespan
        none = np.zeros((len(paths.duration), 1), dtype=np.int64)
        through = (paths.heads(none) + paths.tails(none))[:, 0] + np.array(paths.duration)
        node_of = {number: node for node, number in enumerate(paths.network.number)}
        assert {int(through[node_of[step.number]]) for step in waited.path} == {schedule.makespan}
    marked = [step for step in waited.path if step.machine < pipeline.devices]
    assert len(marked) == sum(int((row & CRITICAL > 0).sum()) for row in waited.operations)
