"""A schedule of few devices, stretched to many."""

import pytest

from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import graphs_of
from ppopt.periodic import stretched
from ppopt.pipeline import Memory, Pipeline, fewer_devices
from tests.support import tuned
from tests.support.tiers import thorough


@pytest.mark.parametrize("placement", ["wave", pytest.param("loop", marks=thorough)])
def test_many_devices_after_few(placement: str) -> None:
    """With three quarters of 1F1B's memory 3 D / 4 - 1 / 2 idle ticks are proved: 4 devices need no more, 12 not much more."""
    pipeline = Pipeline(12, 60, placement=placement, chunks=2, memory=Memory(limit=9))
    small, per_unit = fewer_devices(pipeline, 4), pipeline.ticks.per_unit
    found = tuned.periodic_schedule(small, lower_bound=int(per_unit * (3 * 60 + 2.5)), limits=Limits.of(20, workers=1)).periodic
    assert found is not None
    found = found.with_more_kernels((20 - found.microbatches[0]) // found.unroll)
    schedules = [schedule for _, schedule in stretched(found, pipeline)]
    assert all(not violations(pipeline, schedule) for schedule in schedules)
    values = [tuned.repeated_value(schedule, graphs_of(pipeline), 1024) for schedule in schedules]
    assert min(value for value in values if value is not None) <= per_unit * (3 * 1024 + 12)
