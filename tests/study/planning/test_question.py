"""What a plan is asked for, and the combinations that this allows."""

from typing import Any

import pytest

from ppopt.study.planning import question_of
from ppopt.study.planning.space import cases_of
from ppopt.transformer import EstimateError
from tests.support.planned import tables

MOE = {"experts": 4, "experts_per_token": 2, "expert_ffn": 512}
ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown table key": ({"search": {"tensr": 2}}, "search.tensr"),
    "not a number": ({"search": {"tensor": ["two"]}}, "search.tensor[0]"),
    "empty list": ({"search": {"tensor": []}}, "search.tensor"),
    "no such placement": ({"search": {"placement": "ring"}}, "search.placement"),
    "no such ZeRO stage": ({"training": {"zero": 4}}, "training.zero"),
    "no batch": ({"training": {"global_batch": None}}, "training.global_batch"),
    "no GPUs": ({"cluster": {"gpus": 0}}, "cluster.gpus"),
    "unknown recipe key": ({"recipe": {"layout": "x"}}, "recipe.layout"),
    "a level that is none": ({"training": {"recompute": "most"}}, "training.recompute"),
}


@pytest.mark.parametrize(("changes", "key"), ERRORS.values(), ids=list(ERRORS))
def test_errors_name_the_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(EstimateError) as error:
        question_of(tables(**changes))
    assert error.value.key == key


def combined(**changes: Any) -> list[dict[str, int]]:
    cases = cases_of(question_of(tables(**changes)))
    return [one.combination.sizes for one in (*cases.possible, *cases.heavy)]


def test_every_combination_that_divides() -> None:
    """On 12 GPUs with 8 heads and nodes of 4: tensor 3 does not divide the heads; tensor x context is at most 4, and 512 tokens
    are no multiple of 3; batch 12."""
    found = combined(cluster={"gpus": 12, "gpus_per_node": 4}, training={"global_batch": 12, "zero": 0, "microbatch": 1})
    sizes = {(one["tensor"], one["context"], one["pipeline"], one["data"]) for one in found}
    narrow = [(t, c) for t in (1, 2, 4) for c in (1, 2, 4) if t * c <= 4]
    assert sizes == {
        (t, c, p, 12 // (t * c * p))
        for t, c in narrow
        for p in (1, 2, 3, 4)
        if 12 % (t * c * p) == 0 and 12 % (12 // (t * c * p)) == 0
    }


def test_lists_and_fixed_sizes() -> None:
    assert {one["tensor"] for one in combined(search={"tensor": [2]})} == {2}
    assert {one["pipeline"] for one in combined(parallel={"pipeline": 2})} == {2}
    assert {one["pipeline"] for one in combined(parallel={"pipeline": 2}, search={"pipeline": [1, 2]})} == {1, 2}
    assert {one["microbatch"] for one in combined(training={"microbatch": [2, 3]})} == {2}
    assert {one["zero"] for one in combined(training={"zero": [1, 2]})} == {1, 2}


def test_beyond_a_node_only_what_is_listed() -> None:
    assert max(one["tensor"] for one in combined(cluster={"gpus": 4})) == 2
    assert {one["tensor"] for one in combined(cluster={"gpus": 4}, search={"tensor": [4]})} == {4}


def test_zero_stages_count_once_without_replicas() -> None:
    found = combined(search={"pipeline": [2]}, training={"microbatch": 1})
    assert [one["zero"] for one in found] == [0]


def test_experts() -> None:
    found = combined(transformer=MOE, search={"tensor": [1], "expert": [1, 2]}, training={"microbatch": 1, "zero": 0})
    assert {one["expert"] for one in found} == {1, 2}
    assert {one["expert"] for one in combined()} == {1}


def test_several_numbers_of_gpus() -> None:
    cases = cases_of(question_of(tables(cluster={"gpus": [1, 2]}))).possible
    assert {case.combination.parallel.gpus for case in cases} == {1, 2}


def test_nothing_is_possible() -> None:
    with pytest.raises(EstimateError, match="no combination"):
        combined(search={"pipeline": [3]})
    with pytest.raises(EstimateError, match="heads"):
        combined(cluster={"gpus": 3, "gpus_per_node": 3}, search={"tensor": [3]}, training={"global_batch": 3})


def test_placements_have_a_layer_for_each_stage() -> None:
    places = {
        case.combination.parallel.pipeline: case.places for case in cases_of(question_of(tables(cluster={"gpus": 4}))).possible
    }
    assert places[1] == [("linear", 1)]
    assert places[2] == [("linear", 1), ("loop", 2), ("wave", 2)]
    assert places[4] == [("linear", 1)]
