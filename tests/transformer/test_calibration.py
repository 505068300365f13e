"""Settings of a GPU fitted to measured times."""

from dataclasses import replace
from typing import Any

import pytest

from ppopt.transformer import Cluster, EstimateError, Parallel, Training, Transformer, preset
from ppopt.transformer.calibration import Measured, calibrate
from ppopt.transformer.tables import Asked
from tests.support.transformers import A100, costs, gpt, layer, llama, times

GPT = {"gated": False, "norm": "layer", "qkv_bias": True, "output_bias": True, "ffn_bias": True, "tied": True}


def asked(sizes: Transformer, cut: Parallel, **training: Any) -> Asked:
    return Asked(sizes, Training(**{"sequence": 1024, "attention": "unfused", **training}), cut, A100)


def made(sizes: Transformer, cut: Parallel, gpu: Any, **training: Any) -> Measured:
    """A row whose times are those of ``gpu``."""
    of = asked(sizes, cut, **training)
    seconds = times(replace(of, cluster=Cluster(gpu)).estimate())
    found = {"F": seconds.forward, "I": seconds.backward_input, "W": seconds.backward_weight}
    return Measured(f"{sizes.hidden}", of, "decoder", 3, {op: 3 * value for op, value in found.items()})


def test_settings_that_made_the_times_are_found_again() -> None:
    gpu = replace(preset("a100-80"), efficiency=0.61, passes=4.5, passes_backward=2.5, link_efficiency=0.4)
    sizes = [gpt(hidden=h, ffn=4 * h, heads=16) for h in (1024, 4096)]
    rows = [made(one, Parallel(tensor=t), gpu) for one in sizes for t in (1, 4)]
    found = calibrate(rows, "a test")
    assert found.fitted == ("efficiency", "passes", "passes_backward", "link_efficiency")
    for name in found.fitted:
        assert getattr(found.gpu, name) == pytest.approx(getattr(gpu, name), rel=1e-5)
    assert found.errors()[1] < 1e-5
    assert found.gpu.basis == "a test"
    assert {one.label for one in found.compared} == {"1024", "4096"}


def test_the_public_profile_is_fitted_as_closely_as_three_settings_can() -> None:
    """Mean 2.4 %, largest 5.5 %: efficiency 0.795, passes 4.7 and 4.1."""
    rows = []
    for entry in costs("stage-time"):
        shape = {"layers": entry["layers"], "hidden": entry["hidden"], "heads": entry["heads"], "vocabulary": entry["vocab"]}
        sizes = Transformer(**{**shape, "ffn": 4 * entry["hidden"], **GPT})
        keys = {"F": "forward_ms", "I": "backward_input_ms", "W": "backward_weight_ms"}
        seconds = {op: entry[key] / 1000 for op, key in keys.items()}
        of = asked(sizes, Parallel(), microbatch=entry["microbatch"])
        rows.append(Measured(entry["model"], of, "decoder", entry["layers_per_stage"], seconds))
    found = calibrate(rows, "profile")
    mean, largest = found.errors()
    assert mean <= 0.04
    assert largest <= 0.08
    assert found.gpu.efficiency == pytest.approx(0.795, abs=0.005)
    assert found.gpu.passes == pytest.approx(4.7, abs=0.1)
    assert found.gpu.passes_backward == pytest.approx(4.1, abs=0.1)
    assert found.errors("W")[0] < sum(abs(one.before / one.measured - 1) for one in found.compared if one.op == "W") / len(rows)


def test_what_is_fitted_may_be_named() -> None:
    gpu = replace(preset("a100-80"), efficiency=0.7, launch=3e-4)
    rows = [made(gpt(hidden=h, ffn=4 * h, heads=16), Parallel(), gpu) for h in (1024, 4096)]
    found = calibrate(rows, "a test", ["efficiency", "launch"])
    assert found.fitted == ("efficiency", "launch")
    assert found.gpu.efficiency == pytest.approx(0.7, rel=1e-4)
    assert found.gpu.launch == pytest.approx(3e-4, rel=1e-3)
    with pytest.raises(EstimateError, match=r"expected some of efficiency, .* to fit, got 'memory'"):
        calibrate(rows, "a test", ["memory"])


def test_a_fused_backward_with_recomputing() -> None:
    of = asked(llama(), Parallel(), recompute="full")
    found = of.estimate()
    seconds = times(found)
    whole = seconds.backward_input + seconds.backward_weight + seconds.full
    rows = [Measured("one", of, "decoder", 1, {"F": seconds.forward, "B": whole})]
    fitted = calibrate(rows, "a test")
    assert fitted.fitted == ("efficiency", "passes")
    assert fitted.errors()[1] < 1e-6
    assert layer(found).name == "decoder"


def test_never_more_than_the_peak() -> None:
    of = asked(llama(), Parallel())
    rows = [Measured("fast", of, "decoder", 1, {"F": 1e-9, "I": 1e-9, "W": 1e-9})]
    assert calibrate(rows, "a test").gpu.efficiency == 1


def test_what_cannot_be_fitted_is_refused() -> None:
    of = asked(llama(), Parallel())
    for rows, message in (
        ([], "no measured times"),
        ([Measured("one", of, "decoder", 1, {"F": 1.0})], "1 measured times do not fix 2 settings"),
        ([Measured("one", of, "moe", 1, {"F": 1.0})], "one: there is no layer 'moe'; expected one of embedding, decoder, head"),
        ([Measured("one", replace(of, cluster=None), "decoder", 1, {"F": 1.0})], "cluster.gpu: missing"),
        ([Measured("one", of, "embedding", 1, {"I": 1.0, "F": 1.0, "W": 1.0})], "takes no time in the estimate"),
        ([Measured("one", of, "decoder", 1, {"F": 0.0})], "expected times above 0"),
    ):
        with pytest.raises(EstimateError, match=message):
            calibrate(rows, "a test")
