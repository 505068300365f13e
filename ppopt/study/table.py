"""Stored results as flat rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ppopt.study.store import Stored

_FIRST = ("study", "position")
_LAST = ("seconds", "finished", "key")


def rows_of(results: Iterable[Stored]) -> list[dict[str, Any]]:
    """A row per result: the varied keys, the task, the status, then the figures; lists are joined by spaces."""
    rows = []
    for result in results:
        row: dict[str, Any] = {"study": result.study, "position": result.position, **result.changes}
        task = dict(result.task)
        row["schedule"] = task.pop("schedule", "solve")
        row.update({key: value for key, value in task.pop("solve", {}).items() if key in ("solver", "objective")})
        row.update({f"asked_{key}": value for key, value in task.items()})
        row["status"] = result.status
        row.update(result.outcome)
        row.update(seconds=result.seconds, finished=result.finished, key=result.key)
        rows.append({key: _flat(value) for key, value in row.items()})
    return rows


def columns_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Every column of any row, in the order in which they appear; what every result has, first and last."""
    seen = dict.fromkeys(key for row in rows for key in row if key not in (*_FIRST, *_LAST))
    return [*_FIRST, *seen, *_LAST]


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return " ".join(f"{key}={_flat(item)}" for key, item in value.items())
    return " ".join(str(_flat(item)) for item in value) if isinstance(value, list) else value
