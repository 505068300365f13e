"""Copies to the host that break a rule: the checker says which."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ppopt.checker import Rule, violations, violations_of
from ppopt.named import find
from ppopt.op import Op, Send
from ppopt.pipeline import Memory, Mix, Offload, Pipeline
from ppopt.schedule import Schedule, Transfers, durations
from ppopt.timing import time_order


def schedule(**offload: object) -> Schedule:
    """1F1B of three devices with room for two microbatches."""
    given = {"time": 0.5, **offload}
    pipeline = Pipeline(3, 4, memory=Memory(limit=2), offload=Offload(**given))  # type: ignore[arg-type]
    return time_order(pipeline, find("1f1b").order(pipeline))


def moved(of: Schedule, op: Op, start: float) -> Schedule:
    """The same with one copy at another time."""
    number, ticks = of.pipeline.index.number(op), round(start * of.pipeline.ticks.per_unit)
    starts = tuple(np.where(row == number, ticks, begun) for row, begun in zip(*of.copies, strict=True))
    return replace(of, copies=Transfers(of.copies.rows, starts))


def start(of: Schedule, op: Op) -> float:
    """When a copy begins."""
    number = of.pipeline.index.number(op)
    places = [begun[row == number] for row, begun in zip(*of.copies, strict=True)]
    return float(of.pipeline.time(int(np.concatenate(places)[0])))


def without(of: Schedule, *ops: Op) -> Schedule:
    """The same without some copies."""
    gone = [of.pipeline.index.number(op) for op in ops]
    kept = [~np.isin(row, gone) for row in of.copies.rows]
    rows, starts = (tuple(of[some] for of, some in zip(column, kept, strict=True)) for column in of.copies)
    return replace(of, copies=Transfers(rows, starts))


def rules(of: Schedule) -> set[Rule]:
    """What is broken."""
    return {found.rule for found in violations(of.pipeline, of)}


OUT, BACK = Op(0, Send.OFFLOAD, 0), Op(0, Send.RELOAD, 0)


def test_what_is_timed_is_right() -> None:
    for offload in ({}, {"stages": "all"}, {"stages": 0.5}, {"engines": 1, "stages": "all"}, {"shared": [[0, 1]], "margin": 0.5}):
        assert rules(schedule(**offload)) == set(), offload


def test_a_copy_before_its_forward_ends() -> None:
    found = violations(schedule().pipeline, moved(schedule(), OUT, 0.5))
    assert [(v.rule, v.op, v.device, v.time) for v in found] == [(Rule.COPY, "0OFFLOAD0", 0, 0.5)]
    assert found[0].message == "the copy 0OFFLOAD0 starts at 0.5, before its forward ends at 1"


def test_a_copy_in_before_the_copy_out_ends() -> None:
    assert Rule.COPY in rules(moved(schedule(), BACK, start(schedule(), OUT) + 0.25))


def test_a_backward_before_its_copy_in() -> None:
    late = moved(schedule(), BACK, start(schedule(), BACK) + 0.25)
    assert rules(late) == {Rule.COPY}
    assert "before the copy 0RELOAD0 of its activation ends" in violations(late.pipeline, late)[0].message
    margin = schedule(margin=0.5)
    assert rules(moved(margin, BACK, start(margin, BACK) + 0.5)) == {Rule.COPY}


def test_memory_over_the_limit_between() -> None:
    assert rules(moved(schedule(), BACK, start(schedule(), OUT) + 0.5)) >= {Rule.MEMORY}
    assert rules(without(schedule(), OUT, BACK)) == {Rule.MEMORY}


@pytest.mark.parametrize("offload", [{"stages": "all"}, {"stages": "all", "engines": 1}, {"stages": "all", "shared": [[0, 1]]}])
def test_two_copies_at_once(offload: dict[str, object]) -> None:
    of = schedule(**offload)
    other = Op(0, Send.OFFLOAD, 1) if "shared" not in offload else Op(1, Send.OFFLOAD, 0)
    assert Rule.ENGINE in rules(moved(of, OUT, start(of, other) + 0.25))
    one = schedule(stages="all", engines=1)
    assert Rule.ENGINE in rules(moved(one, Op(0, Send.OFFLOAD, 2), start(one, BACK)))


def test_half_a_copy_and_one_too_many() -> None:
    assert Rule.COPY in rules(without(schedule(), BACK))
    assert Rule.COPY in rules(without(schedule(stages="all"), OUT, BACK))
    every = schedule(stages="all")
    none = replace(every, pipeline=every.pipeline.changed(offload=Offload(time=0.5, stages=[1, 1, 0])))
    messages = [v.message for v in violations(none.pipeline, none)]
    assert any("copies nothing of stage 2 to the host" in message for message in messages)
    half = replace(every, pipeline=every.pipeline.changed(offload=Offload(time=0.5, stages=0.5)))
    assert any("is not to be copied to the host (offload.stages)" in v.message for v in violations(half.pipeline, half))


def test_a_host_that_is_full() -> None:
    of = schedule(stages="all")
    full = replace(of, pipeline=of.pipeline.changed(offload=replace(of.pipeline.offload, host_limit=1)))
    found = [v for v in violations(full.pipeline, full) if v.rule == Rule.MEMORY]
    assert found
    assert all("the host holds" in v.message for v in found)


def mixed(lengths: tuple[int, ...] = (1, 3, 1), **offload: object) -> Schedule:
    """GPipe of two devices with microbatches of these lengths."""
    given = {"time": 1, "stages": "all", **offload}
    mix = Mix(lengths=lengths, length=1, microbatch_order="choose")
    pipeline = Pipeline(2, 3, mix=mix, offload=Offload(**given))  # type: ignore[arg-type]
    return time_order(pipeline, find("gpipe").order(pipeline))


@pytest.mark.parametrize("offload", [{}, {"time": None, "rate": 1}, {"time_in": 2, "amount": 0.5, "margin": 1}, {"stages": 0.5}])
def test_a_long_microbatch_is_copied_for_longer(offload: dict[str, object]) -> None:
    """A copy that is as short as that of the others, as a result may have it, and one too early for what precedes it."""
    of = mixed(**offload)
    assert rules(of) == set()
    pipeline = of.pipeline
    rows = [
        [(str(pipeline.index.op(int(n))), *map(pipeline.time, map(int, span))) for n, *span in zip(*device, strict=True)]
        for device in zip(of.order.rows, of.start, of.end, strict=True)
    ]
    copies = [
        (str(pipeline.index.op(int(n))), pipeline.time(int(at)), pipeline.time(int(at + takes)))
        for row, start in zip(*of.copies, strict=True)
        for n, at, takes in zip(row, start, durations(pipeline, row), strict=True)
    ]
    assert violations_of(pipeline, rows, copies) == []
    long = [(op, a, b) for op, a, b in copies if op.endswith("1")]
    assert len(long) == 4
    for op, begin, end in long:
        short = [(o, a, begin + (end - begin) / 3 if o == op else b) for o, a, b in copies]
        found = violations_of(pipeline, rows, short)
        assert any(v.rule == Rule.DURATION and v.op == op for v in found), op


def test_a_long_microbatch_leaves_more_room() -> None:
    """One that stays holds three times as much as the others; so it does on the host."""
    of = mixed((3, 1, 3), time=0.25)
    pipeline = of.pipeline.changed(memory=Memory(limit=[Fraction(p, of.pipeline.amounts.per_unit) for p in of.peak_memory]))
    tight = replace(of, pipeline=pipeline)
    assert rules(tight) == set()
    assert rules(without(tight, OUT, BACK)) == {Rule.COPY, Rule.MEMORY}
    assert rules(without(tight, Op(0, Send.OFFLOAD, 1), Op(0, Send.RELOAD, 1))) == {Rule.COPY}, "there is room for a small one"
    host = Fraction(of.host_peak, of.pipeline.amounts.per_unit)
    for limit, broken in ((host, set()), (host - Fraction(1, 2), {Rule.MEMORY})):
        changed = of.pipeline.changed(offload=replace(of.pipeline.offload, host_limit=limit))
        assert rules(replace(of, pipeline=changed)) == broken
