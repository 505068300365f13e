"""Window certificates: idle time that the beginning and the end of every schedule have."""

from __future__ import annotations

import _thread
import threading
from typing import Any

import pytest

from ppopt import bounds
from ppopt.clock import Limits
from ppopt.cpsat import running
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from tests.support import tuned
from tests.support.plain_model import REAL, idle, linear, optimum
from tests.support.tiers import thorough


@pytest.mark.parametrize(
    ("pipeline", "length", "expected"),
    [
        (linear(4, 1024, **REAL, limit=4), 1500, 891),
        (linear(8, 1024, **REAL, limit=8), 3012, 2079),
        (linear(4, 1024, **REAL, limit=8), 1500, 573),
        (linear(4, 1024, limit=4), 8, 3),
        (linear(8, 1024, limit=8), 16, 7),
        (linear(8, 1024, limit=6), 16, 13),
        (linear(4, 1024, limit=8, placement="wave", chunks=2), 12, 3),
        (linear(4, 1024, limit=6, placement="wave", chunks=2), 12, 5),
        (linear(4, 1024, limit=5, placement="wave", chunks=2), 12, 8),
        (linear(4, 1024, limit=4, placement="wave", chunks=2), 12, 11),
        (linear(4, 1024, 92, 90, 47, 6, limit=6, placement="wave", chunks=2), 1100, 783),
        (linear(4, 1024, limit=12, placement="loop", chunks=2), 12, 3),
        (linear(4, 1024, limit=6, placement="loop", chunks=2), 12, 5),
        pytest.param(linear(8, 1024, limit=12, placement="loop", chunks=2), 24, 11, marks=thorough),
        pytest.param(linear(8, 24, **REAL, limit=8, retained=0.366), 2972, 2079, marks=thorough),
    ],
)
def test_window_certificates_known_to_be_reached(pipeline, length, expected):
    """Idle time beside the work, for any number of microbatches; schedules with exactly this idle time are known."""
    floor = max(bound.value for bound in tuned.best(pipeline, limits=Limits.of(0, workers=1)))
    assert idle(tuned.window(pipeline, length, length, makespan=floor, limits=Limits.of(60, workers=1)), pipeline) == expected


def test_windows_must_be_disjoint():
    """With windows longer than the makespan idle time would count twice: 5 ticks suffice here, X would be 7."""
    pipeline = linear(2, 1, limit=1)
    assert optimum(pipeline, "makespan") == 5
    assert tuned.window(pipeline, 5, 5, makespan=5) is None
    assert [bound.value for bound in tuned.best(pipeline, limits=Limits.of(1, workers=1))][-1] == 5


def test_span_certificates():
    """Part of an activation is retained until W, whose backlog both the window and the time to fill the memory show."""
    pipeline = linear(4, 1024, 2, 2, 1, limit=4, retained=0.5)
    window = tuned.window(pipeline, 20, 20, "span", makespan=5120, target=5130, limits=Limits.of(60, workers=1))
    assert idle(window, pipeline) == idle(bounds.memory(pipeline, "span"), pipeline) == 9


@pytest.mark.parametrize("first", range(1, 77, 15))
def test_a_device_that_is_done_before_a_window_is_has_no_idle_time_behind_that(first):
    # device 0 can do all its work in 72, the makespan is 77 at least: a window of 76 ends behind its end
    costs = Costs(forward=2, backward_input=4, backward_weight=2)
    latency = [[0, 3], [1, 0]]
    pipeline = Pipeline(2, 9, routes=((0, 1, 1),), costs=costs, links=Links(latency))
    assert bounds.machine(pipeline).value == 77
    bound = tuned.window(pipeline, first, 77 - first, "span", makespan=77)
    assert bound is not None
    assert bound.value <= 72


def test_coarser_grain_is_weaker():
    pipeline = linear(4, 1024, **REAL, limit=4)
    values = [
        idle(tuned.window(pipeline, 1500, 1500, makespan=470016, grain=g, limits=Limits.of(60, workers=1)), pipeline)
        for g in (1, 5, 20)
    ]
    assert values[0] == 891
    assert values == sorted(values, reverse=True)
    assert values[-1] > 700


def test_interrupt_stops_a_window(monkeypatch: pytest.MonkeyPatch):
    """Once CP-SAT searches, however long it takes to make the model."""
    pipeline = linear(16, 1024, 92, 90, 47, 6, limit=24, placement="wave", chunks=2)
    solve = running.Run.solve

    def interrupted(run: running.Run) -> Any:
        threading.Timer(0.3, _thread.interrupt_main).start()
        return solve(run)

    monkeypatch.setattr(running.Run, "solve", interrupted)
    limits = Limits.of(100, workers=1)
    with pytest.raises(KeyboardInterrupt):
        tuned.window(pipeline, 6000, 6000, makespan=400_000, limits=limits.slice(50))
    assert limits.clock.interrupted  # and nothing is left of it for other steps
    assert limits.clock.over


@thorough
def test_windows_are_the_optimum_of_four_stages_to_a_device_with_half_the_memory():
    pipeline = Pipeline(3, 8, placement="wave", chunks=4, memory=Memory(limit=1.5))
    best = max(tuned.best(pipeline, target=109, limits=Limits.of(60, workers=2)), key=lambda bound: bound.value)
    assert (best.value, best.argument) == (107, "window certificate")  # in quarters; CP-SAT finds one of 26.75
