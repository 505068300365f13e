"""The table of named schedules as text."""

import re

import pytest

from ppopt.named import Row, Table, compare
from ppopt.pipeline import Costs, Memory, Pipeline, Units
from ppopt.text import percent

PIPELINE = Pipeline(2, 4, memory=Memory(limit=2), units=Units("ms"))


@pytest.fixture(scope="module")
def table() -> Table:
    return compare(PIPELINE)


def names(text: str) -> list[str]:
    rows = text.split("─\n")[1].splitlines()
    return [row.split("  ")[0] for row in rows[: next(i for i, row in enumerate(rows) if row[0] in "*†‡!")]]


def test_what_fits_comes_first_and_the_answer_before_its_equals(table: Table) -> None:
    best = table["zb-h1"]
    answer = Row("the optimum", "linear", 1, best.schedule, None)
    shown = names(table.text(answer=answer))
    fits = [row.name for row in table if row.within_memory]
    over = [row.name for row in table if row.within_memory is False]
    assert {name.removesuffix(" ‡") for name in shown[: len(fits) + 1]} == {*fits, "the optimum"}
    assert {name.removesuffix(" ‡") for name in shown[len(fits) + 1 :]} == set(over)
    assert shown.index("the optimum") + 1 == shown.index("zb-1p") == shown.index("zb-2p") - 1
    assert "seq1f1b ‡" in shown


def test_styles_are_for_the_answer_and_for_what_does_not_fit(table: Table) -> None:
    answer = Row("the optimum", "linear", 1, table["zb-h1"].schedule, None)
    lines = table.text(answer=answer, styled=True).splitlines()
    assert [line for line in lines if line.startswith("\x1b[1m")] == [line for line in lines if "the optimum" in line]
    assert all(("!\x1b[0m" in line) == line.startswith("\x1b[2m") for line in lines)
    assert sum(line.startswith("\x1b[2m") for line in lines) == sum(row.within_memory is False for row in table)


def test_the_objective_sorts(table: Table) -> None:
    shown = names(table.text(objective="span"))
    spans = [table.rows_of(name.removesuffix(" ‡").removesuffix(" *"))[0] for name in shown]
    fits = [row.device_span for row in spans if row.within_memory]
    assert fits == sorted(fits)  # type: ignore[type-var]


def test_a_faster_placement_is_named(table: Table) -> None:
    assert table.best_elsewhere() == "best: bidirectional, 2 chunks, 12 ms (bitpipe)"
    assert table.best_elsewhere(value=12.5) != ""
    assert table.best_elsewhere(value=12) == ""
    uneven = compare(Pipeline(2, 4, costs=Costs(forward=[1, 2])))
    assert uneven.best_elsewhere().startswith("best: ")
    assert " †, " in uneven.best_elsewhere()


def test_columns_that_are_asked_for(table: Table) -> None:
    text = table.text(columns=["speed-up", "relative_efficiency", "summed span bubble ratio"])
    heads, _, *rows = text.splitlines()
    assert re.split(" {2,}", heads)[3:] == ["summed span bubble ratio", "relative efficiency", "speed-up"]
    cells = {cells[0].removesuffix(" ‡"): cells[3:] for cells in (re.split(" {2,}", row) for row in rows) if len(cells) == 6}
    # the fastest that fits, bitpipe, takes 12, 1F1B 15: its devices are busy for 12 of spans of 15 and 12
    assert cells["bitpipe"][1:] == ["100.0 %", "2"]
    assert cells["1f1b"] == ["11.1 %", "80.0 %", "1.6"]
    over = [row for row in table if row.within_memory is False and row.schedule is not None]
    assert over
    assert {row.name: cells[row.name][1] for row in over} == {row.name: percent(12 / (row.makespan or 1)) for row in over}
    assert "throughput" not in table.text(columns=["all"])


@pytest.mark.parametrize("names", [["speedup of all"], ["makespan", ""], ["all", "makespan"], []])
def test_columns_that_there_are_not(table: Table, names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"expected columns among makespan, device span, .* or all; got"):
        table.text(columns=names)
