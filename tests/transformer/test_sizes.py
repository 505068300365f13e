"""What is refused of sizes and settings, and what follows from what is given."""

from typing import Any

import pytest

from ppopt.transformer import GPU, Cluster, EstimateError, Parallel, Training, Transformer, estimate, preset, presets
from tests.support.transformers import gpt, llama


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layers": 0}, "transformer.layers: expected a whole number from 1"),
        ({"layers": 5000}, "transformer.layers: at most 4000 are supported"),
        ({"hidden": 100, "heads": 8}, "transformer.head_size: missing; hidden 100 is no multiple of 8 heads"),
        ({"heads": 8, "kv_heads": 3}, "transformer.kv_heads: expected a divisor of 8 heads, got 3"),
        ({"ffn": None}, "transformer.ffn: missing"),
        ({"norm": "batch"}, "transformer.norm: expected one of rms, layer, none"),
        ({"norms": 3}, "transformer.norms: expected 2 or 4"),
        ({"tied": 1}, "transformer.tied: expected true or false"),
        ({"windowed": [1]}, "transformer.windowed: these layers need a window"),
        ({"window": 8, "windowed": [9]}, "transformer.windowed: there is no layer 9"),
        ({"expert_ffn": 8}, "transformer.expert_ffn: belongs to a mixture of experts"),
        (
            {"experts": 4, "experts_per_token": 5, "expert_ffn": 8},
            "transformer.experts_per_token: expected a whole number from 1 to 4",
        ),
        ({"experts": 4, "experts_per_token": 2}, "transformer.expert_ffn: missing"),
        ({"experts": 4, "experts_per_token": 2, "expert_ffn": 8, "ffn": None, "dense": 1}, "transformer.ffn: missing"),
        ({"rope_size": 4}, "transformer.rope_size: belongs to latent attention"),
        ({"kv_latent": 4, "rope_size": 4, "value_size": 4}, "transformer.nope_size: missing"),
    ],
)
def test_sizes_that_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(EstimateError) as caught:
        gpt(**given)
    assert str(caught.value).startswith(message)


def test_a_number_of_layers_stands_for_the_first_ones() -> None:
    assert gpt(experts=4, experts_per_token=2, expert_ffn=8, dense=2).dense == (0, 1)
    assert gpt(window=16).windowed == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("parallel", "training", "message"),
    [
        ({"tensor": 3}, {}, "parallel.tensor: 3 does not divide transformer.heads = 8"),
        ({"context": 3}, {}, "parallel.context: 3 does not divide transformer.sequence = 64"),
        ({"data": 2}, {"global_batch": 3}, "training.global_batch: 2 replicas x 1 sequences a microbatch do not divide it: 3"),
        ({"expert": 2, "data": 2}, {}, "parallel.expert: there are no experts"),
    ],
)
def test_cuts_that_are_refused(parallel: dict[str, Any], training: dict[str, Any], message: str) -> None:
    with pytest.raises(EstimateError, match=message):
        estimate(llama(), Training(64, **training), Parallel(**parallel))


def test_parallel_sizes_that_are_refused() -> None:
    with pytest.raises(EstimateError, match=r"parallel.zero: expected a ZeRO stage from 0 to 3, got 4"):
        Parallel(zero=4)
    with pytest.raises(EstimateError, match=r"parallel.expert: experts in 4 parts do not fit on the 2 GPUs"):
        Parallel(data=2, expert=4)
    with pytest.raises(EstimateError, match=r"parallel.expert_tensor: expected a divisor of parallel.tensor = 4, got 3"):
        Parallel(tensor=4, data=3, expert_tensor=3)


def test_settings_that_follow() -> None:
    flash, unfused = Training(8), Training(8, attention="unfused")
    assert (flash.causal, flash.mlp, flash.dropout) == ("half", "fused", False)
    assert (unfused.causal, unfused.mlp, unfused.dropout) == ("full", "unfused", True)
    assert Training(8, attention="unfused", causal="half").causal == "half"
    assert (Parallel(tensor=2).sequence_parallel, Parallel().sequence_parallel) == (True, False)
    assert Parallel(tensor=2, context=3, data=4, expert=6).expert_replicas == 2  # 24 GPUs, in 6 x 2 parts
    with pytest.raises(EstimateError, match=r"transformer.sequence: expected a whole number"):
        Training(0)


def test_presets() -> None:
    assert preset("A100-80") is preset("a100-80")
    assert all(gpu.flops > 1e14 and gpu.basis and gpu.source for gpu in presets().values())
    fitted = [name for name, gpu in presets().items() if not gpu.basis.startswith("guess")]
    assert fitted == ["a100-40", "a100-80", "h100-sxm", "h200"]
    assert Cluster("h200").gpu == preset("h200")
    with pytest.raises(EstimateError, match=r"cluster.gpu: there is no preset 'h100'; did you mean h100-sxm"):
        preset("h100")
    with pytest.raises(EstimateError, match=r"cluster.flops: expected a number > 1e\+09, got 989"):
        GPU(989)


def test_sizes_as_a_table_are_the_same_sizes() -> None:
    for sizes in (gpt(), llama(window=8, windowed=[1]), gpt(experts=4, experts_per_token=2, expert_ffn=8, dense=1, mtp=1)):
        assert Transformer(**sizes.as_table()) == sizes
