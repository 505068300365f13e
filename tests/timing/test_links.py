"""Times of transfers: queues, blocking, shared lines."""

from hypothesis import given, settings

from ppopt.checker import violations
from ppopt.constraints import cuts_of, rules_of
from ppopt.heuristics import baselines
from ppopt.pipeline import Links, Pipeline
from ppopt.schedule import Order, Transfers
from ppopt.timing import left_shifted, time_order
from tests.support.links import listed, two
from tests.support.strategies import linked, pipelines
from tests.support.tiers import drawn


def test_transfers_of_a_link_queue() -> None:
    # F ends at 1, 2, 3; the link is held 1-3, 3-5, 5-7; results arrive one later
    start, sent = listed(two(latency=1, occupancy=2))
    assert sent[0] == [("0SEND_F0", 1), ("0SEND_F1", 3), ("0SEND_F2", 5)]
    assert start[1][:3] == [4, 6, 8]
    assert sent[1] == [("1SEND_B0", 11), ("1SEND_B1", 13), ("1SEND_B2", 15)]  # B ends at 11, 13, 15
    assert start[0][3:] == [14, 16, 18]


def test_blocking_transfers_stop_both_ends() -> None:
    start, sent = listed(two(latency=1, occupancy=2, blocking=True))
    assert sent[0] == [("0SEND_F0", 1), ("0SEND_F1", 4), ("0SEND_F2", 7)]  # each F starts when the transfer before it ends
    assert start[0][:3] == [0, 3, 6]
    assert start[1][:3] == [6, 9, 10]  # 1F0 could start at 4, and is stopped 4-6; 1F1 arrives at 7, and is stopped 7-9


def test_both_directions_of_a_shared_line() -> None:
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    starts = []
    for shared in ([], [[[0, 1], [1, 0]]]):
        pipeline = Pipeline(2, 2, links=Links(occupancy=4, shared=shared))
        schedule = time_order(pipeline, Order.of(pipeline, rows))
        assert violations(pipeline, schedule, earliest=True) == []
        starts.append(listed(schedule)[1])
    assert starts[0] == [[("0SEND_F0", 1), ("0SEND_F1", 5)], [("1SEND_B0", 8), ("1SEND_B1", 12)]]
    assert starts[1] == [[("0SEND_F0", 1), ("0SEND_F1", 5), ("1SEND_B0", 9), ("1SEND_B1", 13)]]


@drawn(12, 30, linked(40))
def test_timed_orders_pass_the_checker(pipeline: Pipeline) -> None:
    for _, schedule in baselines(pipeline)[:6]:
        assert violations(pipeline, schedule, earliest=True) == []
        shifted = left_shifted(schedule)
        assert violations(pipeline, shifted, earliest=True) == []
        assert shifted.makespan <= schedule.makespan
        assert all(sum(map(len, row)) for row in schedule.transfers)


@settings(max_examples=30)
@given(pipelines(60))
def test_links_that_are_never_held_change_nothing(plain: Pipeline) -> None:
    pairs = [(a, b) for a in range(plain.devices) for b in range(plain.devices) if a != b]
    links = Links(plain.links.latency, 0, True, [pairs[:2]] if pairs else ())
    same = plain.changed(links=links, route_of_microbatch=plain.route_of_microbatch)
    assert rules_of(same) == rules_of(plain)
    assert cuts_of(same) == cuts_of(plain)
    for (_, a), (_, b) in zip(baselines(plain), baselines(same), strict=True):
        assert a.order == b.order
        assert [row.tolist() for row in a.start] == [row.tolist() for row in b.start]
        assert b.transfers == Transfers()
