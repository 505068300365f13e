"""What a solver found becomes a schedule with the true times."""

import numpy as np
import pytest

from ppopt.checker import violations
from ppopt.constraints import Capacity, Exclusive, Family, Hold, Precede, rules_of
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Pipeline
from ppopt.schedule import Order
from ppopt.solvers.outcome import NotForIlp, Outcome, check_for_ilp, timed
from ppopt.timing import broken, time_order
from ppopt.timing.timed import CyclicOrder

F, B, I, W = Kind  # noqa: E741

PIPELINE = Pipeline(2, 2, costs=Costs(forward=2, backward=4))
ROWS = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]


def flat(pipeline: Pipeline, rows: list[list[str]], starts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and starts, in another order than the schedule's."""
    numbers = np.concatenate(Order.of(pipeline, rows).rows)
    times = np.concatenate([np.array(row, dtype=np.int64) for row in starts])
    return numbers[::-1], times[::-1]


def test_idle_time_that_nobody_needs_is_taken_out() -> None:
    """Found with a pause of three ticks before every operation."""
    found = flat(PIPELINE, ROWS, [[3, 8, 20, 33], [8, 13, 20, 25]])
    schedule = timed(PIPELINE, rules_of(PIPELINE), *found, "makespan")
    assert schedule.order.texts() == ROWS
    assert violations(PIPELINE, schedule, earliest=True) == []
    assert schedule.makespan == time_order(PIPELINE, Order.of(PIPELINE, ROWS)).makespan < 34


def test_found_starts_are_kept_where_they_shorten_a_span() -> None:
    """As early as possible, device 0 begins at 0 and waits until 10 for its second forward; it was found to begin at 9."""
    pipeline = Pipeline(2, 2, "bidirectional", costs=Costs(forward=(1, 10), backward=2))
    rows = [["0F0", "1F1", "1B1", "0B0"], ["0F1", "0B1", "1F0", "1B0"]]
    assert time_order(pipeline, Order.of(pipeline, rows)).device_spans == (29, 27)
    found = flat(pipeline, rows, [[9, 10, 11, 27], [0, 13, 15, 25]])
    assert timed(pipeline, rules_of(pipeline), *found, "span").device_spans == (20, 27)
    assert timed(pipeline, rules_of(pipeline), *found, "makespan").makespan == 29


def test_a_coarse_grid_gives_the_true_times() -> None:
    """Two steps of two ticks are found for what takes four; the schedule is in ticks."""
    order = time_order(PIPELINE, Order.of(PIPELINE, ROWS))
    found = flat(PIPELINE, ROWS, [(row // 2).tolist() for row in order.start])
    schedule = timed(PIPELINE, rules_of(PIPELINE), *found, "makespan", grid=2)
    assert schedule.order == order.order
    assert schedule.makespan == order.makespan


def test_an_order_found_on_a_coarser_grid_is_kept() -> None:
    """0B0 starts as soon as 1B0 ends. In ticks for steps it would be late, and 0F1, which waits for nothing, before it."""
    rows = [["0F0", "0B0", "0F1", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    found = flat(PIPELINE, rows, [[0, 4, 6, 10], [1, 2, 7, 8]])
    assert timed(PIPELINE, rules_of(PIPELINE), *found, "makespan", grid=2).order.texts() == rows


def test_parts_of_a_step_are_the_order_of_what_takes_no_time() -> None:
    pipeline = Pipeline(1, 2, costs=Costs(forward=0, backward=0))
    for rows in ([["0F0", "0F1", "0B1", "0B0"]], [["0F1", "0B1", "0F0", "0B0"]]):
        found = flat(pipeline, rows, [[0, 1, 2, 3]])
        assert timed(pipeline, rules_of(pipeline), *found, "makespan", parts=8).order.texts() == rows


def test_times_wait_for_words_between_devices() -> None:
    wait = Precede(Family(1, F), Family(0, F), shift=1, lag=5)
    words = (*rules_of(PIPELINE), wait)
    order = Order.of(PIPELINE, ROWS)
    assert broken(time_order(PIPELINE, order), [wait])
    waiting = time_order(PIPELINE, order, words=[wait])
    schedule = timed(PIPELINE, words, *flat(PIPELINE, ROWS, [row.tolist() for row in waiting.start]), "makespan")
    assert broken(schedule, [wait]) == []
    assert schedule.makespan == waiting.makespan


def test_forwards_that_exclude_each_other_stay_apart() -> None:
    apart = Exclusive((Family(0, F), Family(1, F)))
    words = (*rules_of(PIPELINE), apart)
    starts = [[0, 8, 10, 20], [2, 4, 10, 14]]  # 0F1 waits for the end of 1F0 and 1B0, and 1F1 for 0F1
    schedule = timed(PIPELINE, words, *flat(PIPELINE, ROWS, starts), "makespan")
    assert broken(schedule, [apart]) == []
    assert broken(time_order(PIPELINE, schedule.order), [apart])


def test_an_order_on_a_coarser_grid_that_contradicts_words_is_refused() -> None:
    against = Precede(Family(1, F), Family(0, F), shift=1, lag=1)
    starts = [[0, 1, 9, 10], [0, 1, 5, 6]]
    rows = [["0F1", "0F0", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    with pytest.raises(CyclicOrder):
        timed(PIPELINE, (*rules_of(PIPELINE), against), *flat(PIPELINE, rows, starts), "makespan", grid=2, parts=8)


def test_found_transfers_are_kept_where_they_do_better() -> None:
    """Two transfers of one line: the found order lets the one that is urgent go first, though the other is ready."""
    pipeline = Pipeline(2, 2, links=Links(1, occupancy=2), costs=Costs(forward=1, backward=2))
    order = time_order(pipeline, Order.of(pipeline, ROWS))
    numbers = np.concatenate([*order.order.rows, *order.transfers.rows])
    starts = np.concatenate([*order.start, *order.transfers.start])
    schedule = timed(pipeline, rules_of(pipeline), numbers, starts, "makespan")
    assert violations(pipeline, schedule) == []
    assert schedule.makespan <= order.makespan
    assert [row.tolist() for row in schedule.transfers.rows] == [row.tolist() for row in order.transfers.rows]


def test_the_ilp_takes_what_is_held_on_one_device_only() -> None:
    own = Capacity((Hold(Family(0, F), (Family(0, B),), 1),), 1)
    both = Capacity((Hold(Family(0, F), (Family(0, B),), 1), Hold(Family(1, F), (Family(1, B),), 1)), 1)
    check_for_ilp(PIPELINE, [*rules_of(PIPELINE), own])
    with pytest.raises(NotForIlp, match="within one device only"):
        check_for_ilp(PIPELINE, [*rules_of(PIPELINE), own, both])


def test_an_outcome_was_not_interrupted_unless_it_says_so() -> None:
    assert not Outcome(None, 3).interrupted
    assert Outcome(None, 3, interrupted=True).lower_bound == 3
