"""How a search is going: sparse lines where standard error is no terminal."""

import itertools

import pytest

from ppopt.cli import progress
from ppopt.cli.progress import Progress
from ppopt.pipeline import Pipeline, Units


def test_lines_come_ever_more_rarely(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = itertools.count()
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock) / 10)
    with Progress(Pipeline(4, 8, units=Units("ms")), "makespan") as shown:
        for value in range(2000, 1000, -1):
            shown(value, 500)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert 10 < len(lines) < 40
    assert all("best makespan" in line and "bound 500 ms" in line and "gap" in line for line in lines)


def test_a_bound_alone_and_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    shown = Progress(Pipeline(4, 8), "span")
    assert shown.line().strip() == "0.0 s"
    shown(None, 24)
    assert shown.line().strip() == "0.0 s   bound 24"
    shown(32, 24)
    assert shown.line().strip() == "0.0 s   best span 32   bound 24   gap 25.0 %"
