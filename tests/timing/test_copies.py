"""Copies to the host in the times of an order: those that are given are made, those that are open keep the host's limit."""

import random
from dataclasses import replace

import pytest

from ppopt.checker import violations
from ppopt.heuristics import baselines
from ppopt.named import find
from ppopt.pipeline import Costs, Memory, Mix, Offload, Pipeline
from ppopt.pipeline.rewriting import kept_here, unlimited
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order
from ppopt.timing.copies import _without, forced, with_spare, without_needless
from tests.support.tiers import thorough


def wrong(schedule: Schedule, *, host: bool = True) -> list[str]:
    """What a schedule breaks, the limit of the devices aside, and (not ``host``) that of the host."""
    pipeline = schedule.pipeline
    offload = pipeline.offload
    assert offload is not None
    offload = offload if host else replace(offload, host_limit=None)
    free = pipeline.changed(memory=replace(pipeline.memory, limit=None), offload=offload)
    return [str(violation) for violation in violations(free, schedule)]


@pytest.mark.parametrize("seeds", [5, pytest.param(12, marks=thorough)], ids=["few", "all"])
def test_open_copies_keep_the_limit_of_the_host(seeds: int) -> None:
    """Whether the devices have room or not."""
    fits = list[bool]()
    for seed in range(seeds):
        rng = random.Random(seed)
        offload = Offload(
            time=rng.choice([0, 1, 2]),
            engines=rng.choice([1, 2]),
            host_limit=rng.choice([1, 2]),
            shared=rng.choice([[], [[0, 1]]]),
        )
        mix = rng.choice([Mix(), Mix(microbatch_costs=[1, 2, 1, 3])])
        costs = Costs(forward=rng.choice([1, 2]), backward=rng.choice([1, 3]))
        memory = Memory(limit=rng.choice([3, 3.5, 4]))
        pipeline = Pipeline(2, 4, placement="wave", chunks=2, costs=costs, memory=memory, offload=offload, mix=mix)
        for _, schedule in baselines(unlimited(pipeline)):
            timed = time_order(pipeline, schedule.order)
            assert wrong(timed) == []
            fits += [timed.within_memory] if any(map(len, timed.copies.rows)) else []
    assert True in fits
    assert False in fits


def test_what_the_host_has_no_room_for_stays_on_the_device() -> None:
    """GPipe holds 4 activations on each device; one of them at a time has room on the host."""
    pipeline = Pipeline(2, 4, costs=Costs(backward=2), memory=Memory(limit=1), offload=Offload(time=0.25, host_limit=1))
    schedule = find("gpipe").schedule(pipeline)
    assert (schedule.host_peak, schedule.within_memory) == (pipeline.amounts.host, False)
    assert wrong(schedule) == []


def test_a_single_device_waits_for_room_on_the_host() -> None:
    """F0 ends at 1, and is away until 3, where B0 starts; F1 ends at 2, and its copy out waits until 3: B1 starts at 5."""
    pipeline = Pipeline(1, 2, costs=Costs(forward=1, backward=1), offload=Offload(time=1, host_limit=1, stages="all"))
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0F1", "0B0", "0B1"]]))
    assert [pipeline.time(start) for start in schedule.start[0].tolist()] == [0, 1, 3, 5]
    assert wrong(schedule) == []


def test_given_copies_beyond_the_host_are_made_nonetheless() -> None:
    pipeline = Pipeline(2, 4, offload=Offload(time=1, host_limit=0.5, stages="all"))
    schedule = find("1f1b").schedule(pipeline)
    assert sum(map(len, schedule.copies.rows)) == 2 * 2 * 4
    assert not schedule.within_memory
    assert wrong(schedule, host=False) == []
    assert wrong(schedule) != []


def test_only_given_copies_are_made() -> None:
    """Half of the microbatches, the second of each two, although all have time for copies and a device lacks room."""
    pipeline = Pipeline(2, 4, costs=Costs(backward=2), memory=Memory(limit=1), offload=Offload(time=0.25, stages=0.5))
    schedule = find("gpipe").schedule(pipeline)
    texts = [pipeline.index.texts(row.tolist()) for row in schedule.copies.rows]
    assert sorted(text for row in texts for text in row if "OFFLOAD" in text) == [
        f"{s}OFFLOAD{m}" for s in (0, 1) for m in (1, 3)
    ]
    assert wrong(schedule) == []


@pytest.mark.parametrize("seeds", [8, pytest.param(20, marks=thorough)], ids=["few", "all"])
def test_slow_engines_do_not_let_given_copies_wait_for_themselves(seeds: int) -> None:
    """An engine that is late would copy one in before another one is out whose backward comes before the forward of the first."""
    for seed in range(seeds):
        rng = random.Random(seed)
        costs = Costs(forward=rng.choice([1, 2]), backward=rng.choice([1, 2]))
        offload = Offload(time=rng.choice([1, 2, 4]), engines=1, stages=rng.choice(["all", "half", 0.5]))
        pipeline = Pipeline(rng.choice([1, 2]), 3, placement="wave", chunks=2, costs=costs, offload=offload)
        for _, schedule in baselines(kept_here(pipeline)):
            assert wrong(time_order(pipeline, schedule.order)) == []


@pytest.mark.parametrize("seeds", [20, pytest.param(200, marks=thorough)], ids=["few", "all"])
def test_copies_that_no_limit_needs_are_left_out_one_by_one(seeds: int) -> None:
    """As where each is taken away in turn, and stays away where that fits."""
    fewer = 0
    for seed in range(seeds):
        rng = random.Random(seed)
        wave = rng.random() < 0.5
        pipeline = Pipeline(
            rng.choice([1, 2, 3]),
            rng.randint(2, 6),
            placement="wave" if wave else "linear",
            chunks=1 + wave,
            costs=Costs(forward=rng.choice([1, 2]), backward=rng.choice([2, 3])),
            memory=Memory(limit=rng.choice([1.5, 2, 3]), activation=rng.choice([1, 1.5])),
            offload=Offload(time=rng.choice([0.25, 0.5, 1]), amount=rng.choice([0.5, 1]), engines=rng.choice([1, 2])),
        )
        for _, plain in baselines(kept_here(pipeline)):
            schedule = with_spare(time_order(pipeline, plain.order))
            expected = schedule
            if schedule.within_memory:
                for number in [n for row in schedule.copies.rows for n in row.tolist() if n in forced(pipeline)[1]]:
                    one_less = _without(expected, {number})
                    expected = one_less if one_less.within_memory else expected
            found = without_needless(schedule)
            assert [row.tolist() for row in found.copies.rows] == [row.tolist() for row in expected.copies.rows]
            fewer += sum(map(len, found.copies.rows)) < sum(map(len, schedule.copies.rows))
    assert fewer
