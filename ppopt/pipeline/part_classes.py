"""Whether the parts of a pipeline are what they have to be, before anything is read from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppopt.pipeline.layers import Layers
from ppopt.pipeline.mix import Mix
from ppopt.pipeline.offload import Offload
from ppopt.pipeline.parts import Costs, Links, Memory, PipelineError
from ppopt.pipeline.routes import MAX_STAGES
from ppopt.pipeline.traffic import DataParallel

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

CLASSES: dict[str, tuple[str, type]] = {
    "costs": ("costs", Costs),
    "links": ("links", Links),
    "memory": ("memory", Memory),
    "data_parallel": ("data_parallel", DataParallel),
    "layers": ("layers", Layers),
    "mix": ("pipeline.mix", Mix),
    "offload": ("offload", Offload),
}
"""Per field of a pipeline its key and its class."""
OPTIONAL = ("layers", "offload")


def check_parts(pipeline: Pipeline) -> None:
    """Raise where a part is not of its class, or there are more than :data:`~ppopt.pipeline.routes.MAX_STAGES` stages.

    Raises:
        PipelineError: it is not, or there are.
    """
    for name, (key, class_) in CLASSES.items():
        given = getattr(pipeline, name)
        if not isinstance(given, class_) and not (given is None and name in OPTIONAL):
            raise PipelineError(key, f"expected {class_.__name__}(...), got {given!r}")
    stages = pipeline.devices * (max(pipeline.chunks) if isinstance(pipeline.chunks, tuple) else pipeline.chunks)
    if stages > MAX_STAGES:
        raise PipelineError("pipeline.chunks", f"at most {MAX_STAGES} stages are supported, got {stages}")
