"""Which layers recompute, written for runtimes: how many of each stage do, from its first one on.

A count is that of whole decoder layers which keep nothing but their input (``full``), or of layers which recompute some of their
modules (``selective``). Embedding, head and layers of multi-token prediction never do.
Sources: megatron/core/recompute.py of NVIDIA/Megatron-LM, d98e8a64; ``PipelineGradientCheckpointConfig`` of hpcaitech/ColossalAI,
4f9953be; the documentation of MindFormers and of Galvatron.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ppopt.layouts.layout import Layout, NotExpressible, counts_of
from ppopt.layouts.other_runtimes import by_chunk, galvatron, mindformers

CORE = ("core_attn",)
"""What Megatron recomputes by default where it is selective."""


def megatron_recompute(
    layout: Layout, full: Sequence[int], selective: Sequence[int] = (), modules: Sequence[str] = CORE
) -> tuple[str, ...]:
    """Megatron's flags. They hold for all stages: nothing, everything, the first n layers of each stage, or some modules.

    A stage of no more than n layers recomputes all of them.

    Raises:
        NotExpressible: the stages differ in a way that no single n says, some layers are full and others selective, or only
            some are selective.
        ValueError: a count is below zero or above the layers of its stage.
    """
    counts = counts_of(layout, "Megatron")
    wholly, partly = _checked(counts.layers, full), _checked(counts.layers, selective)
    if any(wholly) and any(partly):
        raise NotExpressible("Megatron", "one way to recompute holds for all layers; full and selective cannot be mixed")
    if any(partly):
        if partly != counts.layers:
            raise NotExpressible("Megatron", "selective recomputation holds for all layers of all stages, not for some")
        return ("--recompute-granularity", "selective", "--recompute-modules", *modules)
    if not any(wholly):
        return ()
    limits = {count for count, layers in zip(wholly, counts.layers, strict=True) if count < layers}
    if not limits and not any(counts.mtp):
        return _full("uniform", 1)
    number = limits.pop() if limits else max(counts.layers)
    if limits or wholly != tuple(min(number, layers) for layers in counts.layers):
        shown = ", ".join(f"{count} of {layers}" for count, layers in zip(wholly, counts.layers, strict=True))
        raise NotExpressible("Megatron", f"one number n holds for all stages, each recomputes its first n layers; got {shown}")
    return _full("block", number)


def colossalai_recompute(layout: Layout, full: Sequence[int]) -> dict[str, Any]:
    """Arguments of ColossalAI's ``PipelineGradientCheckpointConfig``, in the order of the stages.

    Raises:
        NotExpressible: the contents of the stages are not in order.
        ValueError: a count is below zero or above the layers of its stage.
    """
    return {"num_ckpt_layers_per_stage": list(_checked(counts_of(layout, "ColossalAI").layers, full))}


def mindformers_recompute(layout: Layout, full: Sequence[int], selective: Sequence[int] = ()) -> dict[str, Any]:
    """The lists of MindFormers, shaped as its ``offset``. Its selective counts include the layers that recompute wholly.

    Raises:
        NotExpressible: MindFormers does not take the layout.
        ValueError: a count is below zero, or both together above the layers of the stage.
    """
    mindformers(layout)
    wholly = _checked(layout.layers, full)
    both = _checked(layout.layers, [a + b for a, b in zip(wholly, selective or [0] * len(wholly), strict=True)])
    found: dict[str, Any] = {"recompute": by_chunk(layout, wholly)}
    if any(selective):
        found["select_recompute"] = by_chunk(layout, both)
    return found


def galvatron_recompute(layout: Layout, full: Sequence[int]) -> dict[str, Any]:
    """The key of Galvatron's JSON: for each layer 1 where it recomputes.

    Raises:
        NotExpressible: Galvatron does not take the layout.
        ValueError: a count is below zero or above the layers of its stage.
    """
    galvatron(layout)
    marks = [
        "1" if k < count else "0"
        for count, layers in zip(_checked(layout.layers, full), layout.layers, strict=True)
        for k in range(layers)
    ]
    return {"checkpoint": ",".join(marks)}


def _full(method: str, number: int) -> tuple[str, ...]:
    words = ("--recompute-granularity", "full", "--recompute-method", method)
    return (*words, "--recompute-num-layers", str(number))


def _checked(layers: tuple[int, ...], counts: Sequence[int]) -> tuple[int, ...]:
    """A count for each stage; none given is none of any."""
    found = tuple(counts) or (0,) * len(layers)
    if len(found) != len(layers):
        raise ValueError(f"expected a count for each of {len(layers)} stages, got {len(found)}")
    for stage, (count, most) in enumerate(zip(found, layers, strict=True)):
        if not 0 <= count <= most:
            raise ValueError(f"stage {stage}: expected a count from 0 to {most}, the layers that it has, got {count}")
    return found
