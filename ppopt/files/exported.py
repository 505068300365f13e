"""The schedule in a file, timed anew: what export and other commands take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ppopt.files.inferred import infer_pipeline
from ppopt.files.model import Model
from ppopt.files.result import ResultError, result_of_text
from ppopt.files.text import FileError, read_text, source_of
from ppopt.files.torch_csv import compute_only, rows_of_text
from ppopt.op import Op, Pair
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order


def schedule_in(path: str, model: Model | None = None, change: Callable[[Model], Model] = lambda model: model) -> Schedule:
    """The schedule of a result (JSON) or an order (CSV in PyTorch's notation), every operation as early as it can be.

    Without ``model`` a result has its own, an order unit costs and the placement that it shows; ``change`` is made to either.

    Raises:
        FileError, ResultError, CsvError: the file cannot be read, there is no schedule in it, or it is none.
        ModelError: ``change`` cannot be made.
    """
    source = source_of(path)
    rows: Sequence[Sequence[Op | Pair | str]]
    try:
        text = read_text(path)
        if text.lstrip()[:1] == "{":
            result = result_of_text(text, source)
            if result.schedule is None:
                raise ResultError(f"{source}: schedule: there is none")
            model, rows = model or change(result.model), result.schedule.order
        else:
            rows = ops = compute_only(rows_of_text(text, source))
            model = model or change(Model(infer_pipeline(ops)))
    except FileError as error:
        raise FileError(f"{source}: {error}") from None
    try:
        return time_order(model.pipeline, Order.of(model.pipeline, rows))
    except ValueError as error:
        raise FileError(f"{source}: {error}") from None
