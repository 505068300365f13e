"""How a search is going: sparse lines where standard error is no terminal, and objects for programs."""

import json
import threading
from itertools import pairwise
from typing import Any

import pytest

from ppopt.cli import progress
from ppopt.cli.progress import Progress
from ppopt.search import at
from tests.support.command import QUICK, run


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
    shown = Progress("makespan", "ms")
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
    with Progress("makespan") as shown:
        shown(33, 27)
        (thread,) = [each for each in threading.enumerate() if getattr(each, "_target", None) == shown._lines]
    thread.join(60)
    assert not thread.is_alive()


def test_a_bound_alone_and_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    shown = Progress("span")
    assert shown.line().strip() == "0.0 s"
    shown(None, 24)
    assert shown.line().strip() == "0.0 s   bound 24"
    shown(32, 24)
    assert shown.line().strip() == "0.0 s   best span 32   bound 24   gap 25.0 %"


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_objects_for_programs() -> None:
    shown = run("solve", "-d", 3, "-m", 6, "--memory-limit", 3, "--placement", "any", "--progress", "json", "--json", *QUICK)
    told, found = objects(shown.stderr), json.loads(shown.stdout)["result"]
    assert all(list(each) == ["value", "bound", "seconds", "at"] for each in told)
    assert (told[-1]["value"], told[-1]["bound"], told[-1]["at"]) == (found["value"], found["lower_bound"], [])
    times = [each["seconds"] for each in told]
    assert times == sorted(times)
    assert all(b - a >= 0.2 for a, b in pairwise(times[:-1]))  # at most four a second; the last comes at the end
    assert all(each["at"] == [] or each["at"][0].startswith("[") for each in told)


def test_every_change_is_told_at_the_end_at_the_latest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "APART", 1000)
    with Progress("makespan", form="json") as shown:
        with at("[1/2] linear"), at("bound: work"):
            shown(33, 24)
        with at("[2/2] loop v=2"):
            shown(31.5, 24)
            shown(30, 27)
    last = objects(capsys.readouterr().err)[-1]
    assert (last["value"], last["bound"], last["at"]) == (30, 27, [])


def test_nothing_is_told_where_nothing_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("makespan", form="none") as shown:
        shown(33, 24)
        assert shown._thread is None
    assert capsys.readouterr() == ("", "")


def test_a_line_says_where_the_search_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    with Progress("makespan", form="none") as shown, at("[2/5] loop v=2"), at("cut 3,4"):
        assert shown.line().strip() == "0.0 s   [2/5] loop v=2: cut 3,4"
    assert shown.line().strip() == "0.0 s"
    with at("nobody listens"):
        pass
