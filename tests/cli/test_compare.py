"""``ppopt compare``: all named schedules side by side."""

from typing import Any

import pytest

from tests.support.command import read, refused, run
from tests.support.places import MODELS


def rows(*args: str) -> dict[tuple[str, int], dict[str, Any]]:
    tree = read("compare", *args)
    assert tree["result"] is tree["schedule"] is tree["metrics"] is None
    return {(row["schedule"], row["chunks"]): row for row in tree["named"]}


def test_compare_gives_the_figures_of_the_literature() -> None:
    found = rows("-d", "4", "-m", "8")
    makespans = {("gpipe", 1): 33, ("1f1b", 1): 33, ("interleaved-1f1b", 2): 28.5, ("hanayo", 2): 32.5, ("zb-h1", 1): 27}
    assert {key: found[key]["makespan"] for key in makespans} == makespans
    assert [max(found[key]["peak_memory"]) for key in makespans] == [8, 4, 5.5, 4, 4]


def test_compare_with_latency() -> None:
    found = rows("-d", "4", "-m", "8", "--set", "costs.forward=100", "--set", "costs.backward=200", "--set", "links.latency=16")
    assert (found["gpipe", 1]["makespan"], found["1f1b", 1]["makespan"]) == (3396, 3556)


def test_compare_dualpipe() -> None:
    assert rows("-d", "8", "-m", "20", "--set", "costs.overlap=3")["dualpipe", 1]["makespan"] == 66


def test_compare_shows_each_number_of_chunks() -> None:
    found = rows("-d", "4", "-m", "8", "--chunks", "2,4")
    assert {("interleaved-1f1b", 2), ("interleaved-1f1b", 4), ("hanayo", 4)} <= found.keys()
    assert found["interleaved-1f1b", 4]["makespan"] == 26.25
    assert ("1f1b", 1) in found
    assert {key[1] for key in rows("-d", "4", "-m", "8", "-v", "4") if key[0] == "hanayo"} == {4}


def test_compare_lists_what_does_not_apply_with_the_reason() -> None:
    shown = run("compare", "-d", "3", "-m", "5").stdout
    assert "Not applicable:" in shown
    assert "  dualpipe: devices must be even, got 3\n" in shown
    fused = run("compare", "-d", "4", "-m", "8", "--set", "costs.backward=2").stdout
    assert "  zb-h1: needs backward_input and backward_weight; the costs give backward alone\n" in fused


def test_compare_marks_the_schedule_of_the_model_and_what_exceeds_the_limit() -> None:
    shown = run("compare", str(MODELS / "gpt-1.5b.toml")).stdout
    assert "1f1b *" in shown
    assert "makespan [ms]" in shown
    (gpipe,) = [line for line in shown.splitlines() if line.startswith("gpipe ")]
    assert gpipe.endswith(" 24 !")
    assert "! over the memory limit" in shown


def test_fractions_that_no_double_has_are_shown_all_the_same() -> None:
    assert rows("-d", "3", "-m", "6", "--chunks", "3")["interleaved-1f1b", 3]["makespan"] == pytest.approx(18 + 2)


def test_one_device_is_singular() -> None:
    assert run("compare", "-d", "1", "-m", "1").stdout.startswith("1 device, 1 microbatch, linear")
    assert "\n2 devices, 1 microbatch, linear\n" in run("compare", "-d", "2", "-m", "1").stdout


def test_columns() -> None:
    out = run("compare", "-d", 2, "-m", 4, "--columns", "makespan,speed_up").stdout
    assert "speed-up" in out
    assert "peak memory" not in out
    refusal = refused("compare", "-d", 2, "-m", 4, "--columns", "x")
    assert "Invalid value for '--columns': expected columns among makespan, " in refusal
    assert "got 'x'" in refused("solve", "-d", 2, "-m", 4, "--columns", "makespan,x")
