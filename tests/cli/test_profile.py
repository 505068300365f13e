"""``ppopt profile``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ppopt.cli import main
from tests.support.places import DATA


def test_profile_writes_a_model_that_other_commands_read(tmp_path: Path) -> None:
    runner, path = CliRunner(), tmp_path / "model.toml"
    traces = [str(DATA / f"torch_trace_{rank}.json") for rank in (1, 0)]
    done = runner.invoke(main, ["profile", *traces, "--name", "two blocks", "--set", "links.latency=0.1", "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert 'name = "two blocks"' in path.read_text()
    assert runner.invoke(main, ["order", "1f1b", str(path)]).exit_code == 0
    assert runner.invoke(main, ["profile", *traces, "--skip", "4"]).exit_code == 2
    assert runner.invoke(main, ["profile", *traces, "--set", "links.latenci=1"]).exit_code == 2


def test_layers_of_a_trace_are_solved_with_their_cut_left_open(tmp_path: Path) -> None:
    runner, path = CliRunner(), str(tmp_path / "model.toml")
    traces = [str(DATA / f"torch_layers_trace_{rank}.json") for rank in (0, 1)]
    done = runner.invoke(main, ["profile", *traces, "-o", path])
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert "The backward (and what is held) is divided in proportion to the times in the forward.\n" in done.stderr
    assert "'layers.3-4' stands for 2 layers, forward 14.74 to 18.18 ms; the median, 16.46 ms, is written.\n" in done.stderr
    solved = runner.invoke(main, ["solve", path, "--partition", "best", "--json", "--time-limit", "60"])
    assert solved.exit_code == 0, solved.output
    result = json.loads(solved.stdout)["result"]
    assert sum(result["partition"]) == 7
    asked = json.loads(runner.invoke(main, ["solve", path, "--json", "--time-limit", "60"]).stdout)["result"]
    assert asked["partition"] == [4, 3]  # as it ran
    assert result["value"] <= asked["value"]
    assert result["reason"] == asked["reason"] == "optimal"


def test_how_layers_are_grouped_and_stages_divided() -> None:
    runner = CliRunner()
    named = [str(DATA / f"torch_layers_trace_{rank}.json") for rank in (0, 1)]
    unnamed = [str(DATA / f"torch_trace_{rank}.json") for rank in (0, 1)]

    def written(*options: str) -> str:
        done = runner.invoke(main, ["profile", *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert 'name = "layers"\ncount = 5\n' in written(*named, "--layers", "names")
    assert 'name = "layers.3"\nforward' in written(*named, "--layers", "each")
    for stages in (written(*named, "--layers", "none"), written(*unnamed)):
        assert "[costs]" in stages
        assert "[[layers]]" not in stages
    assert 'name = "before layers.0"' in written(*named, "--blocks", r"layers\.\d+")
    divided = runner.invoke(main, ["profile", *unnamed, "--layers-per-stage", "4,3"])
    assert 'name = "stage 1"\ncount = 3\n' in divided.stdout
    assert "are divided evenly over 4, 3 layers" in divided.stderr


REFUSED = {
    ("--layers", "alike"): "the forward of stage 0 names no layers",
    ("--blocks", "layers.*"): "the forward of stage 0 names no layers",
    ("--blocks", "("): "expected a regular expression, got '('",
    ("--layers-per-stage", "4,3,2"): "--layers-per-stage has 3 numbers; expected one, or one for each of 2 stages",
    ("--layers-per-stage", "4,0"): "expected a whole number >= 1",
    ("--layers-per-stage", "4", "--layers", "each"): "takes neither --layers nor --blocks",
    ("--layers", "none", "--blocks", "layers.*"): "it takes no --blocks",
    ("--layers", "some"): "'some' is not one of",
}


@pytest.mark.parametrize(("options", "message"), REFUSED.items(), ids=map(" ".join, REFUSED))
def test_what_cannot_be_done_is_said(options: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(main, ["profile", *(str(DATA / f"torch_trace_{rank}.json") for rank in (0, 1)), *options])
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("name", ["forward", "microbatch {m}"])
def test_ranges_that_are_no_layers_are_refused_unless_stages_are_asked_for(name: str, tmp_path: Path) -> None:
    """One name on all stages, or another name for every microbatch."""
    paths = []
    for rank in (0, 1):
        lines = json.loads((DATA / f"torch_layers_trace_{rank}.json").read_text())
        for event in lines["traceEvents"]:
            if event["cat"] == "user_annotation" and not event["name"].startswith("PP:"):
                event["name"] = "inner"
        wrapped = [
            {**event, "name": name.format(m=event["name"][-1]), "dur": event["dur"] - 1, "ts": event["ts"] + 0.5}
            for event in lines["traceEvents"]
            if event["name"][:3] == "PP:" and event["name"][4] == "F"
        ]
        (tmp_path / f"{rank}.json").write_text(json.dumps({**lines, "traceEvents": [*lines["traceEvents"], *wrapped]}))
        paths.append(str(tmp_path / f"{rank}.json"))
    done = CliRunner().invoke(main, ["profile", *paths])
    assert done.exit_code == 2
    assert "(--blocks says which ranges are layers; --layers none writes times of stages)" in done.stderr
    for options in (["--layers", "none"], ["--layers-per-stage", "4,3"]):
        assert CliRunner().invoke(main, ["profile", *paths, *options]).exit_code == 0
