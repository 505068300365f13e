"""A user's own order: in the model file, beside the named schedules in a comparison, and as the start of a search."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ppopt.cli import main
from ppopt.files import Model, ModelError, model_dict, model_of, model_of_text, read_model
from ppopt.files.exported import row_in
from ppopt.named import NAMED, compare, find
from ppopt.pipeline import Costs, Pipeline
from ppopt.schedule import Order
from ppopt.search import solve
from ppopt.study.plan import read_study

HEAD = "[pipeline]\ndevices = 2\nmicrobatches = 2\n"
ROWS = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1I1", "1W1"]]
CSV = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1I1,1W1\n"


def run(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code == code, result.output
    return result


def read(*args: str) -> Any:
    return json.loads(run(*args, "--json").stdout)


def named(tree: Any, name: str) -> Any:
    (row,) = [row for row in tree["named"] if row["schedule"] == name]
    return row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.csv").write_text(CSV)
    (tmp_path / "model.toml").write_text(HEAD + 'order = "mine.csv"\n')
    return tmp_path


# --- in the model file -------------------------------------------------------------------------------------------


def test_an_order_in_the_model_file_is_written_out_or_in_a_file_beside_it(folder: Path) -> None:
    model = model_of_text(f"{HEAD}order = {ROWS}\n", "text")
    assert model.order == Order.of(Pipeline(2, 2), ROWS)
    assert (model.stands_for, model.schedule) == ("own order", None)
    from_file = read_model(str(folder / "model.toml"))
    assert from_file == model
    assert from_file.stands_for == "mine.csv"
    assert model_of(model_dict(from_file), "again") == model
    assert model_of_text(f"{HEAD}schedule = '1f1b'\norder = {ROWS}\n", "text").stands_for == "1f1b"


def test_communication_in_the_file_is_left_out(folder: Path) -> None:
    (folder / "mine.csv").write_text("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    (folder / "model.toml").write_text('[pipeline]\ndevices = 2\nmicrobatches = 1\norder = "mine.csv"\n')
    order = read_model(str(folder / "model.toml")).order
    assert order is not None
    assert order.texts() == [["0F0", "0B0"], ["1F0", "1B0"]]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("3", "pipeline.order: expected a list of operations per device or the name of a CSV file, got 3"),
        ("[['0F0'], 1]", "pipeline.order[1]: expected a list of operations such as 2F0, got 1"),
        ("[['0F0', '0G0'], []]", "pipeline.order[0][1]: expected an operation such as 2F0 or (0F3;7B1)OVERLAP_F_B, got '0G0'"),
        ("[['0F0'], ['1F0', 7]]", "pipeline.order[1][1]: expected an operation"),
        ("[['0F0', '0SEND_F0'], []]", "pipeline.order[0][1]: expected an operation"),
        ("[['0F0']]", "pipeline.order: expected 2 rows (one per device), got 1"),
        ("[['0F0', '2F0'], []]", "pipeline.order[0][1]: 2F0: there is no stage 2; stages are 0..1"),
        ("[['0F0', '0F2'], []]", "pipeline.order[0][1]: 0F2: there is no microbatch 2; microbatches are 0..1"),
        ("[['0F0', '1F0'], []]", "pipeline.order[0][1]: 1F0 is on device 0; its stage is on device 1"),
        ("[['0F0', '0F1', '0F0'], []]", "pipeline.order[0][2]: 0F0 is run twice"),
        ("[['0F0', '0F1', '0B0', '0B1'], ['1F0', '1B0', '1F1']]", "pipeline.order: 1B1 is missing"),
        ("[['0F0', '0B0', '0F1', '0B1'], ['1F1', '1B1', '1F0', '1B0']]", "pipeline.order: the order deadlocks: "),
        ("'none.csv'", "pipeline.order: none.csv: cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_with_an_order_is_said_with_its_place(order: str, message: str) -> None:
    with pytest.raises(ModelError, match="^text: " + re.escape(message)):
        model_of_text(f"{HEAD}order = {order}\n", "text")


def test_what_is_wrong_in_a_file_is_said_with_its_row(folder: Path) -> None:
    path = folder / "mine.csv"
    for text, message in (
        ("0F0,hello\n1F0\n", "row 0, column 1: expected an action"),
        ("0F0,0B0\n1F0,0F1\n", "row 1, operation 1: 0F1 is on device 1; its stage is on device 0"),
        ("0F0,0B0\n", "expected 2 rows (one per device), got 1"),
    ):
        path.write_text(text)
        stderr = run("compare", str(folder / "model.toml"), code=2).stderr
        assert f"pipeline.order: {path}: {message}" in stderr


def test_another_placement_leaves_out_the_order_and_says_so(folder: Path) -> None:
    result = run("compare", str(folder / "model.toml"), "--placement", "bidirectional", "--json")
    assert "order" not in json.loads(result.stdout)["model"]["pipeline"]
    assert result.stderr.startswith("Note: the model's own order is left out. ")
    assert "pipeline.order" in run("compare", str(folder / "model.toml"), "-m", "3", code=2).stderr


def test_a_study_finds_the_order_of_its_base(folder: Path) -> None:
    (folder / "study.toml").write_text('base = "model.toml"\n[run]\nschedules = ["1f1b"]\n')
    (instance,) = read_study(str(folder / "study.toml")).instances
    assert instance.pipeline == Pipeline(2, 2)


# --- beside the named schedules ----------------------------------------------------------------------------------


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


# --- solve -------------------------------------------------------------------------------------------------------


def test_solve_begins_from_the_order_and_shows_it(folder: Path) -> None:
    tree = read("solve", str(folder / "model.toml"), "--workers", "1", "--explain")
    assert named(tree, "mine.csv")["makespan"] == 8  # 0F0 1F0 1B0 1F1 1I1 0B1
    assert tree["model"]["pipeline"]["order"] == ROWS
    assert tree["metrics"]["makespan"] <= 8
    (folder / "result.json").write_text(json.dumps(tree))
    run("check", str(folder / "result.json"))
    shown = run("solve", str(folder / "model.toml"), "--workers", "1").stdout
    assert re.search(r"^mine\.csv (equals|takes [0-9.]+ % more than) the optimum\.$", shown, re.MULTILINE)


def test_an_order_better_than_all_others_is_kept() -> None:
    """The user's order is optimal, and nothing that is tried before the solver reaches it."""
    pipeline = Pipeline(3, 5, costs=Costs(forward=(5, 2, 7), backward_input=(1, 6, 3), backward_weight=(4, 1, 2)))
    best = solve(pipeline, workers=1)
    assert best.schedule is not None
    model = Model(pipeline, order=best.schedule.order)
    again = solve(model, workers=1, seconds=0.001)
    assert again.value == best.value
    assert again.named[0].name == "own order"


def test_an_order_beyond_the_memory_is_shown_but_not_kept(folder: Path) -> None:
    tree = read("solve", str(folder / "model.toml"), "--memory-limit", "1", "--workers", "1")
    assert named(tree, "mine.csv")["within_memory"] is False
    assert tree["metrics"]["peak_memory"] == [1, 1]


def test_named_pairs_that_save_time_are_a_start() -> None:
    pipeline = Pipeline(4, 8, costs=Costs(overlap=2))
    result = solve(pipeline, workers=1, seconds=2)
    (paired,) = [row for row in result.named if row.name == "1f1b-overlap"]
    assert paired.schedule is not None
    assert result.value is not None
    assert result.lower_bound <= result.value <= paired.schedule.makespan == 26
    assert solve(pipeline, order="1f1b-overlap", workers=1).value == 26  # nothing but its own pairs


# --- parameters of the model's schedule --------------------------------------------------------------------------


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
