"""The result file: JSON with the model, what was found and how good it is (docs/result-json.md).

Times and memory are in the model's units: integers where whole, else the nearest doubles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

import ppopt
from ppopt.files.model import Model, ModelError, model_dict, model_of
from ppopt.files.text import FileError, read_text, source_of
from ppopt.pipeline import DataParallel, IntArray, Pipeline
from ppopt.schedule import Schedule, durations
from ppopt.timing import exposed_traffic

if TYPE_CHECKING:
    from ppopt.named import Row
    from ppopt.solve import Result

FORMAT = 1
Tree: TypeAlias = dict[str, Any]


class ResultError(ValueError):
    """A result file that is not one: says file, dotted key, what came and what was expected."""


# --- writing -----------------------------------------------------------------------------------------------------


def result_dict(
    model: Model, *, result: Result | None = None, schedule: Schedule | None = None, named: Sequence[Row] = ()
) -> Tree:
    """The result as the tree of the JSON file.

    ``result`` is what a solver found (its schedule and named rows are written); without one, ``schedule`` and ``named``
    are written as they are.
    """
    if result is not None:
        schedule, named = result.schedule, result.named
    return {
        "ppopt": ppopt.__version__,
        "format": FORMAT,
        "model": model_dict(model),
        "result": None if result is None else _outcome(result),
        "schedule": None if schedule is None else schedule_dict(schedule),
        "metrics": None if schedule is None else metrics_dict(schedule),
        "named": [row_dict(row) for row in named],
    }


def _outcome(result: Result) -> Tree:
    time = result.pipeline.time
    return {
        "reason": result.reason,
        "limit": result.limit,
        "objective": result.objective,
        "value": None if result.value is None else time(result.value),
        "lower_bound": time(result.lower_bound),
        "gap": gap(result.value, result.lower_bound),
        "proved_by": result.proved_by,
        "seconds": round(result.seconds, 3),
        "seed": result.seed,
        "versions": dict(result.versions),
        **({"constraints": [str(word) for word in result.constraints]} if result.constraints else {}),
    }


def gap(value: int | None, lower_bound: int) -> float | None:
    """``(value - lower_bound) / value``; ``None`` without a value."""
    if value is None:
        return None
    return (value - lower_bound) / value if value else 0.0


def schedule_dict(schedule: Schedule) -> Tree:
    """Order in PyTorch's notation, start and end times; and, where transfers hold links, these link by link."""
    pipeline = schedule.pipeline
    tree: Tree = {
        "order": schedule.order.texts(),
        "start": [times(pipeline, row) for row in schedule.start],
        "end": [times(pipeline, row) for row in schedule.end],
    }
    if pipeline.lines:
        tree["transfers"] = [
            {
                "link": [list(pair) for pair in line],
                "order": [str(pipeline.index.op(number)) for number in row.tolist()],
                "start": times(pipeline, start),
                "end": times(pipeline, start + durations(pipeline, row)),
            }
            for line, row, start in zip(pipeline.lines, *schedule.transfers, strict=True)
        ]
    return tree


def metrics_dict(schedule: Schedule) -> Tree:
    """What follows from a schedule."""
    pipeline = schedule.pipeline
    traffic = pipeline.data_parallel != DataParallel()
    return {
        **({"exposed_traffic": pipeline.time(exposed_traffic(schedule))} if traffic else {}),
        "makespan": pipeline.time(schedule.makespan),
        "device_span": pipeline.time(schedule.device_span),
        "bubble_ratio": schedule.bubble_ratio,
        "span_bubble_ratio": schedule.span_bubble_ratio,
        "overhead": schedule.overhead,
        "work": [pipeline.time(work) for work in schedule.work],
        "peak_memory": [pipeline.amount(peak) for peak in schedule.peak_memory],
    }


def row_dict(row: Row) -> Tree:
    """One named schedule; without a schedule ``excluded`` says why, and the figures are null."""
    tree: Tree = {"schedule": row.name, "placement": row.placement, "chunks": row.chunks}
    if row.recompute:
        tree["recompute"] = row.recompute
    metrics = None if row.schedule is None else metrics_dict(row.schedule)
    for key in ("makespan", "device_span", "bubble_ratio", "peak_memory"):
        tree[key] = None if metrics is None else metrics[key]
    within = None if row.schedule is None else row.schedule.within_memory
    return {**tree, "within_memory": within, "excluded": row.excluded}


def times(pipeline: Pipeline, ticks: IntArray) -> list[int | float]:
    """Ticks in the user's unit, as :meth:`~ppopt.pipeline.Pipeline.time` gives them one by one."""
    per_unit = pipeline.ticks.per_unit
    if per_unit == 1:
        return list(ticks.tolist())
    if max(int(ticks.max(initial=0)), per_unit) >= 2**53:  # the quotient of two doubles would be rounded twice
        return [pipeline.time(tick) for tick in ticks.tolist()]
    whole, doubles = (ticks // per_unit).tolist(), (ticks / per_unit).tolist()
    return [w if w == d else d for w, d in zip(whole, doubles, strict=True)]


def json_text(tree: Mapping[str, Any]) -> str:
    """JSON with one line per entry at the top."""
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}" for key, value in tree.items())
    return "{" + ",\n ".join(lines) + "}\n"


# --- reading -----------------------------------------------------------------------------------------------------

Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Figure = Annotated[Real, AfterValidator(lambda value: int(value) if value.is_integer() else value)]
Whole = Annotated[int, Field(strict=True)]


class _Part(BaseModel):
    """Known keys have these types; others may stand beside them."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())


class Outcome(_Part):
    """``result``: what a solver says."""

    reason: Literal["optimal", "feasible", "infeasible", "no-solution"]
    limit: Literal["time", "gap", "interrupted"] | None
    objective: Literal["makespan", "span"]
    value: Figure | None
    lower_bound: Figure
    gap: Figure | None
    proved_by: str | None
    seconds: Figure
    seed: Whole
    versions: dict[str, str]


class Sending(_Part):
    """An entry of ``schedule.transfers``: a link (its pairs of devices), and its transfers with their times."""

    link: list[list[Whole]]
    order: list[str]
    start: list[Real]
    end: list[Real]


class Recorded(_Part):
    """``schedule``: per device, operations with their times; and the transfers that hold a link."""

    order: list[list[str]]
    start: list[list[Real]]
    end: list[list[Real]]
    transfers: list[Sending] = []


class Metrics(_Part):
    """``metrics``: what follows from the schedule."""

    makespan: Figure
    device_span: Figure
    bubble_ratio: Figure
    span_bubble_ratio: Figure
    overhead: Figure
    work: list[Figure]
    peak_memory: list[Figure]


class NamedRow(_Part):
    """An entry of ``named``."""

    schedule: str
    placement: str
    chunks: Whole
    makespan: Figure | None
    device_span: Figure | None
    bubble_ratio: Figure | None
    peak_memory: list[Figure] | None
    within_memory: bool | None
    excluded: str | None


class _File(_Part):
    ppopt: str
    format: Literal[1]
    model: dict[str, Any]
    result: Outcome | None
    schedule: Recorded | None
    metrics: Metrics | None
    named: list[NamedRow]


@dataclass(frozen=True)
class ResultFile:
    """A result file as it stands: read and well formed, but not checked (:mod:`ppopt.check` does that)."""

    model: Model
    result: Outcome | None
    schedule: Recorded | None
    metrics: Metrics | None
    named: tuple[NamedRow, ...]


def read_result(path: str) -> ResultFile:
    """The result in a file; ``-`` is standard input.

    Raises:
        ResultError: the file cannot be read, is not JSON, or is not a result.
    """
    try:
        text = read_text(path)
    except FileError as error:
        raise ResultError(f"{source_of(path)}: {error}") from None
    return result_of_text(text, source_of(path))


def result_of_text(text: str, source: str) -> ResultFile:
    """The result in a JSON text; ``source`` names it in messages."""
    try:
        tree = json.loads(text, parse_constant=_not_a_number)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{source}: not a JSON file: {error}") from None
    try:
        file = _File.model_validate(tree, strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        shown = repr(problem["input"])
        came = "" if problem["type"] == "missing" else f", got {shown if len(shown) < 80 else shown[:80] + ' …'}"
        where = f"{source}: {_dotted(problem['loc'])}".removesuffix(": ")
        raise ResultError(f"{where}: {problem['msg'].lower()}{came}") from None
    try:
        model = model_of(file.model, f"{source}: model")
    except ModelError as error:
        raise ResultError(str(error)) from None
    if file.schedule is not None:
        _check_rows(file.schedule, model.pipeline.devices, source)
    return ResultFile(model, file.result, file.schedule, file.metrics, tuple(file.named))


def _not_a_number(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def _dotted(location: Iterable[int | str]) -> str:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return key.removeprefix(".")


def _check_rows(schedule: Recorded, devices: int, source: str) -> None:
    for name, rows in (("order", schedule.order), ("start", schedule.start), ("end", schedule.end)):
        if len(rows) != devices:
            raise ResultError(f"{source}: schedule.{name}: expected {devices} rows (one per device), got {len(rows)}")
    for i, line in enumerate(schedule.transfers):
        for name, row in (("start", line.start), ("end", line.end)):
            if len(row) != len(line.order):
                where = f"{source}: schedule.transfers[{i}].{name}"
                raise ResultError(f"{where}: expected {len(line.order)} times (one per transfer), got {len(row)}")
    for name, rows in (("start", schedule.start), ("end", schedule.end)):
        for device, (ops, row) in enumerate(zip(schedule.order, rows, strict=True)):
            if len(row) != len(ops):
                raise ResultError(f"{source}: schedule.{name}[{device}]: expected {len(ops)} times (one per op), got {len(row)}")
