"""What is wrong with a schedule in a file: a result (JSON) or an order (CSV)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ppopt.checker import Record, Rule, Violation, mismatches, violations, violations_of
from ppopt.files import torch_check
from ppopt.files.inferred import halves_of, infer_pipeline
from ppopt.files.loose import loose_times
from ppopt.files.result import ResultError, ResultFile, json_text, result_dict, result_of_text
from ppopt.files.text import FileError, read_text, source_of
from ppopt.files.torch_csv import Action, compute_only, has_comms, rows_of_text
from ppopt.named.model import Model
from ppopt.named.row import Row
from ppopt.op import Kind, Op, Pair, parse
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.search.result import Result
from ppopt.timing import CyclicOrder, OrderError, time_order


def check(checked: Result | Row | Schedule | str, model: Model | Pipeline | None = None) -> list[Violation]:
    """Every violation in a result, a row of a comparison, a schedule, or a file with one; an empty list: there is none.

    The independent checker looks at it: it shares nothing with what made it. Of a result all that would be written is checked:
    the recorded times, the metrics, and that the value is no less than the lower bound. A row's own memory limit is a rule, too.
    With ``model``, a schedule is held to that instead of its own; a CSV file has unit costs without it.

    Raises:
        ValueError: there is no schedule to check.
        FileError, ResultError, CsvError: a file cannot be read.
    """
    given = Model(model) if isinstance(model, Pipeline) else model
    if isinstance(checked, str | os.PathLike):
        return check_file(os.fspath(checked), given)
    if isinstance(checked, Result):
        return check_result(result_of_text(json_text(result_dict(checked)), "result"), given or checked.model, "result")
    schedule = checked.schedule if isinstance(checked, Row) else checked
    if schedule is None:
        raise ValueError("there is no schedule to check")
    if given is None:
        return violations(schedule.pipeline, schedule)
    return check_order(given.pipeline, [schedule.order.ops(device) for device in range(len(schedule.order.rows))])


def check_file(path: str, model: Model | None, change: Callable[[Model], Model] = lambda model: model) -> list[Violation]:
    """Every violation in a result (JSON) or an order (CSV in PyTorch's notation); ``-`` is standard input.

    Without ``model`` a result is held to its own, an order to unit costs and the placement that it has itself; ``change`` is
    made to either first. Recorded times, metrics and bounds are derived anew.

    Raises:
        FileError, ResultError, CsvError: the file cannot be read, or there is no schedule in it.
        ModelError: ``change`` cannot be made.
    """
    source = source_of(path)
    try:
        text = read_text(path)
    except FileError as error:
        raise FileError(f"{source}: {error}") from None
    if text.lstrip()[:1] in ("{", "["):
        return check_result(result_of_text(text, source), model or change, source)
    actions = rows_of_text(text, source)
    rows = compute_only(actions)
    if model is None:
        try:
            model = change(Model(infer_pipeline(rows)))
        except FileError as error:
            raise FileError(f"{source}: {error}") from None
    return check_order(model.pipeline, rows) + (check_communication(actions) if has_comms(actions) else [])


def check_communication(rows: Sequence[Sequence[Action]]) -> list[Violation]:
    """What is wrong with the communication in a file for PyTorch; what it computes is looked at elsewhere."""
    found = []
    for violation in torch_check.violations(rows):
        if violation.rule in torch_check.COMMUNICATION:
            found.append(Violation(Rule.COMMUNICATION, violation.rank, violation.action or "", None, str(violation)))
    return found


def check_result(file: ResultFile, model: Model | Callable[[Model], Model], source: str) -> list[Violation]:
    """Every violation in a result: of the rules, and of what it records.

    Raises:
        ResultError: the result has no schedule.
    """
    recorded = file.schedule
    if recorded is None:
        raise ResultError(f"{source}: schedule: there is none to check")
    pipeline = (model if isinstance(model, Model) else model(file.model)).pipeline
    rows: list[list[Record]] = [
        list(zip(*row, strict=True)) for row in zip(recorded.order, recorded.start, recorded.end, strict=True)
    ]
    if other := _other_sizes_of_texts(pipeline, recorded.order):
        return other
    # a schedule with the least span waits on purpose: its operations need not start as early as they could
    waits = file.result is not None and file.result.objective == "span"
    transfers = [record for line in recorded.transfers for record in zip(line.order, line.start, line.end, strict=True)]
    transfers += [record for line in recorded.copies for record in zip(line.order, line.start, line.end, strict=True)]
    found = violations_of(pipeline, rows, transfers, earliest=not waits)
    metrics = None if file.metrics is None else file.metrics.model_dump()
    outcome = None if file.result is None else file.result.model_dump()
    return found + mismatches(pipeline, rows, transfers, metrics=metrics, outcome=outcome)


def other_sizes(pipeline: Pipeline, rows: Sequence[Sequence[Op | Pair]]) -> list[Violation]:
    """One violation where an order is a whole one, but of other sizes than the pipeline; it says both."""
    ops = set(halves_of([op for row in rows for op in row]))
    forwards = sum(op.kind == Kind.F for op in ops)
    found = (len(rows), 1 + max((op.stage for op in ops), default=-1), 1 + max((op.microbatch for op in ops), default=-1))
    sizes = (pipeline.devices, pipeline.stages, pipeline.microbatches)
    if found == sizes or forwards != found[1] * found[2]:
        return []
    file, model = (f"{d} devices, {s} stages and {m} microbatches" for d, s, m in (found, sizes))
    rule = Rule.UNKNOWN if any(a > b for a, b in zip(found, sizes, strict=True)) else Rule.MISSING
    return [Violation(rule, None, "", None, f"the schedule has {file}; the model has {model}")]


def _other_sizes_of_texts(pipeline: Pipeline, rows: Sequence[Sequence[str]]) -> list[Violation]:
    try:
        parsed = [[parse(text) for text in row] for row in rows]
    except ValueError:
        return []  # the checker says which are no operations
    return other_sizes(pipeline, [[op for op in row if isinstance(op, Op | Pair)] for row in parsed])


def check_order(pipeline: Pipeline, rows: Sequence[Sequence[Op | Pair]]) -> list[Violation]:
    """Every violation in an order, each operation run as early as it can be; a deadlock is one, too."""
    if other := other_sizes(pipeline, rows):
        return other
    try:
        return violations(pipeline, time_order(pipeline, Order.of(pipeline, rows)))
    except CyclicOrder as error:
        op = error.cycle[0]
        device = next(device for device, row in enumerate(rows) if op in map(str, row))
        return [Violation(Rule.DATA, device, op, None, str(error))]
    except (OrderError, ValueError):  # operations missing, twice or elsewhere: the checker says which
        free = pipeline.changed(links=pipeline.links.uncontended())  # what is wrong is the order, not when a link was held
        return violations_of(free, loose_times(free, rows))
