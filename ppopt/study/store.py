"""Results of sweeps in one SQLite file: whatever is finished stays, whoever dies, and several sweeps may share it.

A row is written in one transaction under its key (:attr:`ppopt.study.plan.Instance.key`). Write-ahead logging lets readers
and writers work side by side; the file must be on a local disk, as SQLite demands for that.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from ppopt.study.plan import Study

Tree: TypeAlias = dict[str, Any]

APPLICATION = 0x7070_6F70
VERSION = 1
WAIT = 60.0
"""Seconds to wait for another process that is writing."""
SILENCE = 30.0
"""A sweep that has given no sign of life for this many seconds has lost its claims."""

_SCHEMA = """
CREATE TABLE results (
    key TEXT PRIMARY KEY, task TEXT NOT NULL, versions TEXT NOT NULL, status TEXT NOT NULL, outcome TEXT NOT NULL,
    seconds REAL NOT NULL, finished TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE points (
    study TEXT NOT NULL, position INTEGER NOT NULL, key TEXT NOT NULL, changes TEXT NOT NULL, PRIMARY KEY (study, position)
) WITHOUT ROWID;
CREATE TABLE claims (key TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, alive REAL NOT NULL) WITHOUT ROWID;
"""


class StoreError(ValueError):
    """A file that is no store, or cannot be read or written."""


@dataclass(frozen=True)
class Stored:
    """One result. ``status``: ``done``, ``excluded`` (the schedule does not apply) or ``failed``."""

    key: str
    study: str
    position: int
    changes: Tree
    task: Tree
    versions: Tree
    status: str
    outcome: Tree
    seconds: float
    finished: str


class Store:
    """An open store. Use it as a context manager; one per process and thread."""

    def __init__(self, path: str | Path, create: bool = True) -> None:
        self.path = os.fspath(path)
        if not create and not os.path.exists(self.path):
            raise StoreError(f"{self.path}: there is no such file")
        try:
            self._connection = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
            self._prepare(create)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error

    def _prepare(self, create: bool) -> None:
        run = self._connection.execute
        run("PRAGMA synchronous = FULL")
        run("BEGIN IMMEDIATE")  # what the file is, is asked and settled by one process at a time
        try:
            application = run("PRAGMA application_id").fetchone()[0]
            empty = not run("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if application != APPLICATION and not (empty and create):
                raise StoreError(f"{self.path}: is not a file of sweep results")
            if empty:
                for statement in _SCHEMA.split(";"):
                    run(statement)
                run(f"PRAGMA application_id = {APPLICATION}")
                run(f"PRAGMA user_version = {VERSION}")
            found = run("PRAGMA user_version").fetchone()[0]
            if found != VERSION:
                raise StoreError(f"{self.path}: has format {found}; this version reads {VERSION}")
        except BaseException:
            run("ROLLBACK")
            raise
        run("COMMIT")
        self._log_ahead()

    def _log_ahead(self) -> None:
        """Switch to write-ahead logging. SQLite does not wait for other processes here, whatever the timeout."""
        latest = time.monotonic() + WAIT
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > latest:
                    raise
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # --- what a sweep does -------------------------------------------------------------------------------------------

    def register(self, study: Study) -> None:
        """Write down which results make up a study; what an older version of it had is forgotten (not its results)."""
        rows = [
            (study.name, position, instance.key, _json(dict(instance.changes)))
            for position, instance in enumerate(study.instances)
        ]
        with self._transaction():
            self._connection.execute("DELETE FROM points WHERE study = ?", (study.name,))
            self._connection.executemany("INSERT INTO points VALUES (?, ?, ?, ?)", rows)

    def finished(self, keys: Iterable[str], failed: bool = True) -> set[str]:
        """Which of these have a result; with ``failed=False`` failures do not count."""
        wanted = "SELECT key FROM results" + ("" if failed else " WHERE status != 'failed'")
        return {row[0] for row in self._connection.execute(wanted)} & set(keys)

    def has(self, key: str) -> bool:
        """Whether there is a result of any kind."""
        return self._connection.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone() is not None

    def outcome(self, key: str) -> Tree | None:
        """What was found under a key; ``None``: nothing yet."""
        row = self._connection.execute("SELECT outcome FROM results WHERE key = ? AND status = 'done'", (key,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def note(self, study: str, key: str, changes: Mapping[str, Any]) -> None:
        """One more result of a study whose instances are not known beforehand."""
        with self._transaction():
            if self._connection.execute("SELECT 1 FROM points WHERE study = ? AND key = ?", (study, key)).fetchone() is None:
                last = self._connection.execute("SELECT coalesce(max(position), -1) FROM points WHERE study = ?", (study,))
                self._connection.execute(
                    "INSERT INTO points VALUES (?, ?, ?, ?)", (study, last.fetchone()[0] + 1, key, _json(changes))
                )

    def add(
        self, key: str, task: Mapping[str, Any], versions: Mapping[str, str], status: str, outcome: Tree, seconds: float
    ) -> None:
        """Write a result and give up the claim on it, in one transaction. The first result of a key stays, failures aside."""
        row = (key, _json(task), _json(versions), status, _json(outcome), seconds, _now())
        with self._transaction():
            self._connection.execute("DELETE FROM results WHERE key = ? AND status = 'failed'", (key,))
            self._connection.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            self._connection.execute("DELETE FROM claims WHERE key = ?", (key,))

    def claim(self, key: str) -> bool:
        """Take an instance for this process; False where another sweep that is alive is at it, or it has a result."""
        with self._transaction():
            if self._connection.execute("SELECT 1 FROM results WHERE key = ? AND status != 'failed'", (key,)).fetchone():
                return False
            held = self._connection.execute("SELECT host, pid, alive FROM claims WHERE key = ?", (key,)).fetchone()
            if held is not None and held[:2] != _me() and _alive(*held):
                return False
            mine = (key, *_me(), time.time())
            self._connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", mine)
            return True

    def alive(self) -> None:
        """A sign of life: the claims of this process are still meant."""
        with self._transaction():
            self._connection.execute("UPDATE claims SET alive = ? WHERE host = ? AND pid = ?", (time.time(), *_me()))

    def release(self) -> None:
        """Give up all claims of this process."""
        with self._transaction():
            self._connection.execute("DELETE FROM claims WHERE host = ? AND pid = ?", _me())

    # --- what a reader does ------------------------------------------------------------------------------------------

    def studies(self) -> dict[str, tuple[int, int]]:
        """For each study, how many instances it has and how many of them have a result."""
        query = "SELECT study, count(*), count(r.key) FROM points LEFT JOIN results r USING (key) GROUP BY study ORDER BY study"
        return {study: (instances, finished) for study, instances, finished in self._connection.execute(query)}

    def results(self, study: str | None = None, status: Sequence[str] = ()) -> list[Stored]:
        """The results, study by study in the order of its file; of one study, or with some statuses only."""
        query = (
            "SELECT key, study, position, changes, task, versions, status, outcome, seconds, finished "
            "FROM points JOIN results USING (key) WHERE (? IS NULL OR study = ?) ORDER BY study, position"
        )
        found = [_stored(row) for row in self._connection.execute(query, (study, study))]
        return [result for result in found if not status or result.status in status]

    def _transaction(self) -> _Transaction:
        return _Transaction(self._connection)


class _Transaction:
    """Everything or nothing; the write lock is taken at once, so that two writers never deadlock."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.execute("ROLLBACK" if kind else "COMMIT")


def _stored(row: tuple[Any, ...]) -> Stored:
    key, study, position, changes, task, versions, status, outcome, seconds, finished = row
    trees = json.loads(changes), json.loads(task), json.loads(versions)
    return Stored(key, study, position, *trees, status, json.loads(outcome), seconds, finished)


def _me() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def _alive(host: str, pid: int, seen: float) -> bool:
    """Whether a sweep still runs: gone where its process is gone; elsewhere, after a long silence."""
    if host == socket.gethostname():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
    return time.time() - seen < SILENCE


def _json(tree: Mapping[str, Any]) -> str:
    return json.dumps(tree, ensure_ascii=False, default=float)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
