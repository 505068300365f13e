"""The result file: fixed names, exact numbers, read strictly, written whole or not at all."""

import json
import os
import stat
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ppopt.files import FileError, Model, ResultError, document, json_text, read_result, read_text, write_text
from ppopt.files.carried import times
from ppopt.files.result import result_of_text
from ppopt.named import NAMED, compare
from ppopt.pipeline import Costs, Memory, Pipeline
from tests.support.shown import SHOWN


@cache
def compared() -> dict[str, Any]:
    """A schedule beside all named ones."""
    schedule = NAMED["zb-h1"].schedule(Pipeline(4, 8, memory=Memory(limit=Fraction(4))))
    return document(Model(schedule.pipeline), schedule=schedule, named=compare(schedule.pipeline))


def tree(**changes: Any) -> dict[str, Any]:
    return {**compared(), **changes}


def test_the_names_are_those_of_the_contract() -> None:
    written = json.loads(json_text(tree()))
    assert list(written) == ["ppopt", "format", "model", "result", "schedule", "metrics", "named"]
    assert (written["format"], written["result"]) == (1, None)
    assert written["schedule"].keys() == {"order", "start", "end"}
    assert written["schedule"]["order"][0][:5] == ["0F0", "0F1", "0F2", "0F3", "0I0"]
    metrics = written["metrics"]
    assert (metrics["makespan"], metrics["device_span"]) == (27, 27)
    assert (metrics["work"], metrics["peak_memory"]) == ([24] * 4, [4] * 4)
    assert metrics["bubble_ratio"] == metrics["span_bubble_ratio"] == pytest.approx(1 / 9)
    assert metrics["overhead"] == 0.125
    rows = {row["schedule"]: row for row in written["named"]}
    names = {
        "schedule",
        "placement",
        "chunks",
        "makespan",
        "device_span",
        "bubble_ratio",
        "peak_memory",
        "within_memory",
        "excluded",
    }
    assert all(row.keys() >= names for row in rows.values())
    assert rows["1f1b"]["makespan"] == 33
    assert rows["interleaved-1f1b"]["makespan"] == 28.5
    assert max(rows["interleaved-1f1b"]["peak_memory"]) == 5.5
    assert (rows["gpipe"]["within_memory"], rows["1f1b"]["within_memory"]) == (False, True)


def test_an_excluded_row_says_why_and_has_no_figures() -> None:
    (row,) = [
        row for row in document(Model(Pipeline(3, 5)), named=compare(Pipeline(3, 5)))["named"] if row["schedule"] == "dualpipe"
    ]
    assert row["excluded"] == "dualpipe: devices must be even, got 3"
    assert row["makespan"] is row["peak_memory"] is row["within_memory"] is None


def test_what_is_whole_is_an_integer_and_the_rest_the_nearest_double() -> None:
    pipeline = Pipeline(1, 1, costs=Costs(forward=Fraction("0.1")))
    ticks = NAMED["1f1b"].schedule(pipeline)
    assert times(pipeline, ticks.end[0]) == [0.1, 2.1]
    thirds = Pipeline(1, 1, costs=Costs(forward=Fraction(1, 3), backward=Fraction(2, 3)))
    assert repr(times(thirds, NAMED["1f1b"].schedule(thirds).end[0])) == repr([1 / 3, 1])
    large = Fraction(2**53 + 2, 3)
    fine = Pipeline(1, 1, costs=Costs(forward=large))
    assert times(fine, NAMED["1f1b"].schedule(fine).end[0]) == [float(large), float(large + 2)]


def test_reading_gives_what_was_written() -> None:
    file = result_of_text(json_text(tree()), "x.json")
    assert file.model == Model(Pipeline(4, 8, memory=Memory(limit=Fraction(4))))
    assert file.schedule is not None
    assert file.schedule.order == tree()["schedule"]["order"]
    assert file.metrics is not None
    assert file.metrics.makespan == 27
    assert file.result is None
    assert [row.schedule for row in file.named] == SHOWN


def test_more_keys_than_ours_are_allowed() -> None:
    assert result_of_text(json.dumps(tree(steps=[1, 2])), "x.json").metrics is not None


OUTCOME = {
    "reason": "optimal",
    "limit": None,
    "objective": "makespan",
    "value": 27,
    "lower_bound": 27,
    "gap": 0.0,
    "proved_by": "one-machine",
    "seconds": 0.1,
    "seed": 0,
    "versions": {"ortools": "9"},
}


def test_an_outcome_is_read() -> None:
    outcome = result_of_text(json.dumps(tree(result=OUTCOME)), "x.json").result
    assert outcome is not None
    assert (outcome.value, outcome.lower_bound, outcome.reason) == (27, 27, "optimal")


def without(tree: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name != key}


BAD: dict[str, tuple[str | Callable[[], Any], str]] = {
    "not JSON": ("{", "x.json: not a JSON file"),
    "NaN": ('{"ppopt": NaN}', "NaN is not a JSON number"),
    "deep": ("[" * 10**5, "x.json: not a JSON file"),
    "a list": ("[]", "x.json: input should be"),
    "nothing": ("{}", "x.json: ppopt: field required"),
    "no model": (lambda: without(tree(), "model"), "x.json: model: field required"),
    "format": (lambda: tree(format=2), "x.json: format: input should be 1, got 2"),
    "model": (
        lambda: tree(model={"pipeline": {"devices": 0, "microbatches": 1}}),
        "x.json: model: pipeline.devices: expected a whole number",
    ),
    "reason": (lambda: tree(result={**OUTCOME, "reason": "fine"}), "x.json: result.reason: input should be 'optimal'"),
    "value": (lambda: tree(result={**OUTCOME, "value": "27"}), "x.json: result.value: input should be a valid number, got '27'"),
    "bound": (
        lambda: tree(result={**OUTCOME, "lower_bound": True}),
        "x.json: result.lower_bound: input should be a valid number, got True",
    ),
    "scope": (
        lambda: tree(result={**OUTCOME, "scope": {"placements": ["loop"], "recompute": "none"}}),
        "x.json: result.scope.chunks: field required",
    ),
    "scope's chunks": (
        lambda: tree(result={**OUTCOME, "scope": {"placements": ["loop"], "chunks": [[2]], "recompute": "none"}}),
        "x.json: result.scope.chunks[0]: input should be a valid integer, got [2]",
    ),
    "runtime": (lambda: tree(result={**OUTCOME, "runtime": {}}), "x.json: result.runtime.name: field required"),
    "no bound": (lambda: tree(result=without(OUTCOME, "lower_bound")), "x.json: result.lower_bound: field required"),
    "order": (
        lambda: tree(schedule={**tree()["schedule"], "order": [["0F0", 3]]}),
        "x.json: schedule.order[0][1]: input should be a valid string",
    ),
    "rows": (
        lambda: tree(schedule={"order": [[]], "start": [[]], "end": [[]]}),
        "x.json: schedule.order: expected 4 rows (one per device), got 1",
    ),
    "times": (
        lambda: tree(schedule={"order": [["0F0"], [], [], []], "start": [[], [], [], []], "end": [[1], [], [], []]}),
        "x.json: schedule.start[0]: expected 1 times (one per op), got 0",
    ),
    "metrics": (
        lambda: tree(metrics={**tree()["metrics"], "work": 4}),
        "x.json: metrics.work: input should be a valid list, got 4",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_with_the_place(name: str) -> None:
    given, expected = BAD[name]
    with pytest.raises(ResultError) as caught:
        result_of_text(given if isinstance(given, str) else json.dumps(given()), "x.json")
    assert expected in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"none\.json: cannot be read: No such file"):
        read_result(str(tmp_path / "none.json"))


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_text(str(path), "one")
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    write_text(str(link), "two")
    assert (read_text(str(path)), link.is_symlink()) == ("two", True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link.json", "out.json"]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_text(str(path), "one")
    with pytest.raises(UnicodeEncodeError):
        write_text(str(path), "two \ud800")
    assert read_text(str(path)) == "one"
    assert os.listdir(tmp_path) == ["out.json"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written: No such file or directory"):
        write_text(str(tmp_path / "nowhere" / "out.json"), "x")
    with pytest.raises(FileError, match="cannot be written: Is a directory"):
        write_text(str(tmp_path), "x")


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_text(os.devnull, "x")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
