"""Sizes from a Hugging Face ``config.json``, as plain JSON: one table of keys for each ``model_type``.

A key may be absent where the library has a default for it that says no size, or one that published files rely on; any other
missing size is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ppopt.transformer.checked import EstimateError
from ppopt.transformer.sizes import Transformer

Config: TypeAlias = Mapping[str, Any]
_COMMON = {
    **{"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "vocabulary": "vocab_size"},
    "ffn": "intermediate_size",
}


def _number(config: Config, key: str, default: int | None = None, *others: str) -> int:
    """The size under ``key``, or under one of ``others``; ``default`` where all are absent."""
    for name in (key, *others):
        if config.get(name) is not None:
            value = config[name]
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise EstimateError(name, f"expected a whole number >= 0, got {value!r}")
            return value
    if default is None:
        raise EstimateError(key, "missing; expected a whole number")
    return default


def _flag(config: Config, key: str, default: bool) -> bool:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise EstimateError(key, f"expected true or false, got {value!r}")
    return value


def _common(config: Config, *, tied: bool = False, **renamed: str) -> dict[str, Any]:
    names = {**_COMMON, **renamed}
    found: dict[str, Any] = {field: _number(config, key) for field, key in names.items() if key}
    return {**found, "tied": _flag(config, "tie_word_embeddings", tied)}


def _heads(config: Config, size: int | None = None) -> dict[str, Any]:
    """Heads of keys and values: as many as of queries where the key is absent; their size, by default ``size``."""
    found = {"kv_heads": _number(config, "num_key_value_heads", 0) or None}
    return {**found, "head_size": _number(config, "head_dim", size or 0) or None}


def _numbered(config: Config, key: str) -> list[int]:
    value = config.get(key) or []
    if not isinstance(value, list) or not all(isinstance(layer, int) and not isinstance(layer, bool) for layer in value):
        raise EstimateError(key, f"expected a list of layers, got {value!r}")
    return value


def _windows(config: Config, window: int | None, sliding: Callable[[int], bool]) -> dict[str, Any]:
    """The window of the layers that slide: those that ``layer_types`` says, else those of which ``sliding`` is true."""
    if window is None:
        return {}
    count = _number(config, "num_hidden_layers")
    types = config.get("layer_types")
    if types is not None:
        known = ("sliding_attention", "full_attention")
        if not isinstance(types, list) or len(types) != count or any(kind not in known for kind in types):
            raise EstimateError("layer_types", f"expected {count} times {' or '.join(known)}, got {types!r}")
        listed = [layer for layer, kind in enumerate(types) if kind == known[0]]
    else:
        listed = [layer for layer in range(count) if sliding(layer)]
    return {"window": window, "windowed": listed} if listed else {}


def _window(config: Config, default: int | None) -> int | None:
    """``sliding_window``; ``default`` where the key is absent. ``null`` is none."""
    return default if "sliding_window" not in config else (_number(config, "sliding_window", 0) or None)


def _gpt2(config: Config) -> dict[str, Any]:
    """Plain GELU, biases, learned positions, tied; what is absent has the values of the smallest one."""
    hidden = _number(config, "n_embd", 768)
    return {
        "layers": _number(config, "n_layer", 12),
        "hidden": hidden,
        "heads": _number(config, "n_head", 12),
        "vocabulary": _number(config, "vocab_size", 50257),
        "ffn": _number(config, "n_inner", 4 * hidden),
        "positions": _number(config, "n_positions", 1024),
        "tied": _flag(config, "tie_word_embeddings", True),
        **dict.fromkeys(("qkv_bias", "output_bias", "ffn_bias"), True),
        **{"gated": False, "norm": "layer"},
    }


def _llama(config: Config) -> dict[str, Any]:
    bias = _flag(config, "attention_bias", False)
    biases = {"qkv_bias": bias, "output_bias": bias, "ffn_bias": _flag(config, "mlp_bias", False)}
    return {**_common(config), **_heads(config), **biases}


def _mistral(config: Config) -> dict[str, Any]:
    return {**_common(config), **_heads(config), **_windows(config, _window(config, 4096), lambda layer: True)}


def _sliding_from(config: Config) -> dict[str, Any]:
    """Windows in the layers from ``max_window_layers`` on, and only where ``use_sliding_window`` says so."""
    if not _flag(config, "use_sliding_window", False):
        return {}
    first = 0 if config.get("layer_types") is not None else _number(config, "max_window_layers")
    return _windows(config, _window(config, 4096), lambda layer: layer >= first)


def _qwen2(config: Config) -> dict[str, Any]:
    return {**_common(config), **_heads(config), **_sliding_from(config), "qkv_bias": True}


def _qwen3(config: Config) -> dict[str, Any]:
    if config.get("head_dim") is None:
        raise EstimateError("head_dim", "missing; of a qwen3 it does not follow from hidden_size")
    return {**_qwen3_attention(config), **_common(config)}


def _qwen3_attention(config: Config) -> dict[str, Any]:
    bias = _flag(config, "attention_bias", False)
    return {**_heads(config), **_sliding_from(config), "qkv_bias": bias, "output_bias": bias, "qk_norm": True}


def _qwen3_moe(config: Config) -> dict[str, Any]:
    """Every ``decoder_sparse_step``-th layer has experts, but those in ``mlp_only_layers``; these alone have
    ``intermediate_size``."""
    step, plain = _number(config, "decoder_sparse_step", 1), _numbered(config, "mlp_only_layers")
    count = _number(config, "num_hidden_layers")
    dense = [layer for layer in range(count) if layer in plain or step == 0 or (layer + 1) % step]
    return {
        **_qwen3_attention(config),
        **_common(config, ffn="intermediate_size" if dense else ""),
        **_experts(config, "num_experts", "moe_intermediate_size", "num_local_experts"),
        "dense": dense,
    }


def _experts(config: Config, count: str, width: str, *others: str) -> dict[str, Any]:
    return {
        "experts": _number(config, count, None, *others),
        "experts_per_token": _number(config, "num_experts_per_tok"),
        "expert_ffn": _number(config, width),
    }


def _mixtral(config: Config) -> dict[str, Any]:
    """``intermediate_size`` is the width of an expert."""
    experts = _experts(config, "num_local_experts", "intermediate_size")
    return {**_common(config, ffn=""), **_heads(config), **experts, **_windows(config, _window(config, None), lambda layer: True)}


def _deepseek(config: Config) -> dict[str, Any]:
    """Latent attention; ``head_dim`` and ``num_key_value_heads`` say nothing here. The first layers are dense, and those
    between."""
    if _flag(config, "attention_bias", False):
        raise EstimateError("attention_bias", "biases of latent attention are not known here")
    count, first = _number(config, "num_hidden_layers"), _number(config, "first_k_dense_replace")
    every = _number(config, "moe_layer_freq", 1)
    if not every:
        raise EstimateError("moe_layer_freq", "expected a whole number >= 1, got 0")
    dense = [layer for layer in range(count) if layer < first or layer % every]
    return {
        **_common(config, ffn="intermediate_size" if dense else ""),
        **_experts(config, "n_routed_experts", "moe_intermediate_size"),
        "shared_ffn": _number(config, "n_shared_experts", 0) * _number(config, "moe_intermediate_size"),
        "dense": dense,
        "q_latent": _number(config, "q_lora_rank", 0) or None,
        "kv_latent": _number(config, "kv_lora_rank"),
        "nope_size": _number(config, "qk_nope_head_dim"),
        "rope_size": _number(config, "qk_rope_head_dim"),
        "value_size": _number(config, "v_head_dim"),
        "mtp": _number(config, "num_nextn_predict_layers", 0),
    }


def _gpt_oss(config: Config) -> dict[str, Any]:
    """Biases everywhere, sinks, every second layer with a window from the first on; ``intermediate_size`` is the width of an
    expert."""
    bias = _flag(config, "attention_bias", True)
    return {
        **_common(config, ffn=""),
        **_heads(config, 64),
        **_experts(config, "num_local_experts", "intermediate_size", "num_experts"),
        **_windows(config, _window(config, 128), lambda layer: layer % 2 == 0),
        **{"qkv_bias": bias, "output_bias": bias, "ffn_bias": True, "router_bias": True, "sinks": True},
    }


def _gemma(config: Config) -> dict[str, Any]:
    bias = _flag(config, "attention_bias", False)
    return {**_common(config, tied=True), **_heads(config, 256), "qkv_bias": bias, "output_bias": bias}


def _gemma2(config: Config) -> dict[str, Any]:
    return {**_gemma(config), **_windows(config, _window(config, 4096), lambda layer: layer % 2 == 0), "norms": 4}


READERS: Mapping[str, Callable[[Config], dict[str, Any]]] = {
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gpt2": _gpt2,
    "gpt_oss": _gpt_oss,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
"""What each ``model_type`` that is known says with its keys."""


def sizes_of(config: Config, layers: int | None = None) -> dict[str, Any]:
    """The keys of ``[transformer]`` that a ``config.json`` gives; one with ``text_config`` is that of its language model.

    ``layers``: as if it had so many decoder layers. What it lists layer by layer has to be long enough then.

    Raises:
        EstimateError: its ``model_type`` is not known, a size is missing, or a value is not what its key holds.
    """
    nested = config.get("text_config")
    if isinstance(nested, Mapping):
        config = nested
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in READERS:
        given = "missing" if kind is None else f"{kind!r} is not known"
        hint = "for any other model write its sizes out in [transformer]: layers, hidden, heads, vocabulary, ffn, …"
        raise EstimateError("model_type", f"{given}; known are {', '.join(READERS)}; {hint}")
    if layers is not None:
        listed = config.get("layer_types")
        types = {"layer_types": listed[:layers]} if isinstance(listed, list) else {}
        config = {**config, **types, "n_layer" if kind == "gpt2" else "num_hidden_layers": layers}
    return {name: value for name, value in READERS[kind](config).items() if value is not None}


def transformer_of(config: Config) -> Transformer:
    """The sizes in a ``config.json``.

    Raises:
        EstimateError: see :func:`sizes_of`, or the sizes are at odds with each other.
    """
    return Transformer(**sizes_of(config))
