"""Rows that are made within a clock's time: what is not, is left out, and that is said."""

import pytest

from ppopt.checker import quick
from ppopt.clock import Clock, OutOfTime, bounded, check_time
from ppopt.named import compare, compare_freely, find
from ppopt.named.comparing import rows_of
from ppopt.named.table import Table
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.timing import time_order
from ppopt.timing.link_loop import serve
from ppopt.timing.loops import sweep


def test_a_clock_that_is_over_leaves_all_out() -> None:
    pipeline = Pipeline(2, 4)
    with bounded(Clock(0, deterministic=True)):
        rows = rows_of(pipeline)
    applicable = [row for row in compare(pipeline) if row.schedule is not None]
    assert all(row.schedule is None for row in rows)
    assert {row.name for row in rows if row.late} >= {row.name for row in applicable}
    text = Table(rows, pipeline).text()
    assert "Left out, no time was left to make and check them: gpipe" in text
    assert "gpipe: left out" not in text


def test_where_recomputing_is_open_too() -> None:
    pipeline = Pipeline(2, 4, costs=Costs(recompute=1), memory=Memory(recompute_saved=0.5), recompute="choose")
    with bounded(Clock(0, deterministic=True)):
        rows = compare_freely(pipeline)
    assert all(row.late for row in rows if row.name in {row.name for row in compare_freely(pipeline) if row.schedule is not None})
    assert all(row.schedule is None for row in rows)


def test_what_is_made_in_time_is_shown() -> None:
    pipeline = Pipeline(2, 4)
    work = Clock(1e9, deterministic=True)
    with bounded(work):
        whole = rows_of(pipeline)
    assert not any(row.late for row in whole)
    found = []
    for _ in range(2):
        with bounded(Clock(work.spent / 2, deterministic=True)):
            found.append([row.makespan for row in rows_of(pipeline)])
    assert found[0] == found[1]
    made = [own for own in found[0] if own is not None]
    assert 0 < len(made) < sum(row.makespan is not None for row in whole)
    assert all(own in (None, row.makespan) for own, row in zip(found[0], whole, strict=True))


def test_a_bound_holds_within_only() -> None:
    check_time()
    with bounded(Clock(0, deterministic=True)):
        with pytest.raises(OutOfTime):
            check_time()
        with bounded(None):
            check_time()
    check_time()


def test_transfers_look_at_the_clock() -> None:
    """There is time when the order is about to be timed, and none any more once its operations are counted, and their
    transfers."""
    pipeline = find("1f1b").place(Pipeline(2, 4, links=Links(occupancy=1)))
    order = find("1f1b").order(pipeline)
    clock = Clock(1, deterministic=True)
    with bounded(clock):
        time_order(pipeline, order)
    assert clock.spent == pytest.approx(sweep.seconds * 16 + serve.seconds * (16 + 8))
    with bounded(Clock(sweep.seconds * 16, deterministic=True)), pytest.raises(OutOfTime):
        time_order(pipeline, order)


def test_what_would_take_too_long_to_check_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "READ", 1e3)
    for forward in ([1, 1], [0, 1]):  # what takes no time is read one by one
        with bounded(Clock(1000)):
            rows = rows_of(Pipeline(2, 4, costs=Costs(forward=forward, backward=1), links=Links(occupancy=1)))
        assert all(row.late for row in rows) == any(row.late for row in rows) == (0 in forward)
