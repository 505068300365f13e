"""Pipelines whose transfers hold links."""

from dataclasses import replace
from typing import Any

import numpy as np

from ppopt.clock import Limits
from ppopt.constraints import Word, always_split, splitting_is_free
from ppopt.pipeline import Links, Pipeline
from ppopt.schedule import Order, Schedule, Transfers
from ppopt.search import horizon, span_horizon
from ppopt.solvers.outcome import Outcome
from ppopt.timing import time_order

GPIPE = [["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"], ["1F0", "1F1", "1F2", "1B0", "1B1", "1B2"]]


def two(**links: Any) -> Schedule:
    pipeline = Pipeline(2, 3, links=Links(**links))
    return time_order(pipeline, Order.of(pipeline, GPIPE))


def listed(schedule: Schedule) -> tuple[list[list[int]], list[list[tuple[str, int]]]]:
    op = schedule.pipeline.index.op
    rows = zip(*schedule.transfers, strict=True)
    sent = [[(str(op(n)), t) for n, t in zip(row.tolist(), start.tolist(), strict=True)] for row, start in rows]
    return [row.tolist() for row in schedule.start], sent


def again(schedule: Schedule) -> Schedule:
    rows, starts = (
        tuple(np.append(row, row[0] + 30 * time) if not i else row for i, row in enumerate(column))
        for time, column in enumerate(schedule.transfers)
    )
    return replace(schedule, transfers=Transfers(rows, starts))


def solved(of: Any, pipeline: Pipeline, words: tuple[Word, ...], objective: str, upper: int) -> Outcome:
    free = splitting_is_free(pipeline)
    outcome: Outcome = of(
        pipeline,
        (*words, *(always_split(pipeline) if free else ())),
        objective=objective,
        lower=0,
        upper=upper,
        horizon=horizon(pipeline) if objective == "makespan" else span_horizon(pipeline, upper, free=True),
        limits=Limits.of(60, workers=1),
    )
    return outcome
