"""How a search is going: sparse lines where standard error is no terminal."""

import threading

import pytest

from ppopt.cli import progress
from ppopt.cli.progress import Progress
from ppopt.pipeline import Pipeline, Units


class Clock:
    """In place of ``time`` and of the event that a search has ended: seconds go by where somebody waits, and nowhere else."""

    def __init__(self, until: float) -> None:
        self.now, self.until, self.waited = 0.0, until, list[float]()

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.now += seconds
        return self.now >= self.until


def lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], until: float) -> tuple[list[str], Clock]:
    """What is told of a search of so many seconds that knows a schedule and a bound from the beginning."""
    clock = Clock(until)
    monkeypatch.setattr(progress.time, "monotonic", clock.monotonic)
    shown = Progress(Pipeline(4, 8, units=Units("ms")), "makespan")
    shown(1000, 500)
    monkeypatch.setattr(shown, "_ended", clock)
    shown._lines()
    out, told = capsys.readouterr()
    assert out == ""
    return told.splitlines(), clock


def test_lines_come_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told, clock = lines(monkeypatch, capsys, until=6)
    assert [line.split()[0] for line in told] == ["1.0", "1.5", "2.2", "3.4", "5.1"]  # each half as late again as the one before
    assert all(line.endswith("best makespan 1000 ms   bound 500 ms   gap 50.0 %") for line in told)
    assert clock.waited == pytest.approx([1, 0.5, 0.75, 1.125, 1.6875, 2.53125])


def test_a_quick_search_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(monkeypatch, capsys, until=0.9)[0] == []


def test_the_lines_end_with_the_search() -> None:
    with Progress(Pipeline(4, 8), "makespan") as shown:
        shown(33, 27)
        (thread,) = [each for each in threading.enumerate() if getattr(each, "_target", None) == shown._lines]
    thread.join(60)
    assert not thread.is_alive()


def test_a_bound_alone_and_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    shown = Progress(Pipeline(4, 8), "span")
    assert shown.line().strip() == "0.0 s"
    shown(None, 24)
    assert shown.line().strip() == "0.0 s   bound 24"
    shown(32, 24)
    assert shown.line().strip() == "0.0 s   best span 32   bound 24   gap 25.0 %"
