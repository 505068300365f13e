"""What measure_layers.py measures is what estimates count, and its table is one that estimates are fitted to."""

import csv
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from ppopt.files.estimates import read_source
from ppopt.files.measured import read_measured
from ppopt.transformer import Asked, EstimateError, Parallel, Training, Transformer
from tests.support.places import MODELS, ROOT

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]
LLAMA = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "vocabulary": 96, "ffn": 160}
GPT = {**LLAMA, "kv_heads": 4, "norm": "layer", "gated": False, "positions": 32}
GPT |= dict.fromkeys(("qkv_bias", "output_bias", "ffn_bias"), True)


def asked_of(sizes: dict[str, object]) -> Asked:
    return Asked(Transformer(**sizes), Training(32, 2), Parallel(), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [LLAMA, GPT], ids=["llama", "gpt"])
@pytest.mark.parametrize("kind", ["embedding", "decoder", "head"])
def test_a_layer_has_the_parameters_and_matrices_that_are_counted(sizes: dict[str, object], kind: str) -> None:
    import measure_layers
    from torch.utils.flop_counter import FlopCounterMode

    asked = asked_of(sizes)
    counted = next(group for group in asked.estimate().layers if group.kind == kind)
    layer, inputs = measure_layers.built(asked, kind, "cpu")
    assert sum(parameter.numel() for parameter in layer.parameters()) == counted.parameters.total
    with FlopCounterMode(display=False) as counter:
        layer(*inputs)
    assert counter.get_total_flops() == counted.flops.linear  # attention on a processor is not counted


def test_what_a_gpt_layer_keeps_is_what_is_counted() -> None:
    """But for what attention keeps on a processor besides."""
    import measure_layers

    asked = asked_of(GPT)
    layer, inputs = measure_layers.built(asked, "decoder", "cpu")
    counted = next(group for group in asked.estimate().layers if group.kind == "decoder")
    assert measure_layers.kept_bytes(layer, inputs) == pytest.approx(float(counted.kept.none), rel=0.05)


def test_the_table_is_one_that_estimates_are_fitted_to(tmp_path: Path) -> None:
    source = tmp_path / "sizes.toml"
    source.write_text("[transformer]\n" + "".join(f"{key} = {value}\n" for key, value in LLAMA.items()))
    table = tmp_path / "times.csv"
    vary = ("--vary", "transformer.sequence=16,32", "--vary", "training.microbatch=1,2")
    for layers in (("decoder",), ("embedding", "head")):
        command = [sys.executable, ROOT / "scripts" / "measure_layers.py", source, *vary, "--layers", *layers, "-o", table]
        told = subprocess.run([*command, "--device", "cpu", "--repeats", "3"], capture_output=True, text=True, check=True)
        assert told.stdout.count("\n") == 1 + 4 * len(layers)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["layer"] for row in rows] == ["decoder"] * 4 + ["embedding", "head"] * 4
    for row in rows:
        parts = [float(row[name] or 0) for name in ("backward_input", "backward_weight")]
        assert float(row["backward"]) >= max(parts) > 0 or not row["backward_weight"]
    measured = read_measured(str(table), read_source(str(source)))
    assert [(of.asked.training.sequence, of.asked.training.microbatch) for of in measured[:4]] == [  # type: ignore[union-attr]
        (16, 1), (16, 2), (32, 1), (32, 2)
    ]  # fmt: skip
    assert all(of.seconds["F"] > 0 for of in measured)


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"window": 8}, "transformer.window"),
        ({"experts": 4, "experts_per_token": 2, "expert_ffn": 8}, "transformer.experts"),
        ({"norms": 4}, "transformer.norms"),
        ({"norm": "none"}, "transformer.norms"),
    ],
)
def test_layers_that_are_not_built_are_refused(more: dict[str, object], key: str) -> None:
    import measure_layers

    asked = asked_of({**LLAMA, **more})
    with pytest.raises(EstimateError) as refused:
        measure_layers.check(asked)
    assert refused.value.key == key
    unfused = replace(asked_of(LLAMA), training=Training(32, attention="unfused"))
    with pytest.raises(EstimateError, match="flash attention"):
        measure_layers.check(unfused)


def test_layers_are_not_measured_without_a_sequence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``config.json`` does not say how long sequences are."""
    import measure_layers

    monkeypatch.setattr(sys, "argv", ["measure_layers.py", str(MODELS / "configs" / "llama-3-8b.json")])
    assert measure_layers.main() == 2
    assert "transformer.sequence: missing" in capsys.readouterr().err
