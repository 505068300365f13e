"""One clock: what is left, slices, and work that is counted instead of seconds."""

import pytest

from ppopt.clock import Clock, Limits, OutOfTime, bounded, check_room


def test_counted_work() -> None:
    clock = Clock(10, deterministic=True)
    assert (clock.spent, clock.left) == (0, 10)
    part = clock.slice(4)
    part.charge(1.5)
    assert (part.left, clock.left) == (2.5, 8.5)
    part.charge(7)
    assert part.over
    assert (part.left, clock.left) == (0, 1.5)


def test_a_slice_has_no_more_than_the_whole() -> None:
    clock = Clock(10, deterministic=True)
    part = clock.slice(8)
    clock.charge(7)
    assert part.left == 3
    assert clock.slice(8).left == 3


def test_seconds_go_by() -> None:
    clock = Clock(100)
    before = clock.left
    clock.charge(50)  # counts in deterministic mode alone
    assert 50 < clock.left <= before <= 100


def test_after_an_interrupt_nothing_is_left() -> None:
    limits = Limits.of(100, workers=2)
    part = limits.slice(10).slice(5)
    assert part.clock.left > 0
    part.clock.interrupt()
    assert limits.clock.interrupted
    assert limits.clock.left == part.clock.left == limits.slice(10).clock.left == 0


def test_one_thread_in_deterministic_mode() -> None:
    assert Limits.of(1, deterministic=True).threads == 1
    assert Limits.of(1, workers=3).threads == 3


def test_what_cannot_be_interrupted_needs_room() -> None:
    check_room(1e9)  # nothing bounds it
    with bounded(Clock(1000)):
        check_room(1)
        with pytest.raises(OutOfTime):
            check_room(2000)
    counted = Clock(1000, deterministic=True)
    with bounded(counted):
        check_room(2000)
        counted.charge(1000)
        with pytest.raises(OutOfTime):
            check_room(0)
