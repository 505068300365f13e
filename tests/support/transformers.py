"""Transformers that several tests estimate."""

import json
from typing import Any

from ppopt.transformer import Cluster, Estimate, LayerEstimate, Transformer, transformer_of
from ppopt.transformer.times import Seconds
from tests.support.places import DATA, MODELS

CONFIGS = MODELS / "configs"
A100 = Cluster("a100-80")


def costs(kind: str) -> list[dict[str, Any]]:
    """The entries of a kind in ``tests/data/costs.json``."""
    return [entry for entry in json.loads((DATA / "costs.json").read_text())["entries"] if entry["kind"] == kind]


def config(name: str) -> dict[str, Any]:
    """A ``config.json`` of ``models/configs``."""
    found: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return found


def model(name: str) -> Transformer:
    """Its sizes."""
    return transformer_of(config(name))


def gpt(**more: Any) -> Transformer:
    """A GPT of nothing but matrices: the formulas of papers are about it."""
    sizes = {"layers": 4, "hidden": 64, "heads": 4, "vocabulary": 512, "ffn": 256, "gated": False, "norm": "none"}
    return Transformer(**{**sizes, **more})


def llama(**more: Any) -> Transformer:
    """A gated transformer with fewer heads of keys and values."""
    return Transformer(**{"layers": 6, "hidden": 128, "heads": 8, "kv_heads": 4, "ffn": 320, "vocabulary": 1000, **more})


def layer(found: Estimate, kind: str = "decoder") -> LayerEstimate:
    """The first layers of a kind."""
    return next(group for group in found.layers if group.kind == kind)


def times(found: Estimate, kind: str = "decoder") -> Seconds:
    """Their times."""
    seconds = layer(found, kind).seconds
    assert seconds is not None
    return seconds
