"""Cuts that others make, and the named schedules on them."""

from fractions import Fraction

import pytest
from hypothesis import strategies as st

from ppopt.clock import Clock
from ppopt.named import NAMED, auto_partition
from ppopt.pipeline import Layers, Links, Memory, Pipeline
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
