"""``ppopt export``, and ``ppopt solve --runtime torch``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ppopt.cli import main
from ppopt.files.torch_check import violations
from ppopt.files.torch_csv import rows_of_text
from ppopt.files.torch_export import settings as torch_settings
from ppopt.pipeline import Pipeline
from tests.support.command import run


def test_export_writes_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    order = run("order", "zb-h1", "-d", "2", "-m", "4").stdout
    done = run("export", "-", "--to", "chrome-trace", "-o", path, stdin=order)
    assert done.stdout == ""
    assert "1 us" in done.stderr
    assert sum(event["ph"] == "X" for event in json.loads(path.read_text())["traceEvents"]) == 24
    again = ("export", "-", "--to", "chrome-trace", "--set", "units.time=ms")
    assert "1 us" not in run(*again, stdin=order).stderr


def test_export_writes_the_file_to_standard_output_and_the_rest_to_standard_error(tmp_path: Path) -> None:
    runner = CliRunner()
    ordered = runner.invoke(main, ["order", "zb-v", "-d", "2", "-m", "4", "--json"])
    path = tmp_path / "zb-v.json"
    path.write_text(ordered.stdout)
    for target in ("torch-csv", "torch-csv-comms"):
        done = runner.invoke(main, ["export", str(path), "--to", target])
        assert done.exit_code == 0, done.output
        assert violations(rows_of_text(done.stdout, "stdout"), 4) == []
        assert "rank 0: 0 3; rank 1: 1 2" in done.stderr
        assert ("ZBVZeroBubble" in done.stderr) == (target == "torch-csv")
    assert json.loads(path.read_text())["schedule"]["order"] is not None


def test_export_says_which_stage_pytorch_cannot_place() -> None:
    runner = CliRunner()
    order = runner.invoke(main, ["order", "dualpipe", "-d", "4", "-m", "8"])
    done = runner.invoke(main, ["export", "-", "--to", "torch-csv"], input=order.stdout)
    assert done.exit_code == 2
    assert "stage 0 lives on ranks 0 and 3" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("target", ["torch-csv", "chrome-trace"])
def test_what_cannot_be_read_or_written_is_one_line(target: str, tmp_path: Path) -> None:
    runner = CliRunner()
    order = runner.invoke(main, ["order", "1f1b", "-d", "2", "-m", "2"]).stdout
    for arguments, text in ((["-", "-o", str(tmp_path / "none" / "file")], order), ([str(tmp_path / "none")], ""), (["-"], "{}")):
        done = runner.invoke(main, ["export", *arguments, "--to", target], input=text)
        assert done.exit_code == 2
        assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


def test_the_placement_that_torchtitan_cannot_reach_is_said() -> None:
    lines = "\n".join(torch_settings(Pipeline(2, 2, routes=((0, 0, 1, 1),)), comms=False))
    assert "rank 0: 0 1; rank 1: 2 3" in lines
    assert "neither can place" in lines


def test_solve_for_torch_plans_with_stage_0_as_pytorch_runs_it() -> None:
    arguments = ["solve", "-d", "2", "-m", "4", "--set", "costs.backward_weight=2", "--json", "--runtime", "torch"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    tree = json.loads(done.stdout)
    assert tree["model"]["pipeline"]["runtime"] == "torch"
    took = {op: end - start for row in zip(*tree["schedule"].values(), strict=True) for op, start, end in zip(*row, strict=True)}
    assert {time for op, time in took.items() if op.startswith("0I")} <= {0}
    assert {time for op, time in took.items() if op.startswith(("0W", "0B"))} == {3}
    exported = CliRunner().invoke(main, ["export", "-", "--to", "torch-csv-comms"], input=done.stdout)
    assert exported.exit_code == 0, exported.output
    assert "--runtime torch" not in exported.stderr
    assert violations(rows_of_text(exported.stdout, "stdout"), 4) == []
