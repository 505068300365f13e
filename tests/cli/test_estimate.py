"""``ppopt estimate``: JSON, tables, model files, fits."""

import json
import sys
from pathlib import Path

import pytest

from ppopt.transformer import cross_check
from tests.support.command import read, refused, run
from tests.support.fresh import heavy_after
from tests.support.places import MODELS
from tests.support.transformers import costs

TRAINING = MODELS / "training" / "llama-3-70b.toml"
LLAMA = MODELS / "configs" / "llama-3-8b.json"
SIZED = ("--set", "transformer.sequence=4096")


def test_the_json_has_the_documented_names() -> None:
    found = read("estimate", LLAMA, *SIZED, "--set", "cluster.gpu=h100-sxm")
    assert {"parameters", "active_parameters", "flops_per_token", "boundary_bytes", "layers"} <= set(found)
    assert found["parameters"] == 8030261248
    for layer in found["layers"]:
        assert {"name", "count", "parameters", "flops", "time", "activation_bytes", "retained_bytes", "state_bytes"} <= set(layer)
        assert set(layer["flops"]) == set(layer["time"]) == {"F", "I", "W"}
        assert set(layer["activation_bytes"]) == {"none", "selective", "full"}
        assert all(isinstance(value, int) for value in layer["flops"].values())
    assert found["boundary_bytes"] == 2 * 4096 * 4096


@pytest.mark.parametrize("entry", costs("flop-count"), ids=lambda entry: str(entry["model"]))
def test_flops_are_those_that_pytorch_counts(entry: dict[str, int]) -> None:
    name, layers = str(entry["model"]).lower().split(", ")
    given = [f"transformer.layers={layers.split()[0]}", f"transformer.sequence={entry['sequence']}"]
    given += [f"training.microbatch={entry['microbatch']}", "training.attention=unfused"]
    found = read("estimate", MODELS / "configs" / f"{name}.json", *(word for each in given for word in ("--set", each)))
    for op, key in {"F": "forward", "I": "backward_input", "W": "backward_weight"}.items():
        assert sum(layer["count"] * layer["flops"][op] for layer in found["layers"]) == entry[key]


def test_what_is_not_known_is_null() -> None:
    bare = read("estimate", LLAMA)
    assert bare["parameters"] == 8030261248
    assert bare["flops_per_token"] is bare["layers"][1]["flops"]["F"] is bare["layers"][1]["time"]["F"] is None
    assert bare["layers"][1]["state_bytes"] == 18 * bare["layers"][1]["parameters"]
    sized = read("estimate", LLAMA, *SIZED)
    assert sized["layers"][1]["flops"]["F"] > 0
    assert sized["layers"][1]["time"]["F"] is None


def test_tables_for_people() -> None:
    bare = run("estimate", LLAMA).stdout
    assert "8,030,261,248 parameters" in bare
    assert "FLOPs, bytes and times need a sequence" in bare
    assert "Times need a GPU" in run("estimate", LLAMA, *SIZED).stdout
    assert "passes 1.7 (4.4 in I), link efficiency 0.7; fitted to layers" in run("estimate", TRAINING).stdout
    told = run("estimate", TRAINING, "--explain").stdout
    for words in (
        "What times are made of",
        "log-sum-exp",
        "stages of a run take longer",
        "recompute full",
        "What goes to other GPUs",
        "from I to W",
    ):
        assert words in told
    experts = run("estimate", MODELS / "configs" / "gpt-oss-20b.json", *SIZED).stdout
    rows = [line.split()[:3] for line in experts.splitlines() if "decoder" in line]
    assert rows == [["sliding", "decoder", "12"], ["decoder", "12", "823,186,976"]]
    assert "more for multi-token prediction" in run("estimate", MODELS / "configs" / "deepseek-v3.json").stdout


def test_the_model_file_is_used(tmp_path: Path) -> None:
    model = tmp_path / "model.toml"
    assert run("estimate", TRAINING, "-o", model).stdout == ""
    rows = {row["schedule"]: row for row in read("compare", model, "--partition", "even", "-m", 8)["named"]}
    assert rows["1f1b"]["makespan"] > rows["zb-h1"]["makespan"]
    result = read("order", "1f1b", model, "--partition", "balanced", "-m", 8)
    assert result["model"]["transformer"]["hidden"] == 8192
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert "no violation" in run("check", tmp_path / "result.json").stdout


def test_json_and_a_model_file_at_once(tmp_path: Path) -> None:
    found = read("estimate", TRAINING, "-o", tmp_path / "model.toml")
    assert found["layers"][1]["name"] == "decoder"
    assert (tmp_path / "model.toml").exists()


def test_a_fit(tmp_path: Path) -> None:
    table = tmp_path / "times.csv"
    table.write_text("label,forward,backward_input,backward_weight,training.microbatch\na,10,11,8,1\nb,19,21,16,2\n")
    given = ("estimate", TRAINING, "--calibrate", table)
    shown = run(*given).stdout
    assert "all: mean error" in shown
    assert 'basis = "fitted to times.csv"' in shown
    assert "launch = " in run(*given, "--fit", "efficiency,launch").stdout
    assert "got 'speed'" in refused(*given, "--fit", "speed")
    result = run(*given, "--json", "-o", tmp_path / "model.toml")
    assert "[cluster]" in result.stderr
    json.loads(result.stdout)
    text = (tmp_path / "model.toml").read_text()
    assert "fitted to times.csv" in text
    assert "efficiency = " in text
    table.write_text("label,forward\na,10\n")
    assert "1 measured times do not fix" in refused(*given)


@pytest.mark.parametrize(("library", "code"), [(100, 0), (101, 1)])
def test_a_count_that_differs_from_the_librarys_is_a_failure(library: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_check, "cross_check", lambda config: [cross_check.Count("parameters", library, 100)])
    shown = run("estimate", LLAMA, "--cross-check", code=code).stdout
    assert shown.splitlines()[-1].split() == ["parameters", str(library), "100", "-1" if code else "0"]


def test_without_the_library_there_is_nothing_to_compare_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "needs the extra hf: pip install 'ppopt-pipeline[hf]'" in refused("estimate", LLAMA, "--cross-check")
    sizes = tmp_path / "sizes.toml"
    sizes.write_text("[transformer]\nlayers = 2\n")
    assert "transformer.config: missing; the comparison is about a config.json" in refused("estimate", sizes, "--cross-check")


def test_wrong_input_is_one_line() -> None:
    assert refused("estimate", LLAMA, "--set", "cluster.gpu=h100").startswith(
        "Error: --set cluster.gpu=h100: cluster.gpu: there is no"
    )
    assert "transformer.sequence: expected a whole number" in refused("estimate", LLAMA, "--set", "transformer.sequence=0")
    assert "training.global_batch: missing" in refused("estimate", LLAMA, *SIZED, "--set", "cluster.gpu=h200", "-o", "model.toml")
    assert "cannot be read" in refused("estimate", "nothing.json")
    message = refused("estimate", "-", stdin='{"model_type": "mamba2"}')
    assert message.startswith("Error: <stdin>: model_type: 'mamba2' is not known")


def test_it_needs_neither_numpy_nor_torch() -> None:
    code = (
        "from ppopt.transformer import Cluster, Training, Transformer, estimate\n"
        "estimate(Transformer(2, 64, 4, 100, 128), Training(32), cluster=Cluster('h200'))"
    )
    assert heavy_after(code) == set()
