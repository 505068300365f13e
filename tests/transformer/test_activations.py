"""Bytes that are kept, by the closed forms of papers."""

import pytest

from ppopt.transformer import Parallel, Training, estimate
from ppopt.transformer.activations import Kept
from tests.support.transformers import gpt, layer, llama, model


def kept(b: int, s: int, h: int, a: int, t: int, *, along: bool) -> Kept:
    sizes = gpt(hidden=h, ffn=4 * h, heads=a)
    return layer(estimate(sizes, Training(s, b, attention="unfused"), Parallel(tensor=t, sequence_parallel=along))).kept


@pytest.mark.parametrize(("b", "s", "h", "a", "t"), [(1, 16, 64, 4, 1), (2, 32, 64, 8, 4), (3, 64, 128, 8, 8)])
def test_a_gpt_block_is_as_korthikanti_counts_it(b: int, s: int, h: int, a: int, t: int) -> None:
    """arXiv 2205.05198, table 2, dropout masks included."""
    alone, along = (kept(b, s, h, a, t, along=value) for value in (False, True))
    sbh = s * b * h
    assert alone.none == pytest.approx(sbh * (10 + 24 / t + 5 * a * s / (h * t)))
    assert alone.selective == pytest.approx(sbh * (10 + 24 / t))
    assert alone.full == 2 * sbh
    assert along.none == pytest.approx(sbh / t * (34 + 5 * a * s / h))
    assert along.selective == pytest.approx(34 * sbh / t)
    assert along.full == pytest.approx(2 * sbh / t)


def test_between_i_and_w_a_gpt_block_keeps_32_sbh() -> None:
    """arXiv 2401.10241, table 1."""
    found = kept(2, 32, 64, 8, 1, along=False)
    assert found.between == 32 * 32 * 2 * 64
    assert found.between > found.full  # I makes again what W needs


def test_a_gated_layer_frees_nothing_in_i_but_the_sums_of_its_softmax() -> None:
    found = layer(estimate(llama(), Training(64, 2))).kept
    assert found.none - found.between == found.held["log-sum-exp"] == 4 * 8 * 64 * 2
    n, h, q, kv, f = 128, 128, 128, 64, 320
    assert found.between == n * (8 * h + 4 * q + 4 * kv + 6 * f)
    unfused = layer(estimate(llama(), Training(64, 2, mlp="unfused"))).kept
    assert (unfused.none - found.none, unfused.between) == (n * 2 * f, found.between)


def test_experts_keep_what_a_token_passes_through() -> None:
    """n (8h + 4q + 4kv + k (4h + 6 f_e) + 4E), with the log-sum-exp."""
    sizes = llama(experts=8, experts_per_token=2, expert_ffn=64)
    found = layer(estimate(sizes, Training(64)))
    assert found.kept.none == 64 * (8 * 128 + 4 * 128 + 4 * 64 + 2 * (4 * 128 + 6 * 64) + 4 * 8 + 4 * 8)
    assert found.kept.held["experts"] == found.kept.retained["experts: operands"] == 64 * 2 * 6 * 64
    shared = layer(estimate(llama(experts=8, experts_per_token=2, expert_ffn=64, shared_ffn=32), Training(64)))
    assert shared.kept.none - found.kept.none == 64 * 6 * 32


def test_latent_attention() -> None:
    """n (8h + 2 (ql + kl + dr) + 4a (dn + dr) + 4a dv + 6f), with the log-sum-exp; DeepSeek-V3's first layers."""
    found = layer(estimate(model("deepseek-v3"), Training(4096))).kept
    h, a, f = 7168, 128, 18432
    assert found.none == 4096 * (8 * h + 2 * (1536 + 512 + 64) + 4 * a * 192 + 4 * a * 128 + 6 * f + 4 * a)


def test_four_norms_keep_what_goes_into_the_later_two() -> None:
    two, four = (layer(estimate(llama(norms=norms), Training(64))).kept.none for norms in (2, 4))
    assert four - two == 2 * 64 * 2 * 128


def test_the_head_keeps_logits_in_fp32() -> None:
    found = layer(estimate(llama(), Training(64)), "head").kept
    assert found.none == found.selective == found.full == 64 * (4 * 128 + 4 * 1000)
    assert found.between == 64 * (2 * 128 + 2 * 1000)


def test_an_embedding_keeps_numbers_of_tokens() -> None:
    assert layer(estimate(llama(), Training(64)), "embedding").kept.none == 8 * 64
    dropout = layer(estimate(llama(), Training(64, dropout=True)), "embedding").kept
    assert dropout.none == 8 * 64 + 64 * 128


def test_context_parallelism_cuts_everything_that_is_kept() -> None:
    for name in ("decoder", "head", "embedding"):
        one, two = (layer(estimate(llama(), Training(64), Parallel(context=c)), name).kept for c in (1, 2))
        assert 2 * two.none == one.none
        assert 2 * two.between == one.between
