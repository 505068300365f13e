"""Stored results as flat rows."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ppopt.study.store import Stored

_FIRST = ("study", "position")
_LAST = ("seconds", "finished", "key")


def rows_of(results: Iterable[Stored]) -> list[dict[str, Any]]:
    """A row per result: the varied keys, the task, the status, then the figures; lists are joined by spaces.

    ``relative_efficiency`` is the least makespan of all results of the same pipeline that are within its memory, over its own.
    """
    results = list(results)
    best = _best(results)
    rows = []
    for result in results:
        row: dict[str, Any] = {"study": result.study, "position": result.position, **result.changes}
        task = dict(result.task)
        row["schedule"] = task.pop("schedule", "solve")
        row.update({key: value for key, value in task.pop("solve", {}).items() if key in ("solver", "objective")})
        row.update({f"asked_{key}": value for key, value in task.items()})
        row["status"] = result.status
        row.update({"stopped_by" if key == "limit" else key: value for key, value in result.outcome.items()})
        if result.outcome.get("makespan"):
            least = best.get(_instance(result))
            row["relative_efficiency"] = None if least is None else float(least / result.outcome["makespan"])
        row.update(seconds=result.seconds, finished=result.finished, key=result.key)
        rows.append({key: _flat(value) for key, value in row.items()})
    return rows


def _instance(result: Stored) -> tuple[str, str]:
    """The pipeline of a result, among those of its study."""
    return result.study, json.dumps(result.changes, sort_keys=True, default=str)


def _best(results: Iterable[Stored]) -> dict[tuple[str, str], float]:
    """The least makespan within the memory of each pipeline."""
    best: dict[tuple[str, str], float] = {}
    for result in results:
        makespan = result.outcome.get("makespan")
        if makespan and result.outcome.get("within_memory", True):
            key = _instance(result)
            best[key] = min(makespan, best.get(key, makespan))
    return best


def columns_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Every column of any row, in the order in which they appear; what every result has, first and last."""
    seen = dict.fromkeys(key for row in rows for key in row if key not in (*_FIRST, *_LAST))
    return [*_FIRST, *seen, *_LAST]


_COMPARED = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}


def chosen(
    rows: Sequence[dict[str, Any]], where: Sequence[str] = (), sort: Sequence[str] = (), top: int | None = None
) -> list[dict[str, Any]]:
    """Rows that meet conditions such as ``status=done`` or ``makespan<=30``, sorted by columns, the first ``top`` of them.

    A column may be named by the last part of its key. ``-`` before it sorts the largest first. A row without a value meets no
    condition about it, and is sorted behind all others.

    Raises:
        ValueError: a condition is none, or no row has such a column.
    """
    columns = columns_of(rows)
    found = [row for row in rows if all(_meets(row, columns, condition) for condition in where)]
    for given in reversed(sort):
        key = _column(columns, given.removeprefix("-"))
        have, lack = [row for row in found if row.get(key) is not None], [row for row in found if row.get(key) is None]
        found = sorted(have, key=lambda row: _comparable(row[key]), reverse=given.startswith("-")) + lack
    return found[:top]


def _meets(row: Mapping[str, Any], columns: Sequence[str], condition: str) -> bool:
    sign = next((sign for sign in _COMPARED if sign in condition), None)
    name, _, text = condition.partition(sign or "=")
    if sign is None or not name.strip():
        raise ValueError(f"expected a condition such as makespan<=30 or status=done, got {condition!r}")
    value = row.get(_column(columns, name.strip()))
    if value is None:
        return False
    wanted = _read(text.strip())
    if isinstance(value, str) != isinstance(wanted, str):
        value, wanted = str(value), text.strip()
    return bool(_COMPARED[sign](value, wanted))


def _column(columns: Sequence[str], name: str) -> str:
    found = [column for column in columns if column == name] or [column for column in columns if column.split(".")[-1] == name]
    if not found:
        raise ValueError(f"there is no column {name!r}; there are {', '.join(columns)}")
    return found[0]


def _read(text: str) -> Any:
    words = {"yes": True, "true": True, "no": False, "false": False}
    try:
        return words[text] if text in words else float(text)
    except ValueError:
        return text


def _comparable(value: Any) -> tuple[int, Any]:
    """Numbers before texts."""
    return (1, value) if isinstance(value, str) else (0, value)


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return " ".join(f"{key}={_flat(item)}" for key, item in value.items())
    return " ".join(str(_flat(item)) for item in value) if isinstance(value, list) else value
