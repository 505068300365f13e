"""Sizes from config.json: counted parameters, and the traps of each model_type."""

from typing import Any

import pytest

from ppopt.transformer import EstimateError, transformer_of
from ppopt.transformer.configs import READERS, sizes_of
from ppopt.transformer.parameters import counts
from tests.support.transformers import CONFIGS, config, costs, model

PLAIN = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "q_lora_rank": None}
DEEPSEEK = {**PLAIN, **EXPERTS, **LATENT, "model_type": "deepseek_v3", "n_routed_experts": 8, "first_k_dense_replace": 1}
PUBLISHED = [
    ({"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16}, 354823168),
    (
        {"model_type": "mistral", **PLAIN, "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
        | {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000},
        7241732096,
    ),
    (
        {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28}
        | {"num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064},
        7615616512,
    ),
    (
        {"model_type": "gemma2", "num_hidden_layers": 42, "hidden_size": 3584, "num_attention_heads": 16, "head_dim": 256}
        | {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 256000},
        9241705984,
    ),
]
"""Figures of parameters that the models' pages print."""


@pytest.mark.parametrize("entry", costs("parameters"), ids=lambda entry: str(entry["model"]))
def test_counted_parameters(entry: dict[str, Any]) -> None:
    found = counts(transformer_of(entry["config"]))
    assert found.total == entry["total"]
    assert found.active == entry.get("active", found.total)


@pytest.mark.parametrize(("given", "total"), PUBLISHED, ids=lambda value: value["model_type"] if isinstance(value, dict) else "")
def test_published_parameters(given: dict[str, Any], total: int) -> None:
    assert counts(transformer_of(given)).total == total


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_the_configs_of_the_repository_are_read(path: Any) -> None:
    assert counts(model(path.stem)).total > 5 * 10**7


def test_large_models_have_their_published_sizes() -> None:
    assert round(counts(model("llama-3-70b")).total / 1e9, 1) == 70.6
    assert round(counts(model("gpt-oss-120b")).total / 1e9, 1) == 116.8
    found = counts(model("qwen3-235b-a22b"))
    assert (round(found.total / 1e9), round(found.active / 1e9, 2)) == (235, 22.19)


def test_head_size_of_llama_follows_where_it_is_absent_or_null() -> None:
    for head in ({}, {"head_dim": None}):
        assert transformer_of({"model_type": "llama", **PLAIN, **head}).head_size == 16
    assert transformer_of({"model_type": "llama", **PLAIN, "head_dim": 32}).query == 128
    with pytest.raises(EstimateError, match="head_dim: missing"):
        transformer_of({"model_type": "qwen3", **PLAIN})


def test_windows() -> None:
    def windowed(**given: Any) -> tuple[int, ...]:
        return transformer_of({**PLAIN, **given}).windowed

    assert windowed(model_type="mistral") == (0, 1, 2, 3)
    assert windowed(model_type="mistral", sliding_window=None) == ()
    assert windowed(model_type="qwen2", sliding_window=64, use_sliding_window=False, max_window_layers=2) == ()
    assert windowed(model_type="qwen2", sliding_window=64, use_sliding_window=True, max_window_layers=2) == (2, 3)
    assert windowed(model_type="gemma2") == (0, 2)
    oss = {"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2}
    assert windowed(**oss) == (0, 2)
    assert windowed(**oss, layer_types=["full_attention", "sliding_attention"] * 2) == (1, 3)
    with pytest.raises(EstimateError, match="layer_types: expected 4 times"):
        windowed(**oss, layer_types=["sliding_attention"])


def test_which_layers_have_experts() -> None:
    qwen = {"model_type": "qwen3_moe", **PLAIN, **EXPERTS, "head_dim": 16, "num_experts": 4}
    assert transformer_of(qwen).dense == ()
    assert transformer_of(qwen).ffn is None  # intermediate_size is unused
    assert transformer_of({**qwen, "decoder_sparse_step": 2}).dense == (0, 2)
    assert transformer_of({**qwen, "mlp_only_layers": [3]}).dense == (3,)
    renamed = {key: value for key, value in qwen.items() if key != "num_experts"} | {"num_local_experts": 4}
    assert transformer_of(renamed) == transformer_of(qwen)
    assert transformer_of(DEEPSEEK).dense == (0,)
    assert transformer_of({**DEEPSEEK, "moe_layer_freq": 2}).dense == (0, 1, 3)


def test_deepseek_ignores_the_head_size_and_the_heads_of_keys() -> None:
    found = transformer_of({**DEEPSEEK, "head_dim": 64, "num_key_value_heads": 1})
    assert (found.head_size, found.kv_heads, found.query, found.valued) == (None, 4, 48, 8)
    assert found == transformer_of(DEEPSEEK)


def test_mixtral_and_gpt_oss_have_the_width_of_an_expert_as_intermediate_size() -> None:
    assert (model("mixtral-8x7b").ffn, model("mixtral-8x7b").expert_ffn) == (None, 14336)
    assert (model("gpt-oss-20b").ffn, model("gpt-oss-20b").expert_ffn) == (None, 2880)


def test_tied_where_the_key_is_absent_depends_on_the_kind() -> None:
    gemma = transformer_of({"model_type": "gemma", **PLAIN})
    assert (gemma.tied, gemma.head_size) == (True, 256)
    assert not transformer_of({"model_type": "llama", **PLAIN}).tied
    assert transformer_of({"model_type": "gpt2"}).tied


def test_nested_language_model() -> None:
    inner = {"model_type": "llama", **PLAIN}
    assert transformer_of({"model_type": "of-pictures", "text_config": inner}) == transformer_of(inner)


def test_fewer_layers_than_the_config_has() -> None:
    assert sizes_of(config("deepseek-v3"), 2)["dense"] == [0, 1]
    assert sizes_of(config("gpt-2"), 2)["layers"] == 2


@pytest.mark.parametrize("given", [{}, {"model_type": "mamba"}, {"model_type": 3}])
def test_an_unknown_kind_is_refused_with_the_list_and_the_way_out(given: dict[str, Any]) -> None:
    with pytest.raises(EstimateError) as caught:
        transformer_of(given)
    assert all(kind in str(caught.value) for kind in READERS)
    assert "[transformer]: layers, hidden, heads" in str(caught.value)


@pytest.mark.parametrize("kind", sorted(set(READERS) - {"gpt2"}))
def test_a_missing_size_is_never_guessed(kind: str) -> None:
    for key in PLAIN:
        if key == "intermediate_size":
            continue
        given = {**DEEPSEEK, **PLAIN, "head_dim": 16, "num_experts": 4, "num_local_experts": 4, "model_type": kind, key: None}
        with pytest.raises(EstimateError, match=f"{key}: missing"):
            transformer_of(given)


def test_wrong_values_are_named() -> None:
    with pytest.raises(EstimateError, match="hidden_size: expected a whole number >= 0, got '64'"):
        transformer_of({"model_type": "llama", **PLAIN, "hidden_size": "64"})
    with pytest.raises(EstimateError, match="tie_word_embeddings: expected true or false"):
        transformer_of({"model_type": "llama", **PLAIN, "tie_word_embeddings": 1})
