"""Memory counted in activations of a microbatch, as papers do."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def activations_of_one(pipeline: Pipeline) -> list[int]:
    """Per device, what the activations of one microbatch take over all stages that it has there; of several routes the most.

    Of a stage where more is retained than the forward takes it is that, so that a split backward has room. In integer amounts of
    :attr:`~ppopt.pipeline.Pipeline.amounts`.
    """
    most = np.maximum(pipeline.amounts.activation, pipeline.amounts.retained)
    return [
        max(int(most[r, route[Kind.B] == d].sum()) for r, route in enumerate(pipeline.device_by_kind))
        for d in range(pipeline.devices)
    ]


def room_for(pipeline: Pipeline, microbatches: Fraction) -> list[int]:
    """Per device, what the activations of this number of microbatches take; in integer amounts, rounded down."""
    return [int(one * microbatches) for one in activations_of_one(pipeline)]
