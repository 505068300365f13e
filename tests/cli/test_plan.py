"""``ppopt plan``: what it prints, writes and says where nothing fits; ``results`` of its store."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ppopt.cli import planned
from ppopt.cli.render import say
from ppopt.files.toml_text import toml_text
from ppopt.files.torch_check import violations
from ppopt.files.torch_csv import rows_of_text
from ppopt.study.planning import plan, steps
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


def test_a_result_says_how_long_it_took(question: str, tmp_path: Path) -> None:
    result = str(tmp_path / "best.json")
    tree = read("plan", question, *QUICK, "-o", result)
    found = json.loads(Path(result).read_text(encoding="utf-8"))["result"]
    assert 0 < found["seconds"] == pytest.approx(tree["seconds"], abs=1e-3)


def test_only_what_a_runtime_runs(question: str) -> None:
    tree = read("plan", question, *QUICK, "--runtime", "megatron")
    assert {one["schedule"] for one in tree["plans"]} == {"1f1b"}
    assert tree["runtime"]["name"] == "megatron"
    assert tree["runtime"]["unrestricted"]["step_time"] <= tree["plans"][0]["step_time"]
    shown = run("plan", question, *QUICK, "--runtime", "megatron").stdout
    assert "Nothing that Megatron runs in these 2 combinations" in shown
    assert "best that is known without the restriction" in shown


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_tables_fit_the_terminal(
    question: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = plan(question, seconds=20, workers=1)
    monkeypatch.setenv("COLUMNS", str(columns))
    say(planned.report(plans, 10))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert sum(line.startswith("T1 P2") for line in lines) >= len(plans)  # no row is folded


def test_an_interrupted_plan_says_how_to_go_on(question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, take = [], steps.take

    def interrupted(leaf: Any, kind: str, *rest: Any) -> Any:
        taken.append(kind)
        if len(taken) > 1:
            raise KeyboardInterrupt
        return take(leaf, kind, *rest)

    monkeypatch.setattr(steps, "take", interrupted)
    store, result = str(tmp_path / "plan.db"), str(tmp_path / "best.json")
    shown = run("plan", question, *QUICK, "--store", store, "-o", result)
    assert "interrupted)" in shown.stdout
    assert f"go on with: ppopt plan {question}" in shown.stderr
    assert f"--store {store}" in shown.stderr
    assert run("check", result).exit_code == 0
    monkeypatch.setattr(steps, "take", lambda *_: pytest.fail("not reached") if len(taken) < 1 else take(*_))
    assert read("plan", question, *QUICK, "--store", store)["reason"] == "optimal"


def test_an_interrupted_plan_without_anything(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "take", interrupted)
    shown = run("plan", question, *QUICK, code=130).stdout
    assert "2 were not looked at" in shown


def test_dask_that_is_not_installed(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "ppopt-pipeline[dask]" in refused("plan", question, "--dask", "tcp://127.0.0.1:1")


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
        (("--set", "search.runtime=nosuch"), "search.runtime"),
        (("--runtime", "megatron-interleaved"), "megatron-interleaved runs none"),
        (("--dask", "tcp://127.0.0.1:1", "--deterministic"), "--deterministic"),
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
