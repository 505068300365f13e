"""Signals wait for a safe place, and arrive there."""

import contextlib
import signal
import threading

import pytest

from ppopt.interrupt import check, held, noting, uninterrupted


def test_a_signal_arrives_at_the_end() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_held_raises_nothing_and_is_noted() -> None:
    with noting():
        with held() as came:
            assert came == []
            signal.raise_signal(signal.SIGINT)
            assert came == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_inside_does_not_lose_the_handlers() -> None:
    with pytest.raises(ZeroDivisionError), uninterrupted():
        1 / 0  # noqa: B018
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_are_left_alone() -> None:
    ran = []

    def work() -> None:
        with uninterrupted():
            ran.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [signal.default_int_handler]


def test_a_swallowed_interruption_is_not_lost() -> None:
    with noting():
        check()
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
    check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_noting_and_waiting_go_together() -> None:
    with noting():
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()


def test_a_solve_interrupted_where_it_is_swallowed_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes in the list scheduling and nobody there lets it through."""
    from ppopt.pipeline import Costs, Memory, Pipeline
    from ppopt.search import solve
    from ppopt.search.steps import list_schedules as module

    each_baseline = module.each_baseline

    def interrupted(pipeline: Pipeline) -> object:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return each_baseline(pipeline)

    monkeypatch.setattr(module, "each_baseline", interrupted)
    costs = Costs(forward=[7, 9, 8, 6], backward_input=[8, 9, 9, 7], backward_weight=5)
    result = solve(Pipeline(4, 6, placement="wave", chunks=2, costs=costs, memory=Memory(limit=3)))
    assert result.limit == "interrupted"
    assert result.schedule is not None
    assert result.steps[-1].name == "list scheduling"
