"""What a link or a copy engine carries, as a result has it."""

from __future__ import annotations

from typing import Any

from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import durations


def carried(pipeline: Pipeline, row: IntArray, start: IntArray) -> dict[str, Any]:
    """Transfers or copies in their order, with their starts and ends."""
    return {
        "order": pipeline.index.texts(row.tolist()),
        "start": times(pipeline, start),
        "end": times(pipeline, start + durations(pipeline, row)),
    }


def times(pipeline: Pipeline, ticks: IntArray) -> list[int | float]:
    """Ticks in the user's unit, as :meth:`~ppopt.pipeline.Pipeline.time` gives them one by one."""
    per_unit = pipeline.ticks.per_unit
    if per_unit == 1:
        return list(ticks.tolist())
    if max(int(ticks.max(initial=0)), per_unit) >= 2**53:  # the quotient of two doubles would be rounded twice
        return [pipeline.time(tick) for tick in ticks.tolist()]
    whole, doubles = (ticks // per_unit).tolist(), (ticks / per_unit).tolist()
    return [w if w == d else d for w, d in zip(whole, doubles, strict=True)]
