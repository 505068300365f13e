"""Solving where transfers hold links."""

import json

import pytest

from ppopt.checker import quick, violations
from ppopt.clock import Clock
from ppopt.files.result import json_text, result_dict
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import Settings, solve
from ppopt.search.closed import ClosedSearch
from ppopt.search.problem import Problem


def test_solve_takes_links() -> None:
    pipeline = Pipeline(3, 4, links=Links(0.5, 1, True, [[[0, 1], [1, 2]]]), memory=Memory(limit=3))
    result = solve(pipeline, seconds=20, workers=1)
    assert result.schedule is not None
    assert violations(pipeline, result.schedule) == []
    free = solve(pipeline.changed(links=pipeline.links.uncontended()), seconds=20, workers=1)
    assert free.value is not None
    assert result.value is not None
    assert free.lower_bound <= result.value
    assert json.loads(json_text(result_dict(result)))["schedule"]["transfers"]


@pytest.mark.parametrize(("per_operation", "kept_back"), [(1, 1.5 * 5 * 3 * 4), (1000, 2000)])
def test_time_is_kept_for_the_check(monkeypatch: pytest.MonkeyPatch, per_operation: float, kept_back: float) -> None:
    """For 5 operations and transfers of each stage and microbatch, and half as long to time them; at most half of all. The other
    40 seconds are what may go by until the search begins. Where everything takes time, all is checked in one go."""
    monkeypatch.setattr(quick, "READ", per_operation)
    for forward, deterministic, less in (([0, 1, 1], False, kept_back), ([0, 1, 1], True, 0.0), ([1, 1, 1], False, 0.0)):
        pipeline = Pipeline(3, 4, costs=Costs(forward=forward, backward=2), links=Links(0.5, 0.5))
        search = ClosedSearch(Problem(pipeline), Settings())
        search.go_on(Clock(4000, deterministic=deterministic))
        assert search.run.clock.seconds == pytest.approx(4000 - less, abs=40)
