"""What a row of a schedule says beside the model: its figures, and whether it assumes that the work is the same elsewhere."""

import dataclasses
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ppopt.cli import main
from ppopt.files import Model, document, json_text, write_text
from ppopt.files.exported import row_in
from ppopt.files.result import result_of_text, row_dict
from ppopt.named import Row, compare, find, of_order
from ppopt.pipeline import Costs, Memory, Pipeline, in_words, plain

NOTE = "† the model's costs are uneven, and this row assumes that each device has the same work here"
QUICK = ("--workers", "1", "--time-limit", "20")


def run(*args: str) -> str:
    result = CliRunner().invoke(main, list(args))
    assert result.exit_code == 0, result.output
    return result.stdout


# --- figures -----------------------------------------------------------------------------------------------------


def test_figures_are_in_the_units_of_the_model() -> None:
    pipeline = Pipeline(
        2,
        4,
        costs=Costs(forward=(Fraction("0.5"), 1)),
        memory=Memory(activation=Fraction(1, 4), static=1, limit=Fraction("1.25")),
    )
    rows = compare(pipeline)
    for row in rows:
        schedule, tree = row.schedule, row_dict(row)
        if schedule is None:
            assert row.excluded
            assert {tree[key] for key in ("makespan", "device_span", "bubble_ratio", "work", "peak_memory", "within_memory")} == {
                None
            }
            assert not tree["assumes_equal_work"]
            continue
        per_time, per_amount = schedule.pipeline.ticks.per_unit, schedule.pipeline.amounts.per_unit
        assert row.makespan == tree["makespan"] == plain(Fraction(schedule.makespan, per_time))
        assert row.device_span == tree["device_span"] == plain(Fraction(schedule.device_span, per_time))
        assert row.bubble_ratio == tree["bubble_ratio"] == pytest.approx(1 - 22 / (2 * row.makespan))
        assert row.work == tuple(tree["work"]) == (10, 12)
        assert (
            row.peak_memory == tuple(tree["peak_memory"]) == tuple(plain(Fraction(x, per_amount)) for x in schedule.peak_memory)
        )
        assert row.within_memory is tree["within_memory"] is (max(row.peak_memory) <= 1.25)
    assert {row.within_memory for row in rows} >= {True, False}
    one = next(row for row in rows if row.name == "1f1b")
    assert (one.makespan, one.device_span, one.peak_memory) == (14.5, 14.5, (1.5, 1.25))


def test_older_files_without_the_new_keys_are_read() -> None:
    pipeline = Pipeline(2, 4, costs=Costs(forward=(1, 2)))
    tree: dict[str, Any] = json.loads(json_text(document(Model(pipeline), named=compare(pipeline, (2, 4)))))
    read = result_of_text(json.dumps(tree), "new.json").named
    assert [row.assumes_equal_work for row in read] == [row["assumes_equal_work"] for row in tree["named"]]
    assert {tuple(row.work) for row in read if row.work is not None and row.placement == "linear"} == {(12, 16)}
    for row in tree["named"]:
        del row["work"], row["assumes_equal_work"]
    old = result_of_text(json.dumps(tree), "old.json").named
    assert [row.makespan for row in old] == [row.makespan for row in read]
    assert {(row.work, row.assumes_equal_work) for row in old} == {(None, False)}


def test_the_stages_that_recompute_are_in_the_name_and_the_file() -> None:
    def row(recompute: Any) -> Row:
        return dataclasses.replace(Row("1f1b", "linear", 1, None, "why"), recompute=recompute)

    labels = {"": "1f1b", "none": "1f1b", "all": "1f1b + recompute", (0, 1): "1f1b + recompute 0,1"}
    assert {key: row(key).label for key in labels} == labels
    assert row((0, 1, 2, 5)).label == "1f1b + recompute 0-2,5"
    assert [row_dict(row(key)).get("recompute") for key in labels] == [None, "none", "all", [0, 1]]


@pytest.mark.parametrize(
    ("stages", "words"), [((), ""), ((3,), "3"), ((0, 1), "0,1"), ((0, 1, 2), "0-2"), ((0, 2, 3, 5, 6, 7, 9), "0,2,3,5-7,9")]
)
def test_stages_in_words(stages: tuple[int, ...], words: str) -> None:
    assert in_words(stages) == words


# --- equal work --------------------------------------------------------------------------------------------------

EVEN: list[Pipeline] = [
    Pipeline(4, 8),
    Pipeline(4, 8, costs=Costs(forward=(2, 2, 2, 2)), memory=Memory(static=(1, 2, 3, 4), limit=(8, 9, 10, 11))),
    Pipeline(4, 8, routes=[[0, 1], [2, 3]]),
    Pipeline(2, 4, routes=[[0, 1, 0]]),
    Pipeline(4, 8, "loop", 2, costs=Costs("stage", forward=3)),
    Pipeline(4, 8, costs=Costs(recompute=1), memory=Memory(recompute_saved=1), recompute=[0]),
]
UNEVEN: list[Pipeline] = [
    Pipeline(4, 8, costs=Costs(forward=(1, 1, 1, 2))),
    Pipeline(4, 8, costs=Costs(recompute=(1, 1, 2, 1)), memory=Memory(recompute_saved=1)),
    Pipeline(4, 8, memory=Memory(activation=(2, 1, 1, 1))),
    Pipeline(4, 8, memory=Memory(activation=2, retained=(2, 1, 1, 1))),
    Pipeline(2, 4, "loop", 2, costs=Costs("stage", backward=(1, 2, 2, 1))),
    Pipeline(2, 4, "bidirectional", costs=Costs("stage", forward=(1, 2))),
    Pipeline(2, 4, routes=[[0, 1, 0]], costs=Costs("stage")),
    Pipeline(4, 5, routes=[[0, 1], [2, 3]]),
]


@pytest.mark.parametrize("pipeline", EVEN)
def test_with_even_costs_nothing_is_assumed(pipeline: Pipeline) -> None:
    assert not pipeline.uneven
    assert not any(row.assumes_equal_work for row in compare(pipeline, (2, 4)))


@pytest.mark.parametrize("pipeline", UNEVEN)
def test_with_uneven_costs_rows_of_other_placements_assume_equal_work(pipeline: Pipeline) -> None:
    assert pipeline.uneven
    seen = set()
    for row in compare(pipeline, (2, 4)):
        elsewhere = row.schedule is not None and row.schedule.pipeline.routes != pipeline.routes
        assert row.assumes_equal_work is elsewhere
        seen.add(elsewhere)
    assert True in seen


def test_an_order_of_ones_own_assumes_nothing_and_that_of_a_file_may(tmp_path: Path) -> None:
    pipeline = UNEVEN[0]
    assert not of_order(pipeline, find("1f1b").schedule(pipeline).order, "mine").assumes_equal_work
    for name, assumes in (("1f1b", False), ("zb-v", True)):
        path = str(tmp_path / f"{name}.json")
        schedule = find(name).schedule(pipeline)
        write_text(path, json_text(document(Model(schedule.pipeline), schedule=schedule)))
        assert row_in(path, pipeline).assumes_equal_work is assumes


def test_a_dagger_and_a_line_say_it() -> None:
    uneven = ["-d", "4", "-m", "8", "--set", "costs.forward=[1,1,1,2]"]
    shown = run("compare", *uneven)
    assert shown.count(NOTE) == 1
    lines = {line.split()[0]: line for line in shown.splitlines() if line}
    assert "wave †" in lines["zb-v"]
    assert "†" not in lines["1f1b"]
    assert "†" not in run("compare", "-d", "4", "-m", "8")
    rows = {row["schedule"]: row for row in json.loads(run("compare", *uneven, "--json"))["named"]}
    assert (rows["zb-v"]["assumes_equal_work"], rows["1f1b"]["assumes_equal_work"]) == (True, False)
    assert rows["zb-v"]["work"] == rows["1f1b"]["work"] == [24, 24, 24, 32]


@pytest.mark.parametrize(
    ("flags", "own"), [(["--placement", "any"], {"linear", "loop", "wave"}), (["--order", "zb-v"], {"linear"})]
)
def test_solved_elsewhere_the_model_is_still_what_counts(flags: list[str], own: set[str]) -> None:
    """What is left open is the model's; what a binding order brings is not."""
    uneven = ["-d", "2", "-m", "4", "--set", "costs.forward=[1,2]", *flags, *QUICK]
    tree = json.loads(run("solve", *uneven, "--json"))
    assert {row["placement"] for row in tree["named"] if not row["assumes_equal_work"] and not row["excluded"]} == own
    others = {"linear", "loop", "wave", "bidirectional"} - own
    assert {row["placement"] for row in tree["named"] if row["assumes_equal_work"]} == others


def test_the_frontier_says_it_too() -> None:
    shown = run("frontier", "-d", "2", "-m", "2", "--set", "costs.forward=[1,2]", "--limits", "2", "--placement", "any", *QUICK)
    assert shown.count(NOTE) == 1
    assert "†" not in next(line for line in shown.splitlines() if line.startswith("1f1b "))
