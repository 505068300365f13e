"""What is found out in one go: nothing that breaks a rule passes, and plain schedules that break none do."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import strategies as st

from ppopt.checker.quick import seconds_to_read, sound
from ppopt.checker.records import read_schedule
from ppopt.checker.rules import _violations
from ppopt.named import find
from ppopt.op import Kind, Send
from ppopt.pipeline import Costs, DataParallel, IntArray, Links, Mix, Pipeline
from ppopt.schedule import Order, Schedule, Transfers
from ppopt.timing import time_order
from tests.support.strategies import linked, orders, paired, pipelines
from tests.support.tiers import drawn

Rows: TypeAlias = tuple[IntArray, ...]


def broken(pipeline: Pipeline, schedule: Schedule) -> bool:
    """Whether the rules, read one by one, find something."""
    return bool(_violations(read_schedule(pipeline, schedule), False))


def agree(pipeline: Pipeline, schedule: Schedule) -> None:
    plain = bool((pipeline.ticks.duration != 0).all()) and bool((pipeline.ticks.overlap != 0).all())
    assert sound(pipeline, schedule) == (plain and not broken(pipeline, schedule))


def mutants(schedule: Schedule, device: int, place: int, by: int, kind: str) -> Schedule:
    """The schedule with one thing changed."""
    slots = schedule.pipeline.stages * schedule.pipeline.microbatches
    other = schedule.order.rows[device][place % len(schedule.order.rows[device])] + slots
    numbers, starts = changed((schedule.order.rows, schedule.start), device, place, by, kind, other % (8 * slots))
    return replace(schedule, order=Order(schedule.order.index, numbers), start=starts)


def with_other_transfers(schedule: Schedule, link: int, place: int, by: int, kind: str) -> Schedule:
    """The schedule with one thing changed about its transfers."""
    link %= len(schedule.transfers.rows)
    row = schedule.transfers.rows[link]
    if not len(row):
        return schedule
    other = row[place % len(row)] + by * schedule.pipeline.stages * schedule.pipeline.microbatches
    return replace(schedule, transfers=Transfers(*changed(schedule.transfers, link, place, by, kind, other)))


def changed(columns: Sequence[Rows], row: int, place: int, by: int, kind: str, other: int) -> tuple[Rows, Rows]:
    """The rows of numbers and of starts with one thing changed in a row; ``other``: the number that comes in place of one."""
    numbers, starts = ([of.copy() for of in column] for column in columns)
    place %= len(numbers[row])
    if kind == "shift":
        starts[row][place:] += by
    elif kind == "move":
        starts[row][place] += by
    elif kind == "swap":
        numbers[row][[0, place]] = numbers[row][[place, 0]]
    elif kind == "drop":
        numbers[row], starts[row] = (np.delete(of[row], place) for of in (numbers, starts))
    elif kind == "twice":
        numbers[row][0] = numbers[row][place]
    else:
        numbers[row][place] = other
    return tuple(numbers), tuple(starts)


KINDS = st.sampled_from(["shift", "move", "swap", "drop", "twice", "other"])


@drawn(
    25,
    200,
    st.one_of(pipelines(30, least=1), pipelines(30), paired(15)).flatmap(lambda p: st.tuples(st.just(p), orders(p))),
    st.integers(0, 2),
    st.integers(0, 30),
    st.integers(-3, 3),
    KINDS,
)
def test_it_agrees_with_the_rules_one_by_one(case: tuple[Pipeline, Order], device: int, place: int, by: int, kind: str) -> None:
    pipeline, order = case
    schedule = time_order(pipeline, order)
    agree(pipeline, schedule)
    agree(pipeline, mutants(schedule, device % pipeline.devices, place, by, kind))


@drawn(
    40,
    400,
    st.one_of(linked(30), paired(15, links=True)).flatmap(lambda p: st.tuples(st.just(p), orders(p))),
    st.integers(0, 5),
    st.integers(0, 30),
    st.integers(-3, 3),
    KINDS,
)
def test_it_agrees_about_transfers(case: tuple[Pipeline, Order], machine: int, place: int, by: int, kind: str) -> None:
    pipeline, order = case
    schedule = time_order(pipeline, order)
    agree(pipeline, schedule)
    agree(pipeline, mutants(schedule, machine % pipeline.devices, place, by, kind))
    agree(pipeline, with_other_transfers(schedule, machine, place, by, kind))


@pytest.mark.parametrize("blocking", [False, True])
def test_every_rule_of_transfers_is_kept(blocking: bool) -> None:
    """On one device after the other a result is made, sent, and used: whatever of that is a tick earlier breaks a rule."""
    pipeline = Pipeline(3, 1, costs=Costs(forward=2, backward=4), links=Links(1, 2, blocking))
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0B0"], ["1F0", "1B0"], ["2F0", "2B0"]]))
    assert sound(pipeline, schedule)
    for link in range(len(pipeline.lines)):
        for kind, by in (("move", -1), ("move", 1), ("drop", 0), ("other", 1)):
            mutant = with_other_transfers(schedule, link, 0, by, kind)
            assert not sound(pipeline, mutant)
            assert broken(pipeline, mutant)
    assert {int(row[0]) // 3 for row in schedule.transfers.rows} == {int(Send.SEND_F), int(Send.SEND_B)}
    assert not sound(pipeline.changed(links=Links(1)), schedule)  # there it has transfers of no link


def test_pairs_traffic_and_numbers_that_are_none() -> None:
    pipeline = Pipeline(2, 2)
    order = Order.of(pipeline, [["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])
    schedule = time_order(pipeline, order)
    assert sound(pipeline, schedule)
    late = pipeline.changed(data_parallel=DataParallel(all_gather=4))
    assert not sound(late, schedule)
    assert sound(late, time_order(late, order))
    for number in (-1, 4 * 4, 8 * 4 + 4 * 4 + 1):
        rows = (np.array([number, *order.rows[0][1:]]), order.rows[1])
        assert not sound(pipeline, replace(schedule, order=Order(order.index, rows)))
    assert not sound(pipeline.changed(microbatches=3), schedule)
    kinds = {Kind(number // 4) for number in order.rows[1].tolist()}
    assert kinds == {Kind.F, Kind.B}


def test_microbatches_that_differ_take_time_to_read() -> None:
    """A search keeps that time back; where all are alike, and nothing is read one by one, there is nothing to keep."""
    alike = Pipeline(4, 8)
    differ = Pipeline(4, 8, mix=Mix(microbatch_costs=(1, 2, 1, 3, 2, 1, 2, 2)))
    assert seconds_to_read(alike) == 0 < seconds_to_read(differ)


def test_what_is_read_one_by_one_takes_time() -> None:
    """Operations that take none; transfers that hold a link are looked at in one go."""
    instant, links = Costs(forward=[0, 1, 1], backward=2), Links(1, 1)
    assert seconds_to_read(Pipeline(3, 8, links=links)) == 0
    for of in (Pipeline(3, 8, costs=instant), Pipeline(3, 8, costs=instant, links=links)):
        assert seconds_to_read(of) > 0
        assert not sound(of, time_order(of, find("gpipe").order(of)))
