"""Stages that recompute, in files."""

import json
from pathlib import Path

from tests.support.command import read, run


def test_the_answer_is_a_result_like_any_other(tmp_path: Path) -> None:
    model, output = tmp_path / "model.toml", tmp_path / "best.json"
    model.write_text(
        '[pipeline]\ndevices = 3\nmicrobatches = 5\nrecompute = "choose"\nschedule = "1f1b"\n'
        "[costs]\nforward = 2\nbackward_input = 2\nrecompute = [2, 1, 2]\n[memory]\nlimit = 2\nrecompute_saved = 0.5\n"
    )
    stdout = run("solve", model, "--workers", "1", "--explain", "-o", output).stdout
    tree = json.loads(output.read_text())
    assert tree["result"]["reason"] == "optimal"
    stages = tree["model"]["pipeline"]["recompute"]
    assert stages
    assert tree["result"]["value"] == tree["metrics"]["makespan"] == 37
    again = read("solve", model, "--workers", "1", "--set", f"pipeline.recompute={stages}")
    assert again["result"]["value"] == 37
    assert tree["steps"][0]["name"] == "stages: all open"
    assert run("check", output).stdout == f"{output}: no violation\n"
    assert "\n3 devices, 5 microbatches, linear, recompute in stage" in stdout
    assert "\nmakespan 37: optimal, proved by branch and bound over the stages that recompute" in stdout
