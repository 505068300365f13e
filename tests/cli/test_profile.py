"""``ppopt profile``."""

from pathlib import Path

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
