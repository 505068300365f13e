"""``--placement any``, ``--verify`` and ``--solver ilp`` on the command line."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ppopt import search
from ppopt.pipeline import Costs, Pipeline
from ppopt.search import Settings, solve, verify
from tests.support import command


def run(*args: str, code: int = 0) -> Result:
    return command.run("solve", *args, *command.QUICK, code=code)


def tree(*args: str, code: int = 0) -> Any:
    return json.loads(run(*args, "--json", code=code).stdout)


def test_the_best_placement_on_the_command_line(tmp_path: Path) -> None:
    output = tmp_path / "best.json"
    args = ("-d", "2", "-m", "4", "--memory-limit", "2", "--placement", "any", "--chunks", "2,4", "-o", str(output))
    found = tree(*args)
    assert found["model"]["pipeline"]["placement"] == "loop"
    assert found["model"]["pipeline"]["chunks"] == 4
    rows = {(row["placement"], row["chunks"]): row["result"] for row in found["placements"]}
    assert {key: row["value"] for key, row in rows.items()} == {
        ("linear", 1): 13,
        ("loop", 2): 12.5,
        ("wave", 2): 12.5,
        ("loop", 4): 12.25,
        ("wave", 4): 12.25,
    }
    assert all(row["lower_bound"] == row["value"] for row in rows.values())
    assert json.loads(output.read_text()) == found
    checked = command.run("check", output)
    assert checked.output == f"{output}: no violation\n"
    shown = run(*args[:-2]).stdout
    assert "Placements" in shown
    assert "None of these placements has anything better than loop with 4 chunks." in shown


def test_one_number_of_chunks_is_for_the_other_placements() -> None:
    found = tree("-d", "2", "-m", "2", "--placement", "any", "--chunks", "3")
    assert [(row["placement"], row["chunks"]) for row in found["placements"]] == [("linear", 1), ("loop", 3), ("wave", 3)]


def test_an_order_settles_the_placement_that_is_open() -> None:
    found = tree("-d", "2", "-m", "2", "--placement", "any", "--chunks", "2,4", "--order", "interleaved-1f1b")
    assert [(row["placement"], row["chunks"]) for row in found["placements"]] == [("loop", 2), ("loop", 4)]
    assert found["binding"]["schedule"] == "interleaved-1f1b"


@pytest.mark.parametrize(("solver", "by"), [("auto", "CP-SAT"), ("ilp", "CP-SAT")])
def test_a_second_opinion_on_the_command_line(solver: str, by: str) -> None:
    args = ("-d", "3", "-m", "4", "--memory-limit", "2", "--solver", solver, "--verify")
    found = tree(*args)
    assert found["result"]["reason"] == "optimal"
    opinion = found["verification"]
    assert opinion["confirmed"] is True
    assert opinion["bound"] == found["result"]["value"]
    assert opinion["tried"][-1]["route"] == opinion["by"]
    assert not found["result"]["proved_by"].startswith(opinion["by"])
    assert f"Second opinion: confirmed by {opinion['by']}: nothing below {opinion['bound']:g}" in run(*args).stdout


def test_a_second_opinion_on_what_cannot_be() -> None:
    found = tree("-d", "3", "-m", "4", "--memory-limit", "2", "--order", "gpipe", "--verify", code=3)
    assert found["result"]["reason"] == "infeasible"
    assert found["verification"]["confirmed"] is True


def test_a_refuted_proof_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = search.verify

    def dishonest(result: Any, settings: Settings) -> Any:
        return honest(replace(result, ticks=result.ticks._replace(lower_bound=99)), settings)

    monkeypatch.setattr(search, "verify", dishonest)
    shown = run("-d", "2", "-m", "2", "--verify", code=1)
    assert "Second opinion: REFUTED by CP-SAT" in shown.stdout
    assert "refutes the first proof" in shown.stderr


def test_the_ilp_refuses_what_is_too_large() -> None:
    shown = run("-d", "12", "-m", "48", "--memory-limit", "8", "--solver", "ilp", code=2)
    assert "too large for the ILP: " in shown.stderr


def test_nothing_is_shorter_than_nothing() -> None:
    free = Costs(forward=0, backward_input=0, backward_weight=0)
    opinion = verify(solve(Pipeline(2, 2, costs=free), workers=1))
    assert opinion.confirmed is True
    assert math.isclose(opinion.seconds, 0)
