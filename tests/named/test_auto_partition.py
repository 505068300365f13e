"""The cut that is proposed for PyTorch: where it begins, which stage it moves, and what it comes to."""

from fractions import Fraction
from random import Random
from typing import Any

import pytest

from ppopt.named import NAMED, Restriction, auto_partition
from ppopt.named.auto_partition import SCHEDULES, critical_stage, simulated
from ppopt.pipeline import Layers, Links, Memory, Pipeline, PipelineError
from ppopt.pipeline.layer_times import work_of_layers
from ppopt.schedule import Schedule
from tests.support.layered import a_layer, cuts, stages_of
from tests.support.tiers import thorough

PLACES = {"1f1b": ("linear", 1), "interleaved-1f1b": ("loop", 2), "interleaved-zb": ("loop", 2)}


def plain(*forward: int, **fields: Any) -> Pipeline:
    """Layers with these forwards, and backwards of twice that."""
    groups = [{"name": f"{i}", "forward": f, "backward_input": f, "backward_weight": f} for i, f in enumerate(forward)]
    return Pipeline(layers=Layers(groups), **{"devices": 3, "microbatches": 6, **fields})


def random(seed: int, schedule: str) -> Pipeline:
    rng, (placement, chunks) = Random(seed), PLACES[schedule]
    devices = rng.randint(2, 3)
    groups = [a_layer(rng, f"group{i}", split=True) for i in range(2 * devices * chunks)]
    links = Links(rng.choice((0, 0, Fraction(1, 2))))
    return Pipeline(devices, devices * rng.randint(1, 3), placement, chunks, layers=Layers(groups), links=links)


def time(schedule: Schedule) -> Fraction:
    return Fraction(schedule.makespan, schedule.pipeline.ticks.per_unit)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=thorough) for seed in (0, *range(2, 8)))])
def test_it_begins_with_the_least_largest_stage_and_gives_its_best(seed: int, schedule: str) -> None:
    """All that it simulates are cuts, each once, timed as the named schedule is there."""
    pipeline = random(seed, schedule)
    layers = pipeline.layers
    assert layers is not None
    found = list(simulated(pipeline, schedule))
    work = work_of_layers(layers, "none")
    largest = {counts: max(map(sum, stages_of(work, counts))) for counts in cuts(len(layers), pipeline.stages)}
    assert largest[found[0].pipeline.counts] == min(largest.values())
    seen = [each.pipeline.counts for each in found]
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(largest)
    for each in found:
        named = NAMED[schedule].schedule(pipeline.changed(partition=each.pipeline.counts))
        assert (named.makespan, named.order) == (each.makespan, each.order)
    best = auto_partition(pipeline, schedule)
    assert best in seen
    assert min(map(time, found)) == time(NAMED[schedule].schedule(pipeline.changed(partition=best)))


def test_the_critical_stage() -> None:
    """A stage of twice the work is busy from its first forward to its last backward, wherever it is."""
    for heavy in range(3):
        pipeline = plain(*(2 if stage == heavy else 1 for stage in range(3)), partition=(1, 1, 1))
        assert critical_stage(NAMED["1f1b"].schedule(pipeline)) == heavy
    # two microbatches on three devices: the first device has no forward left when its first backward comes
    short = plain(1, 1, 3, partition=(1, 1, 1), microbatches=1)
    assert critical_stage(NAMED["1f1b"].schedule(short)) == 2


def test_a_move_to_the_left_by_hand() -> None:
    """The least largest work of two stages is 24, on (1, 2): the second device begins after 5 and ends 10 before the end.

    The second stage is critical and gives its first layer away. On (2, 1) the first device takes 27 for a microbatch, and waits
    12 for its first backward, in which it has a second forward of 9 to run.
    """
    pipeline = plain(5, 4, 4, devices=2, microbatches=4)
    found = list(simulated(pipeline, "1f1b"))
    assert [each.pipeline.counts for each in found] == [(1, 2), (2, 1)]
    assert [each.makespan for each in found] == [5 + 4 * 24 + 10, 4 * 27 + 12 - 9]
    assert [critical_stage(each) for each in found] == [1, 0]
    assert auto_partition(pipeline) == (1, 2)  # the first of equal ones


def test_it_finds_what_balance_does_not() -> None:
    """Of three stages the first ones wait least: more work there is better than in the last one."""
    better = 0
    for seed in range(12):
        rng = Random(seed)
        pipeline = plain(*(rng.randint(1, 9) for _ in range(8)), microbatches=4)
        found = list(simulated(pipeline, "1f1b"))
        better += min(map(time, found)) < time(found[0])
    assert better > 2


def test_its_own_placement_and_memory() -> None:
    pipeline = plain(3, 1, 1, 1, 1, 1, 1, 2, devices=2, microbatches=4, placement="any", memory=Memory(static=1, limit=2))
    assert len(auto_partition(pipeline)) == 2
    assert len(auto_partition(pipeline, "interleaved")) == 4
    assert auto_partition(pipeline) == auto_partition(pipeline.changed(placement="linear", chunks=1, partition=(1, 7)))


def test_what_it_does_not_know() -> None:
    with pytest.raises(Restriction, match="gpipe: expected one of 1f1b, interleaved-1f1b, interleaved-zb"):
        auto_partition(plain(1, 1, 1), "gpipe")
    with pytest.raises(PipelineError, match="no layers to cut"):
        auto_partition(Pipeline(2, 4))
    with pytest.raises(PipelineError, match="only 3 layers"):
        auto_partition(plain(1, 1, 1, devices=4))
    fused = Pipeline(2, 4, layers=Layers([{"name": "a", "count": 8, "forward": 1, "backward": 2}]))
    assert sum(auto_partition(fused)) == 8
    with pytest.raises(Restriction, match="interleaved-zb"):
        auto_partition(fused, "interleaved-zb")
