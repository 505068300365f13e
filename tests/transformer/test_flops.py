"""FLOPs by the closed forms of papers, by counting weights, and by what has to add up."""

import pytest

from ppopt.transformer import Parallel, Training, estimate
from tests.support.transformers import gpt, layer, llama, model


@pytest.mark.parametrize(("b", "s", "h"), [(1, 16, 64), (3, 32, 128), (2, 128, 64)])
def test_a_gpt_block_is_as_the_zero_bubble_paper_counts_it(b: int, s: int, h: int) -> None:
    """arXiv 2401.10241, table 1: F sbh(24h + 4s), I sbh(24h + 8s), W 24sbh^2."""
    flops = layer(estimate(gpt(hidden=h, ffn=4 * h), Training(s, b, attention="unfused"))).flops
    assert flops.forward == s * b * h * (24 * h + 4 * s)
    assert flops.backward_input == s * b * h * (24 * h + 8 * s)
    assert flops.backward_weight == 24 * s * b * h * h


def test_a_gpt_is_as_megatron_counts_it() -> None:
    """arXiv 2205.05198: 72 BLsh^2 (1 + s/6h + V/12hL) model FLOPs a step."""
    s, h, layers, vocabulary = 32, 64, 4, 512
    found = estimate(gpt(), Training(s, attention="unfused")).flops_per_token * s
    assert found == pytest.approx(72 * layers * s * h * h * (1 + s / (6 * h) + vocabulary / (12 * h * layers)), rel=1e-12)


def test_flash_attention_computes_scores_again_and_half_of_them() -> None:
    full, half = (layer(estimate(llama(), Training(64, causal=causal))).flops for causal in ("full", "half"))
    assert full.core == 2 * half.core > 0
    assert half.backward_input - half.linear == 2.5 * half.core
    assert half.backward_weight == half.linear


def test_windows_leave_the_keys_that_a_loop_counts() -> None:
    s, u = 48, 10
    pairs = sum(min(query + 1, u) for query in range(s))
    sizes = llama(window=u)
    core = layer(estimate(sizes, Training(s, 3))).flops.core
    assert core == 3 * 2 * pairs * sizes.heads * (16 + 16)  # scores and values, heads of 16, a multiply-add counts two
    assert layer(estimate(llama(window=s), Training(s))).flops == layer(estimate(llama(), Training(s))).flops
    unskipped = Training(s, causal="full")
    assert layer(estimate(sizes, unskipped)).flops == layer(estimate(llama(), unskipped)).flops


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt-oss-20b", "deepseek-v3", "mixtral-8x7b"])
def test_all_gpus_together_do_what_one_does(name: str) -> None:
    sizes = model(name)
    one = estimate(sizes, Training(4096, 2)).layers
    cut = estimate(sizes, Training(4096, 2), Parallel(tensor=4, context=2, data=2, expert=2 if sizes.experts else 1)).layers
    for alone, part in zip(one, cut, strict=True):
        assert 8 * part.flops.forward == pytest.approx(alone.flops.forward, rel=1e-12)
        assert 8 * part.flops.backward_input == pytest.approx(alone.flops.backward_input, rel=1e-12)


def test_heads_that_are_copied_are_computed_more_than_once() -> None:
    """Two heads of keys on four GPUs: each computes one of them."""
    few = layer(estimate(llama(kv_heads=2), Training(64), Parallel(tensor=4))).flops.linear
    four = layer(estimate(llama(kv_heads=4), Training(64), Parallel(tensor=4))).flops.linear
    assert few == four


def test_a_module_of_multi_token_prediction_is_a_layer_a_projection_and_a_head() -> None:
    found = estimate(llama(mtp=2), Training(64))
    module, h = layer(found, "mtp"), 128
    assert module.count == 2
    assert module.flops.linear == layer(found).flops.linear + layer(found, "head").flops.linear + 2 * 64 * 2 * h * h
    assert module.parameters.total == layer(found).parameters.total + 2 * h * h + 3 * h
    assert found.flops_per_token > estimate(llama(), Training(64)).flops_per_token


def test_an_embedding_has_no_flops() -> None:
    assert layer(estimate(llama(), Training(64)), "embedding").flops.forward == 0
