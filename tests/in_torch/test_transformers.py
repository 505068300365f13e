"""Counts of parameters and FLOPs beside the modules of the library transformers, for small models of every kind that is read."""

from typing import Any

import pytest

from ppopt.transformer.configs import READERS
from ppopt.transformer.cross_check import cross_check
from tests.support.transformers import CONFIGS, config

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # of the library's own
]


@pytest.fixture(autouse=True)
def _library() -> None:
    pytest.importorskip("transformers")


SIZES = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 160, "vocab_size": 300}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 32}
LATENT = {"kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20, "num_key_value_heads": 4}
ROUTED = {"num_experts_per_tok": 2, "moe_intermediate_size": 40}
DEEPSEEK = {**SIZES, **LATENT, **ROUTED, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2}
SMALL: dict[str, list[dict[str, Any]]] = {
    "deepseek_v2": [{**DEEPSEEK, "q_lora_rank": None, "topk_group": 1}],
    "deepseek_v3": [{**DEEPSEEK, "q_lora_rank": 28, "topk_group": 1}],
    "gemma": [{**GROUPED}],
    "gemma2": [{**GROUPED, "sliding_window": 16}],
    "gpt2": [
        {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 300},
        {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_inner": 96},
    ],
    "gpt_oss": [{**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16}],
    "llama": [{**SIZES}, {**GROUPED, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}],
    "mistral": [{**GROUPED, "sliding_window": None}],
    "mixtral": [{**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}],
    "qwen2": [{**SIZES, "num_key_value_heads": 2}],
    "qwen3": [{**GROUPED}],
    "qwen3_moe": [{**GROUPED, **ROUTED, "num_experts": 8, "decoder_sparse_step": 2}],
}


def test_every_kind_is_here() -> None:
    assert SMALL.keys() == READERS.keys()


@pytest.mark.parametrize(("kind", "given"), [(kind, given) for kind, all_ in SMALL.items() for given in all_])
def test_small_models(kind: str, given: dict[str, Any]) -> None:
    for count in cross_check({"model_type": kind, **given}, sequence=64):
        assert count.here == count.library, count.what


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_two_layers_of_large_models(path: Any) -> None:
    given = config(path.stem)
    given["n_layer" if "n_layer" in given else "num_hidden_layers"] = 2
    for count in cross_check(given, sequence=64):
        assert count.here == count.library, count.what
