"""The schedule in a file, timed anew: what export and other commands take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ppopt.checker import violations
from ppopt.files.inferred import infer_pipeline
from ppopt.files.model import ModelError
from ppopt.files.result import ResultError, ResultFile, result_of_text
from ppopt.files.result_parts import Recorded
from ppopt.files.text import FileError, read_text, source_of
from ppopt.files.torch_csv import compute_only, rows_of_text
from ppopt.named import Row, of_order
from ppopt.named.model import Model
from ppopt.op import Op, Pair, parse_transfer
from ppopt.pipeline import PLACEMENTS, IntArray, Pipeline
from ppopt.pipeline.ticks import MOST
from ppopt.pipeline.work_map import WorkMap, mapped
from ppopt.schedule import NO_TRANSFERS, Order, Schedule, Transfers, halves
from ppopt.timing import begun, in_turn, time_order
from ppopt.timing.copies import reloaded_late, settled_memory
from ppopt.timing.demands import when
from ppopt.timing.links import made

Rows: TypeAlias = Sequence[Sequence[Op | Pair | str]]


def schedule_in(path: str, model: Model | None = None, change: Callable[[Model], Model] = lambda model: model) -> Schedule:
    """The schedule of a result (JSON) or an order (CSV in PyTorch's notation), every operation as early as it can be.

    Without ``model`` a result has its own, an order unit costs and the placement that it shows; ``change`` is made to either.

    Raises:
        FileError, ResultError, CsvError: the file cannot be read, there is no schedule in it, or it is none.
        ModelError: ``change`` cannot be made.
    """
    source = source_of(path)
    own, rows, file = _read(path, source)
    try:
        model = model or change(own())
        return _timed(model.pipeline, Order.of(model.pipeline, rows), None if file is None else file.schedule)
    except ModelError:
        raise
    except ValueError as error:
        raise FileError(f"{source}: {error}") from None


class Shown(NamedTuple):
    """A schedule that is shown: its model, its times, and what the file says of the search (``result``, with the ``binding``), if
    that holds."""

    model: Model
    schedule: Schedule
    outcome: dict[str, Any] | None
    searched: bool = False
    """Whether a search has found it, on this model or on the one of the file; else it is the schedule that the model names."""


def shown_in(path: str, model: Model | None = None, change: Callable[[Model], Model] = lambda model: model) -> Shown:
    """The schedule of a result (JSON) with the times that are recorded, or an order (CSV), every operation as early as can be.

    A result whose model is replaced or changed is as early as can be, too. Memory limits may be exceeded.

    Raises:
        FileError, ResultError, CsvError: the file cannot be read, there is no schedule in it, it is none, or the recorded times
            break a rule.
        ModelError: ``change`` cannot be made.
    """
    source = source_of(path)
    own, rows, file = _read(path, source)
    try:
        inside = own()
        asked = model or change(inside)
        order = Order.of(asked.pipeline, rows)
        if file is None or file.schedule is None or asked != inside:
            timed = _timed(asked.pipeline, order, None if file is None else file.schedule)
            return Shown(asked, timed, None, file is not None and file.result is not None)
        schedule = _as_recorded(asked.pipeline, order, file.schedule)
        free = asked.pipeline.changed(
            memory=replace(asked.pipeline.memory, limit=None), route_of_microbatch=asked.pipeline.route_of_microbatch
        )
        found = violations(free, schedule)
    except ModelError:
        raise
    except ValueError as error:
        raise FileError(f"{source}: {error}") from None
    if found:
        raise FileError(f"{source}: the recorded times break a rule ({found[0].message}); `ppopt check` lists all")
    if file.result is None:
        return Shown(asked, schedule, None)
    binding = None if file.binding is None else file.binding.model_dump()
    return Shown(asked, schedule, file.result.model_dump() | {"binding": binding}, searched=True)


def _as_recorded(pipeline: Pipeline, order: Order, recorded: Recorded) -> Schedule:
    """The recorded times, to the nearest tick."""
    per_unit, index = pipeline.ticks.per_unit, pipeline.index

    start = tuple(_ticks(row, per_unit) for row in recorded.start)
    lines = {tuple(tuple(pair) for pair in line.link): line for line in recorded.transfers}
    missing = [line for line in pipeline.lines if line not in lines]
    if missing:
        raise ValueError(f"schedule.transfers: those of the link {missing[0]} are missing")
    sent = [lines[line] for line in pipeline.lines]
    numbers = (np.array([index.number(parse_transfer(op)) for op in line.order], dtype=np.int64) for line in sent)
    transfers = Transfers(tuple(numbers), tuple(_ticks(line.start, per_unit) for line in sent))
    return Schedule(pipeline, order, start, transfers, copies_of(pipeline, recorded))


def _ticks(times: Sequence[float], per_unit: int) -> IntArray:
    """Recorded times to the nearest tick.

    Raises:
        ValueError: one is beyond all that can be counted.
    """
    ticks = [round(Fraction(time) * per_unit) for time in times]
    for time, tick in zip(times, ticks, strict=True):
        if abs(tick) > MOST:
            raise ValueError(f"schedule.start: {time:g} is later than any time that can be told with such fine costs")
    return np.array(ticks, dtype=np.int64)


def copies_of(pipeline: Pipeline, recorded: Recorded) -> Transfers:
    """The recorded copies to the host and back, to the nearest tick."""
    per_unit, index = pipeline.ticks.per_unit, pipeline.index
    ops = [(parse_transfer(op), start) for line in recorded.copies for op, start in zip(line.order, line.start, strict=True)]
    times = np.full(index.size, np.nan)
    for (op, _), tick in zip(ops, _ticks([start for _, start in ops], per_unit).tolist(), strict=True):
        times[index.number(op)] = tick
    rows = made(pipeline, times)
    if sum(map(len, rows)) != len(ops):
        raise ValueError("schedule.copies: these are not the copies that the pipeline may make, each once")
    return Transfers(rows, tuple(times[row].astype(np.int64) for row in rows)) if ops else NO_TRANSFERS


def row_in(path: str, pipeline: Pipeline) -> Row:
    """The order in a result (JSON) or a CSV file in PyTorch's notation, as a row beside the named schedules of ``pipeline``.

    Like these it has its own placement, on the same devices and with the same costs per device. One that is for other devices
    or microbatches, that cannot be placed, or that cannot run is excluded, with the reason.

    Raises:
        FileError, ResultError, CsvError: the file cannot be read, there is no schedule in it, or it is none.
    """
    source = source_of(path)
    model, rows, file = _read(path, source)
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
    return Row.beside(pipeline, source, own.placement, _timed(placed, order, None if file is None else file.schedule))


def _timed(pipeline: Pipeline, order: Order, recorded: Recorded | None) -> Schedule:
    """The earliest times; the transfers in the order in which the file has them, if it has those of this pipeline."""
    schedule = time_order(pipeline, order)
    if recorded is not None and recorded.copies and pipeline.engines:
        return _with_recorded_copies(pipeline, order, recorded) or schedule
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


def _with_recorded_copies(pipeline: Pipeline, order: Order, recorded: Recorded) -> Schedule | None:
    """The earliest times with the recorded copies, in their order, within the memory; ``None``: these do not fit the pipeline."""
    try:
        found = _as_recorded(pipeline, order, recorded)
        demands = settled_memory(pipeline, *when(found))
        return reloaded_late(in_turn(pipeline, order, begun(found), demands))
    except ValueError:
        return None


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


def _has_map(pipeline: Pipeline, own: Pipeline) -> bool:
    """Whether a pipeline whose routes are written out runs everything where ``own`` does, however the routes are numbered."""
    if pipeline.placement != "routes" or pipeline.stages != own.stages:
        return False
    here, there = (each.device_by_kind[each.route_by_microbatch] for each in (pipeline, own))
    return bool((here == there).all())


def _placed_as(own: Pipeline, pipeline: Pipeline) -> Pipeline:
    """``pipeline`` with the routes of ``own``.

    Raises:
        ValueError: it has other sizes, or its costs cannot be those of such stages.
    """
    for size in ("devices", "microbatches"):
        theirs, ours = getattr(own, size), getattr(pipeline, size)
        if theirs != ours:
            raise ValueError(f"the order has {size} = {theirs}, the model {ours}")
    if own.places != pipeline.places and not _has_map(pipeline, own):
        if own.backward_routes:
            pipeline = mapped(pipeline, WorkMap(own.routes, own.route_of_microbatch, own.backward_routes))
        elif own.placement in PLACEMENTS:
            pipeline = pipeline.placed(own.placement, own.chunks)
        else:
            pipeline = pipeline.rerouted(own.routes, own.route_of_microbatch)
    if own.places == pipeline.places and own.route_of_microbatch != pipeline.route_of_microbatch:
        pipeline = pipeline.changed(route_of_microbatch=own.route_of_microbatch)
    return pipeline
