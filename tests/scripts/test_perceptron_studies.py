"""The studies of perceptrons: tables, pictures, and what their options name."""

import csv
import importlib
from pathlib import Path
from types import ModuleType

import pytest

from ppopt.perceptron import COST_MODELS, Grid, Perceptron, grids, simulate
from tests.support.tiers import thorough


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def run(name: str, folder: Path, *options: str, table: str = "") -> list[dict[str, str]]:
    script(name).main([*options, "-o", str(folder)])
    for picture in folder.glob("*.png"):
        assert 10_000 < picture.stat().st_size < 200_000
    assert list(folder.glob("*.png"))
    return rows(folder / f"{table or name}.csv")


def test_the_grid_is_in_the_order_of_its_throughput(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("perceptron_grid", tmp_path, "--quick", "--microbatches", "2", "--top", "4")
    sizes = Perceptron(8, 8192, 8192)
    assert len(found) == len(list(grids(sizes, 4, [2])))
    assert [row["seconds"] for row in found] == sorted((row["seconds"] for row in found), key=float)
    best = found[0]
    grid = Grid(*(int(best[name]) for name in ("data", "tensor", "pipeline", "microbatches")))
    model = COST_MODELS["dist-ir-2021-02"].as_published
    assert float(best["throughput"]) == simulate(sizes, grid, model).throughput
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["2", "2", "1", "1"]
    assert sum("pipedream" in line for line in lines) == 1
    assert found[3]["pipeline"] == "2"


def test_panels_have_a_line_for_each_number_of_microbatches() -> None:
    module, model = script("perceptron_grid"), COST_MODELS["dist-ir-2022-01"]
    found = module.searched(Perceptron(4, 64, 64), 4, model, "1f1b", [2, 4])
    panels = module.panels_of(found)
    assert list(panels) == ["one replica", "2 replicas", "4 replicas"]
    x, lines = panels["one replica"]
    assert x == [1, 2, 4]
    assert list(lines) == ["one stage", "2 microbatches", "4 microbatches"]
    assert lines["one stage"][:2] == [None, None]
    assert lines["2 microbatches"][2] is None
    assert all(lines[name][1] for name in list(lines)[1:])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--quirks", "none"], ()),
        (["--quirks", "send-twice,blocking"], ("blocking", "send-twice")),
        (["--quirks", "steady"], ("blocking", "elementwise-over-flops", "gradients-in-tensor-group", "send-twice")),
        (["--cost-model", "dist-ir-2022-01", "--gbit", "100"], ("blocking",)),
    ],
)
def test_options_name_a_cost_model(options: list[str], expected: tuple[str, ...]) -> None:
    module = script("perceptrons")
    model = module.model_of(module.parser_of("", "all").parse_args(options))
    assert tuple(sorted(model.quirks)) == expected
    assert model.gbit == (100 if "--gbit" in options else 200)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quirks", "blockin"], "has no 'blockin'; did you mean blocking"),
        (["--cost-model", "dist-ir"], "there is no 'dist-ir'"),
        (["--devices", "7"], "no grid of 7 devices divides"),
        (["--layers", "0"], "perceptron.layers: expected a whole number"),
        (["--schedule", "zb-v", "--layers", "2", "--devices", "2"], "expected a schedule of the linear placement"),
    ],
)
def test_what_cannot_be_is_an_error(options: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        script("perceptron_grid").main(
            [*options, "--width", "8"] if "--layers" in options else [*options, "--layers", "6", "--width", "8"]
        )


@thorough
def test_each_kind_of_parallelism_alone(tmp_path: Path) -> None:
    found = run("isolated_parallelism", tmp_path, "--quick")
    assert len(found) == len(script("isolated_parallelism").cases(True)) == 12
    for kind in ("data", "tensor", "pipeline"):
        throughput = [float(row["throughput"]) for row in found if row["kind"] == kind]
        assert throughput[1] > throughput[0]
        assert throughput[3] > throughput[2]


@thorough
def test_the_time_of_a_simulation(tmp_path: Path) -> None:
    found = run("simulator_speed", tmp_path, "--quick")
    assert [row["operations"] for row in found] == ["130", "258", "514"]
    assert all(float(row["program_ms"]) > 0 and float(row["schedule_ms"]) > 0 for row in found)


def test_the_frontier_has_what_no_other_beats_in_both() -> None:
    module = script("memory_throughput")
    points = [module.Point(*point, "") for point in ((2, 5), (1, 3), (3, 4), (2, 6), (4, 6), (5, 7))]
    assert [(point.memory, point.throughput) for point in module.frontier(points)] == [(1, 3), (2, 6), (5, 7)]


@thorough
def test_throughput_against_memory(tmp_path: Path) -> None:
    found = run("memory_throughput", tmp_path, "--quick")
    assert {row["kind"] for row in found} == {
        "data",
        "tensor",
        "pipeline",
        "data + tensor",
        "data + pipeline",
        "tensor + pipeline",
    }


@thorough
def test_throughput_against_memory_of_a_plan(tmp_path: Path) -> None:
    question = tmp_path / "small.toml"
    sizes = "layers = 4\nhidden = 1024\nheads = 16\nffn = 2816\nvocabulary = 32000\nsequence = 1024"
    cluster = 'gpu = "h100-sxm"\ngpus = 4'
    question.write_text(f"[transformer]\n{sizes}\n[training]\nglobal_batch = 8\nmicrobatch = 1\n[cluster]\n{cluster}\n")
    found = run("memory_throughput", tmp_path, str(question), table="memory_throughput_small")
    assert {"data", "tensor", "pipeline", "context"} <= {row["kind"] for row in found}
    assert all(0 < float(row["peak_memory_gb"]) <= 80 for row in found)
    with pytest.raises(SystemExit, match="no combination has a schedule that fits"):
        script("memory_throughput").main([str(question), "--schedule", "zb-v", "-o", str(tmp_path)])
