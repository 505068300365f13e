"""Bytes that a GPU always holds for a layer: weights, gradients, optimizer state."""

from __future__ import annotations

from fractions import Fraction

from ppopt.transformer.flops import over
from ppopt.transformer.parameters import Parameters
from ppopt.transformer.settings import Parallel

STATE = {
    "bf16": ((18, 0), (6, 12), (2, 16), (0, 18)),
    "fp16": ((20, 0), (4, 16), (2, 18), (0, 20)),
    "fp32": ((16, 0), (8, 8), (4, 12), (0, 16)),
}
"""By type of the weights and ZeRO stage: bytes of a parameter on each GPU, and bytes that are spread over the replicas. Adam in
fp32; with bf16 weights and fp32 gradients 2 + 4 + 12, with fp16 weights and gradients 2 + 2 + 16, with fp32 4 + 4 + 8."""
GRADIENT = {"bf16": 4, "fp16": 2, "fp32": 4}
"""Bytes of a gradient, as they are summed over replicas."""
OPTIMIZER_BYTES = 30
"""Read and written for a parameter in a step of Adam: gradient, master weight and two moments read, these three and the weight
written."""


def per_parameter(dtype: str, zero: int, replicas: int) -> Fraction:
    """Bytes of state for one parameter, where ``replicas`` GPUs hold the same ones."""
    own, spread = STATE[dtype][zero]
    return own + Fraction(spread, replicas)


def local(parameters: Parameters, parallel: Parallel) -> tuple[int | float, int | float]:
    """Parameters of a layer on one GPU: those that all replicas hold, and those of experts."""
    dense = parameters.whole + over(parameters.cut, parallel.tensor)
    return dense, over(parameters.experts, parallel.expert * (parallel.expert_tensor or 1))


def state(parameters: Parameters, parallel: Parallel, dtype: str) -> int | float:
    """Bytes of weights, gradients and optimizer state of a layer on one GPU; experts have replicas of their own."""
    dense, experts = local(parameters, parallel)
    size = Fraction(dense) * per_parameter(dtype, parallel.zero, parallel.replicas)
    size += Fraction(experts) * per_parameter(dtype, parallel.zero, parallel.expert_replicas)
    return size.numerator if size.denominator == 1 else float(size)


def optimizer_bytes(parameters: Parameters, parallel: Parallel) -> float:
    """Bytes that a step of the optimizer reads and writes for a layer on one GPU; with ZeRO a replica has its share."""
    dense, experts = local(parameters, parallel)
    if parallel.zero:
        dense, experts = dense / parallel.replicas, experts / parallel.expert_replicas
    return OPTIMIZER_BYTES * float(dense + experts)


def gathered(parameters: Parameters, parallel: Parallel, number_bytes: int) -> float:
    """Bytes of a layer's weights that are gathered with ZeRO-3 while the layer computes."""
    return number_bytes * float(sum(local(parameters, parallel))) if parallel.zero == 3 else 0.0
