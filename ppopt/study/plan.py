"""A study file: many pipelines and what to run on each (docs/studies.md)."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import json
import os
import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, TypeAlias

import ppopt
from ppopt.files import Change, FileError, ModelError, model_of, read_text
from ppopt.files.model import ScheduleMisplaced, rooted
from ppopt.files.text import source_of
from ppopt.named import NAMED, Restriction, ScheduleWarning, UnknownSchedule, find
from ppopt.pipeline import ChunksMisplaced, Pipeline, TooLittleMemory

Tree: TypeAlias = dict[str, Any]
Verdict: TypeAlias = Literal["failed", "excluded", "infeasible"]

_KEYS = ("format", "name", "base", "model", "vary", "together", "run", "solve")
_SOLVE = ("objective", "solver", "time_limit", "gap", "threads", "seed", "deterministic")
_SETTINGS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "objective": (lambda x: x in ("makespan", "span"), '"makespan" or "span"'),
    "solver": (lambda x: isinstance(x, str), "the name of a solver"),
    "time_limit": (lambda x: _number(x) and 0 < x < float("inf"), "a number of seconds > 0"),
    "gap": (lambda x: _number(x) and 0 <= x < 1, "a fraction from 0 up to 1"),
    "seed": (
        lambda x: isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 2**31,
        "a whole number from 0 up to 2147483647",
    ),
    "deterministic": (lambda x: isinstance(x, bool), "true or false"),
    "workers": (lambda x: True, ""),
}
MAX_INSTANCES = 10**6
"""Largest number of instances of a study."""


class StudyError(ValueError):
    """A study file that is not one: says file, key, what came and what was expected."""


@dataclass(frozen=True)
class Task:
    """What is run on a pipeline: a named schedule, or (``schedule`` is ``None``) the solver with ``settings``."""

    schedule: str | None = None
    chunks: int | None = None
    params: tuple[tuple[str, Any], ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def tree(self) -> Tree:
        """As JSON has it."""
        if self.schedule is None:
            return {"solve": dict(self.settings)}
        chunks = {} if self.chunks is None else {"chunks": self.chunks}
        return {"schedule": self.schedule, **chunks, **({"params": dict(self.params)} if self.params else {})}


@dataclass(frozen=True)
class Instance:
    """One point of a study: the changes made to its base, what is run, and the pipeline, or why there is none."""

    changes: tuple[tuple[str, Any], ...]
    task: Task
    pipeline: Pipeline | None
    error: str | None = None
    source: Tree = field(default_factory=dict, compare=False)
    verdict: Verdict = "failed"
    """Of one without a pipeline: whether that is a mistake, or the combination does not exist, or has too little memory."""

    @cached_property
    def key(self) -> str:
        """Identifies the canonical problem, the task with its settings, and the versions that run it."""
        problem: Any = self.source if self.pipeline is None else canonical(self._placed())
        identity = {"problem": problem, "task": self.task.tree, "versions": versions_for(self.task)}
        return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()

    def _placed(self) -> Pipeline:
        """A named schedule's problem is the one on its own placement."""
        if self.pipeline is None or self.task.schedule is None:
            return self.pipeline  # type: ignore[return-value]
        try:
            return find(self.task.schedule).place(self.pipeline, self.task.chunks, **dict(self.task.params))
        except Restriction:
            return self.pipeline


@dataclass(frozen=True)
class Study:
    """A name and its instances, in the order of the file."""

    name: str
    instances: tuple[Instance, ...]
    threads: int = 1
    """Solver threads per instance."""


def canonical(pipeline: Pipeline) -> Tree:
    """The problem without its labels: equal for pipelines that are given with other words but the same numbers."""
    fields = {f.name: getattr(pipeline, f.name) for f in dataclasses.fields(pipeline) if f.compare}
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, tuple):
        same = value and isinstance(value[0], Fraction) and len(set(value)) == 1
        return _plain(value[0]) if same else [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value


def versions_for(task: Task) -> dict[str, str]:
    """The versions on which a task's result depends."""
    found = {"ppopt": ppopt.__version__}
    for name in ("ortools", "pulp", "highspy") if task.schedule is None else ():
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    package = None if task.schedule is None else NAMED.origin(task.schedule)
    if package is not None:
        found["schedule"] = package
    return found


# --- reading -----------------------------------------------------------------------------------------------------


def read_study(path: str) -> Study:
    """The study in a TOML file; ``-`` is standard input.

    Raises:
        StudyError: it cannot be read or is not a study. A combination that makes no pipeline is no error here: it becomes
            an instance with an error.
    """
    stdin = path == "-"
    return study_of(_read_toml(path), "<stdin>" if stdin else path, "" if stdin else os.path.dirname(path))


def _read_toml(path: str) -> Tree:
    source = source_of(path)
    try:
        return tomllib.loads(read_text(path), parse_float=Decimal)
    except FileError as error:
        raise StudyError(f"{source}: {error}") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits, brackets nested too deeply
        raise StudyError(f"{source}: not a TOML file: {error}") from None


def study_of(tree: Mapping[str, Any], source: str, folder: str = "") -> Study:
    """The study in a tree of tables; ``folder`` is where ``base`` is looked for.

    Raises:
        StudyError: the tree is no study of this format, or has too many instances.
    """
    _known(tree, _KEYS, source, "")
    if tree.get("format", 1) != 1:
        raise StudyError(f"{source}: format: expected 1, the only format that this version reads, got {tree['format']!r}")
    name = tree.get("name", os.path.splitext(os.path.basename(source))[0])
    if not isinstance(name, str) or not name:
        raise StudyError(f"{source}: name: expected a text, got {name!r}")
    base = _base(tree, source, folder)
    tasks, threads = _tasks(tree, source)
    factors = _factors(tree, source)
    size = len(tasks)
    for factor in factors:
        size *= len(factor)
    if not 1 <= size <= MAX_INSTANCES:
        raise StudyError(f"{source}: the study has {size} instances; expected 1 to {MAX_INSTANCES}")
    instances: list[Instance] = []
    unmarked: list[str] = []
    combinations = list(itertools.product(*factors))
    for combination in combinations:
        changes = tuple(itertools.chain.from_iterable(combination))
        instances += _instances(base, changes, tasks, source, unmarked)
    if unmarked:
        counted = f"{len(unmarked)} of {len(combinations)} combinations run without the mark pipeline.schedule"
        warnings.warn(f"{counted}; the first: {unmarked[0]}", ScheduleWarning, stacklevel=2)
    return Study(name, tuple(instances), threads)


def _instances(
    base: Tree, changes: tuple[tuple[str, Any], ...], tasks: Sequence[Task], source: str, unmarked: list[str]
) -> Iterable[Instance]:
    """``unmarked`` gets the reason where the schedule that the model stands for, which nothing here depends on, cannot exist."""
    given = [Change(key, value, source) for key, value in changes]
    try:
        try:
            model = model_of(copy.deepcopy(base), source, given)
        except ModelError as error:
            if not isinstance(error.problem, ScheduleMisplaced):
                raise
            unmarked.append(str(error))
            marks = ("pipeline.schedule", "pipeline.schedule_params")
            model = model_of(copy.deepcopy(base), source, [*given, *(Change(key, None, source) for key in marks)])
    except ModelError as error:
        raw = {"base": base, "changes": changes}
        verdict: Verdict = "failed"
        if isinstance(error.problem, ChunksMisplaced | TooLittleMemory):
            verdict = "excluded" if isinstance(error.problem, ChunksMisplaced) else "infeasible"
        return [Instance(changes, task, None, str(error), raw, verdict) for task in tasks]
    return [Instance(changes, task, model.pipeline) for task in tasks]


def _known(tree: Mapping[str, Any], keys: Sequence[str], source: str, where: str) -> None:
    for key in tree:
        if key not in keys:
            raise StudyError(f"{source}: {where}{key}: unknown key; expected one of {', '.join(keys)}")


def _base(tree: Mapping[str, Any], source: str, folder: str) -> Tree:
    """The model file that ``base`` names, with the keys of ``[model]`` on top."""
    base: Tree = {}
    given = tree.get("base")
    if given is not None:
        if not isinstance(given, str):
            raise StudyError(f"{source}: base: expected the path of a model file, got {given!r}")
        base = rooted(_read_toml(os.path.join(folder, given)), os.path.join(folder, given))
    model = tree.get("model", {})
    if not isinstance(model, dict):
        raise StudyError(f"{source}: model: expected a table as in a model file, got {model!r}")
    return _merged(base, model)


def _merged(base: Tree, over: Mapping[str, Any]) -> Tree:
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def _factors(tree: Mapping[str, Any], source: str) -> list[list[tuple[tuple[str, Any], ...]]]:
    """What the product is taken over: each a list of sets of changes."""
    vary, together = tree.get("vary", {}), tree.get("together", [])
    if not isinstance(vary, dict) or not isinstance(together, list) or not all(isinstance(t, dict) for t in together):
        raise StudyError(f"{source}: expected a table [vary] and tables [[together]]")
    factors: list[list[tuple[tuple[str, Any], ...]]] = []
    factors += [[((key, value),) for value in values] for key, values in _lists(vary, source, "vary.")]
    for k, table in enumerate(together):
        columns = list(_lists(table, source, f"together[{k}]."))
        lengths = {len(values) for _, values in columns}
        if len(lengths) != 1:
            found = ", ".join(f"{key} {len(values)}" for key, values in columns) or "none"
            raise StudyError(f"{source}: together[{k}]: expected lists of one length, got {found}")
        factors.append([tuple((key, values[i]) for key, values in columns) for i in range(lengths.pop())])
    seen: set[str] = set()
    for factor in factors:
        for key in [key for key, _ in factor[0]]:
            if key in seen:
                raise StudyError(f"{source}: {key} is varied twice")
            seen.add(key)
    return factors


def _lists(table: Mapping[str, Any], source: str, where: str, prefix: str = "") -> Iterable[tuple[str, list[Any]]]:
    """Dotted keys with their lists; ``pipeline.devices`` may be one quoted key or nested tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _lists(value, source, where, f"{prefix}{key}.")
        elif isinstance(value, list) and value:
            yield prefix + key, value
        else:
            raise StudyError(f"{source}: {where}{prefix}{key}: expected a list of values that is not empty, got {value!r}")


def _tasks(tree: Mapping[str, Any], source: str) -> tuple[list[Task], int]:
    run, solve = tree.get("run", {}), tree.get("solve")
    if not isinstance(run, dict) or not isinstance(solve, dict | None):
        raise StudyError(f"{source}: expected tables [run] and [solve]")
    _known(run, ("schedules",), source, "run.")
    named = run.get("schedules", [])
    if named == "all":
        named = [name for name, definition in NAMED.items() if definition.work_map is None]
    if not isinstance(named, list):
        raise StudyError(f'{source}: run.schedules: expected a list of named schedules or "all", got {named!r}')
    tasks = [_named_task(entry, source, k) for k, entry in enumerate(named)]
    threads = 1
    if solve is not None:
        _known(solve, _SOLVE, source, "solve.")
        threads = solve.get("threads", 1)
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise StudyError(f"{source}: solve.threads: expected a whole number >= 1, got {threads!r}")
        solve = {key: value for key, value in solve.items() if key != "threads"} | {"workers": threads}
        columns = {key: value if isinstance(value, list) else [value] for key, value in sorted(solve.items())}
        lists = [[_setting(key, value, source) for value in column] for key, column in columns.items()]
        tasks += [Task(settings=settings) for settings in itertools.product(*lists)]
    if not tasks:
        raise StudyError(f"{source}: nothing to run; give run.schedules, or a table [solve], or both")
    return tasks, threads


def _number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _setting(key: str, value: Any, source: str) -> tuple[str, Any]:
    fits, expected = _SETTINGS[key]
    if not fits(value):
        raise StudyError(f"{source}: solve.{key}: expected {expected}, got {value!r}")
    return key, float(value) if key in ("time_limit", "gap") else value


def _named_task(entry: Any, source: str, place: int) -> Task:
    where = f"{source}: run.schedules[{place}]"
    table = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise StudyError(f"{where}: expected a name or a table with one, got {entry!r}")
    _known(table, ("name", "chunks", "params"), source, f"run.schedules[{place}].")
    try:
        definition = find(table["name"])
        params = definition.read(table.get("params", {}))
    except (UnknownSchedule, Restriction) as error:
        raise StudyError(f"{where}: {error}") from None
    chunks = table.get("chunks")
    if chunks is not None and (isinstance(chunks, bool) or not isinstance(chunks, int) or chunks < 1):
        raise StudyError(f"{where}.chunks: expected a whole number >= 1, got {chunks!r}")
    return Task(definition.name, chunks, tuple(sorted(params.items())))
