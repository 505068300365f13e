"""The model file: TOML that gives a pipeline and the schedule that it stands for (docs/model-file.md)."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

from ppopt.files import sites
from ppopt.files.layered import check_digits, layers_of, with_counts
from ppopt.files.origin import ORIGIN, origin_of
from ppopt.files.own_order import order_of_model
from ppopt.files.text import FileError, read_text, source_of
from ppopt.named import Restriction, UnknownSchedule, find
from ppopt.named.model import Model
from ppopt.pipeline import (
    BEST,
    CHOOSE,
    MAX_DEVICES,
    Costs,
    DataParallel,
    Links,
    Memory,
    Offload,
    Pipeline,
    PipelineError,
    Units,
)
from ppopt.pipeline.choices import saving_most
from ppopt.pipeline.mix import KEYS as MIX_KEYS
from ppopt.pipeline.mix import mix_of
from ppopt.pipeline.parts import as_number

FORMAT = 1

Tree: TypeAlias = dict[str, Any]
_Read = TypeVar("_Read")

PARTS = {"costs": Costs, "links": Links, "memory": Memory, "data_parallel": DataParallel, "units": Units}
OPTIONAL = {"offload": Offload}
"""Tables that say something by being there."""
_KEYS: dict[str, tuple[str, ...]] = {
    "": ("format", "name", "pipeline", "layers", *PARTS, *OPTIONAL, *ORIGIN),
    "pipeline": (
        *("devices", "microbatches", "placement", "chunks", "routes", "backward_routes", "route_of_microbatch"),
        *("partition", "recompute"),
        *("runtime", "schedule", "schedule_params", "order", *MIX_KEYS),
    ),
    **{table: tuple(f.name for f in dataclasses.fields(part)) for table, part in (PARTS | OPTIONAL).items()},
}
_KEYS["links"] += sites.KEYS
_KEYS |= ORIGIN
_DOTTED = tuple(f"{table}.{key}" if table else key for table, keys in _KEYS.items() for key in keys)


class ModelError(ValueError):
    """A model file that is not one. Says where (file or flag, and dotted key), what came and what was expected.

    ``problem`` is the error of the pipeline, where that is what is wrong.
    """

    def __init__(self, where: str, key: str, message: str, problem: PipelineError | None = None) -> None:
        shown = message if len(message) <= 500 else message[:400] + " … " + message[-90:]
        super().__init__(": ".join(part for part in (where, key, shown) if part))
        self.where = where
        self.key = key
        self.problem = problem


class ScheduleMisplaced(PipelineError):
    """``pipeline.schedule`` names a schedule that cannot exist on the pipeline beside it."""


@dataclass(frozen=True)
class Change:
    """A key of the model file set from outside (``None`` leaves it out); ``flag`` is how messages name the place."""

    key: str
    value: Any
    flag: str


class _Decimal(Decimal):
    """A decimal that messages show as it was written."""

    def __repr__(self) -> str:
        return str(self)


# --- reading -----------------------------------------------------------------------------------------------------


def read_model(path: str, changes: Sequence[Change] = ()) -> Model:
    """The model in a file (``-`` is standard input), with ``changes`` made to it first.

    Raises:
        ModelError: the file cannot be read, is not TOML, or is not a model.
    """
    return model_of(read_tree(path), source_of(path), changes)


def read_tree(path: str) -> Tree:
    """The tables of a model file as they stand; ``-`` is standard input.

    Raises:
        ModelError: the file cannot be read or is not TOML.
    """
    try:
        text = read_text(path)
    except FileError as error:
        raise ModelError(source_of(path), "", str(error)) from None
    return rooted(tree_of_text(text, source_of(path)), path)


def rooted(tree: Tree, path: str) -> Tree:
    """The tables of the model file ``path``, the paths in them no longer relative to that file."""
    table = tree.get("pipeline")
    if isinstance(table, dict) and isinstance(table.get("order"), str):
        return {**tree, "pipeline": {**table, "order": os.path.join(os.path.dirname(path), table["order"])}}
    return tree


def model_of_text(text: str, source: str, changes: Sequence[Change] = ()) -> Model:
    """The model in a TOML text; ``source`` names it in messages."""
    return model_of(tree_of_text(text, source), source, changes)


def tree_of_text(text: str, source: str) -> Tree:
    """The tables of a TOML text; ``source`` names it in messages.

    Raises:
        ModelError: it is not TOML.
    """
    try:
        return _toml(text)
    except ValueError as error:
        raise ModelError(source, "", f"not a TOML file: {error}") from None


def setting(text: str, option: str = "--set", example: str = "costs.forward=2") -> Change:
    """``KEY=VALUE`` as a change: a dotted key and a TOML value; a bare word is a string. ``option`` is named in messages.

    Raises:
        ModelError: it is anything else.
    """
    flag = f"{option} {text}"
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not re.fullmatch(r"\w+(\.\w+)*", key) or not value:
        raise ModelError(flag, "", f"expected KEY=VALUE, such as {example}")
    try:
        tree = _toml(f"value = {value}")
    except ValueError:
        if not re.fullmatch(r"[A-Za-z_][\w-]*", value):
            raise ModelError(flag, "", f"the value is neither TOML nor a bare word{as_number(key, value)}") from None
        tree = {"value": value}
    if tree.keys() != {"value"}:
        raise ModelError(flag, "", "expected a single value")
    return Change(key, tree["value"], flag)


def _toml(text: str) -> Tree:
    try:
        return tomllib.loads(text, parse_float=_Decimal)
    except RecursionError:
        raise ValueError("nested too deeply") from None


# --- from a tree of tables to a model ----------------------------------------------------------------------------


def model_of(tree: Mapping[str, Any], source: str, changes: Sequence[Change] = ()) -> Model:
    """The model in a tree of tables, as TOML or the ``model`` of a result gives it, with ``changes`` made to it first.

    Raises:
        ModelError: unknown key, wrong type, wrong length, a value out of range, or what no schedule can satisfy.
    """
    try:
        return _model(changed_tree(tree, changes), frozenset(change.key for change in changes))
    except PipelineError as error:
        raise ModelError(place_of(error.key, source, changes), error.key, error.message, error) from None


def changed_tree(tree: Mapping[str, Any], changes: Sequence[Change]) -> Tree:
    """A copy of a tree of tables with changes made to it, the last one last.

    Raises:
        ModelError: a change is of a key in something that is no table.
    """
    changed = copy.deepcopy(dict(tree))
    for change in changes:
        _set(changed, change)
    return changed


def place_of(key: str, source: str, changes: Sequence[Change]) -> str:
    """Where the value of ``key`` came from: the last change of it, or else the file."""
    bare = key.split("[")[0]
    for change in reversed(changes):
        if bare == change.key or bare.startswith(change.key + "."):
            return change.flag
    return source


def _set(tree: Tree, change: Change) -> None:
    *tables, last = change.key.split(".")
    table = tree
    for depth, name in enumerate(tables):
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ModelError(change.flag, ".".join(tables[: depth + 1]), f"is not a table: it is {table!r}")
    if change.value is None:
        table.pop(last, None)
    else:
        table[last] = change.value
    if change.key == "pipeline.placement":  # two ways to say the same thing: the change wins
        table.pop("routes", None)
        table.pop("backward_routes", None)
        if isinstance(tree.get("memory"), dict):
            tree["memory"].pop("weights_on", None)
    elif change.key == "pipeline.routes":
        table.pop("placement", None)


def _model(tree: Tree, flags: frozenset[str]) -> Model:
    """``flags``: the keys that were set from outside."""
    _check_keys(tree, "")
    version = tree.get("format", FORMAT)
    if version != FORMAT or isinstance(version, bool):
        raise PipelineError("format", f"expected {FORMAT}, the only format that this version reads, got {version!r}")
    tables = {}
    for name in ("pipeline", *PARTS, *OPTIONAL):
        table = tree.get(name, {})
        if not isinstance(table, dict):
            raise PipelineError(name, f"expected a table [{name}], got {table!r}")
        _check_keys(table, name)
        tables[name] = table
    check_digits(tree, "")
    fields = dict(tables["pipeline"])
    schedule, params = fields.pop("schedule", None), fields.pop("schedule_params", {})
    order = fields.pop("order", None)
    mix = mix_of({key: fields.pop(key) for key in MIX_KEYS if key in fields})
    if mix.many is not None:
        fields.setdefault("microbatches", mix.many)
    for key in ("devices", "microbatches"):
        if key not in fields:
            raise PipelineError(f"pipeline.{key}", "missing; expected a whole number >= 1")
    if "routes" in fields and "placement" in fields:
        raise PipelineError("pipeline.routes", "give either routes or placement, not both")
    if fields.get("routes") == []:
        raise PipelineError("pipeline.routes", "expected at least one route")
    for name in ("routes", "backward_routes", "route_of_microbatch"):
        if not isinstance(fields.get(name, []), list):
            raise PipelineError(f"pipeline.{name}", f"expected a list, got {fields[name]!r}")
    labels = {"name": tree.get("name", ""), **{f"units.{key}": tables["units"].get(key, "") for key in ("time", "memory")}}
    for key, label in labels.items():
        if not isinstance(label, str):
            raise PipelineError(key, f"expected a text, got {label!r}")
    devices = fields["devices"]
    if isinstance(devices, int) and 1 <= devices <= MAX_DEVICES:  # else the pipeline says what is wrong
        tables["links"] = sites.links_by_site(tables["links"], devices)
    else:
        tables["links"] = {key: value for key, value in tables["links"].items() if key not in sites.KEYS}
    parts: dict[str, Any] = {name: part(**tables[name]) for name, part in PARTS.items()}
    parts |= {name: part(**tables[name]) for name, part in OPTIONAL.items() if name in tree}
    layers = layers_of(tree, tables)
    fields = with_counts(fields, layers, flags)
    pipeline = Pipeline(**fields, **parts, mix=mix, name=labels["name"], layers=layers, origin=origin_of(tree))
    places = _settled(pipeline)
    stands_for, read = _on_one_of(places, lambda place: _schedule(place, schedule, params))[1]
    if order is None:
        return Model(pipeline, stands_for, read, written=schedule)
    place, (own, own_name) = _on_one_of(places, lambda place: order_of_model(place, order))
    placed = None if pipeline.routes and pipeline.partition != BEST else place.resolved(pipeline.recompute)
    return Model(pipeline, stands_for, read, own, own_name, schedule, placed)


def _settled(pipeline: Pipeline) -> list[Pipeline]:
    """The pipeline with each number of microbatches and on each placement; recomputing all that saves memory, and with a balanced
    partition, where these are open."""
    asked: int | tuple[int, ...] = pipeline.microbatches
    counts = asked if isinstance(asked, tuple) else ()
    each = [pipeline.changed(microbatches=count) for count in counts] or [pipeline]
    places = [place for one in each for place in one.placements()]
    places = [_cut(place) for place in places]
    return [saving_most(place) if place.recompute == CHOOSE else place for place in places]


def _cut(place: Pipeline) -> Pipeline:
    """With a balanced partition where it is open, whether that fits the memory or not: another one may."""
    try:
        return place.cut()
    except PipelineError:
        return place.changed(memory=dataclasses.replace(place.memory, limit=None)).cut()


def _on_one_of(places: Sequence[Pipeline], read: Callable[[Pipeline], _Read]) -> tuple[Pipeline, _Read]:
    """The first of several placements on which something can be read, and what was read; else the problem on the first."""
    problem: PipelineError | None = None
    for place in places:
        try:
            return place, read(place)
        except PipelineError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _check_keys(table: Tree, name: str) -> None:
    for key in table:
        if key not in _KEYS[name]:
            dotted = f"{name}.{key}" if name else key
            raise PipelineError(dotted, f"unknown key; {_suggestion(dotted, name)}")


def _suggestion(dotted: str, table: str) -> str:
    last = dotted.rpartition(".")[2]
    near = [known for known in _DOTTED if known.rpartition(".")[2] == last]
    near += [f"{table}.{key}".removeprefix(".") for key in difflib.get_close_matches(last, _KEYS[table], 1)]
    return f"did you mean {near[0]}?" if near else f"expected one of {', '.join(_KEYS[table])}"


def _schedule(pipeline: Pipeline, name: Any, params: Any) -> tuple[str | None, Tree]:
    """The named schedule under its own name, and its parameters, once it is certain that it exists on this pipeline."""
    if not isinstance(params, dict):
        raise PipelineError("pipeline.schedule_params", f"expected a table, got {params!r}")
    if name is None:
        if params:
            raise PipelineError("pipeline.schedule_params", "parameters of a schedule need pipeline.schedule")
        return None, {}
    if not isinstance(name, str):
        raise PipelineError("pipeline.schedule", f"expected the name of a schedule, got {name!r}")
    try:
        definition = find(name)
        read = definition.read(params)
        definition.place(pipeline, pipeline.chunks, **read)
        definition.order(pipeline, **read)
    except UnknownSchedule as error:
        raise PipelineError("pipeline.schedule", str(error)) from None
    except Restriction as error:
        raise ScheduleMisplaced("pipeline.schedule", f"this schedule cannot exist on this file: {error}") from None
    return definition.name, read
