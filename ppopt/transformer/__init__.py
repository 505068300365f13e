"""Transformers: parameters, FLOPs, bytes and times of their layers, from their sizes. No PyTorch, no weights."""

from ppopt.transformer.checked import EstimateError
from ppopt.transformer.estimating import Estimate, LayerEstimate, estimate
from ppopt.transformer.hardware import GPU, preset, presets
from ppopt.transformer.settings import Cluster, Parallel, Training
from ppopt.transformer.sizes import Transformer

__all__ = [
    "GPU",
    "Cluster",
    "Estimate",
    "EstimateError",
    "LayerEstimate",
    "Parallel",
    "Training",
    "Transformer",
    "estimate",
    "preset",
    "presets",
]
