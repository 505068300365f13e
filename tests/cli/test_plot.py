"""``ppopt plot``."""

import importlib.util
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ppopt.cli.plot import plot
from ppopt.files import Model, document, json_text
from ppopt.pipeline import Pipeline
from tests.support.browser import need
from tests.support.command import refused, run
from tests.support.drawn import named
from tests.support.tiers import thorough


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


def test_what_cannot_be_drawn_is_said_in_a_line(tmp_path: Path) -> None:
    order = tmp_path / "order.csv"
    order.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    out = tmp_path / "x.png"
    for words, said in (
        (["--begin", "40"], "begin: expected a time before the end of the schedules, 9, got 40"),
        (["--begin", "4", "--end", "3"], "expected a time after --begin 4, got 3"),
        (["--label", "a", "--label", "b"], "there are 2 labels for 1 schedule\n"),
        (["--beside", "nope"], "there is no schedule 'nope'"),
        (["--beside", "dualpipe"], "dualpipe: "),
    ):
        assert said in refused("plot", order, "-o", out, *words), words
    assert not out.exists()


@thorough
def test_a_page_and_a_part_of_the_time_from_the_command_line(tmp_path: Path) -> None:
    need(importlib.util.find_spec("bokeh") is not None, "bokeh")
    order = tmp_path / "order.csv"
    order.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    page = tmp_path / "page.html"
    run(
        "plot",
        order,
        "-o",
        page,
        "--label",
        "<mine>",
        "--beside",
        "1f1b",
        "--begin",
        "2",
        "--end",
        "5",
        "--memory",
        "--width",
        "9",
    )
    text = page.read_text()
    assert "&lt;mine&gt;" in text
    assert "--width: 9in" in text
    assert re.search(r'"start":2(?:\.0)?,"end":5(?:\.0)?', text)
    for words in (["--full"], ["--begin", "2"], ["--end", "5", "--beside", "zb-v"]):
        run("plot", order, "-o", tmp_path / "part.svg", *words)
