"""A user's own order in the model file."""

import json
import re
from pathlib import Path

import pytest

from ppopt.files import ModelError, model_dict, model_of, model_of_text, read_model
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order
from ppopt.study.plan import read_study
from tests.support.command import run
from tests.support.own_order import HEAD, ROWS, written


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path)


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
