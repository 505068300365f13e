"""Uneven layers: shapes that are like measured ones, and what is proved for them."""

import json
from itertools import combinations

import pytest
import uneven_layers

import ppopt as pp
from ppopt.pipeline import Pipeline


@pytest.mark.parametrize(("shape", "number"), [("gpt-oss", 26), ("deepseek", 29), ("nemotron", 58)])
def test_a_shape_is_the_same_each_time_and_no_two_layers_are_alike(shape: str, number: int) -> None:
    layers = uneven_layers.like_measured(shape, 3, split=True)
    assert len(layers) == number
    assert layers == uneven_layers.like_measured(shape, 3, split=True)
    assert layers != uneven_layers.like_measured(shape, 4, split=True)
    assert len({(layer.forward, layer.backward_input, layer.backward_weight) for layer in layers.groups}) > number / 2


@pytest.mark.parametrize("limited", [False, True])
def test_the_best_of_all_cuts_is_named_with_its_proof(limited: bool, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["kinds", "--layers", "6", "--seeds", "2", "-d", "2", "-m", "3", "--placement", "loop", "--chunks", "2"]
    uneven_layers.main([*arguments, *(["--limited"] if limited else []), "--time-limit", "200"])
    found = json.loads(capsys.readouterr().out)
    assert (found["reason"], found["gap in percent"]) == ("optimal", 0)

    layers = uneven_layers.of_kinds(6, 2, split=False)
    linear = pp.compare(Pipeline(2, 3, "linear", layers=layers, partition="balanced"), only=["1f1b"])["1f1b"]
    values = list[float]()
    for ends in combinations(range(1, 6), 3):
        counts = tuple(end - begin for begin, end in zip((0, *ends), (*ends, 6), strict=True))
        cut = Pipeline(2, 3, "loop", 2, layers=layers, partition=counts)
        if limited:
            cut = cut.changed(memory=pp.Memory(limit=max(linear.peak_memory or ())))
        result = pp.solve(cut, seconds=10)
        assert result.reason in ("optimal", "infeasible")
        values += [float(result.value)] if result.value is not None else []
    assert found["value"] == min(values)
