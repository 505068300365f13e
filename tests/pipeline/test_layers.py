"""Layers: what may be said of them, and what a frozen one leaves out."""

from fractions import Fraction
from random import Random
from typing import Any

import pytest

import ppopt as pp
from ppopt.pipeline import Layer, Layers, Level, PipelineError
from ppopt.pipeline.layers import MAX_LAYERS, as_tables
from tests.support.layered import MODEL, a_layer
from tests.support.many import each

FUSED: dict[str, Any] = {"name": "x", "forward": 1, "backward": 2}
SPLIT: dict[str, Any] = {"name": "x", "forward": 1, "backward_input": 1, "backward_weight": 1}


def test_the_face_has_them() -> None:
    assert (pp.Layer, pp.Layers) == (Layer, Layers)


def test_what_is_left_out() -> None:
    layer = Layer(**SPLIT)
    assert (layer.count, layer.activation, layer.retained, layer.weights) == (1, 0, None, 0)
    assert (layer.recompute, layer.frozen, layer.backward) == ((), False, None)


def test_numbers_are_exact() -> None:
    layer = Layer("x", forward=0.1, backward=2, activation=Fraction(1, 3))
    assert (layer.forward, layer.backward, layer.activation) == (Fraction(1, 10), 2, Fraction(1, 3))


def test_tables_and_layers_are_the_same_and_can_be_hashed() -> None:
    assert Layers([Layer(**SPLIT)]) == Layers([SPLIT])
    assert hash(Layers([Layer(**SPLIT)])) == hash(Layers([SPLIT]))
    levels = [{"name": "full", "time": 1, "saved": 0}]
    assert Layer(**SPLIT, recompute=levels).recompute == (Level("full", 1, 0),)


def test_every_layer_has_its_group() -> None:
    assert len(MODEL) == 7
    assert MODEL.group_of == (0, 1, 1, 1, 1, 1, 2)
    assert MODEL.split
    assert not Layers([FUSED]).split


ERRORS: dict[str, tuple[str, dict[str, Any]]] = {
    "no name": ("layers[1].name", {"name": None}),
    "empty name": ("layers[1].name", {"name": ""}),
    "name is a number": ("layers[1].name", {"name": 3}),
    "name twice": ("layers[1].name", {"name": "first"}),
    "unknown": ("layers[1].forwrad", {"forwrad": 1}),
    "no forward": ("layers[1].forward", {"forward": None}),
    "count of 0": ("layers[1].count", {"count": 0}),
    "count of 1.5": ("layers[1].count", {"count": 1.5}),
    "too many": ("layers[1].count", {"count": MAX_LAYERS + 1}),
    "negative forward": ("layers[1].forward", {"forward": -1}),
    "forward is infinite": ("layers[1].forward", {"forward": float("inf")}),
    "forward is a list": ("layers[1].forward", {"forward": [1, 2]}),
    "negative weights": ("layers[1].weights", {"weights": -1}),
    "negative activation": ("layers[1].activation", {"activation": -1}),
    "negative retained": ("layers[1].retained", {"retained": -1}),
    "no input": ("layers[1].backward_input", {"backward_input": None}),
    "no weight": ("layers[1].backward_weight", {"backward_weight": None}),
    "no backward": ("layers[1].backward", {"backward_input": None, "backward_weight": None}),
    "fused among split": ("layers[1].backward", {"backward_input": None, "backward_weight": None, "backward": 1}),
    "frozen is a number": ("layers[1].frozen", {"frozen": 1}),
    "levels are no list": ("layers[1].recompute", {"recompute": "full"}),
    "a level is a name": ("layers[1].recompute[0]", {"recompute": ["full"]}),
    "a level without time": ("layers[1].recompute[0]", {"recompute": [{"name": "full", "saved": 0}]}),
    "a level with more": ("layers[1].recompute[0]", {"recompute": [{"name": "full", "time": 1, "saved": 0, "more": 1}]}),
    "a level called none": ("layers[1].recompute.name", {"recompute": [{"name": "none", "time": 1, "saved": 0}]}),
    "a level called all": ("layers[1].recompute.name", {"recompute": [{"name": "all", "time": 1, "saved": 0}]}),
    "a level called choose": ("layers[1].recompute.name", {"recompute": [{"name": "choose", "time": 1, "saved": 0}]}),
    "a level of negative time": ("layers[1].recompute.time", {"recompute": [{"name": "full", "time": -1, "saved": 0}]}),
    "a level of negative memory": ("layers[1].recompute.saved", {"recompute": [{"name": "full", "time": 1, "saved": -1}]}),
    "a level saves too much": ("layers[1].recompute.saved", {"recompute": [{"name": "full", "time": 1, "saved": 1}]}),
    "two levels": ("layers[1].recompute", {"recompute": [{"name": "full", "time": 1, "saved": 0}] * 2}),
}


def test_errors_name_the_key() -> None:
    def check(case: tuple[str, dict[str, Any]]) -> None:
        key, change = case
        table = {name: value for name, value in {**SPLIT, **change}.items() if value is not None}
        with pytest.raises(PipelineError) as raised:
            Layers([{**SPLIT, "name": "first"}, table])
        assert raised.value.key == key

    each(ERRORS, check)


def test_errors_of_all_layers() -> None:
    whole: dict[str, tuple[str, Any]] = {
        "none": ("layers", []),
        "one table": ("layers", {"name": "x"}),
        "a number": ("layers[0]", [3]),
        "together too many": ("layers", [{**SPLIT, "count": MAX_LAYERS}, {**SPLIT, "name": "y"}]),
        "a frozen one whose backward is fused": ("layers[0].backward_input", [{**FUSED, "frozen": True}]),
    }

    def check(case: tuple[str, Any]) -> None:
        with pytest.raises(PipelineError) as raised:
            Layers(case[1])
        assert raised.value.key == case[0]

    each(whole, check)


def test_what_frozen_layers_leave_out() -> None:
    """The first has no backward at all, the last no weight gradient: the gradient passes through it to the second."""
    fields: dict[str, Any] = {"forward": 3, "backward_input": 4, "backward_weight": 2, "activation": 5, "weights": 7}
    levels = [{"name": "full", "time": 3, "saved": 4}]
    layers = Layers(
        [
            Layer("first", frozen=True, recompute=levels, **fields),
            Layer("second", retained=1, **fields),
            Layer("third", frozen=True, recompute=levels, backward=8, **fields),
        ]
    )
    assert layers.trained_before == (False, False, True)
    assert layers.each("forward") == (3, 3, 3)
    assert layers.each("backward_input") == (0, 4, 4)
    assert layers.each("backward_weight") == (0, 2, 0)
    assert layers.each("backward") == (0, None, 4)
    assert layers.each("activation") == (0, 5, 5)
    assert layers.each("retained") == (0, 1, 0)
    assert layers.each("weights") == (7, 7, 7)
    assert [layers.level_of(group, "full") for group in range(3)] == [None, None, Level("full", 3, 4)]


def test_levels() -> None:
    half, full, other = Level("half", 1, 1), Level("full", 3, 2), Level("other", 2, 1)
    fields: dict[str, Any] = {"forward": 1, "backward": 2, "activation": 2}
    layers = Layers([Layer("a", recompute=[half, full], **fields), Layer("b", recompute=[other], **fields), Layer("c", **fields)])
    assert layers.levels == ("half", "full", "other")
    assert [layers.level_of(group, "full") for group in range(3)] == [full, None, None]
    assert [layers.level_of(group, "all") for group in range(3)] == [full, other, None]
    assert layers.groups[0].level("half") == half
    assert layers.groups[2].level("half") is None


def test_tables_leave_out_what_files_leave_out() -> None:
    assert as_tables(Layers([FUSED])) == [FUSED]
    assert as_tables(MODEL)[1] == {
        "name": "decoder",
        "count": 5,
        "forward": 3,
        "backward_input": 4,
        "backward_weight": 2,
        "activation": 3,
        "weights": 2,
        "recompute": [{"name": "half", "time": 1, "saved": 1}, {"name": "full", "time": 3, "saved": 2}],
    }


def test_tables_are_read_as_they_were() -> None:
    rng = Random(3)
    for _ in range(200):
        split = rng.random() < 0.5
        layers = Layers([a_layer(rng, str(i), split, split and rng.random() < 0.3) for i in range(rng.randint(1, 5))])
        assert Layers(as_tables(layers)) == layers
