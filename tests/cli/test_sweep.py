"""``ppopt sweep`` and ``ppopt results``."""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ppopt.cli.results import results as results_command
from ppopt.cli.sweep import sweep as sweep_command
from tests.support.command import run


def test_sweep_and_results_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(
        "[model.pipeline]\nmicrobatches = 4\n[vary]\npipeline.devices = [2, 3]\nmemory.limit = [-1, 2.5]\n"
        '[run]\nschedules = ["1f1b", {name = "hanayo", chunks = 2}]\n'
    )
    first = CliRunner().invoke(sweep_command, ["s.toml", "--workers", "1"])
    assert first.exit_code == 1
    assert "8 of 8 instances have a result in s.db; 8 run now" in first.output
    assert "4 failed; see `ppopt results s.db --status failed`" in first.output
    again = CliRunner().invoke(sweep_command, ["s.toml"])
    assert again.exit_code == 0
    assert "0 run now" in again.output
    table = CliRunner().invoke(results_command, ["s.db", "--status", "done"])
    assert table.exit_code == 0
    assert table.stdout.count("1f1b") == 2
    text = CliRunner().invoke(results_command, ["s.db", "--csv"]).stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["pipeline.devices"], row["schedule"], row["status"]) for row in rows[2:4]] == [
        ("2", "1f1b", "done"),
        ("2", "hanayo", "done"),
    ]
    assert rows[2]["makespan"] == "15"
    tree = json.loads(CliRunner().invoke(results_command, ["s.db", "--json", "--study", "s"]).stdout)
    assert len(tree["results"]) == 8
    assert CliRunner().invoke(results_command, ["s.db", "--study", "t"]).exit_code == 2
    assert CliRunner().invoke(sweep_command, ["none.toml"]).exit_code == 2
    assert CliRunner().invoke(sweep_command, ["-"]).exit_code == 2


@pytest.mark.parametrize(
    ("given", "again"),
    [
        (["my study.toml"], "ppopt sweep 'my study.toml'"),
        (["s.toml", "-o", "all.db", "--workers", "3", "--retry"], "ppopt sweep s.toml -o all.db --workers 3 --retry"),
    ],
)
def test_an_interrupted_sweep_says_how_to_go_on(
    given: list[str], again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ppopt.study.sweep.sweep", interrupted)
    Path(given[0]).write_text('[model.pipeline]\ndevices = 2\n[vary]\npipeline.microbatches = [2]\n[run]\nschedules = ["1f1b"]\n')
    store = "all.db" if "-o" in given else given[0].replace(".toml", ".db")
    assert run("sweep", *given, code=130).stderr.splitlines()[0] == f"what is finished is in {store}; go on with: {again}"


def test_the_store_has_the_name_of_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    study = '[model.pipeline]\ndevices = 2\nmicrobatches = 2\n[model.memory]\nlimit = 1\n[run]\nschedules = ["seq1f1b"]\n'
    (tmp_path / "sub" / "s.toml").write_text(f'name = "my study"\n{study}[solve]\ntime_limit = 5\n')
    monkeypatch.chdir(tmp_path)
    run("sweep", "sub/s.toml", "--workers", "1")
    text = run("results", "sub/my study.db").stdout
    assert "seq1f1b ‡" in text
    assert "‡ microbatches are pieces of sequences" in text
    columns = run("results", "sub/my study.db", "--csv").stdout.splitlines()[0].split(",")
    assert "stopped_by" in columns
    assert "limit" not in columns
