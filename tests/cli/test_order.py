"""``ppopt order``: the order of a named schedule."""

from typing import Any

import pytest

from ppopt.files.torch_csv import rows_of_text
from ppopt.named import NAMED
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order
from tests.support.command import read, run
from tests.support.places import MODELS


def rows(*args: str) -> dict[tuple[str, int], dict[str, Any]]:
    tree = read("compare", *args)
    assert tree["result"] is tree["schedule"] is tree["metrics"] is None
    return {(row["schedule"], row["chunks"]): row for row in tree["named"]}


@pytest.mark.parametrize("name", NAMED)
def test_an_order_is_csv_that_reads_back(name: str) -> None:
    result = run("order", name, "-d", "4", "-m", "8")
    expected = NAMED[name].schedule(Pipeline(4, 8))
    rows = rows_of_text(result.stdout, "stdout")
    assert Order.of(expected.pipeline, rows) == expected.order  # type: ignore[arg-type]
    routes, elsewhere = len(expected.pipeline.routes), bool(expected.pipeline.backward_routes)
    assert ("two routes" in result.stderr) == (routes == 2 and not elsewhere)
    assert ("backwards run on other devices" in result.stderr) == elsewhere
    assert (f"{routes} routes;" in result.stderr) == (routes > 2)


def test_order_as_json_has_the_times_and_no_result() -> None:
    tree = read("order", "interleaved", "-d", "4", "-m", "8")
    assert tree["result"] is None
    assert tree["metrics"]["makespan"] == 28.5
    assert (tree["model"]["pipeline"]["schedule"], tree["model"]["pipeline"]["chunks"]) == ("interleaved-1f1b", 2)


def test_order_takes_parameters_from_the_model_and_the_command_line() -> None:
    path = str(MODELS / "interleaved-1f1b.toml")
    assert read("order", "interleaved-1f1b", path)["model"]["pipeline"]["schedule_params"] == {"group_size": 4}
    tree = read("order", "interleaved-1f1b", path, "--param", "group_size=8", "--memory-limit", "none")
    assert tree["model"]["pipeline"]["schedule_params"] == {"group_size": 8}
    assert max(tree["metrics"]["peak_memory"]) == 7.5


def test_order_over_the_memory_limit_is_printed_with_a_warning() -> None:
    result = run("order", "gpipe", "-d", "2", "-m", "3", "--memory-limit", "2")
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr == ("Warning: gpipe exceeds the memory limit: device 0 holds 3 of 2, device 1 holds 3 of 2\n")


def test_order_over_the_limit_of_the_host_is_printed_with_a_warning() -> None:
    given = ("-d", "2", "-m", "3", "--set", "offload.time=1", "--set", 'offload.stages="all"', "--set", "offload.host_limit=0.5")
    result = run("order", "1f1b", *given)
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.startswith("Warning: 1f1b exceeds the memory limit: the host holds ")
