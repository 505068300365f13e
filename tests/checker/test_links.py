"""The checker on transfers."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ppopt.checker import Rule, violations
from ppopt.checker.records import Sent
from ppopt.checker.transfers import Timeline
from ppopt.schedule import Schedule, Transfers
from tests.support.links import again, two


def moved(schedule: Schedule, link: int, place: int, by: int) -> Schedule:
    starts = [row.copy() for row in schedule.transfers.start]
    starts[link][place] += by
    return replace(schedule, transfers=Transfers(schedule.transfers.rows, tuple(starts)))


def without(schedule: Schedule, link: int, place: int) -> Schedule:
    rows, starts = (
        tuple(np.delete(row, place) if i == link else row for i, row in enumerate(column)) for column in schedule.transfers
    )
    return replace(schedule, transfers=Transfers(rows, starts))


def computing_earlier(schedule: Schedule) -> Schedule:
    starts = [row.copy() for row in schedule.start]
    starts[0][1] -= 1  # 0F1 waits for 0SEND_F0
    return replace(schedule, start=tuple(starts))


@pytest.mark.parametrize(
    ("mistake", "rule"),
    [
        (lambda s: moved(s, 0, 0, -1), Rule.TRANSFER),  # before its result is there
        (lambda s: moved(s, 0, 1, -1), Rule.LINK),
        (lambda s: moved(s, 0, 2, 1), Rule.LATENCY),  # and so too late for its consumer
        (lambda s: without(s, 0, 1), Rule.MISSING),
        (lambda s: without(s, 1, 0), Rule.MISSING),
        (again, Rule.TWICE),
        (computing_earlier, Rule.BLOCKING),
    ],
)
def test_the_checker_sees_every_mistake(mistake: Callable[[Schedule], Schedule], rule: Rule) -> None:
    schedule = two(latency=1, occupancy=2, blocking=rule == Rule.BLOCKING)
    assert violations(schedule.pipeline, schedule) == []
    assert rule in {v.rule for v in violations(schedule.pipeline, mistake(schedule))}


@pytest.mark.parametrize("seed", range(20))
def test_what_runs_at_a_time_is_found_among_many(seed: int) -> None:
    """Against a look at every one; some overlap, and some take no time or less."""
    rng = random.Random(seed)
    many = [Sent(0, False, m, begin, begin + rng.randint(-2, 6)) for m, begin in enumerate(rng.choices(range(30), k=12))]
    timeline = Timeline(many)
    for begin in range(-3, 40):
        started = [max(one.start, one.end) for one in many if one.start <= begin]
        assert timeline.over(begin) == max(started, default=0)
        for end in range(begin, begin + 8):
            meanwhile = {one for one in many if (one.start < end and begin < one.end) or begin < one.start < end}
            assert meanwhile <= set(timeline.between(begin, end))
    assert Timeline([Sent(0, False, 0, 0, 5), Sent(0, False, 1, 20, 25)]).between(6, 19) == []
