"""The model file of an estimate: layers with times in ms and memory in GB, and a comment on every number that says where it is
from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ppopt.files.estimates import Source
from ppopt.files.model import FORMAT, model_of_text
from ppopt.pipeline import Layer, Links, plain
from ppopt.transformer import Asked, Estimate, EstimateError, LayerEstimate, tables_of
from ppopt.transformer.pipelines import GIGABYTE, MILLISECONDS, layers_of, links_of, memory_of
from ppopt.transformer.states import STATE

_FORMULA = (
    "F and I = FLOPs / (flops x efficiency) + passes x activation / bandwidth + transfers, W = FLOPs / (flops x efficiency)."
)


def model_text(source: Source, asked: Asked) -> str:
    """A model file of what was asked for.

    Raises:
        ModelError: something is missing without which there is no pipeline: a sequence, a GPU, the batch of a step.
    """
    try:
        estimate = asked.estimate()
        lines = list(_lines(source, asked, estimate))
    except EstimateError as error:
        raise source.error(error) from None
    text = "\n".join(lines) + "\n"
    model_of_text(text, "the estimate")
    return text


def _lines(source: Source, asked: Asked, estimate: Estimate) -> Iterator[str]:
    for key, what in (("training.global_batch", estimate.microbatches), ("cluster.gpu", estimate.cluster)):
        if what is None:
            raise EstimateError(key, "missing; a model file needs it: the sequences of a step, and how fast the GPU is")
    layers, links = layers_of(estimate), links_of(estimate)
    yield f"# Estimated by ppopt estimate from {os.path.basename(source.origin)}: computed from the sizes, not measured."
    yield f"# {_FORMULA}"
    yield "# Times in ms of one microbatch and one layer, memory in GB (1e9 bytes) of one GPU."
    yield f"format = {FORMAT}"
    yield f"name = {_toml(source.name)}"
    yield from _kept_tables(source, asked, estimate)
    yield from _pipeline(estimate, links)
    for group, layer in zip(estimate.layers, layers.groups, strict=True):
        yield from _layer(estimate, group, layer)
    yield from _memory(estimate)


# --- the tables that the layers follow from ----------------------------------------------------------------------


def _kept_tables(source: Source, asked: Asked, estimate: Estimate) -> Iterator[str]:
    flags = {change.key: change.flag for change in source.changes}
    for name, table in tables_of(asked).items():
        yield f"\n[{name}]"
        given = source.tables.get(name, {})
        for key, value in table.items():
            place = f"given: {flags[f'{name}.{key}']}" if f"{name}.{key}" in flags else "given"
            if key not in given:
                config = name == "transformer" and "config" in given
                place = os.path.basename(source.origin) if config else "default"
            yield f"{key} = {_toml(value)}  # {place}"
    gpu = estimate.cluster.gpu if estimate.cluster is not None else None
    if gpu is not None:
        of = f"preset {gpu.name}" if gpu.name else "given"
        backward = "" if gpu.passes_backward is None else f" (I: {gpu.passes_backward:g})"
        speeds = f"{_shown(gpu.bandwidth)} GB/s, in a node {_shown(gpu.intra)} GB/s, network {_shown(gpu.network)} GB/s"
        reached = f"efficiency {gpu.efficiency:g}, passes {gpu.passes:g}{backward}, link_efficiency {gpu.link_efficiency:g}"
        yield f"# {of}: {gpu.flops:.6g} FLOP/s in bf16, memory {_shown(gpu.memory)} GB, {speeds}."
        yield f"# {reached}: {gpu.basis}."


def _shown(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _pipeline(estimate: Estimate, links: Links) -> Iterator[str]:
    training, parallel = estimate.training, estimate.parallel
    devices = parallel.pipeline
    yield "\n[pipeline]"
    yield f"devices = {devices}  # parallel.pipeline"
    what = f"{training.global_batch} / ({parallel.data} x {training.microbatch})"
    yield f"microbatches = {estimate.microbatches}  # formula: global_batch / (data x microbatch) = {what}"
    yield 'partition = "best"'
    yield f"recompute = {_toml(training.recompute)}"
    if devices > 1:
        assert estimate.cluster is not None
        gpu = estimate.cluster.gpu
        yield "\n[links]"
        text = (
            f"formula: {float(estimate.boundary) / 1e6:.6g} MB / ({_shown(gpu.network)} or, in a node, {_shown(gpu.intra)} GB/s"
        )
        latency = links.latency
        value = [list(row) for row in latency] if isinstance(latency, tuple) else latency
        yield f"latency = {_toml(value)}  # {text} x {gpu.link_efficiency:g})"


# --- layers ------------------------------------------------------------------------------------------------------


def _layer(estimate: Estimate, group: LayerEstimate, layer: Layer) -> Iterator[str]:
    seconds = group.seconds
    assert seconds is not None
    training, flops = estimate.training, group.flops
    yield "\n[[layers]]"
    yield f"name = {_toml(layer.name)}"
    if layer.count > 1:
        yield f"count = {layer.count}  # transformer.layers" if group.kind == "decoder" else f"count = {layer.count}"
    for key, work, parts in zip(
        ("forward", "backward_input", "backward_weight"),
        (flops.forward, flops.backward_input, flops.backward_weight),
        seconds.parts,
        strict=True,
    ):
        ms = [f"{MILLISECONDS * value:.4g}" for value in (parts.compute, parts.memory, parts.transfers)]
        text = f"formula: computing {ms[0]} ({float(work):.6g} FLOP) + memory {ms[1]} + transfers {ms[2]}"
        yield f"{key} = {_toml(getattr(layer, key))}  # {text}"
    held = ", ".join(f"{name} {float(size) / GIGABYTE:.4g}" for name, size in group.kept.held.items())
    yield f"activation = {_toml(layer.activation)}  # formula: what the backward reads: {held}"
    yield f"retained = {_toml(layer.retained)}  # formula: inputs of the matrices and gradients of what came out of them"
    yield f"weights = {_toml(layer.weights)}  # formula: {_weights(estimate, group)}"
    yield from _once(estimate, layer)
    if layer.recompute:
        levels = [{"name": level.name, "time": level.time, "saved": level.saved} for level in layer.recompute]
        text = "formula: selective runs scores and values of attention again, full the layer from its input"
        yield f"recompute = {_toml(levels)}  # {text if training.attention == 'unfused' else text + ' (flash keeps no scores)'}"


def _once(estimate: Estimate, layer: Layer) -> Iterator[str]:
    parallel = estimate.parallel
    over = f"over {parallel.data} x {parallel.context} GPUs, once a step"
    scatter = "all-reduce" if parallel.zero == 0 else "reduce-scatter"
    for key, text in (
        ("all_gather", f"all-gather of the weights {over}"),
        ("reduce_scatter", f"{scatter} of the gradients {over}"),
        ("optimizer", "30 bytes of a parameter / bandwidth, once a step"),
    ):
        if getattr(layer, key):
            yield f"{key} = {_toml(getattr(layer, key))}  # formula: {text}"


def _weights(estimate: Estimate, group: LayerEstimate) -> str:
    own, spread = STATE[estimate.training.dtype][estimate.parallel.zero]
    dense, experts = group.parameters.cut + group.parameters.whole, group.parameters.experts
    text = f"{dense} parameters / T x ({own} + {spread}/{estimate.parallel.replicas} bytes)"
    if experts:
        parts = estimate.parallel.expert * (estimate.parallel.expert_tensor or 1)
        text += f", {experts} of experts / {parts} x ({own} + {spread}/{estimate.parallel.expert_replicas})"
    return text


def _memory(estimate: Estimate) -> Iterator[str]:
    assert estimate.cluster is not None
    reserve, limit = estimate.cluster.reserve, estimate.cluster.gpu.memory
    working = estimate.working(recompute=_whole_layers(estimate)) / GIGABYTE
    yield "\n[memory]"
    text = f"formula: reserve {reserve:g} x {_shown(limit)}" if limit is not None else "formula: no memory to reserve of"
    text += f" + {working:.4g} that a layer needs while it is computed again or gathered" if working else ""
    yield f"static = {_toml(memory_of(estimate).static)}  # {text}"
    if limit is not None:
        yield f"limit = {_toml(Fraction(str(limit)))}  # cluster.memory"
    yield '\n[units]\ntime = "ms"\nmemory = "GB"'


def _whole_layers(estimate: Estimate) -> bool:
    """Whether whole layers may be computed again."""
    return estimate.training.recompute in ("full", "choose")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Fraction):
        return f"{Decimal(str(plain(value))):f}"
    return json.dumps(value, ensure_ascii=False)
