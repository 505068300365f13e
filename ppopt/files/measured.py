"""Measured times that an estimate is fitted to: a table (CSV), or a model file with measured layers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

from ppopt.files.estimates import Source
from ppopt.files.model import Change, ModelError, changed_tree, model_of_text, setting
from ppopt.files.text import FileError, read_text, source_of
from ppopt.pipeline import Layers
from ppopt.transformer import Asked, EstimateError, asked_of
from ppopt.transformer.calibration import Measured
from ppopt.transformer.estimating import DECODER
from ppopt.transformer.tables import KEYS

TIMES = {"forward": "F", "backward_input": "I", "backward_weight": "W", "backward": "B"}
UNITS = {"": 1e-3, "ms": 1e-3, "s": 1.0, "us": 1e-6, "µs": 1e-6}
"""Seconds of a unit of time, as ``[units]`` names it; without a name it is a millisecond."""


def read_measured(path: str, source: Source) -> list[Measured]:
    """The measured times in a file, for the transformer, the training and the machine of ``source``.

    A table has a row for each run: ``forward``, ``backward_input``, ``backward_weight`` and ``backward`` in ms (empty: not
    measured), of ``count`` layers (1) of the group ``layer`` (by default the decoder layers), and a column for each key that
    differs between the runs, such as ``training.microbatch``. The layers of a model file are those of the estimate in their
    order; where they are as many as the decoder layers, the first and the last one are left out, which hold embedding and head.

    Raises:
        ModelError: the file cannot be read, is neither, or has other layers.
    """
    where = source_of(path)
    try:
        text = read_text(path)
    except FileError as error:
        raise ModelError(where, "", str(error)) from None
    if path.endswith(".toml") or text.lstrip()[:1] in ("#", "["):
        return list(_of_model(text, where, source))
    return list(_of_table(text, where, source))


# --- tables ------------------------------------------------------------------------------------------------------


def _of_table(text: str, where: str, source: Source) -> Iterator[Measured]:
    rows = csv.DictReader(io.StringIO(text), skipinitialspace=True, strict=True)
    try:
        columns = [name.strip() for name in rows.fieldnames or ()]
        cells = [[(value or "").strip() for value in row.values()] for row in rows if None not in row]
    except csv.Error as error:
        raise ModelError(where, "", f"not a table: {error}") from None
    for name in columns:
        if name not in (*TIMES, "count", "layer", "label") and name.split(".")[0] not in KEYS:
            known = ", ".join((*TIMES, "count", "layer", "label"))
            raise ModelError(where, name, f"unknown column; expected {known}, or a key such as training.microbatch")
    if not cells:
        raise ModelError(where, "", "expected a first line of names and a line for each run, with as many cells")
    for line, row in enumerate(cells, 2):
        yield _row(dict(zip(columns, row, strict=True)), f"{where}: line {line}", source)


def _row(cells: Mapping[str, str], where: str, source: Source) -> Measured:
    changes = [setting(f"{name}={cell}", where) for name, cell in cells.items() if "." in name and cell]
    asked = _asked(source, changes, where)
    seconds = {op: _number(cells[name], where, name) * UNITS["ms"] for name, op in TIMES.items() if cells.get(name)}
    if not seconds:
        raise ModelError(where, "", f"no time; expected one of {', '.join(TIMES)}")
    layer = cells.get("layer") or _decoder(asked, where)
    count = _number(cells["count"], where, "count") if cells.get("count") else 1.0
    return Measured(cells.get("label") or where.rpartition(": ")[2], asked, layer, count, seconds)


def _asked(source: Source, changes: list[Change], where: str) -> Asked:
    tables = changed_tree(source.tables, changes)
    try:
        asked = asked_of({name: tables[name] for name in KEYS if name in tables})
        asked.estimate()
    except EstimateError as error:
        raise ModelError(where, error.key, error.message) from None
    return asked


def _decoder(asked: Asked, where: str) -> str:
    names = [group.name for group in asked.estimate().layers if group.kind == DECODER]
    if len(names) > 1:
        raise ModelError(where, "layer", f"missing; expected one of {', '.join(names)}")
    return names[0]


def _number(text: str, where: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise ModelError(where, name, f"expected a number > 0, got {text!r}")
    return value


# --- models ------------------------------------------------------------------------------------------------------


def _of_model(text: str, where: str, source: Source) -> Iterator[Measured]:
    pipeline = model_of_text(text, where).pipeline
    if pipeline.layers is None:
        problem = "missing; a fit needs the times of layers, not of stages: ppopt profile gives them, or write a table"
        raise ModelError(where, "layers", problem)
    if pipeline.units.time not in UNITS:
        raise ModelError(where, "units.time", f"expected one of {', '.join(filter(None, UNITS))}, got {pipeline.units.time!r}")
    asked = _asked(source, [], where)
    unit = UNITS[pipeline.units.time]
    for (name, measured), times in _paired(pipeline.layers, asked, where).items():
        sums = {op: unit * sum(of[op] for of in times) for op in times[0] if all(of[op] > 0 for of in times)}
        if sums:
            yield Measured(measured, asked, name, len(times), sums)


def _paired(layers: Layers, asked: Asked, where: str) -> dict[tuple[str, str], list[dict[str, float]]]:
    """Times by group of the estimate and measured group."""
    groups = asked.estimate().layers
    names = [group.name for group in groups for _ in range(group.count)]
    decoders = [group.name for group in groups if group.kind == DECODER for _ in range(group.count)]
    measured = [layers.groups[i] for i in layers.group_of]
    if len(measured) == len(decoders) > 2:
        pairs = list(zip(decoders, measured, strict=True))[1:-1]
    elif len(measured) == len(names):
        pairs = list(zip(names, measured, strict=True))
    else:
        expected = f"expected {len(names)} layers, or the {len(decoders)} decoder layers"
        raise ModelError(where, "layers", f"{expected}, got {len(measured)}")
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for name, layer in pairs:
        given: dict[str, Any] = {op: getattr(layer, key) for key, op in TIMES.items()}
        if given["I"] is not None:
            del given["B"]
        found.setdefault((name, layer.name), []).append({op: float(value) for op, value in given.items() if value is not None})
    return found
