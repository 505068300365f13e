"""Times: what they are made of, and how they change with the machine and the cut."""

from dataclasses import replace

import pytest

from ppopt.transformer import GPU, Cluster, EstimateError, Parallel, Training, estimate, preset
from tests.support.transformers import A100, gpt, layer, llama, model, times

BARE = GPU(1e12, efficiency=1, passes=0, link_efficiency=1)
"""FLOPs alone, at 1e12 a second."""


def test_flops_alone() -> None:
    found = estimate(llama(), Training(64), cluster=Cluster(BARE))
    for kind in ("decoder", "head"):
        flops, seconds = layer(found, kind).flops, times(found, kind)
        assert seconds.forward == pytest.approx(flops.forward / 1e12)
        assert seconds.backward_input == pytest.approx(flops.backward_input / 1e12)
        assert seconds.backward_weight == pytest.approx(flops.backward_weight / 1e12)


def test_the_formula() -> None:
    """F = flops / (peak e) + kappa A / bandwidth + 2 all-reduces of 2 n h bytes on a ring."""
    gpu, cut = preset("a100-80"), Parallel(tensor=4)
    found = estimate(gpt(), Training(16, 2, attention="unfused"), cut, A100)
    one = layer(found)
    ring = 2 * 2 * 3 / 4 * (2 * 32 * 64) / (0.7 * 300e9)
    moved = 3.55 * one.kept.none / 2039e9
    assert times(found).forward == pytest.approx(one.flops.forward / (0.75 * 312e12) + moved + ring)
    assert times(found).backward_input == pytest.approx(one.flops.backward_input / (0.75 * 312e12) + moved + ring)
    assert times(found).backward_weight == pytest.approx(one.flops.backward_weight / (0.75 * 312e12))
    scores = sum(one.kept.held[name] for name in ("scores",))
    assert times(found).selective == pytest.approx(one.flops.core / (0.75 * 312e12) + 3.55 * scores / 2039e9)
    assert times(found).full == times(found).forward
    assert gpu == A100.gpu


def test_the_backward_may_have_passes_of_its_own() -> None:
    gpu = replace(preset("a100-80"), passes_backward=0.0)
    found = times(estimate(gpt(), Training(16), cluster=Cluster(gpu)))
    assert found.parts[0].memory > found.parts[1].memory == 0


def test_a_launch_is_in_every_operation() -> None:
    slow = replace(BARE, launch=1.0)
    found = times(estimate(llama(), Training(64), cluster=Cluster(slow)))
    assert all(1 < part.total < 1.1 for part in found.parts)


def test_an_embedding_has_no_input_gradient() -> None:
    found = times(estimate(llama(), Training(64), cluster=A100), "embedding")
    assert found.backward_input == 0 < found.forward < found.backward_weight


def test_context_traffic_counts_beyond_the_scores() -> None:
    slow = replace(BARE, intra=1e-3)  # 1 MB a second
    found = times(estimate(llama(), Training(64), Parallel(context=2), Cluster(slow)))
    sent = 1 * 2 * 2 * 32 * 64 / 1e6
    core = layer(estimate(llama(), Training(64), Parallel(context=2))).flops.core / 1e12
    assert found.parts[0].transfers == pytest.approx(sent - core)
    assert found.parts[1].transfers == pytest.approx(2 * sent - 2.5 * core)
    fast = replace(BARE, intra=1e6)
    assert times(estimate(llama(), Training(64), Parallel(context=2), Cluster(fast))).parts[0].transfers == 0


def test_experts_elsewhere_are_sent_to_and_back() -> None:
    sizes = llama(experts=8, experts_per_token=2, expert_ffn=64)
    found = times(estimate(sizes, Training(64), Parallel(data=4, expert=4), Cluster(replace(BARE, intra=1))))
    assert found.parts[0].transfers == found.parts[1].transfers == pytest.approx(2 * (2 * 64 * 2 * 128 * 3 / 4) / 1e9)
    assert found.parts[2].transfers == 0


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_data_parallelism_of_a_step(zero: int) -> None:
    """ZeRO-0 sums fp32 gradients on a ring, ZeRO-1 scatters them and gathers bf16 weights; 2 and 3 do so for each microbatch."""
    gpu = replace(BARE, intra=1, flops=1e18)
    found = times(estimate(gpt(), Training(16), Parallel(data=4, zero=zero), Cluster(gpu)))
    size = 12 * 64 * 64 / 1e9
    scatter, gather = 3 / 4 * 4 * size, 3 / 4 * 2 * size
    assert found.reduce_scatter == pytest.approx([2 * scatter, scatter, 0, 0][zero])
    assert found.all_gather == pytest.approx([0, gather, gather, 0][zero])
    assert found.backward_weight == pytest.approx(scatter if zero >= 2 else 0, abs=1e-9)
    assert found.forward == pytest.approx(gather if zero == 3 else 0, abs=1e-9)


def test_copies_of_tied_weights_sum_their_gradients() -> None:
    gpu = replace(BARE, network=1, intra=1)
    tied, apart = (estimate(llama(tied=t), Training(16), Parallel(pipeline=2), Cluster(gpu)) for t in (True, False))
    for kind in ("embedding", "head"):
        assert times(tied, kind).reduce_scatter == pytest.approx(4 * 1000 * 128 / 1e9)
        assert times(apart, kind).reduce_scatter == 0
    assert times(tied).reduce_scatter == 0
    assert times(estimate(llama(tied=True), Training(16), cluster=Cluster(gpu)), "head").reduce_scatter == 0


def test_the_optimizer_reads_and_writes_thirty_bytes() -> None:
    gpu = replace(BARE, bandwidth=1)
    whole, share = (
        times(estimate(gpt(), Training(16), Parallel(data=4, zero=z), Cluster(replace(gpu, intra=1)))) for z in (0, 1)
    )
    assert whole.optimizer == pytest.approx(30 * 12 * 64 * 64 / 1e9)
    assert share.optimizer == pytest.approx(whole.optimizer / 4)


def test_links_of_a_pipeline_are_those_of_the_node_where_they_stay_in_it() -> None:
    sizes, training = llama(layers=8), Training(64)
    inside = estimate(sizes, training, Parallel(pipeline=4), A100)
    assert inside.boundary_seconds == pytest.approx([2 * 64 * 128 / (0.7 * 300e9)] * 3)
    across = estimate(sizes, training, Parallel(pipeline=4, data=8), A100)
    assert across.boundary_seconds == pytest.approx([2 * 64 * 128 / (0.7 * 25e9)] * 3)
    mixed = estimate(sizes, training, Parallel(pipeline=4, data=4), A100)
    near, far, last = mixed.boundary_seconds
    assert near == last < far
    table = mixed.to_links().latency
    assert isinstance(table, tuple)
    assert table[0][1] == table[2][3] < table[1][2] == table[0][3]
    assert [table[d][d] for d in range(4)] == [0] * 4
    held = mixed.to_links(occupied=True)
    assert (held.occupancy, held.latency) == (table, 0)


def test_a_number_that_is_needed_and_not_known_is_named() -> None:
    for parallel, missing in ((Parallel(tensor=2), "intra"), (Parallel(data=16), "network")):
        with pytest.raises(EstimateError, match=f"cluster.{missing}: missing; .* parallelism needs it"):
            estimate(llama(), Training(64), parallel, Cluster(BARE))
    with pytest.raises(EstimateError, match=r"cluster.bandwidth: missing; .*unless passes = 0"):
        estimate(llama(), Training(64), cluster=Cluster(GPU(1e12)))


def test_multi_token_prediction_takes_a_layer_a_head_and_more() -> None:
    found = estimate(model("deepseek-v3"), Training(4096), Parallel(data=64, expert=64), Cluster("h100-sxm"))
    moe = next(group.seconds for group in found.layers if group.name == "moe")
    assert moe is not None
    for mine, part, last in zip(times(found, "mtp").parts, moe.parts, times(found, "head").parts, strict=True):
        assert part.total + last.total < mine.total < 1.1 * (part.total + last.total)
