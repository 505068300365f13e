"""A user's own order as a row beside the named schedules."""

from __future__ import annotations

import dataclasses

from ppopt.named.in_turn import OUT_OF_TURN, out_of_turn
from ppopt.named.row import Row
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.schedule import Order
from ppopt.timing import OrderError, time_order


def of_order(pipeline: Pipeline, order: Order, name: str) -> Row:
    """A user's own order as a row beside the named schedules; one that cannot be timed is excluded, with the reason, and so is
    one whose microbatches run in another order than is given."""
    try:
        schedule = time_order(pipeline, order)
    except OrderError as error:
        return Row(name, pipeline.placement, pipeline.chunks, None, f"{name}: {error}")
    if out_of_turn(pipeline, order):
        return Row(name, pipeline.placement, pipeline.chunks, None, f"{name}: {OUT_OF_TURN}")
    return Row.beside(pipeline, name, pipeline.placement, schedule)


def rows_of_order(pipeline: Pipeline, order: Order, name: str) -> tuple[Row, ...]:
    """The row of a user's own order; without recomputing and with it everywhere, where the pipeline leaves that open."""
    if pipeline.recompute != CHOOSE:
        return (of_order(pipeline, order, name),)
    rows = []
    for choice in ("none", "all"):
        try:
            row = of_order(pipeline.resolved(choice), order, name)
        except PipelineError as error:
            row = Row(name, pipeline.placement, pipeline.chunks, None, f"{name}: recompute = {choice}: {error}")
        rows.append(dataclasses.replace(row, recompute=choice))
    return tuple(rows)
