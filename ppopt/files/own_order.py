"""A user's own order in the model file: rows of operations in PyTorch's notation, or the name of a file that has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ppopt.files.torch_csv import Comm, CsvError, compute_only, parse_action, read_csv
from ppopt.named.model import OWN_ORDER
from ppopt.op import Op, Pair
from ppopt.pipeline import Pipeline, PipelineError
from ppopt.schedule import Order, written_out
from ppopt.timing import OrderError, time_order

KEY = "pipeline.order"


def order_of_model(pipeline: Pipeline, given: Any) -> tuple[Order, str]:
    """The order that ``pipeline.order`` of a model file gives, once it is certain that it can run, and its name.

    ``given``: a row of texts per device, or the path of a CSV file in PyTorch's notation (what it lists of communication is
    left out); a file's own name is the name of its order.

    Raises:
        PipelineError: it is neither, an operation is wrong, missing, run twice or on another device, or the order deadlocks.
    """
    if isinstance(given, str):
        name = os.path.basename(given) or given
        try:
            rows = compute_only(read_csv(given))
        except CsvError as error:
            raise PipelineError(KEY, str(error)) from None
        where = f"{given}: "
    elif isinstance(given, list):
        name, rows, where = OWN_ORDER, [_row(device, row) for device, row in enumerate(given)], ""
    else:
        raise PipelineError(KEY, f"expected a list of operations per device or the name of a CSV file, got {given!r}")
    if len(rows) != pipeline.devices:
        raise PipelineError(KEY, f"{where}expected {pipeline.devices} rows (one per device), got {len(rows)}")
    _check_places(pipeline, rows, where)
    order = Order.of(pipeline, rows)
    try:
        time_order(pipeline, order)
    except OrderError as error:
        raise PipelineError(KEY, f"{where}{error}") from None
    return order, name


def _row(device: int, given: Any) -> list[Op | Pair]:
    if not isinstance(given, list):
        raise PipelineError(f"{KEY}[{device}]", f"expected a list of operations such as 2F0, got {given!r}")
    row = []
    for place, text in enumerate(given):
        try:
            op = parse_action(text) if isinstance(text, str) else None
        except ValueError:
            op = None
        if op is None or isinstance(op, Comm):
            expected = "an operation such as 2F0 or (0F3;7B1)OVERLAP_F_B"
            raise PipelineError(f"{KEY}[{device}][{place}]", f"expected {expected}, got {text!r}")
        row.append(op)
    return row


def _check_places(pipeline: Pipeline, rows: Sequence[Sequence[Op | Pair]], file: str) -> None:
    """Every operation is one of the pipeline's, on the device that has its stage, and run once."""
    seen: set[Op] = set()
    for device, row in enumerate(rows):
        for place, op in enumerate(row):
            for half in written_out(pipeline.index, op):
                problem = _problem(pipeline, half, device) or (f"{half} is run twice" if half in seen else None)
                if problem is not None:
                    key, where = (KEY, f"{file}row {device}, operation {place}: ") if file else (f"{KEY}[{device}][{place}]", "")
                    raise PipelineError(key, where + problem)
                seen.add(half)


def _problem(pipeline: Pipeline, op: Op, device: int) -> str | None:
    try:
        pipeline.index.number(op)
    except ValueError as error:
        return str(error)
    own = int(pipeline.device_by_kind[pipeline.route_of_microbatch[op.microbatch], op.kind, op.stage])
    return None if own == device else f"{op} is on device {device}; its stage is on device {own}"
