"""``ppopt solve`` as scripts see it: what it prints, writes and returns."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ppopt.files import read_model
from tests.support.command import QUICK, run, solve
from tests.support.places import MODELS
from tests.support.shown import SHOWN
from tests.support.tiers import thorough

NAMED = ("gpipe", "1f1b", "interleaved-1f1b", "hanayo", "zb-h1", "dualpipe")


def test_what_was_found_is_shown_even_if_it_cannot_be_written(tmp_path: Path) -> None:
    nowhere = str(tmp_path / ("x" * 300 + ".json"))  # the folder is there, the name is too long
    alone = run("solve", "-d", "2", "-m", "2", *QUICK, "-o", nowhere, code=2)
    several = run("solve", "-d", "2", "-m", "1,2", *QUICK, "-o", nowhere, code=2)
    for found in (alone, several):
        assert f"{nowhere}: cannot be written" in found.stderr
        assert "optimal" in found.stdout or "one-machine" in found.stdout
    picture = nowhere.replace(".json", ".png")
    drawn = run("frontier", "-d", "2", "-m", "2", "--limits", "1,2", *QUICK, "--plot", picture, code=2)
    assert f"{picture}: cannot be written" in drawn.stderr
    assert "2 devices, 2 microbatches, linear" in drawn.stdout


def test_the_answer_and_its_proof() -> None:
    tree = solve("-d", "4", "-m", "8", "--memory-limit", "4")
    result = tree["result"]
    assert {key: result[key] for key in ("reason", "limit", "objective", "value", "lower_bound", "gap")} == {
        "reason": "optimal",
        "limit": None,
        "objective": "makespan",
        "value": 27,
        "lower_bound": 27,
        "gap": 0.0,
    }
    assert result.keys() >= {"proved_by", "seconds", "seed", "versions"}
    assert tree["metrics"]["makespan"] == 27
    assert {row["schedule"] for row in tree["named"]} >= set(SHOWN)


def test_for_people(tmp_path: Path) -> None:
    shown = run("solve", str(MODELS / "1f1b.toml"), *QUICK, "--explain").stdout
    best, title, value = shown.splitlines()[:3]
    assert best == "best: loop, 2 chunks, 25.5 (interleaved-zb); the answer below is for linear"
    assert title == "1f1b: 4 devices, 8 microbatches, linear"
    assert value.startswith("makespan 27: optimal, proved by ")
    assert "idle gap" not in shown
    assert "Steps" in shown
    assert "device 3:" in shown
    assert "1f1b *" in shown
    assert "\n1f1b takes 22.2 % more than the optimum.\n" in shown
    assert "interleaved-zb (25.5) is faster, on another placement: loop with 2 chunks" in shown
    assert "bubble ratio" in shown
    assert "dualpipe (26) is faster" not in shown  # over the memory limit


@pytest.mark.parametrize("name", NAMED)
def test_models_are_reproduced_with_order_and_never_made_worse_without(name: str, tmp_path: Path) -> None:
    path = str(MODELS / f"{name}.toml")
    order = json.loads(run("order", name, path, "--json").stdout)
    bound = solve(path, "--order", name)
    assert bound["result"]["reason"] == "optimal"
    assert bound["metrics"]["makespan"] == order["metrics"]["makespan"]
    assert bound["schedule"]["order"] == order["schedule"]["order"]
    assert bound["binding"]["schedule"] == name
    output = tmp_path / "best.json"
    best = json.loads(run("solve", path, "--workers", "1", "--time-limit", "3", "-o", str(output), "--json").stdout)
    assert best["metrics"]["makespan"] <= order["metrics"]["makespan"]
    if name != "zb-h1":  # already optimal
        assert best["metrics"]["makespan"] < order["metrics"]["makespan"]
    assert json.loads(output.read_text()) == best
    assert run("check", str(output)).stdout == f"{output}: no violation\n"


def test_an_optimum_under_a_schedule_is_called_so() -> None:
    sizes = ["-d", "2", "-m", "3", "--set", "pipeline.microbatch_costs=[1,3,1]", "--microbatch-order", "choose"]
    sizes += ["--set", 'pipeline.schedule="1f1b"']
    shown = run("solve", *sizes, "--order", "1f1b", *QUICK).stdout
    assert "\nthe optimum under 1f1b " in shown
    assert " the optimum under 1f1b.\n" in shown
    assert "\nthe optimum  " in run("solve", *sizes, *QUICK).stdout


def test_a_binding_order_brings_its_placement_and_says_so() -> None:
    result = run("solve", "-d", "4", "-m", "8", "--order", "hanayo", *QUICK)
    assert result.stderr.startswith("Note: hanayo is solved on its own placement, wave with 2 chunks.\n")
    assert result.stdout.startswith(
        "4 devices, 8 microbatches, wave, 2 chunks; with the constraints of hanayo\nmakespan 32.5: optimal"
    )


def test_an_order_beyond_memory_is_infeasible() -> None:
    args = ("-d", "4", "-m", "8", "--order", "gpipe", "--memory-limit", "4")
    tree = solve(*args, code=3)
    assert tree["result"]["reason"] == "infeasible"
    assert tree["result"]["value"] is tree["result"]["gap"] is tree["schedule"] is tree["metrics"] is None
    assert "infeasible: no schedule satisfies the model" in run("solve", *args, *QUICK, code=3).stdout


def test_chunks_as_a_list_are_for_the_table() -> None:
    tree = solve("-d", "4", "-m", "8", "--chunks", "2,4")
    assert tree["model"]["pipeline"]["chunks"] == 1
    assert {row["chunks"] for row in tree["named"] if row["schedule"] == "hanayo"} == {2, 4}


def test_the_span_is_an_objective_too() -> None:
    tree = solve("-d", "4", "-m", "8", "--objective", "span")
    assert (tree["result"]["objective"], tree["result"]["value"], tree["metrics"]["device_span"]) == ("span", 24, 24)
    checked = run("check", "-", stdin=json.dumps(tree))
    assert checked.output == "-: no violation\n"


def test_deterministic_answers_repeat() -> None:
    args = (
        "-d",
        "3",
        "-m",
        "5",
        "--memory-limit",
        "2",
        "--set",
        "costs.forward=3",
        "--deterministic",
        "--time-limit",
        "5",
        "--json",
    )
    first, second = (json.loads(run("solve", *args).stdout) for _ in range(2))
    assert first["schedule"] == second["schedule"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_search_loses_nothing(number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ppopt import files

    def interrupted(*given: Any, **named: Any) -> dict[str, Any]:
        signal.raise_signal(number)
        return result_dict(*given, **named)

    result_dict = files.result_dict
    monkeypatch.setattr(files, "result_dict", interrupted)
    output = tmp_path / "best.json"
    done = run("solve", "-d", "2", "-m", "4", "-o", str(output))
    assert (done.exit_code, "optimal" in done.stdout) == (0, True)
    assert json.loads(output.read_text())["result"]["reason"] == "optimal"


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=thorough)])
def test_an_interrupted_solve_keeps_a_checked_schedule(number: signal.Signals, tmp_path: Path) -> None:
    output = tmp_path / "best.json"
    model = read_model(str(MODELS / "gpt-14.6b.toml")).pipeline
    command = [sys.executable, "-m", "ppopt", "solve", str(MODELS / "gpt-14.6b.toml"), "--memory-limit", "10", "--workers", "1"]
    process = subprocess.Popen(
        [*command, "--time-limit", "300", "-o", str(output)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = ""
    while "best" not in line:  # the progress on standard error says when there is something to keep
        line = process.stderr.readline()
        assert line, "the search ended before it was interrupted"
    time.sleep(1)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 0, stderr
    assert "Traceback" not in stderr
    assert "interrupted" in stdout
    tree = json.loads(output.read_text())
    assert (tree["result"]["reason"], tree["result"]["limit"]) == ("feasible", "interrupted")
    assert len(tree["schedule"]["order"]) == model.devices
    assert run("check", str(output)).stdout == f"{output}: no violation\n"
