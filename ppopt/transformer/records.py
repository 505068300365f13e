"""An estimate as JSON: FLOPs, bytes and seconds of one layer of each group, for one microbatch on one GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

from ppopt.transformer.estimating import Estimate, LayerEstimate
from ppopt.transformer.hardware import GUESS
from ppopt.transformer.settings import Training
from ppopt.transformer.tables import Asked

Record: TypeAlias = dict[str, Any]


def record_of(asked: Asked) -> Record:
    """What is known: without a sequence parameters and their state alone, without a GPU no times; the rest is ``None``.

    ``parameters`` are those of the whole model, tied weights once, without modules of multi-token prediction; those of a layer
    are of the whole layer too. All else is for one microbatch on one GPU.

    Raises:
        EstimateError: the sizes cannot be cut as asked, or the cluster lacks a number.
    """
    if asked.training is not None:
        return _record(asked.estimate(), known=True)
    smallest = Training(sequence=asked.parallel.context, dtype=asked.dtype)
    return _record(replace(asked, training=smallest, cluster=None).estimate(), known=False)


def _record(estimate: Estimate, *, known: bool) -> Record:
    counts = estimate.counts
    return {
        "parameters": counts.total,
        "active_parameters": counts.active,
        "active_parameters_without_embedding": counts.active - counts.embedding,
        "prediction_parameters": counts.prediction,
        "flops_per_token": _whole(estimate.flops_per_token) if known else None,
        "boundary_bytes": _whole(estimate.boundary) if known else None,
        "layers": [_layer(estimate, group, known) for group in estimate.layers],
        "machine": _machine(estimate),
        "units": {"time": "s", "memory": "B"},
    }


def _layer(estimate: Estimate, group: LayerEstimate, known: bool) -> Record:
    flops, kept, seconds = group.flops, group.kept, group.seconds
    return {
        "name": group.name,
        "count": group.count,
        "parameters": group.parameters.total,
        "active_parameters": group.parameters.active,
        "flops": {
            "F": _known(flops.forward, known),
            "I": _known(flops.backward_input, known),
            "W": _known(flops.backward_weight, known),
        },
        "time": {
            "F": None if seconds is None else seconds.forward,
            "I": None if seconds is None else seconds.backward_input,
            "W": None if seconds is None else seconds.backward_weight,
        },
        "activation_bytes": {
            "none": _known(kept.none, known),
            "selective": _known(kept.selective, known),
            "full": _known(kept.full, known),
        },
        "retained_bytes": _known(kept.between, known),
        "state_bytes": _whole(group.state),
        "traffic_bytes": {name: _known(size, known) for name, size in estimate.traffic(group).items()},
        "recompute_time": None if seconds is None else {"selective": seconds.selective, "full": seconds.full},
        "step_time": None
        if seconds is None
        else {"all_gather": seconds.all_gather, "reduce_scatter": seconds.reduce_scatter, "optimizer": seconds.optimizer},
    }


def _machine(estimate: Estimate) -> Record | None:
    """What of the GPU is reached, and how that is known."""
    if estimate.cluster is None:
        return None
    gpu = estimate.cluster.gpu
    return {"gpu": gpu.name, **{name: getattr(gpu, name) for name in (*GUESS, "passes_backward", "basis")}}


def _known(value: float, known: bool) -> int | float | None:
    return _whole(value) if known else None


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else float(value)
