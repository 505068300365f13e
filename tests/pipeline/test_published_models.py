"""What layers retain in the models whose numbers come from their shapes, computed anew here."""

from fractions import Fraction

import pytest

from ppopt.files import read_model
from tests.support.places import ROOT

TOKENS = 8192


def a_matrix(inputs: int, outputs: int) -> int:
    """Bytes per token that W needs of one weight matrix in bf16: its input, and the gradient of its output."""
    return 2 * inputs + 2 * outputs


def decoder() -> int:
    """Of Llama 3 70B; the three products of queries, keys and values share their input, and so do gate and up."""
    hidden, queries, keys, width = 8192, 8192, 1024, 28672
    attention = a_matrix(hidden, queries + 2 * keys) + a_matrix(queries, hidden)
    return attention + a_matrix(hidden, 2 * width) + a_matrix(width, hidden)


def mamba() -> int:
    """Of Nemotron Nano 9B v2: one product to the gate, what is convolved and the steps, and one back."""
    hidden, inner, states = 4480, 128 * 80, 2 * 8 * 128
    return a_matrix(hidden, inner + (inner + states) + 128) + a_matrix(inner, hidden)


def hybrid_attention() -> int:
    hidden, queries, keys = 4480, 40 * 128, 8 * 128
    return a_matrix(hidden, queries + 2 * keys) + a_matrix(queries, hidden)


@pytest.mark.parametrize(
    ("model", "devices", "kind", "per_token"),
    [
        ("llama-3-70b", 4, "decoder", decoder()),
        ("llama-3-70b", 4, "head", a_matrix(8192, 128256)),
        ("nemotron-nano-9b", 1, "mamba", mamba()),
        ("nemotron-nano-9b", 1, "mlp", a_matrix(4480, 15680) + a_matrix(15680, 4480)),
        ("nemotron-nano-9b", 1, "attention", hybrid_attention()),
        ("nemotron-nano-9b", 1, "head", a_matrix(4480, 131072)),
    ],
)
def test_layers_retain_what_their_weight_gradients_need(model: str, devices: int, kind: str, per_token: int) -> None:
    layers = read_model(str(ROOT / "models" / f"{model}.toml")).pipeline.layers
    assert layers is not None
    found = {group.retained for group in layers.groups if group.name.split()[0] == kind}
    assert found == {round(Fraction(TOKENS * per_token, devices * 10**9), 3)}


def test_a_layer_that_recomputes_wholly_retains_more_than_it_holds() -> None:
    for model in ("llama-3-70b", "nemotron-nano-9b"):
        layers = read_model(str(ROOT / "models" / f"{model}.toml")).pipeline.layers
        assert layers is not None
        for group in layers.groups:
            full = group.level("full")
            if full is not None:
                assert group.retained is not None
                assert group.activation - full.saved < group.retained <= group.activation
