"""Many numbers of microbatches at once: on the command line, and as a study."""

import json

import pytest
from click.testing import CliRunner

from ppopt.checker import violations
from ppopt.cli import main
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import solve


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_each_point_is_the_optimum() -> None:
    """Room for all on three devices: the work of a device and two units of idle time, whatever M is."""
    results = solve(Pipeline(3, [300, 6, 30, 6], memory=Memory(limit=3)), seconds=60, workers=1).points
    assert [result.pipeline.microbatches for result in results] == [6, 30, 300]
    for result in results:
        assert result.reason == "optimal"
        assert result.schedule is not None
        assert result.value == 3 * result.pipeline.microbatches + 2
        assert violations(result.pipeline, result.schedule) == []


@pytest.mark.slow
def test_what_was_found_is_where_the_next_begins() -> None:
    costs = Costs(forward=185, backward_input=181, backward_weight=93)
    pipeline = Pipeline(4, [400, 900], placement="wave", chunks=2, costs=costs, links=Links(6), memory=Memory(limit=3))
    first, second = solve(pipeline, seconds=60, workers=1).points
    assert first.periodic is not None
    assert second.value is not None
    promised = first.periodic.makespan_for((900,))
    assert promised is not None
    assert second.ticks.value <= promised


def test_json_has_a_point_for_each() -> None:
    code, text, _ = run("solve", "-d", "3", "-m", "4..17", "--memory-limit", "3", "--workers", "1", "--json")
    assert code == 0
    tree = json.loads(text)
    assert [point["microbatches"] for point in tree["points"]] == [4, 8, 16]
    assert [point["result"]["value"] for point in tree["points"]] == [14, 26, 50]
    assert all(point["result"]["lower_bound"] == point["result"]["value"] for point in tree["points"])
    assert all(len(point["schedule"]["order"]) == 3 for point in tree["points"])


def test_the_table_shows_value_and_proof() -> None:
    code, text, progress = run("solve", "-d", "3", "-m", "8,4", "--memory-limit", "3", "--workers", "1")
    assert code == 0
    rows = [line.split() for line in text.splitlines() if line.split() and line.split()[0] in ("4", "8")]
    assert [row[:4] for row in rows] == [["4", "14", "14", "0.000"], ["8", "26", "26", "0.000"]]
    assert progress.index("4 microbatches") < progress.index("8 microbatches")


@pytest.mark.parametrize("text", ["8..4", "0..4", "8..", "..8", "4,x", "", "4..8..16", "4,0"])
def test_what_is_no_number_of_microbatches(text: str) -> None:
    code, _, error = run("solve", "-d", "3", "-m", text)
    assert code == 2
    assert "--microbatches" in error


@pytest.mark.parametrize("flag", [("--verify", "a second opinion"), ("--export-model", "a model")])
def test_what_is_for_one_number_only(flag: tuple[str, str]) -> None:
    code, _, error = run("solve", "-d", "3", "-m", "4,8", flag[0], *["model.txt"] * (flag[0] == "--export-model"))
    assert code == 2
    assert f"{flag[1]} is for one number of microbatches; got 2" in error
