"""The schedule in a file, timed anew: what export and other commands take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from ppopt.files.inferred import infer_pipeline
from ppopt.files.model import ModelError
from ppopt.files.result import Outcome, Recorded, ResultError, ResultFile, result_of_text
from ppopt.files.text import FileError, read_text, source_of
from ppopt.files.torch_csv import compute_only, rows_of_text
from ppopt.named import Row, of_order
from ppopt.named.model import Model
from ppopt.op import Op, Pair, parse_transfer
from ppopt.pipeline import PLACEMENTS, Pipeline
from ppopt.schedule import Order, Schedule, halves
from ppopt.timing import in_turn, time_order

Rows: TypeAlias = Sequence[Sequence[Op | Pair | str]]


class InFile(NamedTuple):
    """What a file says of a schedule."""

    schedule: Schedule
    outcome: Outcome | None
    """What a solver says of it; ``None``: none ran, the file is an order, or it is drawn on another model."""
    named: str | None
    """The named schedule that it is."""
    recorded: Recorded | None
    """The times in the file."""

    @property
    def as_recorded(self) -> Schedule:
        """With the times of the file where it is an answer that minimises the device span: a device that starts late may have a
        shorter one. These times are not checked."""
        if self.outcome is None or self.recorded is None or self.outcome.objective != "span":
            return self.schedule
        return _at(self.schedule, self.recorded)


def schedule_in(path: str, model: Model | None = None, change: Callable[[Model], Model] = lambda model: model) -> Schedule:
    """The schedule of a result (JSON) or an order (CSV in PyTorch's notation), every operation as early as it can be.

    Without ``model`` a result has its own, an order unit costs and the placement that it shows; ``change`` is made to either.

    Raises:
        FileError, ResultError, CsvError: the file cannot be read, there is no schedule in it, or it is none.
        ModelError: ``change`` cannot be made.
    """
    return read_in(path, model, change).schedule


def read_in(path: str, model: Model | None = None, change: Callable[[Model], Model] = lambda model: model) -> InFile:
    """As :func:`schedule_in`, with what the file says of the schedule.

    Raises:
        FileError, ResultError, CsvError, ModelError: as there.
    """
    source = source_of(path)
    own, rows, file = _read(path, source)
    recorded = None if file is None else file.schedule
    outcome = None if file is None else file.result
    try:
        given = own()
        asked = model or change(given)
        schedule = _timed(asked.pipeline, Order.of(asked.pipeline, rows), recorded)
    except ModelError:
        raise
    except ValueError as error:
        raise FileError(f"{source}: {error}") from None
    if outcome is not None and asked.pipeline == given.pipeline:
        return InFile(schedule, outcome, None, recorded)
    return InFile(schedule, None, None if outcome is not None else given.schedule, recorded)


def row_in(path: str, pipeline: Pipeline) -> Row:
    """The order in a result (JSON) or a CSV file in PyTorch's notation, as a row beside the named schedules of ``pipeline``.

    Like these it has its own placement, on the same devices and with the same costs per device. One that is for other devices
    or microbatches, that cannot be placed, or that cannot run is excluded, with the reason.

    Raises:
        FileError, ResultError, CsvError: the file cannot be read, there is no schedule in it, or it is none.
    """
    source = source_of(path)
    model, rows, file = _read(path, source)
    recorded = None if file is None else file.schedule
    try:
        own = model().pipeline
    except FileError as error:
        raise FileError(f"{source}: {error}") from None
    try:
        placed = _placed_as(own, pipeline)
        order = Order.of(placed, rows)
    except ValueError as error:
        return Row(source, own.placement, own.chunks, None, f"{source}: {error}")
    row = of_order(placed, order, source)
    if row.schedule is None:
        return row
    return Row.beside(pipeline, source, own.placement, _timed(placed, order, recorded))


def _timed(pipeline: Pipeline, order: Order, recorded: Recorded | None) -> Schedule:
    """The earliest times; the transfers in the order in which the file has them, if it has those of this pipeline."""
    schedule = time_order(pipeline, order)
    lines = [] if recorded is None else [line for line in recorded.transfers if line.order]
    if recorded is None or not lines or not pipeline.lines:
        return schedule
    index = pipeline.index
    times = np.full(index.size, np.nan)
    for row, starts in zip(order.rows, recorded.start, strict=True):
        for half in halves(index, row):
            times[half[half >= 0]] = np.array(starts, dtype=np.float64)[half >= 0]
    ops = [(parse_transfer(op), start) for line in lines for op, start in zip(line.order, line.start, strict=True)]
    if any(op.stage >= index.stages or op.microbatch >= index.microbatches for op, _ in ops):
        return schedule
    for op, start in ops:
        times[index.number(op)] = start
    needed = np.concatenate(schedule.transfers.rows)
    return in_turn(pipeline, order, times) if len(needed) == len(ops) and not np.isnan(times[needed]).any() else schedule


def _at(schedule: Schedule, recorded: Recorded) -> Schedule:
    """The same order at the times of a record; transfers, too, where it has them all."""
    per_unit, op = schedule.pipeline.ticks.per_unit, schedule.pipeline.index.op
    start = tuple(np.rint(np.array(row, dtype=np.float64) * per_unit).astype(np.int64) for row in recorded.start)
    times = {text: time for line in recorded.transfers for text, time in zip(line.order, line.start, strict=True)}
    rows = [[str(op(number)) for number in row.tolist()] for row in schedule.transfers.rows]
    if not times.keys() >= {text for row in rows for text in row}:
        return schedule
    sent = tuple(np.array([round(times[text] * per_unit) for text in row], dtype=np.int64) for row in rows)
    return replace(schedule, start=start, transfers=schedule.transfers._replace(start=sent))


def _read(path: str, source: str) -> tuple[Callable[[], Model], Rows, ResultFile | None]:
    """The rows of operations in a file, what gives the model that they are for as far as the file says it, and the result."""
    try:
        text = read_text(path)
    except FileError as error:
        raise FileError(f"{source}: {error}") from None
    if text.lstrip()[:1] == "{":
        result = result_of_text(text, source)
        if result.schedule is None:
            raise ResultError(f"{source}: schedule: there is none")
        return lambda: result.model, result.schedule.order, result
    rows = compute_only(rows_of_text(text, source))
    return lambda: Model(infer_pipeline(rows)), rows, None


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
            pipeline = pipeline.rerouted(own.routes, own.route_of_microbatch)
    if own.route_of_microbatch != pipeline.route_of_microbatch:
        pipeline = pipeline.changed(route_of_microbatch=own.route_of_microbatch)
    return pipeline
