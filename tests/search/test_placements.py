"""Which placement is best, and what is proved of all of them."""

from collections.abc import Callable

import pytest
from click.testing import Result

from ppopt.checker import violations
from ppopt.clock import Clock
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import Scope, solve
from ppopt.search.closed import ClosedSearch


def test_which_placements() -> None:
    each = Pipeline(3, 4, placement="wave", chunks=2).placed("any", (1, 2, 4, 2)).placements()
    found = [(one.placement, one.chunks) for one in each]
    assert found == [("linear", 1), ("loop", 2), ("loop", 4), ("wave", 2), ("wave", 4)]
    assert all(one.work.tolist() == [12 * one.ticks.per_unit] * 3 for one in each)


def test_every_placement_with_its_bound() -> None:
    """Unit costs, D = 4, M = 8: device 3 begins after three forwards of 1 / v each, and has work for 24."""
    found = solve(Pipeline(4, 8, "any", [2, 4], memory=Memory(limit=4)), workers=1)
    values = {(r.pipeline.placement, r.pipeline.chunks): r.value for r in found.placements}
    assert values == {("linear", 1): 27, ("loop", 2): 25.5, ("wave", 2): 25.5, ("loop", 4): 24.75, ("wave", 4): 24.75}
    assert all(result.reason == "optimal" for result in found.placements)
    assert (found.pipeline.placement, found.pipeline.chunks) == ("loop", 4)
    assert found.reason == "optimal"
    assert found.lower_bound == found.value == 24.75
    assert found.scope == Scope(("linear", "loop", "wave"), (1, 2, 4), "none")


def test_a_placement_that_cannot_win_is_not_solved() -> None:
    """Linear takes at least 27 ticks; a V within the same memory takes less. So linear's optimum, 31, is not looked for."""
    found = solve(Pipeline(4, 8, "any", memory=Memory(limit=3)), deterministic=True, seconds=3)
    linear = found.placements[0]
    assert found.value is not None
    assert found.value <= 27
    assert (linear.reason, linear.limit) == ("feasible", None)
    assert linear.lower_bound == 27
    assert not any(step.name.startswith("CP-SAT") for step in linear.steps)
    for result in found.placements:
        assert result.schedule is not None
        assert violations(result.pipeline, result.schedule) == []


def test_times_of_other_ticks_are_compared_in_the_users_unit() -> None:
    """Half a unit per forward: two chunks have quarters."""
    pipeline = Pipeline(2, 4, "any", costs=Costs(forward=0.5), links=Links(0.1))
    assert len({each.ticks.per_unit for each in pipeline.placements()}) > 1
    found = solve(pipeline, workers=1)
    assert found.reason == "optimal"
    assert found.value == min(result.value for result in found.placements if result.value is not None)


def test_what_stays_open_goes_on_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each placement has its beginning first; its search is then still there, with what it knows."""
    calls: list[tuple[ClosedSearch, int, int | None]] = []
    go_on = ClosedSearch.go_on

    def slow(self: ClosedSearch, clock: Clock, enough: int | None, progress: Callable[[int | None, int], None]) -> Result:
        calls.append((self, self.run.incumbent.lower, enough))
        if sum(one is self for one, _, _ in calls) == 1:
            clock = Clock(0)
        return go_on(self, clock, enough, progress)

    monkeypatch.setattr(ClosedSearch, "go_on", slow)
    costs = Costs(forward=(3, 5, 4), backward_input=(4, 5, 3), backward_weight=(2, 3, 4))
    found = solve(Pipeline(3, 5, "any", costs=costs, memory=Memory(limit=2)), seconds=20)
    assert found.reason == "optimal"
    again = [call for i, call in enumerate(calls) if call[0] in [one for one, _, _ in calls[:i]]]
    assert again
    for one, lower, enough in again:
        assert lower > 0
        assert enough is not None
        assert [taken.name for taken in one.run.taken].count("named schedules") == 1


def test_deterministic_placements_repeat() -> None:
    pipeline = Pipeline(3, 4, "any", memory=Memory(limit=2))
    first, second = (solve(pipeline, seconds=3, deterministic=True) for _ in range(2))
    for a, b in zip(first.placements, second.placements, strict=True):
        assert (a.value, a.lower_bound, a.reason) == (b.value, b.lower_bound, b.reason)
        assert a.schedule is not None
        assert b.schedule is not None
        assert a.schedule.order == b.schedule.order
