"""A user's own order on the command line."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ppopt.files import read_model
from ppopt.files.exported import row_in
from ppopt.named import NAMED, compare, find
from ppopt.pipeline import Costs, Pipeline
from ppopt.search import solve
from tests.support.command import read, run
from tests.support.own_order import HEAD, ROWS, written


def named(tree: Any, name: str) -> Any:
    (row,) = [row for row in tree["named"] if row["schedule"] == name]
    return row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path)


def test_the_order_of_the_model_is_a_marked_row(folder: Path) -> None:
    path = str(folder / "model.toml")
    tree = read("compare", path)
    assert named(tree, "mine.csv")["makespan"] == 8  # 0F0 1F0 1B0 1F1 1I1 0B1
    assert tree["model"]["pipeline"]["order"] == ROWS
    shown = run("compare", path).stdout
    assert "\nmine.csv *" in shown
    assert "* the schedule that the model stands for (mine.csv)" in shown
    (folder / "model.toml").write_text(HEAD + 'schedule = "gpipe"\norder = "mine.csv"\n')
    shown = run("compare", path).stdout
    assert "\nmine.csv " in shown
    assert "\ngpipe *" in shown


def test_orders_in_files_are_compared_at_the_costs_of_the_model(folder: Path) -> None:
    mine, best = str(folder / "mine.csv"), str(folder / "best.json")
    Path(best).write_text(run("order", "zb-h1", "-d", "2", "-m", "2", "--json").stdout)
    tree = read("compare", "-d", "2", "-m", "2", "--set", "costs.forward=3", "--with", mine, "--with", best)
    assert named(tree, mine)["makespan"] == 14  # 0F0 1F0 1B0 1F1 1I1 0B1
    assert named(tree, best)["makespan"] == named(tree, "zb-h1")["makespan"]


@pytest.mark.parametrize("name", NAMED)
def test_a_schedule_written_out_is_the_same_row_again(name: str, tmp_path: Path) -> None:
    pipeline = Pipeline(4, 8, costs=Costs(forward=(1, 2, 1, 1), overlap=3))
    expected = NAMED[name].schedule(pipeline)
    path = tmp_path / "order.csv"
    path.write_text("".join(",".join(row) + "\n" for row in expected.order.texts()))
    row = row_in(str(path), pipeline)
    assert row.schedule is not None, row.excluded
    assert (row.schedule.makespan, row.schedule.peak_memory) == (expected.makespan, expected.peak_memory)
    assert row.schedule.pipeline.routes == expected.pipeline.routes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0F0,0B0\n", "the order has devices = 1, the model 2"),
        ("0F0,0B0\n1F0,1B0\n", "the order has microbatches = 1, the model 2"),
        ("0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n", "1B1 is missing"),
        ("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "the order deadlocks: "),
    ],
)
def test_an_order_that_does_not_fit_is_excluded_with_the_reason(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "order.csv"
    path.write_text(text)
    row = named(read("compare", "-d", "2", "-m", "2", "--with", str(path)), str(path))
    assert row["makespan"] is row["within_memory"] is None
    assert row["excluded"].startswith(f"{path}: {reason}")


def test_a_split_order_needs_split_costs(folder: Path) -> None:
    tree = read("compare", "-d", "2", "-m", "2", "--set", "costs.backward=2", "--with", str(folder / "mine.csv"))
    assert "fused backward only" in named(tree, str(folder / "mine.csv"))["excluded"]


def test_a_file_that_has_no_order_is_an_error(folder: Path) -> None:
    comparison = folder / "comparison.json"
    comparison.write_text(run("compare", "-d", "2", "-m", "2", "--json").stdout)
    assert "schedule: there is none" in run("compare", "-d", "2", "-m", "2", "--with", str(comparison), code=2).stderr
    assert "cannot be read" in run("compare", "-d", "2", "-m", "2", "--with", str(folder / "none.csv"), code=2).stderr
    assert "once only" in run("compare", "-", "--with", "-", code=2).stderr


def test_solve_begins_from_the_order_and_shows_it(folder: Path) -> None:
    tree = read("solve", str(folder / "model.toml"), "--workers", "1", "--explain")
    assert named(tree, "mine.csv")["makespan"] == 8  # 0F0 1F0 1B0 1F1 1I1 0B1
    assert tree["model"]["pipeline"]["order"] == ROWS
    assert tree["metrics"]["makespan"] <= 8
    (folder / "result.json").write_text(json.dumps(tree))
    run("check", str(folder / "result.json"))
    shown = run("solve", str(folder / "model.toml"), "--workers", "1").stdout
    assert re.search(r"^mine\.csv (equals|takes [0-9.]+ % more than) the optimum\.$", shown, re.MULTILINE)


def test_an_order_beyond_the_memory_is_shown_but_not_kept(folder: Path) -> None:
    tree = read("solve", str(folder / "model.toml"), "--memory-limit", "1", "--workers", "1")
    assert named(tree, "mine.csv")["within_memory"] is False
    assert tree["metrics"]["peak_memory"] == [1, 1]


def test_the_parameters_of_the_model_count_in_its_row(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_text(
        '[pipeline]\ndevices = 4\nmicrobatches = 8\nplacement = "loop"\nchunks = 2\n'
        'schedule = "interleaved-1f1b"\nschedule_params = { group_size = 8 }\n'
    )
    expected = find("interleaved-1f1b").schedule(Pipeline(4, 8), 2, group_size=8)
    peak = [expected.pipeline.amount(peak) for peak in expected.peak_memory]
    for command in (("compare",), ("solve", "--workers", "1", "--time-limit", "1")):
        assert named(read(*command, str(path)), "interleaved-1f1b")["peak_memory"] == peak
    (plain,) = [row for row in compare(Pipeline(4, 8)) if row.name == "interleaved-1f1b"]
    assert plain.schedule is not None
    assert max(plain.schedule.peak_memory) < max(expected.peak_memory)


def test_chunks_that_the_model_does_not_have_are_not_marked(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_text('[pipeline]\ndevices = 2\nmicrobatches = 4\nplacement = "loop"\nchunks = 2\nschedule = "looped-bfs"\n')
    shown = run("compare", str(path), "--chunks", "2,3").stdout
    assert len(re.findall(r"^looped-bfs \* +loop +2 ", shown, re.MULTILINE)) == 1
    assert len(re.findall(r"^looped-bfs +loop +3 ", shown, re.MULTILINE)) == 1
    assert "*" not in run("compare", str(path), "--chunks", "3").stdout


def test_an_order_for_other_microbatches_is_left_out(folder: Path) -> None:
    model = read_model(str(folder / "model.toml"))
    result = solve(replace(model, pipeline=model.pipeline.changed(microbatches=[2, 3])), workers=1).points[1]
    assert result.reason == "optimal"
    assert "mine.csv" not in [row.name for row in result.named]
