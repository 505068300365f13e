"""The schedule in a file, timed anew: what export and other commands take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ppopt.files.inferred import infer_pipeline
from ppopt.files.model import Model, ModelError
from ppopt.files.result import ResultError, result_of_text
from ppopt.files.text import FileError, read_text, source_of
from ppopt.files.torch_csv import compute_only, rows_of_text
from ppopt.named import Row, of_order
from ppopt.named.definition import per_device
from ppopt.op import Op, Pair
from ppopt.pipeline import PLACEMENTS, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order

Rows: TypeAlias = Sequence[Sequence[Op | Pair | str]]


def schedule_in(path: str, model: Model | None = None, change: Callable[[Model], Model] = lambda model: model) -> Schedule:
    """The schedule of a result (JSON) or an order (CSV in PyTorch's notation), every operation as early as it can be.

    Without ``model`` a result has its own, an order unit costs and the placement that it shows; ``change`` is made to either.

    Raises:
        FileError, ResultError, CsvError: the file cannot be read, there is no schedule in it, or it is none.
        ModelError: ``change`` cannot be made.
    """
    source = source_of(path)
    own, rows = _read(path, source)
    try:
        model = model or change(own())
        return time_order(model.pipeline, Order.of(model.pipeline, rows))
    except ModelError:
        raise
    except ValueError as error:
        raise FileError(f"{source}: {error}") from None


def row_in(path: str, pipeline: Pipeline) -> Row:
    """The order in a result (JSON) or a CSV file in PyTorch's notation, as a row beside the named schedules of ``pipeline``.

    Like these it has its own placement, on the same devices and with the same costs per device. One that is for other devices
    or microbatches, that cannot be placed, or that cannot run is excluded, with the reason.

    Raises:
        FileError, ResultError, CsvError: the file cannot be read, there is no schedule in it, or it is none.
    """
    source = source_of(path)
    model, rows = _read(path, source)
    try:
        own = model().pipeline
    except FileError as error:
        raise FileError(f"{source}: {error}") from None
    try:
        placed = _placed_as(own, pipeline)
        order = Order.of(placed, rows)
    except ValueError as error:
        return Row(source, own.placement, own.chunks, None, f"{source}: {error}")
    return of_order(placed, order, source)


def _read(path: str, source: str) -> tuple[Callable[[], Model], Rows]:
    """The rows of operations in a file, and what gives the model that they are for as far as the file says it."""
    try:
        text = read_text(path)
    except FileError as error:
        raise FileError(f"{source}: {error}") from None
    if text.lstrip()[:1] == "{":
        result = result_of_text(text, source)
        if result.schedule is None:
            raise ResultError(f"{source}: schedule: there is none")
        return lambda: result.model, result.schedule.order
    rows = compute_only(rows_of_text(text, source))
    return lambda: Model(infer_pipeline(rows)), rows


def _placed_as(own: Pipeline, pipeline: Pipeline) -> Pipeline:
    """``pipeline`` with the routes of ``own``.

    Raises:
        ValueError: it has other sizes, or its costs cannot be those of such stages.
    """
    for size in ("devices", "microbatches"):
        theirs, ours = getattr(own, size), getattr(pipeline, size)
        if theirs != ours:
            raise ValueError(f"the order has {size} = {theirs}, the model {ours}")
    if own.routes != pipeline.routes:
        if own.placement in PLACEMENTS:
            pipeline = pipeline.placed(own.placement, own.chunks)
        else:
            pipeline = per_device(pipeline).changed(routes=own.routes)
    if own.route_of_microbatch != pipeline.route_of_microbatch:
        pipeline = pipeline.changed(route_of_microbatch=own.route_of_microbatch)
    return pipeline
