"""``ppopt schedules``: the list and the explanations."""

import pytest

from ppopt.named import NAMED
from tests.support.command import read, run


def test_schedules_lists_all_with_their_aliases() -> None:
    shown = run("schedules").stdout
    assert all(name in shown for name in NAMED)
    listed = {entry["name"]: entry for entry in read("schedules")["schedules"]}
    assert list(listed) == list(NAMED)
    assert "zb1p" in listed["zb-h1"]["aliases"]


@pytest.mark.parametrize("name", NAMED)
def test_each_schedule_is_explained_with_a_picture(name: str) -> None:
    shown = run("schedules", name).stdout
    assert shown.startswith(f"{name}: ")
    assert NAMED[name].source in shown
    assert "device 0:" in shown


def test_an_alias_is_explained_under_the_schedules_name() -> None:
    assert run("schedules", "zb1p").stdout.startswith("zb-h1: ")


@pytest.mark.parametrize("columns", [80, 100])
def test_schedules_says_all_within_the_columns(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = run("schedules").stdout
    assert max(map(len, shown.splitlines())) <= columns
    words = " ".join(shown.split())
    for d in NAMED.values():
        needs = "" if d.needs == "-" else f"; needs {d.needs}"
        also = f" also called {', '.join(d.aliases)}" if d.aliases else ""
        backward = "I, W" if d.split else "B"
        entry = f"{d.name} {d.placement}; backward {backward}{needs}{also} peak {d.peak}; idle {d.idle or '-'} source {d.source}"
        assert entry in words
