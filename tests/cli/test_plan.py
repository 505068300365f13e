"""``ppopt plan``: what it prints, writes and says where nothing fits; ``results`` of its store."""

import json
from pathlib import Path
from typing import Any

import pytest

from ppopt.files.toml_text import toml_text
from ppopt.files.torch_check import violations
from ppopt.files.torch_csv import rows_of_text
from tests.support.command import QUICK, read, refused, run
from tests.support.planned import tables

KEYS = ["tensor", "data", "pipeline", "context", "expert", "microbatch", "zero", "placement", "chunks", "partition", "recompute"]
KEYS += ["schedule", "step_time", "lower_bound", "tokens_per_second_per_gpu", "mfu", "peak_memory", "proved_by"]


@pytest.fixture
def question(tmp_path: Path) -> str:
    """A file with two combinations, on the linear placement."""
    path = tmp_path / "small.toml"
    search = {"pipeline": [2], "placement": "linear"}
    path.write_text(toml_text(tables(search=search, training={"zero": 0, "microbatch": [1, 2]})), encoding="utf-8")
    return str(path)


def test_plans_as_json(question: str) -> None:
    tree = read("plan", question, *QUICK)
    assert [list(one) for one in tree["plans"]] == [KEYS] * len(tree["plans"])
    assert tree["reason"] == "optimal"
    assert tree["lower_bound"] == pytest.approx(tree["plans"][0]["step_time"])
    assert tree["space"]["combinations"] == 2
    assert 0 < tree["plans"][0]["mfu"] < 1
    assert tree["frontier"][0] == 0


def test_the_best_as_a_file(question: str, tmp_path: Path) -> None:
    result, model = str(tmp_path / "best.json"), str(tmp_path / "best.toml")
    shown = run("plan", question, *QUICK, "-o", result).stdout
    assert "Nothing in these 2 combinations is faster than" in shown
    tree = json.loads(Path(result).read_text(encoding="utf-8"))
    assert tree["model"]["parallel"]["pipeline"] == 2
    assert run("check", result).exit_code == 0
    rows = rows_of_text(run("export", result, "--to", "torch-csv").stdout, "csv")
    assert not violations(rows, tree["model"]["pipeline"]["microbatches"])
    assert "--micro-batch-size" in run("export", result, "--to", "megatron").stdout
    run("plan", question, *QUICK, "-o", model)
    solved = read("solve", model, *QUICK)
    assert solved["result"]["value"] == pytest.approx(tree["result"]["value"], rel=0.05)


def test_where_nothing_fits(question: str) -> None:
    shown = run("plan", question, "--set", "cluster.memory=0.01", code=3).stdout
    assert "GiB) are missing" in shown
    assert "device 0" in shown
    tree = json.loads(run("plan", question, "--set", "cluster.memory=0.01", "--json", code=3).stdout)
    assert (tree["plans"], tree["reason"], tree["space"]["over_memory"]) == ([], "infeasible", 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "search.tensr=2"), "search.tensr"),
        (("--set", "training.zero=7"), "training.zero"),
        (("-o", "best.txt"), ".json or .toml"),
        (("--set", "search.pipeline=[3]"), "no combination"),
    ],
)
def test_usage_errors(question: str, words: tuple[str, ...], said: str) -> None:
    assert said in refused("plan", question, *words)


def test_a_store_and_its_results(question: str, tmp_path: Path) -> None:
    store = str(tmp_path / "plan.db")
    first: Any = read("plan", question, *QUICK, "--store", store)
    again: Any = read("plan", question, *QUICK, "--store", store)
    assert first["plans"][0] == again["plans"][0]
    rows = json.loads(run("results", store, "--where", "plan.pipeline=2", "--sort", "step_time", "--json").stdout)["results"]
    times = [row["outcome"]["step_time"] for row in rows if row["outcome"].get("step_time") is not None]
    assert times == sorted(times)
    assert len(json.loads(run("results", store, "--top", "1", "--json").stdout)["results"]) == 1
    assert "nosuch" in refused("results", store, "--sort", "nosuch")
    assert "condition" in refused("results", store, "--where", "step_time")
