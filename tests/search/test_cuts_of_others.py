"""Cuts that others make, and the named schedules on them."""

from fractions import Fraction

import pytest
from hypothesis import strategies as st

from ppopt.clock import Clock
from ppopt.constraints import rules_of
from ppopt.named import NAMED, Row, auto_partition
from ppopt.pipeline import Layer, Layers, Links, Memory, Pipeline
from ppopt.schedule import Schedule
from ppopt.search import Settings, solve
from ppopt.search.cutting import PartitionChoice
from tests.support.layered import heavy_head
from tests.support.tiers import drawn

PIPELINE = Pipeline(3, 5, layers=heavy_head(12))


@pytest.mark.parametrize("recompute", ["none", "choose"])
def test_named_schedules_end_with_the_clock_where_one_is_known(recompute: str) -> None:
    given = PIPELINE.changed(partition="best", recompute=recompute)
    for known in (True, False):
        search = PartitionChoice(given, "makespan", Settings(seconds=20, workers=1))
        assert search.others.cuts(Clock(0), known)[-1] == given.changed(partition="balanced", recompute="none").counts
        assert bool(search.others.schedules) is not known
        assert (search.best is None) is known


@st.composite
def with_an_auto_partition(draw: st.DrawFn) -> tuple[Pipeline, str]:
    """Random layers on the placement of a schedule that PyTorch's auto-partition simulates."""
    schedule, placement, chunks = draw(
        st.sampled_from([("1f1b", "linear", 1), ("interleaved-1f1b", "loop", 2), ("interleaved-zb", "loop", 2)])
    )
    devices = draw(st.integers(2, 4))
    count = draw(st.integers(devices * chunks, 3 * devices * chunks))
    time = st.sampled_from((1, 2, 3, 5, Fraction(1, 2)))
    layers = Layers(
        [
            {"name": f"{i}", "forward": draw(time), "backward_input": draw(time), "backward_weight": draw(time), "activation": 1}
            for i in range(count)
        ]
    )
    limit = draw(st.sampled_from((None, count, 2 * count)))
    microbatches = devices * draw(st.integers(1, 3))
    links, memory = Links(draw(st.sampled_from((0, 1)))), Memory(limit=limit)
    return Pipeline(devices, microbatches, placement, chunks, layers=layers, links=links, memory=memory), schedule


@drawn(6, 40, with_an_auto_partition())
def test_never_worse_than_the_auto_partition_of_pytorch(asked: tuple[Pipeline, str]) -> None:
    """Already by what it begins with: then nothing is worth going on for."""
    pipeline, name = asked
    simulated = NAMED[name].schedule(pipeline.changed(partition=auto_partition(pipeline, name), memory=Memory()))
    choice = PartitionChoice(pipeline, "makespan", Settings(seconds=600, workers=1))
    result = choice.go_on(Clock(600), Fraction(0), None)
    limit = pipeline.memory.limit
    if limit is None or max(simulated.peak_memory) <= limit * simulated.pipeline.amounts.per_unit:
        assert result.value is not None
        assert result.value <= simulated.pipeline.time(simulated.makespan)


def test_what_others_would_cut_is_shown() -> None:
    names = [step.name for step in solve(PIPELINE.changed(placement="loop", chunks=2), seconds=30, workers=1).steps]
    for name in (
        "even cut",
        "balanced cut",
        "PyTorch's auto-partition for interleaved-1f1b",
        "PyTorch's auto-partition for interleaved-z",
    ):
        assert sum(step.startswith(name) for step in names) == 1
    step = solve(PIPELINE, seconds=30, workers=1).steps[3]
    counts = auto_partition(PIPELINE)
    time = NAMED["1f1b"].schedule(PIPELINE.changed(partition=counts)).makespan
    assert step.name == f"PyTorch's auto-partition for 1f1b {','.join(map(str, counts))}"
    assert step.outcome.startswith(f"1f1b takes {time}; bound ")


def recomputing(count: int = 8, forward: int = 2) -> Pipeline:
    """Layers that can recompute, within little memory; partition and recomputing are open."""
    level = {"name": "full", "time": 2, "saved": 3}
    layers = Layers([Layer("l", count, forward=forward, backward=4, activation=4, recompute=[level])])
    return Pipeline(2, 6, layers=layers, memory=Memory(limit=36), partition="best", recompute="choose")


def row_of(schedule: Schedule) -> Row:
    """A row of the user's own."""
    return Row.beside(schedule.pipeline, "mine", schedule.pipeline.placement, schedule)


@pytest.mark.parametrize("recompute", ["choose", "full"])
def test_rows_on_this_placement_are_where_it_begins(recompute: str) -> None:
    """With their own cut, and what recomputes there where that is open."""
    asked = recomputing().changed(recompute=recompute)
    schedule = solve(asked.changed(partition=(3, 5)), seconds=100, workers=1).schedule
    assert schedule is not None
    search = PartitionChoice(asked, "makespan", Settings(seconds=20, workers=1))
    search.others.begin([row_of(schedule)])
    assert search.best is not None
    assert search.best.pipeline == schedule.pipeline
    assert search.best.makespan == schedule.makespan
    bound = PartitionChoice(asked, "makespan", Settings(seconds=20, workers=1), words_of=lambda pipeline: rules_of(pipeline)[:1])
    bound.others.begin([row_of(schedule)])
    assert bound.best is None


def test_rows_of_other_layers_or_above_the_limit_are_not() -> None:
    asked = recomputing()
    search = PartitionChoice(asked, "makespan", Settings(seconds=20, workers=1))
    free = asked.changed(partition=(4, 4), recompute="none", memory=Memory())
    others = [
        NAMED["gpipe"].schedule(free),  # above the limit
        NAMED["1f1b"].schedule(recomputing(9).changed(partition=(4, 5), recompute="full")),
        NAMED["1f1b"].schedule(free.changed(microbatches=4)),
        NAMED["1f1b"].schedule(Pipeline(2, 6)),
        NAMED["zb-h1"].schedule(Pipeline(2, 6, layers=heavy_head(6), partition=(4, 4))),  # weight gradients of their own
    ]
    search.others.begin([*map(row_of, others), Row.left_out("mine", "linear", 1, ValueError("not here"))])
    assert search.best is None
    faster = NAMED["1f1b"].schedule(recomputing(forward=1).changed(partition=(4, 4), recompute="full"))
    search.others.begin([row_of(faster)])
    assert search.best is not None
    assert search.best.makespan > faster.makespan, "with the times of the layers that are asked about"
