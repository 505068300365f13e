"""Every golden order of the named schedules, with the timings of each."""

import pytest

from ppopt.checker import violations
from ppopt.named import NAMED, find
from ppopt.schedule import Schedule
from tests.support import golden
from tests.support.many import each


def named(timing: golden.Timing) -> Schedule:
    """The named schedule of an entry, on a pipeline in its own placement."""
    entry = timing.entry
    pipeline = golden.pipeline_of(entry, timing.figures)
    return find(entry["schedule"]).schedule(pipeline, entry["chunks"], **entry["params"])


def test_every_schedule_of_the_file_is_tested() -> None:
    assert {entry["schedule"] for entry in golden.entries().values()} == set(golden.SCHEDULES) <= set(NAMED)
    assert {entry["order_is"] for entry in golden.entries().values()} == {"exact", "example"}
    assert len(golden.entries()) > 100
    two = {entry["schedule"] for entry in golden.entries().values() if isinstance(entry["placement"], dict)}
    assert two == set(golden.TWO_ROUTES)


@pytest.mark.parametrize("name", golden.SCHEDULES)
def test_orders_and_timings(name: str) -> None:
    """The exact ones are reproduced; of what a definition leaves open, the examples are no better at unit costs."""

    def check(timing: golden.Timing) -> None:
        schedule, figures = named(timing), timing.figures
        pipeline = golden.pipeline_of(timing.entry, figures)
        assert not violations(pipeline, schedule)
        if timing.entry["order_is"] == "exact":
            assert schedule.order.texts() == timing.entry["order"]
            assert schedule.pipeline.routes == pipeline.routes
            assert schedule.makespan == figures["makespan"]
            assert schedule.device_span == figures["max_device_span"]
            assert list(schedule.peak_memory) == figures["peak_in_flight"]
        else:
            assert max(schedule.peak_memory) <= max(figures["peak_in_flight"])
            if timing.case == "unit":
                assert schedule.makespan <= figures["makespan"]
                assert schedule.device_span <= figures["max_device_span"]

    each(golden.timings(name), check)
