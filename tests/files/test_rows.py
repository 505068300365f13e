"""Rows of named schedules in files."""

import dataclasses
import json
from typing import Any

from ppopt.files import Model, document, json_text
from ppopt.files.result import result_of_text, row_dict
from ppopt.named import Row, compare
from ppopt.pipeline import Costs, Pipeline


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
