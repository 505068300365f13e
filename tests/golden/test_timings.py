"""The golden timings: times and memory of orders by others, and that the checker accepts them."""

from dataclasses import replace

import pytest

from ppopt.checker import metrics, metrics_of, violations, violations_of
from ppopt.pipeline import Memory
from ppopt.timing import time_order
from tests.support import golden
from tests.support.checked import records
from tests.support.many import each
from tests.support.tiers import thorough


@pytest.mark.parametrize("name", golden.SCHEDULES)
def test_times_and_peaks(name: str) -> None:
    def check(timing: golden.Timing) -> None:
        schedule, figures = timing.schedule, timing.figures
        assert schedule.makespan == figures["makespan"]
        assert schedule.device_span == figures["max_device_span"]
        assert list(schedule.peak_memory) == figures["peak_in_flight"]

    each(golden.timings(name), check)


THIRD = pytest.mark.parametrize("every", [3, pytest.param(1, marks=thorough)], ids=["some", "all"])
"""Every third of the timings in a quick run: of each of the four or seven cases of an entry some."""


@THIRD
@pytest.mark.parametrize("name", golden.SCHEDULES)
def test_the_checker_accepts_them(name: str, every: int) -> None:
    """Within exactly the memory that they need; it derives the same figures, from the schedule and from its records."""

    def check(timing: golden.Timing) -> None:
        figures, pipeline = timing.figures, golden.pipeline_of(timing.entry, timing.figures)
        pipeline = replace(pipeline, memory=Memory(limit=figures["peak_in_flight"]))
        schedule = time_order(pipeline, golden.order_of(timing.entry, pipeline))
        assert violations(pipeline, schedule, earliest=True) == []
        assert violations_of(pipeline, records(schedule), earliest=True) == []
        derived = metrics(pipeline, schedule)
        assert derived == metrics_of(pipeline, records(schedule))
        assert derived.makespan == figures["makespan"]
        assert derived.device_span == figures["max_device_span"]
        assert list(derived.peak_memory) == figures["peak_in_flight"]

    each(dict(list(golden.timings(name).items())[::every]), check)
