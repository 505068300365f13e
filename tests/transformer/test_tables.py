"""The tables of a file, and what they ask for."""

from typing import Any

import pytest

from ppopt.transformer import EstimateError, asked_of, tables_of
from ppopt.transformer.records import record_of
from tests.support.transformers import config

SIZES = {"layers": 4, "hidden": 64, "heads": 4, "vocabulary": 100, "ffn": 128}


def tables(**more: Any) -> dict[str, Any]:
    return {"transformer": {**SIZES, "sequence": 32}, **more}


def test_data_follows_from_the_gpus() -> None:
    asked = asked_of(tables(parallel={"tensor": 2, "pipeline": 2}, cluster={"gpus": 16}))
    assert (asked.parallel.data, asked.parallel.gpus, asked.cluster) == (4, 16, None)
    with pytest.raises(EstimateError, match=r"cluster.gpus: 6 is no multiple of the 4 GPUs of one replica"):
        asked_of(tables(parallel={"tensor": 2, "pipeline": 2}, cluster={"gpus": 6}))
    with pytest.raises(EstimateError, match=r"cluster.gpus: tensor x pipeline x context x data in \[parallel\] is 2 GPUs, got 4"):
        asked_of(tables(parallel={"data": 2}, cluster={"gpus": 4}))


def test_zero_may_be_in_either_table() -> None:
    assert asked_of(tables(training={"zero": 1})).parallel.zero == 1
    assert asked_of(tables(parallel={"zero": 2})).parallel.zero == 2
    with pytest.raises(EstimateError, match=r"training.zero: parallel.zero is 2"):
        asked_of(tables(parallel={"zero": 2}, training={"zero": 1}))


def test_sizes_written_out_go_before_the_config() -> None:
    asked = asked_of({"transformer": {"config": config("llama-3-8b"), "layers": 2}})
    assert (asked.transformer.layers, asked.transformer.hidden, asked.training) == (2, 4096, None)


def test_a_gpu_of_ones_own_and_a_preset_with_changes() -> None:
    own = asked_of(tables(cluster={"flops": 1e12, "bandwidth": 100})).cluster
    changed = asked_of(tables(cluster={"gpu": "H100-SXM", "efficiency": 0.6})).cluster
    assert own is not None
    assert changed is not None
    assert (own.gpu.name, own.gpu.efficiency, changed.gpu.flops, changed.gpu.efficiency) == ("", 0.5, 989e12, 0.6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"training": {"sequence": 8}}, "training.sequence: unknown key; did you mean transformer.sequence?"),
        ({"training": {"microbach": 8}}, "training.microbach: unknown key; did you mean training.microbatch?"),
        ({"training": {"microbatch": [1, 2]}}, r"training.microbatch: expected one value, got \[1, 2\]"),
        ({"parallel": {"tensors": 8}}, "parallel.tensors: unknown key; did you mean parallel.tensor?"),
        ({"cluster": {"bandwidth": 8}}, "cluster.gpu: missing; cluster.bandwidth belongs to a GPU"),
        ({"cluster": {"gpu": "tpu"}}, "cluster.gpu: there is no preset 'tpu'; the presets are a100-40"),
        ({"cluster": 3}, r"cluster: expected a table \[cluster\], got 3"),
        ({"transformer": {"hidden": 64}}, "transformer.layers: missing; expected a whole number, or a config.json|missing"),
        ({"transformer": {"config": 3}}, "transformer.config: expected the content of a config.json"),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(EstimateError, match=message):
        asked_of({**tables(), **given})


def test_what_is_kept_asks_for_the_same() -> None:
    asked = asked_of(
        tables(
            training={"microbatch": 2, "global_batch": 8, "zero": 1},
            cluster={"gpu": "h100-sxm", "efficiency": 0.6, "gpus": 4, "reserve": 0.1},
            parallel={"tensor": 2},
        )
    )
    again = asked_of(tables_of(asked))
    assert again.estimate().to_layers() == asked.estimate().to_layers()
    assert tables_of(again) == tables_of(asked)


def test_the_record_has_what_is_known() -> None:
    bare = record_of(asked_of({"transformer": SIZES}))
    assert bare["parameters"] == sum(layer["count"] * layer["parameters"] for layer in bare["layers"])
    assert bare["flops_per_token"] is bare["boundary_bytes"] is None
    assert set(bare["layers"][1]["flops"].values()) == set(bare["layers"][1]["activation_bytes"].values()) == {None}
    sized = record_of(asked_of(tables()))
    assert sized["layers"][1]["flops"]["F"] > 0
    assert sized["layers"][1]["time"] == {"F": None, "I": None, "W": None}
    timed = record_of(asked_of(tables(cluster={"gpu": "h100-sxm"})))
    assert timed["layers"][1]["time"]["F"] > 0
    assert sized["machine"] is None
    assert timed["machine"]["basis"].startswith("fitted")
    assert timed["machine"]["passes_backward"] == 4.4
    assert [layer["state_bytes"] for layer in bare["layers"]] == [layer["state_bytes"] for layer in timed["layers"]]
