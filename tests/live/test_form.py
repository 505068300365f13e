"""What the form says is a model, and a model is what the form shows."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ppopt.files import ModelError, model_dict, model_of, model_of_text, read_model
from ppopt.live.form import EXAMPLE, FIELDS, GROUPS, LAYER, Given, model_in, shown, text_in
from tests.support.many import each
from tests.support.places import MODELS
from tests.support.tiers import thorough


def given(fields: Mapping[str, str] = {}, layers: Any = (), rest: str = "") -> Given:
    own = {"pipeline.devices": "4", "pipeline.microbatches": "8", "pipeline.placement": "linear", **fields}
    return Given.of({"fields": {**dict.fromkeys(FIELDS, ""), **own}, "layers": list(layers), "rest": rest})


def test_fields_become_a_model() -> None:
    fields = {
        "name": "mine",
        "costs.forward": "1, 1, 1, 1.4",
        "costs.backward_input": "1.2",
        "links.latency": "0.2",
        "memory.limit": "4",
        "units.time": "ms",
        "pipeline.placement": "any",
        "pipeline.chunks": "2, 4",
    }
    model = model_in(given(fields, rest='[pipeline]\nschedule = "1f1b"\n'))
    text = text_in(given(fields, rest='[pipeline]\nschedule = "1f1b"\n'))
    assert model_of_text(text, "saved") == model
    tree = tomllib.loads(text)
    assert tree["costs"]["forward"] == [1, 1, 1, 1.4]
    assert tree["pipeline"] == {"devices": 4, "microbatches": 8, "placement": "any", "chunks": [2, 4], "schedule": "1f1b"}
    assert model.schedule == "1f1b"


def test_layers_and_a_plan_of_them_become_a_model() -> None:
    rows = [
        {"name": "embedding", "forward": "0.4", "backward_input": "0", "backward_weight": "0.6", "weights": "3.1"},
        {"name": "decoder", "count": "8", "forward": "12", "backward_input": "13", "backward_weight": "11", "activation": "1.2",
         "recompute": "selective: 1.5, 0.5; full: 12, 1.1"},
    ]  # fmt: skip
    model = model_in(given({"pipeline.partition": "best", "pipeline.recompute": "choose", "memory.limit": "80"}, rows))
    assert len(model.pipeline.layers) == 9  # type: ignore[arg-type]
    assert set(model.pipeline.open) == {"pipeline.partition", "pipeline.recompute"}
    back = shown(model_dict(model))
    assert [row["name"] for row in back["layers"]] == ["embedding", "decoder"]
    assert back["layers"][1]["recompute"] == "selective: 1.5, 0.5; full: 12, 1.1"
    assert model_in(Given.of(back)) == model


@thorough
def test_every_model_of_the_tree_is_shown_and_read_back() -> None:
    def check(path: Path) -> None:
        model = read_model(str(path))
        back = Given.of(shown(model_dict(model)))
        said = {**tomllib.loads(text_in(back))}
        assert model_of(said, "back") == model

    each({path.stem: path for path in sorted(MODELS.glob("*.toml"))}, check)


def test_the_example_is_a_model() -> None:
    assert model_in(Given.of(shown(EXAMPLE))).pipeline.devices == 4
    keys = {field.key for group in GROUPS.values() for field in group}
    assert len(keys) == sum(map(len, GROUPS.values())) == len(FIELDS)
    assert len(set(LAYER)) == len(LAYER)


@pytest.mark.parametrize(
    ("fields", "layers", "rest", "key", "said"),
    [
        ({"pipeline.devices": "four"}, [], "", "pipeline.devices", "expected a whole number >= 1, got 'four'"),
        ({"pipeline.devices": ""}, [], "", "pipeline.devices", "missing"),
        ({"costs.forward": "1, 2"}, [], "", "costs.forward", "expected one number or a list of 4"),
        ({"costs.forward": "1, x y"}, [], "", "costs.forward", "expected a number, a word, or numbers with commas between"),
        ({"costs.forward": "1 } evil = { a = 1"}, [], "", "costs.forward", "expected a number"),
        ({"memory.limit": "-1"}, [], "", "memory.limit", ">= 0"),
        ({"memory.limit": "0.5"}, [], "", "memory.limit", ""),
        ({}, [{"name": "a", "forward": "1", "backward": "x"}], "", "layers[0].backward", "expected a number"),
        ({}, [{"name": "a", "forward": "1", "recompute": "full"}], "", "layers[0].recompute", "expected NAME: TIME, SAVED"),
        ({}, [], "[cost]\nforward = 1", "cost", ""),
        ({}, [], "not toml", "", "other keys: not a TOML file"),
        ({}, [], '[pipeline]\norder = "/etc/passwd"', "pipeline.order", "the form reads no files"),
        ({"pipeline.microbatches": "4, 8"}, [], "", "pipeline.microbatches", "expected one number, got 4, 8"),
        ({"pipeline.microbatches": "10000"}, [], "", "pipeline.microbatches", "the form takes at most 100000 operations"),
        ({"pipeline.devices": "1000000000"}, [], "", "pipeline.devices", "at most 1024"),
    ],
)
def test_bad_input_names_its_field(fields: Any, layers: Any, rest: str, key: str, said: str) -> None:
    with pytest.raises(ModelError) as raised:
        model_in(given(fields, layers, rest))
    assert raised.value.key.startswith(key)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "sent",
    [None, [], {}, {"fields": {"evil": "1"}, "layers": [], "rest": ""}, {"fields": {}, "layers": [{"evil": "1"}], "rest": ""},
     {"fields": {"name": 3}, "layers": [], "rest": ""}, {"fields": {}, "layers": {}, "rest": ""}],
)  # fmt: skip
def test_what_the_form_does_not_send_is_refused(sent: Any) -> None:
    with pytest.raises(ModelError, match="as the form sends them"):
        Given.of(sent)
