"""The checker on stages that recompute."""

import dataclasses
from fractions import Fraction

import pytest

from ppopt.checker import Rule, violations_of
from ppopt.named import find
from ppopt.pipeline import Costs, Memory, Pipeline, PipelineError
from ppopt.schedule import Schedule
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


def test_the_checker_needs_a_choice() -> None:
    pipeline = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute="choose")
    schedule = find("1f1b").schedule(pipeline.resolved("all"))
    with pytest.raises(PipelineError, match="which stages recompute"):
        rules(pipeline, schedule)
