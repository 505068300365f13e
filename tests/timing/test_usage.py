"""What devices and links do with their time."""

from ppopt.pipeline import Links, Memory
from ppopt.schedule import Schedule
from ppopt.timing import CAUSES, PHASES, devices_of, links_of, time_order
from tests.support.drawn import named
from tests.support.links import two
from tests.support.strategies import machines, orders
from tests.support.tiers import drawn


def test_one_f_one_b() -> None:
    # device 0: F F, idle from 2 to 6, then B F B F B B; the last B of device 1 ends at 14, and takes 1 to get there
    first, second = devices_of(named("1f1b", 2, 4, links=Links(1), memory=Memory(limit=2)))
    assert (first.work, second.work) == (12, 12)
    assert first.by_phase["warm-up"] == 4
    assert first.idle["memory"] == 3
    assert (second.by_phase["warm-up"], second.idle["start"]) == (2, 2)
    assert (first.sent, first.received, second.sent, second.received) == (4, 4, 4, 4)


def test_stages_of_one_device_give_each_other_nothing() -> None:
    first, last = devices_of(named("zb-v", 2, 3))  # stages 0 and 3, 1 and 2: two of the three hops are between devices
    assert (first.sent, last.sent) == (6, 6)
    assert sum(use.sent for use in devices_of(named("interleaved-1f1b", 2, 4, 2))) == 2 * 3 * 4


def test_links_are_busy() -> None:
    schedule = two(latency=1, occupancy=2)
    assert [(use.pairs, use.transfers, use.busy) for use in links_of(schedule)] == [(((0, 1),), 3, 6), (((1, 0),), 3, 6)]
    assert links_of(two(latency=1)) == ()


@drawn(6, 150, machines(30).flatmap(lambda pipeline: orders(pipeline).map(lambda order: time_order(pipeline, order))))
def test_work_and_causes_and_phases_add_up(schedule: Schedule) -> None:
    for use in devices_of(schedule):
        assert tuple(use.idle) == CAUSES
        assert tuple(use.by_phase) == PHASES
        assert use.work + sum(use.idle.values()) == schedule.makespan
        assert use.work + sum(use.by_phase.values()) == schedule.makespan
        assert min(*use.idle.values(), *use.by_phase.values()) >= 0
    assert sum(use.busy for use in links_of(schedule)) <= len(schedule.pipeline.lines) * schedule.makespan
