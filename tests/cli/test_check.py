"""``ppopt check``: violations in results and orders, also those that were put there."""

import json
from pathlib import Path
from typing import Any

import pytest

from ppopt.named import NAMED
from tests.support.command import read, run
from tests.support.places import MODELS


def rows(*args: str) -> dict[tuple[str, int], dict[str, Any]]:
    tree = read("compare", *args)
    assert tree["result"] is tree["schedule"] is tree["metrics"] is None
    return {(row["schedule"], row["chunks"]): row for row in tree["named"]}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "zb-h1.json"
    path.write_text(run("order", "zb-h1", str(MODELS / "zb-h1.toml"), "--json").stdout)
    return path


def violations(*args: str, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("check", *args, "--json", code=1, **more).stdout)["violations"]
    for violation in found:
        assert violation.keys() == {"rule", "device", "op", "time", "message"}
    return found


@pytest.mark.parametrize("name", NAMED)
def test_orders_and_results_of_the_library_check_out(name: str) -> None:
    order = run("order", name, "-d", "4", "-m", "8").stdout
    assert read("check", "-", stdin=order) == {"violations": []}
    result = run("order", name, "-d", "4", "-m", "8", "--json").stdout
    assert run("check", "-", stdin=result).stdout == "-: no violation\n"


def test_check_holds_a_result_to_another_model(recorded: Path) -> None:
    run("check", str(recorded))
    assert {v["rule"] for v in violations(str(recorded), "--memory-limit", "3")} == {"memory"}
    assert {v["rule"] for v in violations(str(recorded), str(MODELS / "zb-h1.toml"), "--memory-limit", "3,4,4,4")} == {"memory"}
    assert "duration" in {v["rule"] for v in violations(str(recorded), "--set", "costs.forward=2")}


def edited(path: Path, edit: Any) -> str:
    tree = json.loads(path.read_text())
    edit(tree)
    return json.dumps(tree)


def shift_the_last_op(tree: Any) -> None:
    tree["schedule"]["start"][0][-1] += 1
    tree["schedule"]["end"][0][-1] += 1


def swap_two_ops(tree: Any) -> None:
    row = tree["schedule"]["order"][3]
    row[0], row[1] = row[1], row[0]


EDITS = {
    "a figure": (lambda tree: tree["metrics"].update(makespan=26), "metric"),
    "a ratio": (lambda tree: tree["metrics"].update(overhead=0.1), "metric"),
    "a peak": (lambda tree: tree["metrics"]["peak_memory"].__setitem__(2, 3), "metric"),
    "a later start": (shift_the_last_op, "late"),
    "another order": (swap_two_ops, "data"),
    "an op away": (lambda tree: [rows[1].pop() for rows in tree["schedule"].values()], "missing"),
    "an op renamed": (lambda tree: tree["schedule"]["order"][2].__setitem__(0, "2F99"), "unknown"),
    "a bound above the value": (lambda tree: tree.update(result=outcome(lower_bound=28)), "bound"),
    "an optimum that is none": (lambda tree: tree.update(result=outcome(lower_bound=26)), "bound"),
    "a value": (lambda tree: tree.update(result=outcome(value=26, lower_bound=26)), "metric"),
}


def outcome(**changes: Any) -> dict[str, Any]:
    known = {"reason": "optimal", "limit": None, "objective": "makespan", "value": 27, "lower_bound": 27, "gap": 0.0}
    return {**known, "proved_by": "x", "seconds": 0.1, "seed": 0, "versions": {}, **changes}


@pytest.mark.parametrize("name", EDITS)
def test_check_finds_what_was_edited(recorded: Path, name: str) -> None:
    edit, rule = EDITS[name]
    assert rule in {v["rule"] for v in violations("-", stdin=edited(recorded, edit))}


ORDERS = {
    "deadlock": ("0F0,0B0\n1B0,1F0\n", "data"),
    "missing": ("0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n", "missing"),
    "twice": ("0F0,0B0,0F0\n1F0,1B0\n", "twice"),
    "elsewhere": ("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1\n".replace("0B2", "0B2,1B2"), "device"),
    "both backwards": ("0F0,0B0,0I0,0W0\n", "both-backwards"),
    "a weight gradient alone": ("0F0,0W0\n", "w-without-i"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_check_finds_what_is_wrong_with_an_order(name: str) -> None:
    order, rule = ORDERS[name]
    assert rule in {v["rule"] for v in violations("-", stdin=order)}


def test_an_order_with_a_mistake_and_a_deadlock_is_checked_to_the_end() -> None:
    found = violations("-", stdin="0F0,0B0,0F1\n1B0,1F0,1F1,1B1\n")
    assert {"missing", "data"} <= {v["rule"] for v in found}


def test_check_prints_violations_for_people(recorded: Path) -> None:
    shown = run("check", "-", stdin="0F0,0B0\n1B0,1F0\n", code=1).stdout
    assert shown == "data: the order deadlocks: 1B0 waits for 1F0 waits for 1B0\n1 violation\n"


def test_check_infers_two_routes() -> None:
    order = run("order", "dualpipe", "-d", "4", "-m", "8").stdout
    broken = order.replace("0F0,0F1", "0F1,0F0", 1)
    assert broken != order
    assert read("check", "-", stdin=broken) == {"violations": []}  # the microbatches are alike
    assert "device" in {
        v["rule"]
        for v in violations("-", stdin=order.replace("0F0,", "", 1).replace("\n", ",0F0\n", 2).replace(",0F0\n", "\n", 1))
    }


def test_check_needs_a_schedule_and_a_file(tmp_path: Path) -> None:
    comparison = run("compare", "-d", "2", "-m", "2", "--json").stdout
    assert run("check", "-", stdin=comparison, code=2).stderr == "Error: <stdin>: schedule: there is none to check\n"
    assert "row 0, column 1: expected an action" in run("check", "-", stdin="0F0,hello\n", code=2).stderr
    assert "empty" in run("check", "-", stdin="", code=2).stderr
    assert "not a JSON file" in run("check", "-", stdin="{", code=2).stderr
    assert "cannot be read: No such file" in run("check", str(tmp_path / "none.csv"), code=2).stderr


@pytest.mark.parametrize(
    ("sizes", "rule", "model"),
    [
        (["-d", "4", "-m", "16"], "missing", "4 devices, 4 stages and 16 microbatches"),
        (["-d", "2", "-m", "8"], "unknown", "2 devices, 2 stages and 8 microbatches"),
        (["-d", "8", "-m", "8"], "missing", "8 devices, 8 stages and 8 microbatches"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_whole_schedule_of_other_sizes_is_said_once(form: str, sizes: list[str], rule: str, model: str, tmp_path: Path) -> None:
    file = tmp_path / f"order.{form}"
    file.write_text(run("order", "1f1b", "-d", 4, "-m", 8, *["--json"] * (form == "json")).stdout)
    (found,) = violations(str(file), *sizes)
    assert (found["rule"], found["device"], found["time"]) == (rule, None, None)
    assert found["message"] == f"the schedule has 4 devices, 4 stages and 8 microbatches; the model has {model}"
    assert run("check", file, "-d", 4, "-m", 8).stdout == f"{file}: no violation\n"


def test_a_part_of_a_schedule_is_no_schedule_of_other_sizes(tmp_path: Path) -> None:
    """An operation that is missing, and one microbatch too many on a single stage, are named."""
    order = run("order", "gpipe", "-d", 2, "-m", 3).stdout
    assert "0F1" in {v["op"] for v in violations("-", "-m", "4", stdin=order.replace("0F1,", ""))}
    extra = order.replace("0F2,", "0F2,0F3,")
    assert {v["op"] for v in violations("-", "-d", "2", "-m", "3", stdin=extra)} == {"0F3"}
