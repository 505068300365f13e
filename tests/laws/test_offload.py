"""Laws of copies to the host: engines that take no time, that have no speed, and that are there at all."""

from dataclasses import replace

import pytest

from ppopt.checker import violations
from ppopt.named import find
from ppopt.pipeline import Costs, Memory, Offload, Pipeline
from ppopt.schedule import Order
from ppopt.search import Result, solve
from ppopt.timing import time_order
from tests.support.tiers import thorough


def solved(pipeline: Pipeline) -> Result:
    """The proved optimum."""
    result = solve(pipeline, seconds=60, workers=1, deterministic=True)
    assert result.reason == "optimal"
    return result


def at(limit: float | None, offload: Offload | None, devices: int = 2, microbatches: int = 3) -> Pipeline:
    """Unit costs, a fused backward."""
    return Pipeline(devices, microbatches, costs=Costs(backward=2), memory=Memory(limit=limit), offload=offload)


def test_no_time_is_no_limit_but_for_the_operation_in_hand() -> None:
    assert solved(at(1, Offload(time=0))).value == solved(at(None, None)).value


def test_no_speed_is_no_offload() -> None:
    assert solved(at(1, Offload(rate=0))).value == solved(at(1, None)).value


@thorough
@pytest.mark.parametrize("limit", [1, 2])
def test_copies_never_make_it_worse_and_faster_ones_better(limit: int) -> None:
    values = [solved(at(limit, offload, 3)).value for offload in (None, Offload(time=2), Offload(time=1), Offload(time=0))]
    assert values == sorted(values, reverse=True)  # type: ignore[type-var]


@thorough
def test_one_engine_and_shared_ones_are_no_better() -> None:
    free, one = (solved(at(1, Offload(time=1, **more))).value for more in ({}, {"engines": 1}))  # type: ignore[arg-type]
    shared = solved(at(1, Offload(time=1, shared=[[0, 1]]))).value
    assert free is not None
    assert one is not None
    assert shared is not None
    assert free <= min(one, shared)


@thorough
def test_copying_all_that_is_open_is_one_of_the_choices() -> None:
    chosen, forced = (solved(at(1, Offload(time=1, stages=stages))).value for stages in ("choose", "all"))
    assert chosen is not None
    assert forced is not None
    assert chosen <= forced


@pytest.mark.parametrize(
    ("devices", "microbatches", "time"),
    [(4, 8, 0.5), *(pytest.param(*case, marks=thorough) for case in ((4, 8, 0.25), (4, 8, 0.75), (8, 16, 0.5), (8, 16, 0.75)))],
)
def test_a_peak_is_never_above_that_of_sails_rule_on_its_order(devices: int, microbatches: int, time: float) -> None:
    for name in ("1f1b", "gpipe"):
        sail = Pipeline(devices, microbatches, offload=Offload(time=time, stages="sail"))
        theirs = time_order(sail, find(name).order(sail))
        every = sail.changed(offload=replace(sail.offload, stages="all"))
        plain = time_order(sail.changed(offload=None), theirs.order)
        assert theirs.makespan == plain.makespan * sail.ticks.per_unit // plain.pipeline.ticks.per_unit
        most = max(theirs.peak_memory)
        limited = every.changed(memory=Memory(limit=most), offload=Offload(time=time))
        ours = time_order(limited, theirs.order)
        assert ours.within_memory
        assert ours.makespan == theirs.makespan


@pytest.mark.parametrize("time", [0.5, 1, 1.5, 1.75, 2])
def test_copies_are_free_in_the_long_run_where_a_line_keeps_up(time: float) -> None:
    """One engine for both directions makes two copies for each microbatch, in whose time its device computes 3: k = 2 t / 3. Up
    to k = 1 a microbatch more takes 3, with copies or without, then the time of its copies: a line that is always busy costs
    k - 1. What few microbatches cost depends on how the pipeline fills and empties."""

    def makespan(microbatches: int) -> float:
        pipeline = Pipeline(2, microbatches, costs=Costs(backward=2), offload=Offload(time=time, engines=1, stages=[1, 0]))
        early = [f"0F{m}" for m in range(8)]
        steady = [op for m in range(8, microbatches) for op in (f"0B{m - 8}", f"0F{m}")]
        late = [f"0B{m}" for m in range(microbatches - 8, microbatches)]
        last = [op for m in range(microbatches) for op in (f"1F{m}", f"1B{m}")]
        schedule = time_order(pipeline, Order.of(pipeline, [early + steady + late, last]))
        assert not violations(pipeline, schedule)
        return float(pipeline.time(schedule.makespan))

    assert makespan(48) - makespan(32) == 16 * max(3, 2 * time)
