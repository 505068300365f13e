"""A small study and the contents of its store."""

import sqlite3
from pathlib import Path
from typing import Any

TREE: dict[str, Any] = {
    "name": "small",
    "model": {"pipeline": {"microbatches": 6}},
    "vary": {"pipeline": {"devices": [2, 3]}, "links.latency": [0, 1]},
    "together": [{"costs.forward": [1, 2], "costs.backward_input": [2, 1]}],
    "run": {"schedules": ["1f1b", "zb-h1", {"name": "interleaved-1f1b", "chunks": 2}]},
}


def contents(path: Path) -> list[tuple[Any, ...]]:
    """All that a store holds, apart from times."""
    with sqlite3.connect(path) as connection:
        results = connection.execute("SELECT key, task, versions, status, outcome FROM results ORDER BY key").fetchall()
        points = connection.execute("SELECT * FROM points ORDER BY study, position").fetchall()
        claims = connection.execute("SELECT * FROM claims").fetchall()
    connection.close()
    assert claims == []
    return [*results, *points]
