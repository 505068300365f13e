"""The checker on stages that recompute."""

import dataclasses
from fractions import Fraction

import pytest

from ppopt.checker import Rule, metrics, violations_of
from ppopt.named import find
from ppopt.pipeline import Costs, Memory, Pipeline, PipelineError
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order
from tests.support.recompute import COSTS, MEMORY


def rules(pipeline: Pipeline, schedule: Schedule) -> set[Rule]:
    """What the checker finds where the records of a schedule are read with another pipeline."""
    time = schedule.pipeline.time
    rows = [
        [(op, time(start), time(end)) for op, start, end in zip(ops, starts, ends, strict=True)]
        for ops, starts, ends in zip(schedule.order.texts(), schedule.start, schedule.end, strict=True)
    ]
    return {violation.rule for violation in violations_of(pipeline, rows)}


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "interleaved-1f1b", "v-half", "dualpipe"])
def test_the_checker_reads_it_by_itself(name: str) -> None:
    free = dataclasses.replace(MEMORY, limit=None)
    pipeline = Pipeline(4, 8, costs=Costs(recompute=1.5), memory=free, recompute="all")
    schedule = find(name).schedule(pipeline)
    placed = schedule.pipeline
    assert rules(placed, schedule) == set()
    for fewer in ("none", range(1, placed.stages)):
        assert Rule.DURATION in rules(placed.resolved(fewer), schedule)
    plain = placed.resolved("none")
    assert Rule.DURATION in rules(placed, find(name).schedule(plain, plain.chunks))


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "gpipe"])
def test_the_checker_sees_what_is_held(name: str) -> None:
    """Recomputing that takes no time changes the memory alone: the peaks as limits are just enough, and too little without it."""
    costs = Costs(forward=2, backward_input=2, backward_weight=1, recompute=0)
    memory = Memory(activation=3, retained=2, recompute_saved=(2, 1, 1, 0.5))
    free = Pipeline(4, 8, costs=costs, memory=memory, recompute="all")
    schedule = find(name).schedule(free)
    peaks = tuple(Fraction(peak, free.amounts.per_unit) for peak in schedule.peak_memory)
    exact = free.changed(memory=dataclasses.replace(memory, limit=peaks))
    assert rules(exact, schedule) == set()
    for stage in range(4):
        without = [other for other in range(4) if other != stage]
        try:
            fewer = exact.resolved(without)
        except PipelineError:  # the limit is below one activation
            continue
        assert rules(fewer, schedule) == {Rule.MEMORY}


@pytest.mark.parametrize("recompute", [True, False])
def test_an_input_gradient_may_take_more_than_it_finds(recompute: bool) -> None:
    """F takes 1 of each microbatch, I takes 2 more, W gives back 3.

    The levels: 1, 2 after the forwards, then 4 while 0I0 runs. If 0I1 follows, 6; if 0W0 does, 1 is left, and 0I1 makes it 3.
    Whole backwards take nothing more.
    """
    costs = Costs(forward=2, backward_input=3, backward_weight=1, recompute=2)
    memory = Memory(activation=4, retained=3, recompute_saved=3) if recompute else Memory(activation=1, retained=3)
    pipeline = Pipeline(1, 2, costs=costs, memory=memory, recompute="all" if recompute else "none")
    for texts, most in (
        ("0F0 0F1 0I0 0I1 0W0 0W1", 6),
        ("0F0 0F1 0I0 0W0 0I1 0W1", 4),
        ("0F0 0I0 0F1 0W0 0I1 0W1", 4),
        ("0F0 0I0 0W0 0F1 0I1 0W1", 3),
        ("0F0 0F1 0B0 0I1 0W1", 3),
        ("0F0 0F1 0I0 0W0 0B1", 4),
        ("0F0 0F1 0B0 0B1", 2),
    ):
        schedule = time_order(pipeline, Order.of(pipeline, [texts.split()]))
        assert schedule.peak_memory == (most,), texts
        assert metrics(pipeline, schedule).peak_memory == (most,), texts
        exact, below = (
            pipeline.changed(memory=dataclasses.replace(memory, limit=limit)) for limit in (most, most - Fraction(1, 2))
        )
        assert rules(exact, schedule) == set(), texts
        assert rules(below, schedule) == {Rule.MEMORY}, texts


def test_the_checker_needs_a_choice() -> None:
    pipeline = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute="choose")
    schedule = find("1f1b").schedule(pipeline.resolved("all"))
    with pytest.raises(PipelineError, match="which stages recompute"):
        rules(pipeline, schedule)
