"""Pipelines with data-parallel traffic."""

from typing import Any

from ppopt.pipeline import Costs, DataParallel, Pipeline


def wave(microbatches: int, gather: Any, scatter: Any, **more: Any) -> Pipeline:
    """Device 0 holds stages 0 and 3, device 1 stages 1 and 2; every operation takes 1."""
    traffic = DataParallel(gather, scatter, **{"overlap": True, "per": "stage", **more})
    return Pipeline(2, microbatches, "wave", 2, costs=Costs("stage", backward=1), data_parallel=traffic)
