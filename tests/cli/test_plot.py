"""``ppopt plot``."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ppopt.cli.plot import plot
from ppopt.files import Model, document, json_text
from ppopt.pipeline import Pipeline
from tests.support.drawn import named


def test_plot_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("1f1b", "zb-h1"):
        tree = document(Model(Pipeline(4, 8, name=name)), schedule=named(name, 4, 8))
        Path(f"{name}.json").write_text(json_text(tree))
    Path("order.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    for arguments in (
        ["1f1b.json", "zb-h1.json", "-o", "both.pdf"],
        ["order.csv", "-o", "order.svg", "--memory", "--set", "costs.forward=2", "--memory-limit", "2"],
        ["zb-h1.json", "-o", "wide.png", "--width", "14"],
    ):
        run = CliRunner().invoke(plot, arguments)
        assert run.exit_code == 0, run.output
    assert Path("both.pdf").read_bytes().startswith(b"%PDF")
    assert Path("order.svg").read_text().startswith("<?xml")
    assert CliRunner().invoke(plot, ["1f1b.json", "-o", "x.gif"]).exit_code == 2
    assert CliRunner().invoke(plot, ["-", "-", "-o", "x.png"]).exit_code == 2
    assert CliRunner().invoke(plot, ["1f1b.json", "-o", "nowhere/x.png"]).exit_code == 1
