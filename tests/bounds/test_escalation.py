"""All bounds, one after the other: in which order, until when, and what is not asked again."""

from __future__ import annotations

import math
import re

from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.pipeline import Memory, Pipeline
from ppopt.search import solve
from tests.support import tuned
from tests.support.plain_model import REAL, idle, linear


def test_windows_close_what_the_closed_forms_leave_open():
    """Two chunks per device with measured costs: 783 ticks of idle time are known to suffice for every M."""
    pipeline = linear(4, 64, 92, 90, 47, 6, limit=6, placement="wave", chunks=2)
    without, *_, last = list(tuned.best(pipeline, target=int(pipeline.work.max()) + 783, limits=Limits.of(60, workers=1)))
    assert without.argument == "work"
    assert (idle(last, pipeline), last.argument) == (783, "window certificate")


def test_windows_as_long_as_the_schedule_see_what_memory_costs_all_the_time():
    """With room for one microbatch; windows of twice the filling time see what the first and the last ones cost alone."""
    pipeline = Pipeline(2, 6, placement="wave", chunks=4, memory=Memory(limit=1))
    schedule = solve(pipeline, seconds=60, workers=1).schedule
    assert schedule is not None
    assert violations(pipeline, schedule) == []
    found = list(tuned.best(pipeline, target=schedule.makespan, limits=Limits.of(60, workers=1)))
    assert found[-1].value == schedule.makespan
    lengths = [
        int(re.findall(r"in the first (\d+)", bound.proof)[0]) for bound in found if bound.argument == "window certificate"
    ]
    assert lengths[-1] > 2 * lengths[0]


def test_windows_that_have_said_all_they_can_are_not_asked_again():
    pipeline, tried = linear(2, 6, latency=1, limit=4, placement="wave", chunks=2), {}
    *_, last = tuned.best(pipeline, target=500, tried=tried)
    assert last.argument == "window certificate"
    assert "window certificate" not in [bound.argument for bound in tuned.best(pipeline, target=500, tried=tried)]


def test_windows_are_asked_again_where_they_get_more_time_or_less_is_asked():
    pipeline, tried = linear(2, 6, latency=1, limit=4, placement="wave", chunks=2), {}
    *_, last = tuned.best(pipeline, target=500, limits=Limits.of(30, workers=1), tried=tried)
    asked = [((10, 10.0, last.value), "memory"), ((60, 10.0, last.value), "window certificate")]
    asked += [((20, 10.0, last.value), "window certificate")]  # all of the time that is left, not half of it
    asked += [((10, 10.0, 500), "window certificate"), ((60, math.inf, 500), "memory")]
    for (seconds, spent, target), expected in asked:
        before = dict.fromkeys(tried, (spent, target))
        *_, bound = tuned.best(pipeline, target=last.value, limits=Limits.of(seconds, workers=1), tried=before)
        assert bound.argument == expected


def test_target_ends_the_ladder_and_the_search():
    pipeline = linear(8, 24, **REAL, limit=8, retained=0.366)
    assert [bound.argument for bound in tuned.best(pipeline, target=12000)] == ["work", "one-machine"]
    bound = tuned.window(pipeline, 3012, 3012, makespan=12367, known=12367, target=12500, limits=Limits.of(60, workers=1))
    assert bound is not None
    assert bound.value == 12500


def test_microseconds_on_a_coarser_grain():
    """On its true ticks this window stays open for minutes; a hundredth as fine gives nearly all of it at once."""
    pipeline = linear(8, 24, 18522, 18086, 9337, 601, limit=8, retained=0.366)
    bound = tuned.window(pipeline, 301_200, 301_200, makespan=1_236_541, grain=93, limits=Limits.of(60, workers=1))
    assert idle(bound, pipeline) > 200_000
