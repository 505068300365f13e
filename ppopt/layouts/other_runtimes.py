"""Layouts written for DeepSpeed, ColossalAI, MindFormers and Galvatron, by the names of their own options.

Sources: deepspeed/runtime/pipe/module.py of deepspeedai/DeepSpeed, edaa7221; colossalai/shardformer/shard/ of
hpcaitech/ColossalAI, 4f9953be; the documentation of MindFormers and of Galvatron.
"""

from __future__ import annotations

from typing import Any

from ppopt.layouts.layout import LOOP, Layout, NotExpressible, counts_of


def deepspeed(layout: Layout) -> dict[str, Any]:
    """Arguments of DeepSpeed's ``PipelineModule``, which takes no list: only its uniform cut, where that says the same.

    It deals whatever its list of modules has, the first stages one more. Each item of a stage counts as one here: so is it if
    the embedding, each layer, the norm (where ``N`` is given) and the head are one entry each of that list.

    Raises:
        NotExpressible: there are several stages on a device, or the stages have other numbers of modules.
    """
    runtime = "DeepSpeed"
    if layout.virtual > 1:
        raise NotExpressible(runtime, f"it has one stage on each device, not {layout.virtual}")
    _without_mtp(layout, runtime)
    sizes = tuple(map(len, layout.stages))
    share, more = divmod(sum(sizes), len(sizes))
    uniform = tuple(share + (s < more) for s in range(len(sizes)))
    if sizes != uniform:
        raise NotExpressible(
            runtime,
            f"it takes no list of stages, and its uniform cut has {_listed(uniform)} modules on them, not {_listed(sizes)}; "
            "what is left is a subclass of PipelineModule, or a balance by parameters or types that happens to be the same",
        )
    return {"num_stages": len(sizes), "partition_method": "uniform"}


def colossalai(layout: Layout) -> dict[str, Any]:
    """Arguments of ColossalAI's ``HybridParallelPlugin``. Its list is in the order of the stages, also for the V of zbv.

    Raises:
        NotExpressible: a stage without layers, multi-token prediction, or a wave of more than two stages on each device.
    """
    runtime = "ColossalAI"
    layers = _without_mtp(layout, runtime)
    if layout.placement != LOOP and layout.virtual != 2:
        raise NotExpressible(runtime, f"zbv has two stages on each device, not {layout.virtual}")
    style = "1f1b" if layout.virtual == 1 else "interleaved" if layout.placement == LOOP else "zbv"
    return {
        "pp_size": len(layout.devices),
        "pp_style": style,
        "num_model_chunks": layout.virtual,
        "num_layers_per_stage": list(_filled(layers, runtime)),
    }


def mindformers(layout: Layout) -> dict[str, Any]:
    """The ``offset`` of MindFormers: how many layers each stage has more than the equal share, rounded down.

    One row for each chunk, with an entry for each device; with one chunk the row alone.

    Raises:
        NotExpressible: the placement is no loop, a stage without layers, or multi-token prediction.
    """
    runtime = "MindFormers"
    if layout.placement != LOOP:
        raise NotExpressible(runtime, f"stages are dealt in a loop only, not as a {layout.placement}")
    layers = _filled(_without_mtp(layout, runtime), runtime)
    base = sum(layers) // len(layers)
    return {"offset": by_chunk(layout, tuple(count - base for count in layers))}


def galvatron(layout: Layout) -> dict[str, Any]:
    """The keys of Galvatron's JSON that cut a model.

    Raises:
        NotExpressible: several stages on a device, a stage without layers, or multi-token prediction.
    """
    runtime = "Galvatron"
    if layout.virtual > 1:
        raise NotExpressible(runtime, f"it has one stage on each device, not {layout.virtual}")
    layers = _filled(_without_mtp(layout, runtime), runtime)
    return {"pp_deg": len(layers), "pp_division": _listed(layers, ",")}


def by_chunk(layout: Layout, values: tuple[int, ...]) -> list[int] | list[list[int]]:
    """Numbers of stages as MindFormers has them: ``[chunk][device]``, or ``[device]`` with one chunk."""
    devices = len(layout.devices)
    rows = [list(values[c * devices : (c + 1) * devices]) for c in range(layout.virtual)]
    return rows if len(rows) > 1 else rows[0]


def _without_mtp(layout: Layout, runtime: str) -> tuple[int, ...]:
    counts = counts_of(layout, runtime)
    if any(counts.mtp):
        raise NotExpressible(runtime, "multi-token prediction has no place in its layouts")
    return counts.layers


def _filled(layers: tuple[int, ...], runtime: str) -> tuple[int, ...]:
    if 0 in layers:
        raise NotExpressible(
            runtime, f"stage {layers.index(0)} has no decoder layer, and nothing says that it takes such a stage"
        )
    return layers


def _listed(numbers: tuple[int, ...], separator: str = ", ") -> str:
    return separator.join(map(str, numbers))
