"""Transformers: parameters, FLOPs, bytes and times of their layers, from their sizes. No PyTorch, no weights."""

from ppopt.transformer.checked import EstimateError
from ppopt.transformer.configs import transformer_of
from ppopt.transformer.estimating import Estimate, LayerEstimate, estimate, state_bytes
from ppopt.transformer.hardware import GPU, preset, presets
from ppopt.transformer.settings import Cluster, Parallel, Training
from ppopt.transformer.sizes import Transformer
from ppopt.transformer.tables import Asked, asked_of, tables_of

__all__ = [
    "GPU",
    "Asked",
    "Cluster",
    "Estimate",
    "EstimateError",
    "LayerEstimate",
    "Parallel",
    "Training",
    "Transformer",
    "asked_of",
    "estimate",
    "preset",
    "presets",
    "state_bytes",
    "tables_of",
    "transformer_of",
]
