"""Groups of layers, and what becomes of them in a pipeline."""

import pytest

import ppopt as pp
from ppopt.transformer import EstimateError, Parallel, Training, estimate
from ppopt.transformer.pipelines import memory_places, rounded
from tests.support.transformers import A100, gpt, llama, model


def names(name: str) -> list[tuple[str, int]]:
    return [(group.name, group.count) for group in estimate(model(name), Training(4096)).layers]


def test_groups_in_the_order_of_the_data() -> None:
    assert names("llama-3-8b") == [("embedding", 1), ("decoder", 32), ("head", 1)]
    assert names("deepseek-v3") == [("embedding", 1), ("dense", 3), ("moe", 58), ("mtp", 1), ("head", 1)]
    assert names("gpt-oss-20b")[:3] == [("embedding", 1), ("sliding decoder 0", 1), ("decoder 1", 1)]
    assert len(names("gpt-oss-20b")) == 26


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt-2", "deepseek-v3", "gpt-oss-20b", "mixtral-8x7b"])
def test_the_layers_hold_all_parameters_once(name: str) -> None:
    found = estimate(model(name), Training(1024))
    assert sum(group.count * group.parameters.total for group in found.layers) == found.counts.total + found.counts.prediction


def test_layers_of_a_pipeline_are_in_ms_and_gb() -> None:
    sizes = llama(layers=6, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocabulary=32000)
    found = estimate(sizes, Training(4096), Parallel(pipeline=2, tensor=2), A100)
    layers = found.to_layers()
    decoder, one = layers.groups[1], found.layers[1]
    assert one.seconds is not None
    assert float(decoder.forward) == pytest.approx(1000 * one.seconds.forward, rel=1e-3)
    assert float(decoder.activation) == pytest.approx(one.kept.none / 1e9, rel=1e-3)
    assert float(decoder.weights) == pytest.approx(one.state / 1e9, rel=1e-3)
    selective, full = decoder.recompute
    assert (selective.name, full.name) == ("selective", "full")
    assert full.saved == decoder.activation - rounded(one.kept.full / 1e9, memory_places(found))
    assert layers.groups[0].recompute == layers.groups[2].recompute == ()
    assert not layers.groups[0].frozen
    pipeline = pp.Pipeline(2, 4, layers=layers, links=found.to_links(), partition="balanced")
    assert pp.compare(pipeline)["1f1b"].makespan > 0


def test_retained_may_be_more_than_a_recomputing_layer_holds() -> None:
    layers = estimate(gpt(hidden=1024, ffn=4096), Training(2048, attention="unfused"), cluster=A100).to_layers()
    decoder = layers.groups[1]
    assert decoder.retained is not None
    assert decoder.activation > decoder.retained > decoder.activation - decoder.recompute[-1].saved


def test_times_need_a_gpu() -> None:
    found = estimate(llama(), Training(64), Parallel(pipeline=2))
    assert found.layers[1].seconds is None
    assert found.boundary_seconds == ()
    for make in (found.to_layers, found.to_links):
        with pytest.raises(EstimateError, match=r"cluster.gpu: missing"):
            make()


def test_what_a_device_needs_beside_its_layers() -> None:
    found = estimate(llama(), Training(64), Parallel(data=2, zero=3), A100)
    kept, of = found.layers[1].kept, max(group.parameters.total for group in found.layers)
    assert found.working(recompute=True) - found.working(recompute=False) == kept.none - kept.full
    assert found.working(recompute=False) == 2 * 2 * of
    assert found.static() == pytest.approx(0.08 * 80e9 + 4 * of)
    assert found.static(recompute=True) - found.static() == kept.none - kept.full


def test_microbatches_of_a_step() -> None:
    assert estimate(llama(), Training(64, 2, 24), Parallel(data=3)).microbatches == 4
    assert estimate(llama(), Training(64)).microbatches is None


def test_what_goes_to_other_gpus() -> None:
    sizes = llama(experts=8, experts_per_token=2, expert_ffn=64)
    alone = estimate(sizes, Training(64))
    assert all(not any(alone.traffic(group).values()) for group in alone.layers)
    found = estimate(sizes, Training(64), Parallel(tensor=2, context=2, data=4, expert=4, zero=1))
    embedding, decoder, head = (found.traffic(group) for group in found.layers)
    n, h, of = 32, 128, found.layers[1].parameters
    assert decoder["tensor"] == 2 * embedding["tensor"] == 2 * 2 * n * h
    assert decoder["experts"] == 2 * (2 * n * 2 * h * 3 // 4)
    assert decoder["context"] == 1 * 2 * 2 * n * 64 // 2
    assert decoder["gradients"] == 2 * decoder["weights"] == 4 * (of.whole + of.cut // 2 + of.experts // 8)
    assert head["tensor"] == head["experts"] == 0


def test_from_the_face_of_the_package() -> None:
    sizes = pp.Transformer(layers=2, hidden=64, heads=4, ffn=128, vocabulary=100)
    found = pp.estimate(sizes, pp.Training(32), pp.Parallel(pipeline=2), pp.Cluster("h100-sxm"))
    assert len(found.to_layers()) == 4
