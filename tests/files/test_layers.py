"""Layers in model files and results."""

import json
from random import Random
from typing import Any

import pytest

from ppopt.files import Model, ModelError, model_dict, model_of, model_of_text, setting
from ppopt.files.result import json_text, result_dict, result_of_text
from ppopt.pipeline import Memory, Pipeline
from ppopt.search import solve
from tests.support.layered import MODEL, TEXT, a_pipeline
from tests.support.many import each


def read(text: str, *changes: str) -> Model:
    return model_of_text(text, "mine.toml", [setting(change) for change in changes])


def test_a_file() -> None:
    assert read(TEXT).pipeline == Pipeline(2, 4, layers=MODEL)
    assert read(TEXT).pipeline.open == ("pipeline.partition",)
    assert read(TEXT, "pipeline.partition=[3, 4]").pipeline == Pipeline(2, 4, layers=MODEL, partition=[3, 4])


def test_what_is_written_is_read_as_it_was() -> None:
    rng = Random(5)
    for partition in ("even", "balanced", "best", None):
        for _ in range(20):
            fields: dict[str, Any] = {} if partition is None else {"partition": partition}
            try:
                model = Model(a_pipeline(rng, **fields))
            except ValueError:
                continue  # even leaves a stage without a layer
            again = model_of(json.loads(json.dumps(model_dict(model))), "again")
            assert again == model
            assert again.pipeline.partition == model.pipeline.partition


def test_levels_of_each_stage_are_written() -> None:
    recompute = [{"decoder": {"half": 1, "full": 1}}, {"decoder": {"full": 2}}]
    model = Model(Pipeline(2, 4, layers=MODEL, partition=[3, 4], recompute=recompute))
    tree = model_dict(model)
    assert tree["pipeline"]["recompute"] == recompute
    assert tree["pipeline"]["partition"] == [3, 4]
    assert model_of(tree, "again") == model


def test_costs_of_stages_are_not_written_beside_layers() -> None:
    pipeline = Pipeline(2, 4, layers=MODEL, partition=[3, 4], memory=Memory(static=1, limit=[50, 60]), recompute="full")
    tree = model_dict(Model(pipeline))
    assert tree["costs"] == {}
    assert tree["memory"] == {"static": 1, "limit": [50, 60]}
    assert [group["name"] for group in tree["layers"]] == ["embedding", "decoder", "head"]


def test_errors_name_file_and_key() -> None:
    cases: dict[str, tuple[str, str, str]] = {
        "costs beside layers": (
            TEXT + "[costs]\nforward = 1\n",
            "costs.forward",
            "follows from [[layers]]; beside them [costs] has optimizer",
        ),
        "per beside layers": (TEXT + '[costs]\nper = "stage"\n', "costs.per", "follows from [[layers]]"),
        "activation beside layers": (
            TEXT + "[memory]\nactivation = 1\n",
            "memory.activation",
            "beside them [memory] has static, limit",
        ),
        "forward": (TEXT.replace("forward = 3", "forward = -3"), "layers[1].forward", "expected a number >= 0, got -3"),
        "no forward": (TEXT.replace("forward = 3\n", ""), "layers[1].forward", "missing"),
        "name": (TEXT.replace('"decoder"', '"head"'), "layers[2].name", "layers[1] has the name 'head' already"),
        "no name": (TEXT.replace('name = "decoder"\n', ""), "layers[1].name", "missing; expected a name"),
        "unknown key": (
            TEXT.replace("forward = 3", "forwrad = 3"),
            "layers[1].forwrad",
            "unknown key; expected one of name, count",
        ),
        "digits": (TEXT.replace("forward = 3", f"forward = {'3' * 70}"), "layers[1].forward", "at most 60 digits"),
        "one table": (
            "layers = 3\n[pipeline]\ndevices = 2\nmicrobatches = 4\n",
            "layers",
            "expected at least one group of layers",
        ),
        "a group that is none": (
            "layers = [3]\n[pipeline]\ndevices = 2\nmicrobatches = 4\n",
            "layers[0]",
            "expected a group of layers",
        ),
        "level": (TEXT.replace("saved = 2", "saved = 4"), "layers[1].recompute.saved", "saves more than the activation holds"),
        "partition without layers": (
            '[pipeline]\ndevices = 2\nmicrobatches = 4\npartition = "even"\n',
            "pipeline.partition",
            "it needs [[layers]]",
        ),
        "partition": (
            TEXT.replace("microbatches = 4", "microbatches = 4\npartition = [1, 2]"),
            "pipeline.partition",
            "add up to 7",
        ),
        "stages without a layer": (TEXT.replace("devices = 2", "devices = 8"), "pipeline.partition", "there are only 7 layers"),
        "limit": (
            TEXT.replace("microbatches = 4", 'microbatches = 4\npartition = "even"') + "[memory]\nlimit = 9\n",
            "memory.limit",
            "needs at least",
        ),
    }

    def check(case: tuple[str, str, str]) -> None:
        text, key, message = case
        with pytest.raises(ModelError) as raised:
            read(text)
        assert raised.value.key == key
        assert str(raised.value).startswith(f"mine.toml: {key}: ")
        assert message in str(raised.value)

    each(cases, check)


def test_a_change_is_named() -> None:
    with pytest.raises(
        ModelError, match=r"^--set pipeline.partition=\[3, 3\]: pipeline.partition: expected the numbers to add up"
    ):
        read(TEXT, "pipeline.partition=[3, 3]")


def test_the_optimizer_may_stand_beside_layers() -> None:
    pipeline = read(TEXT + "[costs]\noptimizer = [1, 2]\n", "pipeline.partition=even").pipeline
    assert pipeline.costs.optimizer == (1, 2)
    assert model_of(model_dict(Model(pipeline)), "again").pipeline == pipeline


def test_results_have_the_layers_and_their_partition() -> None:
    tree = result_dict(solve(read(TEXT)))
    assert tree["result"]["reason"] == "optimal"
    assert sum(tree["result"]["partition"]) == 7
    assert tree["result"]["scope"]["partition"] == "best"
    assert tree["model"]["pipeline"]["partition"] == tree["result"]["partition"]
    assert [group["name"] for group in tree["model"]["layers"]] == ["embedding", "decoder", "head"]
    again = model_of(tree["model"], "again").pipeline
    assert again.counts == tuple(tree["result"]["partition"])


def test_rows_whose_layers_recompute_are_read_again() -> None:
    """Each named schedule recomputes as little as fits, stage by stage: a table for each in its row."""
    pipeline = read(TEXT).pipeline.changed(recompute="choose", microbatches=2, partition=(4, 3), memory=Memory(limit=26))
    result = solve(pipeline, seconds=30, workers=1, best_cut=False)
    rows = result_of_text(json_text(result_dict(result)), "file").named
    assert any(isinstance(row.recompute, list) for row in rows)
