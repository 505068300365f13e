"""Bytes of weights, gradients and optimizer."""

from fractions import Fraction

import pytest

from ppopt.transformer import Parallel, Training, estimate
from ppopt.transformer.states import STATE, per_parameter
from tests.support.transformers import gpt, layer, llama, model


def test_bytes_of_a_parameter() -> None:
    """Megatron-LM, docs/user-guide/features/dist_optimizer.md; the ZeRO stages beyond it."""
    assert per_parameter("bf16", 0, 8) == 18
    assert per_parameter("bf16", 1, 8) == Fraction(15, 2)
    assert per_parameter("fp16", 1, 8) == 6
    assert per_parameter("fp32", 1, 8) == 9
    for dtype, stages in STATE.items():
        for zero, (own, spread) in enumerate(stages):
            assert own + spread == per_parameter(dtype, zero, 1) == STATE[dtype][0][0]


def test_state_of_a_gpt_block() -> None:
    found = layer(estimate(gpt(), Training(16), Parallel(tensor=2, data=4, zero=1)))
    assert found.state == 12 * 64 * 64 // 2 * 9


def test_norms_are_on_every_gpu() -> None:
    plain, normed = (layer(estimate(llama(norm=norm), Training(16), Parallel(tensor=4))).state for norm in ("none", "rms"))
    assert normed - plain == 18 * 2 * 128


def test_experts_have_replicas_of_their_own() -> None:
    sizes = llama(experts=8, experts_per_token=2, expert_ffn=64)
    of = layer(estimate(sizes, Training(16))).parameters
    spread = layer(estimate(sizes, Training(16), Parallel(data=8, expert=4, zero=1)))
    dense = of.cut + of.whole
    assert of.experts == 8 * 3 * 128 * 64
    assert spread.state == dense * (6 + Fraction(12, 8)) + Fraction(of.experts, 4) * (6 + Fraction(12, 2))


def test_tied_weights_are_on_the_last_device_too_where_there_are_several() -> None:
    one, two = (layer(estimate(model("gpt-2"), Training(16), Parallel(pipeline=d)), "head") for d in (1, 2))
    assert one.state == 18 * 2 * 768
    assert two.state - one.state == 18 * 50257 * 768
    assert one.parameters == two.parameters


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_zero_never_holds_more(zero: int) -> None:
    sizes = [layer(estimate(llama(), Training(16), Parallel(data=4, zero=z))).state for z in (max(0, zero - 1), zero)]
    assert sizes[1] <= sizes[0]
