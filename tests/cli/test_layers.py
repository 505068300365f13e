"""Layers at the command line."""

import json
from pathlib import Path

import pytest

from tests.support.command import read, refused, run, solve
from tests.support.layered import TEXT


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "model.toml").write_text(TEXT)
    return str(tmp_path / "model.toml")


def test_solve_decides_the_partition(model: str) -> None:
    """No cut near it does better when it is written out, and it does as well itself; the file leaves it open."""
    found = solve(model)
    result = found["result"]
    assert result["reason"] == "optimal"
    assert result["scope"] == {"placements": ["linear"], "chunks": [1], "partition": "best", "recompute": "none"}
    assert found["model"]["pipeline"]["partition"] == result["partition"]
    assert result["placements"][0]["partition"] == result["partition"]
    values = {cut: solve(model, "--partition", ",".join(map(str, cut)))["result"] for cut in ((2, 5), (3, 4), (4, 3))}
    assert all(value["reason"] == "optimal" for value in values.values())
    assert result["value"] == result["lower_bound"] == min(value["value"] for value in values.values())
    assert values[tuple(result["partition"])]["value"] == result["value"]


@pytest.mark.parametrize(("partition", "counts"), [("even", [4, 3]), ("balanced", [4, 3]), ("best", [4, 3]), ("0,7", [0, 7])])
def test_a_partition_that_is_given(partition: str, counts: list[int], model: str) -> None:
    found = solve(model, "--partition", partition)
    assert found["result"]["partition"] == counts
    assert found["model"]["pipeline"]["partition"] in (counts, partition)
    assert ("scope" in found["result"]) == (partition == "best")


def test_rows_have_their_own_partition(model: str) -> None:
    """On two chunks there are four stages; what a row has adds up to all layers."""
    for document in (solve(model), read("compare", model)):
        rows = {row["schedule"]: row for row in document["named"] if row["excluded"] is None}
        assert len(rows["1f1b"]["partition"]) == 2
        assert len(rows["interleaved-1f1b"]["partition"]) == 4
        assert all(sum(row["partition"]) == 7 for row in rows.values())
        assert all(row["partition"] is None for row in document["named"] if row["excluded"] is not None)


def test_without_layers_there_is_no_partition() -> None:
    found = solve("-d", "2", "-m", "4")
    assert "partition" not in found["result"]
    assert {row["partition"] for row in found["named"]} == {None}


def test_compare_takes_the_balanced_cut_of_an_open_one(model: str) -> None:
    own, balanced = read("compare", model)["named"], read("compare", model, "--partition", "balanced")["named"]
    assert own == balanced
    even = {row["schedule"]: row for row in read("compare", model, "--partition", "even")["named"]}
    assert even["interleaved-1f1b"]["partition"] == [3, 1, 1, 2]


def test_what_is_open_is_refused_elsewhere(model: str, tmp_path: Path) -> None:
    order = tmp_path / "order.csv"
    order.write_text(run("order", "1f1b", model, "--partition", "even").stdout)
    for command in (
        ["order", "1f1b", model],
        ["check", str(order), model],
        ["export", str(order), model, "--to", "torch-csv"],
        ["plot", str(order), "--model", model, "-o", str(tmp_path / "x.svg")],
    ):
        error = refused(*command)
        assert 'pipeline.partition: "best" is left open, which only solve settles' in error
        assert "Traceback" not in error
    assert not (tmp_path / "x.svg").exists()


def test_a_result_is_settled_and_goes_everywhere(model: str, tmp_path: Path) -> None:
    best = str(tmp_path / "best.json")
    run("solve", model, "-o", best, "--workers", "1", "--time-limit", "60")
    assert read("check", best) == {"violations": []}
    run("plot", best, "-o", tmp_path / "best.svg")
    assert run("export", best, "--to", "torch-csv").stdout
    document = json.loads(Path(best).read_text())
    document["result"]["partition"][0] += 1
    counts = document["model"]["pipeline"]["partition"]
    document["model"]["pipeline"]["partition"] = [counts[0] + 1, counts[1] - 1]
    Path(best).write_text(json.dumps(document))
    assert json.loads(run("check", best, "--json", code=1).stdout)["violations"]  # these are the times of another cut


def test_placement_and_chunks_open_too(model: str) -> None:
    result = solve(model, "--placement", "any")["result"]
    assert result["scope"] == {
        "placements": ["linear", "loop", "wave"],
        "chunks": [1, 2],
        "partition": "best",
        "recompute": "none",
    }
    assert [len(placed["partition"]) for placed in result["placements"]] == [2, 4, 4]
    assert result["lower_bound"] <= min(placed["value"] for placed in result["placements"] if placed["value"] is not None)


def test_a_level_by_its_name(model: str) -> None:
    plain, full = (solve(model, "--partition", "3,4", "--recompute", level) for level in ("none", "full"))
    assert full["metrics"]["work"] == [
        value + 4 * 3 * layers for value, layers in zip(plain["metrics"]["work"], (2, 3), strict=True)
    ]


def test_bad_partitions(model: str) -> None:
    for partition, message in (
        ("evne", "expected even, balanced, best, the layers of each stage (11,10,10,11), a layout of Megatron"),
        ("3,3", "--partition: pipeline.partition: expected the numbers to add up to 7 layers, got 6"),
        ("3,3,1", "expected one number per stage (2), got 3"),
        ("8,-1", "pipeline.partition[1]: expected a whole number >= 0 of layers, got -1"),
    ):
        assert message in refused("solve", model, "--partition", partition)
    assert "there are no layers to cut" in refused("solve", "-d", "2", "-m", "4", "--partition", "even")
    assert "costs.forward: follows from [[layers]]" in refused("solve", model, "--set", "costs.forward=1")


def test_a_limit_that_no_cut_meets(model: str) -> None:
    """Fourteen and more of weights, and activations: 12 are too few on any cut."""
    found = solve(model, "--memory-limit", "12", code=3)
    assert found["result"]["reason"] == "infeasible"
    assert found["schedule"] is None


def test_a_search_that_is_stopped_at_once_has_a_bound(model: str) -> None:
    """The devices share the work of all layers: four microbatches of 1 + 5 9 + 6 and the embedding's 1, on two devices."""
    result = read("solve", model, "--time-limit", "0.001", "--workers", "1")["result"]
    assert result["lower_bound"] >= 4 * (2 + 5 * 9 + 6) / 2


def test_the_answer_shows_the_cut_and_what_recomputes(model: str) -> None:
    shown = run("solve", model, "--partition", "4,3", "--time-limit", "5").stdout
    assert "layers of each stage: 4, 3\n" in shown
    assert "recompute" not in shown.split("Named schedules")[0]
