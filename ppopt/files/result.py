"""The result file: JSON with the model, what was found and how good it is (docs/result-json.md).

Times and memory are in the model's units: integers where whole, else the nearest doubles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

import ppopt
from ppopt.files.carried import carried, times
from ppopt.files.figures import metrics_dict, usage_dict, weights_dicts
from ppopt.files.model import ModelError, model_of
from ppopt.files.model_tree import model_dict, recompute_of
from ppopt.files.result_parts import Bound, Carried, File, Metrics, NamedRow, Outcome, Recorded
from ppopt.files.text import FileError, read_text, source_of, write_text
from ppopt.named.model import Model
from ppopt.named.registry import shows_maps
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule

if TYPE_CHECKING:
    from ppopt.named import Row
    from ppopt.search import Binding, Result
    from ppopt.search.second_opinion import Opinion

FORMAT = 1
Tree: TypeAlias = dict[str, Any]


class ResultError(ValueError):
    """A result file that is not one: says file, dotted key, what came and what was expected."""


# --- writing -----------------------------------------------------------------------------------------------------


def result_dict(result: Result, *, explain: bool = False, opinion: Opinion | None = None) -> Tree:
    """A result as the tree of the JSON file; for several numbers of microbatches ``points``, with the rows of the last.

    ``explain``: with the ``steps`` of the search. ``opinion``: with the second opinion on it.
    """
    if result.points:
        return _points_dict(result)
    tree = document(result.model, schedule=result.schedule, named=result.named)
    tree["result"] = outcome_dict(result)
    if len(result.placements) > 1:
        tree["placements"] = [_placed(each) for each in result.placements]
    if result.order is not None:
        tree["binding"] = binding_dict(result.order)
    if explain:
        tree["steps"] = [step._asdict() for step in result.steps]
    if opinion is not None:
        tree["verification"] = _opinion(result, opinion)
    return tree


def binding_dict(order: Binding) -> Tree:
    """``binding``: the named schedule whose constraints bound."""
    return {"schedule": order.schedule, "params": dict(order.params), "free": [kind.name for kind in order.free]}


def document(model: Model, *, schedule: Schedule | None = None, named: Sequence[Row] = ()) -> Tree:
    """What a file says in which no solver had a part: a schedule of a model, or named rows; ``result`` is null."""
    return {
        "ppopt": ppopt.__version__,
        "format": FORMAT,
        "model": model_dict(model, resolved=schedule is not None),
        "result": None,
        "schedule": None if schedule is None else schedule_dict(schedule),
        "metrics": None if schedule is None else {**metrics_dict(schedule), **usage_dict(schedule, _maps(model))},
        "named": [row_dict(row, shows_maps(model.pipeline) or shows_maps(model.pipeline, (row.name,))) for row in named],
    }


def _maps(model: Model) -> bool:
    """Whether what devices do with weights is of interest."""
    return shows_maps(model.pipeline, () if model.schedule is None else (model.schedule,))


def outcome_dict(result: Result) -> Tree:
    """``result``: what a solver says of a pipeline with one number of microbatches, without the schedule and the rows."""
    tree: Tree = {
        "reason": result.reason,
        "limit": result.limit,
        "objective": result.objective,
        "value": result.value,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
        "proved_by": result.proved_by,
        "seconds": round(result.seconds, 3),
        "seed": result.seed,
        "versions": dict(result.versions),
        **({"constraints": [str(word) for word in result.constraints]} if result.constraints else {}),
        **({"untried": list(result.untried)} if result.untried else {}),
        **_partition(result.pipeline),
        **({} if result.runtime is None else {"runtime": result.runtime.tree}),
    }
    if result.scope is not None:
        recompute = result.scope.recompute
        tree["scope"] = {
            "placements": list(result.scope.placements),
            "chunks": list(result.scope.chunks),
            **({} if result.scope.partition is None else {"partition": _list_or_word(result.scope.partition)}),
            "recompute": recompute_of(recompute),
        }
        tree["placements"] = [_brief(each) for each in result.placements]
    if result.best_cut is not None:
        tree["best_cut"] = _brief(result.best_cut) | {"recompute": recompute_of(result.best_cut.pipeline.recompute)}
    return tree


def _partition(pipeline: Pipeline) -> Tree:
    """The layers of each stage, where the pipeline has layers."""
    return {} if pipeline.layers is None else {"partition": list(pipeline.counts)}


def _list_or_word(value: str | tuple[Any, ...]) -> str | list[Any]:
    return value if isinstance(value, str) else list(value)


def _brief(placed: Result) -> Tree:
    """What was found on one of the placements that were open, or over all cuts."""
    return {
        "placement": placed.pipeline.placement,
        "chunks": placed.pipeline.chunks,
        **_partition(placed.pipeline),
        "value": placed.value,
        "lower_bound": placed.lower_bound,
        "reason": placed.reason,
        "proved_by": placed.proved_by,
    }


def _placed(placed: Result) -> Tree:
    """The same in full."""
    metrics = None if placed.schedule is None else metrics_dict(placed.schedule)
    where = {"placement": placed.pipeline.placement, "chunks": placed.pipeline.chunks}
    return {**where, "result": outcome_dict(placed), "metrics": metrics}


def _points_dict(result: Result) -> Tree:
    points = []
    for point in result.points:
        tree = result_dict(point)
        kept = {key: tree[key] for key in ("result", "metrics", "schedule")}
        points.append({"microbatches": point.pipeline.microbatches, **kept})
    tree = document(result.model, named=result.named)
    head = {key: tree[key] for key in ("ppopt", "format", "model")}
    return {**head, "objective": result.objective, "points": points, "named": tree["named"]}


def _opinion(result: Result, opinion: Opinion) -> Tree:
    return {
        "confirmed": opinion.confirmed,
        "bound": result.pipeline.time(opinion.bound),
        "by": opinion.route,
        **({"only": list(opinion.only)} if opinion.only else {}),
        "seconds": round(opinion.seconds, 3),
        "tried": [
            {"route": trial.route, "outcome": trial.outcome, "seconds": round(trial.seconds, 3)} for trial in opinion.trials
        ],
    }


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
            {"link": [list(pair) for pair in line], **carried(pipeline, row, start)}
            for line, row, start in zip(pipeline.lines, *schedule.transfers, strict=True)
        ]
    if schedule.copies.rows:
        tree["copies"] = [
            {"devices": list(engine.devices), **carried(pipeline, row, start)}
            for engine, row, start in zip(pipeline.engines, *schedule.copies, strict=True)
        ]
    return tree


def row_dict(row: Row, weights: bool = False) -> Tree:
    """One named schedule; without a schedule ``excluded`` says why, and the figures are null. ``weights``: with the ``devices``'
    figures of weights and activations."""
    chosen = row.recompute
    counts = row.partition
    return {
        "schedule": row.name,
        "placement": row.placement,
        "chunks": row.chunks,
        **({"recompute": recompute_of(chosen)} if chosen else {}),
        "partition": None if counts is None else list(counts),
        "makespan": row.makespan,
        "device_span": row.device_span,
        "bubble_ratio": row.bubble_ratio,
        "efficiency": row.efficiency,
        "work": None if row.work is None else list(row.work),
        "peak_memory": None if row.peak_memory is None else list(row.peak_memory),
        **({"devices": weights_dicts(row.schedule)} if weights and row.schedule is not None else {}),
        "within_memory": row.within_memory,
        "assumes_equal_work": row.assumes_equal_work,
        "excluded": row.excluded,
    }


def json_text(tree: Mapping[str, Any]) -> str:
    """JSON with one line per entry at the top."""
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}" for key, value in tree.items())
    return "{" + ",\n ".join(lines) + "}\n"


def save(result: Result, path: str, *, explain: bool = False) -> None:
    """Write a result as JSON, whole or not at all (docs/result-json.md); ``explain``: with the steps of the search.

    Raises:
        FileError: the file cannot be written.
    """
    write_text(path, json_text(result_dict(result, explain=explain)))


# --- reading -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResultFile:
    """A result file as it stands: read and well formed, but not checked (:mod:`ppopt.checker` does that)."""

    model: Model
    result: Outcome | None
    schedule: Recorded | None
    metrics: Metrics | None
    named: tuple[NamedRow, ...]
    binding: Bound | None = None


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
    """The result in a JSON text; ``source`` names it in messages.

    Raises:
        ResultError: it is not JSON, or not a result; the message says where.
    """
    try:
        tree = json.loads(text, parse_constant=_not_a_number)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{source}: not a JSON file: {error}") from None
    try:
        file = File.model_validate(tree, strict=True)
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
    return ResultFile(model, file.result, file.schedule, file.metrics, tuple(file.named), file.binding)


def _not_a_number(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def _dotted(location: Iterable[int | str]) -> str:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return key.removeprefix(".")


def _check_rows(schedule: Recorded, devices: int, source: str) -> None:
    for name, rows in (("order", schedule.order), ("start", schedule.start), ("end", schedule.end)):
        if len(rows) != devices:
            raise ResultError(f"{source}: schedule.{name}: expected {devices} rows (one per device), got {len(rows)}")
    lines: list[tuple[str, str, Carried]] = [(f"transfers[{i}]", "transfer", of) for i, of in enumerate(schedule.transfers)]
    lines += [(f"copies[{i}]", "copy", of) for i, of in enumerate(schedule.copies)]
    for which, one, line in lines:
        for name, row in (("start", line.start), ("end", line.end)):
            if len(row) != len(line.order):
                where = f"{source}: schedule.{which}.{name}"
                raise ResultError(f"{where}: expected {len(line.order)} times (one per {one}), got {len(row)}")
    for name, rows in (("start", schedule.start), ("end", schedule.end)):
        for device, (ops, row) in enumerate(zip(schedule.order, rows, strict=True)):
            if len(row) != len(ops):
                raise ResultError(f"{source}: schedule.{name}[{device}]: expected {len(ops)} times (one per op), got {len(row)}")
