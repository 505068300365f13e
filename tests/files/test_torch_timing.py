"""Times as PyTorch runs a file."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ppopt.files.torch_export import NotForTorch, for_torch, with_comms
from ppopt.op import Kind
from ppopt.pipeline import Costs, Memory, Pipeline, PipelineError
from ppopt.pipeline.runtimes import as_torch_runs
from ppopt.schedule import Schedule
from tests.support import golden
from tests.support.torch_files import both_sides, on_each, rendezvous, starts


@pytest.mark.parametrize("name", golden.ONE_ROUTE)
def test_at_its_planned_time_every_send_finds_its_receive_posted(name: str) -> None:
    def check(schedule: Schedule) -> None:
        runnable = for_torch(schedule).schedule
        assert rendezvous(runnable.pipeline, with_comms(runnable)) == starts(runnable)

    on_each(name, check)


@pytest.mark.parametrize("name", golden.ONE_ROUTE)
def test_transfers_that_block_both_sides_do_not_deadlock(name: str) -> None:
    def check(schedule: Schedule) -> None:
        both_sides(schedule.pipeline, with_comms(for_torch(schedule).schedule))

    on_each(name, check)


def takes(pipeline: Pipeline, kind: Kind) -> list[Fraction]:
    """What an operation of each stage takes."""
    return [Fraction(int(ticks), pipeline.ticks.per_unit) for ticks in pipeline.ticks.duration[0, kind]]


def holds(pipeline: Pipeline, name: str) -> list[Fraction]:
    """What each stage holds of a microbatch before its backward (``activation``), or between I and W (``retained``)."""
    return [Fraction(int(units), pipeline.amounts.per_unit) for units in getattr(pipeline.amounts, name)[0]]


def test_as_torch_runs_prices_stage_0_as_pytorch_runs_it() -> None:
    pipeline = Pipeline(2, 4, "wave", 2, costs=Costs("device", (2, 4), 6, (2, 8)), memory=Memory(activation=(4, 2), retained=1))
    target = as_torch_runs(pipeline)
    assert takes(target, Kind.F) == [1, 2, 2, 1]
    assert takes(target, Kind.I) == [0, 3, 3, 3]
    assert takes(target, Kind.W) == [4, 4, 4, 1]
    assert takes(target, Kind.B) == takes(pipeline, Kind.B)
    assert holds(target, "activation") == holds(target, "retained") == [2, 1, 1, 2]
    assert (target.placement, target.costs, target.runtime) == ("wave", pipeline.costs, "torch")
    assert np.array_equal(target.work, pipeline.work)
    assert as_torch_runs(target) == target


def test_as_torch_runs_keeps_what_is_made_again_until_w() -> None:
    """Stage 0 runs its whole backward in W. Of the others, 1 and 3 recompute, and 3 retains more than any activation anyway."""
    memory = Memory(activation=(2, 4), retained=(0, 5), recompute_saved=1)
    pipeline = Pipeline(2, 4, "loop", 2, costs=Costs(recompute=1), memory=memory, recompute=[0, 1, 3])
    target = as_torch_runs(pipeline)
    for same in (target, target.written_out()):
        assert holds(same, "activation") == [0.5, 1.5, 1, 1.5]
        assert holds(same, "retained") == [0.5, 2.5, 1, 2.5]
        assert (takes(same, Kind.I)[0], takes(same, Kind.W)[0], takes(same, Kind.I)[1]) == (0, 1.5, 1)
    by_default = as_torch_runs(pipeline.changed(memory=replace(memory, retained=None)))
    assert holds(by_default, "retained") == [0.5, 2, 1, 2]


def test_as_torch_runs_takes_the_fused_backward_where_it_is_given() -> None:
    target = as_torch_runs(Pipeline(2, 4, costs=Costs(backward_input=1, backward_weight=1, backward=Fraction(3, 2))))
    assert takes(target, Kind.W) == [Fraction(3, 2), 1]
    assert takes(target, Kind.B) == [Fraction(3, 2), Fraction(3, 2)]


def test_as_torch_runs_leaves_fused_costs_as_they_are() -> None:
    pipeline = Pipeline(2, 4, costs=Costs(forward=1, backward=2))
    assert np.array_equal(as_torch_runs(pipeline).ticks.duration, pipeline.ticks.duration)


def test_as_torch_runs_leaves_open_what_is_open() -> None:
    """Each placement has another first stage; on two routes PyTorch cannot have it."""
    target = as_torch_runs(Pipeline(2, 4, "any", [2]))
    assert [takes(place, Kind.I) for place in target.placements()] == [[0, 1], [0, 0.5, 0.5, 0.5], [0, 0.5, 0.5, 0.5]]
    with pytest.raises(PipelineError, match=r"pipeline\.routes: PyTorch has one rank for each stage"):
        target.placed("bidirectional")


def test_as_torch_runs_refuses_two_routes() -> None:
    with pytest.raises(NotForTorch, match="stage 0 lives on ranks 0 and 1"):
        as_torch_runs(Pipeline(2, 4, "bidirectional"))
