"""``ppopt frontier``."""

import json
from pathlib import Path

from click.testing import CliRunner

from ppopt.cli.frontier import frontier as command


def test_command(tmp_path: Path) -> None:
    picture = tmp_path / "f.svg"
    run = CliRunner().invoke(command, ["-d", "2", "-m", "4", "--limits", "1,2", "--plot", str(picture)])
    assert run.exit_code == 0, run.output
    assert picture.read_text().startswith("<?xml")
    assert "20" in run.stdout.split()
    both = CliRunner().invoke(command, ["-d", "2", "-m", "2", "--placement", "any", "--time-limit", "3", "--json"])
    points = json.loads(both.stdout)["points"]
    assert {point["placement"] for point in points} == {"linear", "loop", "wave"}
    assert json.loads(both.stdout)["recommendation"][-1].startswith("More memory gains ")
    assert [point["limit"] for point in points] == sorted(point["limit"] for point in points)
    assert CliRunner().invoke(command, ["-d", "2", "-m", "2", "--limits", "0.5"]).exit_code == 2
    assert CliRunner().invoke(command, ["-d", "2", "-m", "2", "--plot", "x.gif"]).exit_code == 2
