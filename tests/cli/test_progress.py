"""How a search is going: sparse lines where standard error is no terminal."""

import threading

import pytest

from ppopt.cli import progress
from ppopt.cli.progress import Progress
from ppopt.pipeline import Pipeline, Units


def test_lines_come_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "FIRST", 0.01)
    lines: list[str] = []
    echoed = threading.Event()

    def echo(line: str, err: bool) -> None:
        assert err
        lines.append(line)
        if len(lines) == 3:
            echoed.set()

    monkeypatch.setattr(progress.click, "echo", echo)
    with Progress(Pipeline(4, 8, units=Units("ms")), "makespan") as shown:
        shown(1000, 500)
        assert echoed.wait(60)
    count = len(lines)
    assert all(line.endswith("best makespan 1000 ms   bound 500 ms   gap 50.0 %") for line in lines)
    assert capsys.readouterr() == ("", "")
    assert len(lines) == count


def test_a_quick_search_says_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST", 3600)
    with Progress(Pipeline(4, 8), "makespan") as shown:
        shown(33, 27)
    assert capsys.readouterr() == ("", "")


def test_a_bound_alone_and_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    shown = Progress(Pipeline(4, 8), "span")
    assert shown.line().strip() == "0.0 s"
    shown(None, 24)
    assert shown.line().strip() == "0.0 s   bound 24"
    shown(32, 24)
    assert shown.line().strip() == "0.0 s   best span 32   bound 24   gap 25.0 %"
