"""A model as the tree of a model file (docs/model-file.md)."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

from ppopt.files.model import FORMAT, PARTS, Tree
from ppopt.named.model import Model
from ppopt.pipeline import ANY, PLACEMENTS, Costs, DataParallel, Links, Memory, Offload, Units, plain
from ppopt.pipeline.cutting import given_parts
from ppopt.pipeline.layers import as_tables
from ppopt.pipeline.mix import as_table
from ppopt.pipeline.mix_routes import way_of_microbatch


def model_dict(model: Model, *, resolved: bool = False) -> Tree:
    """The complete model as the tree of a model file: every key that has a value, numbers as JSON has them.

    ``resolved``: the partition as the number of layers of each stage, also where the model has it as a word.

    :func:`model_of` gives an equal model, as long as no number has more digits than a double keeps.
    """
    pipeline = model.pipeline
    table: Tree = {"devices": pipeline.devices, "microbatches": _plain(pipeline.microbatches)}
    if pipeline.placement in (*PLACEMENTS, ANY):
        table["placement"] = pipeline.placement
    else:
        table["routes"] = [list(route) for route in pipeline.ways]
    if pipeline.placement in (*PLACEMENTS, ANY) or len(pipeline.routes[0]) == pipeline.chunks * pipeline.devices:
        table["chunks"] = _plain(pipeline.chunks)
    if pipeline.backward_routes:
        table["backward_routes"] = [list(route) for route in pipeline.backward_routes]
    if len(pipeline.ways) > 1:
        table["route_of_microbatch"] = list(way_of_microbatch(pipeline))
    table |= as_table(pipeline.mix)
    if pipeline.layers is not None:
        table["partition"] = list(pipeline.counts) if resolved else _plain(pipeline.partition)
    if pipeline.runtime:
        table["runtime"] = pipeline.runtime
    if pipeline.recompute != "none":
        table["recompute"] = recompute_of(pipeline.recompute)
    if model.schedule is not None:
        table["schedule"] = model.schedule
        if model.params:
            table["schedule_params"] = dict(model.params)
    if model.order is not None:
        table["order"] = model.order.texts()
    given: Tree = {name: getattr(pipeline, name) for name in PARTS}
    if pipeline.layers is not None:
        given |= given_parts(pipeline)  # without what follows from the layers
    parts: Tree = {name: _part(part) for name, part in given.items()}
    if pipeline.layers is not None:
        parts["costs"] = _kept(parts["costs"], "optimizer", "weight_pieces")
        parts["memory"] = _kept(parts["memory"], "static", "limit", "weights_on", "weights_kept")
        parts["layers"] = as_tables(pipeline.layers)
    if given["data_parallel"] == DataParallel():
        del parts["data_parallel"]
    if pipeline.offload is not None:
        parts["offload"] = _part(pipeline.offload)
    return {"format": FORMAT, "name": pipeline.name, "pipeline": table, **parts, **pipeline.origin}


def recompute_of(chosen: Any) -> Any:
    """``pipeline.recompute`` as a model file has it: a word, stages, or one table per stage of layers."""
    if isinstance(chosen, str) or all(isinstance(stage, int) for stage in chosen):
        return _plain(chosen)
    return [{name: {level: n for other, level, n in stage if other == name} for name, _, _ in stage} for stage in chosen]


def offload_of(which: Any) -> Any:
    """``offload.stages`` as a model file has it: a word, a fraction, or one per stage."""
    return _plain(which)


def _kept(table: Tree, *keys: str) -> Tree:
    return {key: value for key, value in table.items() if key in keys}


def _part(part: Costs | Links | Memory | DataParallel | Units | Offload) -> Tree:
    values = {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}
    for name, usual in (("per_pass", False), ("weight_pieces", 1)):
        if values.get(name) == usual:
            del values[name]
    return {name: _plain(value) for name, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return plain(value) if isinstance(value, Fraction) else value
