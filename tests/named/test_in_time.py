"""Rows that are made within a clock's time: what is not, is left out, and that is said."""

import pytest

from ppopt.clock import Clock, OutOfTime, bounded, check_time
from ppopt.named import compare
from ppopt.named.comparing import rows_of
from ppopt.named.table import Table
from ppopt.pipeline import Pipeline


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
