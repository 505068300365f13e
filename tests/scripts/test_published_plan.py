"""A published plan: what it holds by its planner's own count, and that ppopt finds no worse one."""

from typing import Any

import published_plan
import pytest

from ppopt.files import read_model
from ppopt.named import NAMED
from ppopt.pipeline import Pipeline
from tests.support.places import MODELS
from tests.support.tiers import thorough

DEVICES, LAYERS = 16, ([3] * 14 + [4, 4], [3] * 15 + [1])
"""Body layers of each device, chunk by chunk: the plan's offsets on a base of three."""
FULL = ([3, 1, 1, 1, 1] + [0] * 11, [0] * 16)
"""Those that recompute in full."""
PARAMETERS = {"body": 1710, "head": 9236, "tail": 5794}


@pytest.fixture(scope="module")
def model() -> Any:
    return read_model(str(MODELS / "llama2-70b-sapp.toml"))


def counted(other: int, full: tuple[list[int], list[int]] = FULL) -> list[int]:
    """MB on each device by the planner's count of activations in flight, where every other body layer holds ``other``.

    Of the first chunk of device d there are D + max(0, D - 2d - 1) microbatches, of the last one D + min(0, D - 2d - 1). (The
    planner's code adds the tail's parameters to the first device, where they are not.)
    """
    found = []
    for d in range(DEVICES):
        more = DEVICES - 2 * d - 1
        held = PARAMETERS["head"] * (d == 0) + PARAMETERS["tail"] * (d == DEVICES - 1)
        for chunk, flying in enumerate((DEVICES + max(0, more), DEVICES + min(0, more))):
            layers, fully = LAYERS[chunk][d], full[chunk][d]
            held += layers * PARAMETERS["body"] + flying * (fully * 32 + (layers - fully) * other)
        found.append(held)
    return found


def peaks(pipeline: Pipeline) -> list[float]:
    schedule = NAMED["interleaved-1f1b"].schedule(pipeline)
    return [schedule.pipeline.amount(peak) for peak in schedule.peak_memory]


def test_the_plan_holds_what_its_planner_counts(model: Any) -> None:
    """The order's own peaks are these, but on the last two devices, whose larger first chunk is full when the last one is."""
    found = peaks(model.pipeline)
    assert found[:14] == counted(403)[:14]
    assert all(a >= b for a, b in zip(found, counted(403), strict=True))
    assert max(found) == found[5] == 54993
    row = published_plan.plan_of(model)
    assert (row.within_memory, row.partition) == (True, model.pipeline.counts)
    assert model.pipeline.counts == (4, *LAYERS[0][1:], *LAYERS[1][:-1], 2)


def test_it_fits_in_that_reading_only(model: Any) -> None:
    """It does not if the other layers keep everything; nor if they recompute as said, and one layer fewer does so in full."""
    free = model.pipeline.changed(memory=published_plan.pp.Memory())
    kept = [{"body": {"full": n}} if n else {} for n in (*FULL[0], *FULL[1])]
    assert peaks(free.changed(recompute=kept))[5] == counted(994)[5] == 120594
    for device in range(1, 5):
        less = list(model.pipeline.recompute)
        less[device] = (("body", "both", 3),)
        assert peaks(free.changed(recompute=less))[device] > 56000


@thorough
def test_ppopt_is_no_slower_in_the_same_memory(model: Any) -> None:
    """On the same placement; the time is counted, so that it is the same on every machine."""
    pipeline = model.pipeline.changed(partition="best", recompute="choose")
    best = published_plan.pp.solve(pipeline, seconds=30, deterministic=True)
    plan = published_plan.plan_of(model)
    assert best.value <= plan.makespan
    assert best.lower_bound <= best.value
    assert max(best.peak_memory) <= 56000
    assert published_plan.pp.check(best) == []
