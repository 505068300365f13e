"""What the form says: fields and a text for the rest of the model file, as a model; and a model as what the form shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ppopt.files import Change, Model, ModelError, model_of, setting
from ppopt.files.model import changed_tree, tree_of_text
from ppopt.files.toml_text import toml_text
from ppopt.pipeline import PipelineError

Tree: TypeAlias = dict[str, Any]

SOURCE = "form"
"""How messages name the form."""
MOST_OPERATIONS = 100_000
"""Largest number of operations (three per stage and microbatch) of a model in the form: a page has to be drawn and looked at."""


class Field(NamedTuple):
    """A field of the form: a key of the model file."""

    key: str
    label: str
    hint: str = ""
    choices: tuple[str, ...] = ()
    text: bool = False
    """Whether its value is a text, and not a number, a list of numbers or a word."""


GROUPS: dict[str, tuple[Field, ...]] = {
    "Pipeline": (
        Field("name", "name", text=True),
        Field("pipeline.devices", "devices"),
        Field("pipeline.microbatches", "microbatches"),
        Field("pipeline.placement", "placement", choices=("linear", "loop", "wave", "bidirectional", "any")),
        Field("pipeline.chunks", "chunks", "a list leaves it open: 2, 4"),
        Field("pipeline.partition", "partition", "of layers: even, balanced, best, or the layers of each stage"),
        Field("pipeline.recompute", "recompute", "none, all, choose, or stages: 0, 2"),
    ),
    "Costs": (
        Field("costs.per", "costs are", choices=("device", "stage")),
        Field("costs.forward", "forward", "one number, or one for each: 1, 1, 1.4"),
        Field("costs.backward_input", "input gradient"),
        Field("costs.backward_weight", "weight gradient"),
        Field("costs.backward", "fused backward"),
        Field("costs.overlap", "overlapped pair"),
        Field("costs.optimizer", "optimizer"),
    ),
    "Links": (
        Field("links.latency", "latency"),
        Field("links.occupancy", "occupancy", "how long a transfer holds its link"),
    ),
    "Memory": (
        Field("memory.activation", "activation"),
        Field("memory.retained", "retained", "between input and weight gradient"),
        Field("memory.static", "always held"),
        Field("memory.limit", "limit", "one number, or one for each device; empty: none"),
    ),
    "Units": (Field("units.time", "time", text=True), Field("units.memory", "memory", text=True)),
}
FIELDS = {field.key: field for fields in GROUPS.values() for field in fields}
LAYER = (
    *("name", "count", "forward", "backward_input", "backward_weight", "backward"),
    *("activation", "retained", "weights", "recompute"),
)
"""The columns of the table of layers; what recomputes is a text such as ``full: 12, 1.1; selective: 1.5, 0.5`` (time, saved)."""
EXAMPLE: Tree = {
    "pipeline": {"devices": 4, "microbatches": 8, "placement": "linear"},
    "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
    "links": {"latency": 0},
    "memory": {"activation": 1, "limit": 4},
}
"""What the form begins with."""


PLAN = """\
# Llama 3 70B on 64 H100; everything that divides is tried.
name = "llama-3-70b"

[transformer]
layers = 80
hidden = 8192
heads = 64
kv_heads = 8
ffn = 28672
vocabulary = 128256
sequence = 8192

[training]
global_batch = 512

[cluster]
gpus = 64
gpu = "h100-sxm"

[search]
tensor = [4, 8]
pipeline = [4, 8]
"""
"""The plan that the form begins with."""


class Given(NamedTuple):
    """What the form says."""

    fields: Mapping[str, str]
    """By key; empty ones are left out of the model."""
    layers: Sequence[Mapping[str, str]]
    rest: str
    """TOML: all other keys of the model file."""

    @classmethod
    def of(cls, tree: Any) -> Given:
        """What the browser sent.

        Raises:
            ModelError: it is not what the form sends.
        """
        fields, layers, rest = (tree.get(key) for key in ("fields", "layers", "rest")) if isinstance(tree, dict) else [None] * 3
        texts = isinstance(fields, dict) and all(isinstance(text, str) for text in fields.values())
        rows = isinstance(layers, list) and all(isinstance(row, dict) and _texts(row) for row in layers)
        if not texts or not rows or not isinstance(rest, str) or not fields.keys() <= FIELDS.keys():  # type: ignore[union-attr]
            raise ModelError(SOURCE, "", "expected fields, layers and rest, as the form sends them")
        return cls(fields, layers, rest)  # type: ignore[arg-type]


def _texts(row: Mapping[str, Any]) -> bool:
    return all(isinstance(text, str) for text in row.values()) and row.keys() <= set(LAYER)


def model_in(given: Given) -> Model:
    """The model that the form says.

    Raises:
        ModelError: what the form says is no model; the key names the field.
    """
    tree, changes = _tree(given)
    order = tree.get("pipeline", {}).get("order") if isinstance(tree.get("pipeline"), dict) else None
    if isinstance(order, str):
        raise ModelError(SOURCE, "pipeline.order", "expected an order that is written out; the form reads no files")
    model = model_of(tree, SOURCE, changes)
    _check_size(model)
    return model


def tree_in(given: Given) -> Tree:
    """The tables of the model file that the form says.

    Raises:
        ModelError: a field or the rest cannot be read.
    """
    return changed_tree(*_tree(given))


def text_in(given: Given) -> str:
    """The model file that the form says.

    Raises:
        ModelError: a field or the rest cannot be read.
    """
    return toml_text(_plain(tree_in(given)))


def shown(tree: Mapping[str, Any]) -> Tree:
    """What the form shows of the tables of a model file: fields, layers, and the rest as TOML."""
    fields, rest = dict.fromkeys(FIELDS, ""), {key: value for key, value in tree.items() if key != "layers"}
    for key in FIELDS:
        table, _, name = key.rpartition(".")
        inside = rest.get(table) if table else rest
        if isinstance(inside, Mapping) and name in inside and _in_field(inside[name]):
            fields[key] = _text(inside[name])
            left = {other: value for other, value in inside.items() if other != name}
            rest = {**rest, table: left} if table else left
    layers = tree.get("layers", [])
    if not isinstance(layers, list) or not all(isinstance(row, Mapping) and row.keys() <= set(LAYER) for row in layers):
        return {"fields": fields, "layers": [], "rest": toml_text(_plain({**_full(rest), "layers": layers}))}
    rows = [{key: _levels(value) if key == "recompute" else _text(value) for key, value in row.items()} for row in layers]
    return {"fields": fields, "layers": rows, "rest": toml_text(_plain(_full(rest))).strip()}


def _full(tree: Mapping[str, Any]) -> Tree:
    """Without empty tables."""
    return {key: value for key, value in tree.items() if value not in ({}, [])}


def _in_field(value: Any) -> bool:
    """Whether a field can show it: a word, a number or a list of these."""
    return not isinstance(value, Mapping) and not (isinstance(value, list) and any(isinstance(v, list | Mapping) for v in value))


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _levels(levels: Any) -> str:
    return "; ".join(f"{level['name']}: {level['time']}, {level['saved']}" for level in levels)


def _tree(given: Given) -> tuple[Tree, list[Change]]:
    """The rest, and the fields as changes to it."""
    tree = tree_of_text(given.rest, f"{SOURCE}: other keys")
    if given.layers:
        tree = {**tree, "layers": [_layer(k, row) for k, row in enumerate(given.layers)]}
    changes = [_change(FIELDS[key], text.strip()) for key, text in given.fields.items() if text.strip()]
    return tree, changes


def _change(field: Field, text: str) -> Change:
    if field.text:
        return Change(field.key, text, SOURCE)
    return Change(field.key, _value(field.key, text), SOURCE)


def _value(key: str, text: str) -> Any:
    """A number, a word, or a list of numbers with commas between.

    Raises:
        ModelError: it is anything else; names the key.
    """
    written = f"[{text}]" if "," in text and not text.startswith("[") else text
    try:
        return setting(f"{key}={written}").value
    except ModelError:
        expected = "expected a number, a word, or numbers with commas between"
        raise ModelError(SOURCE, key, f"{expected}; got {text!r}") from None


def _layer(k: int, row: Mapping[str, str]) -> Tree:
    layer: Tree = {}
    for key, text in row.items():
        where = f"layers[{k}].{key}"
        if not text.strip():
            continue
        if key == "name":
            layer[key] = text.strip()
        elif key == "recompute":
            layer[key] = [_level(where, part) for part in text.split(";") if part.strip()]
        else:
            layer[key] = _number(where, text)
    return layer


def _level(where: str, text: str) -> Tree:
    name, _, numbers = text.partition(":")
    parts = numbers.split(",")
    if len(parts) != 2 or not name.strip():
        problem = f"expected NAME: TIME, SAVED, several with semicolons between; got {text.strip()!r}"
        raise ModelError(SOURCE, where, problem)
    return {"name": name.strip(), "time": _number(where, parts[0]), "saved": _number(where, parts[1])}


def _number(where: str, text: str) -> Any:
    try:
        return setting(f"value={text.strip()}").value
    except ModelError:
        raise ModelError(SOURCE, where, f"expected a number, got {text.strip()!r}") from None


def _plain(value: Any) -> Any:
    """Decimals as numbers that JSON and TOML write."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str | None) else float(value)


def _check_size(model: Model) -> None:
    """Raise where a model is too large to be drawn and looked at.

    Raises:
        ModelError: it is.
    """
    pipeline = model.pipeline
    counts = pipeline.microbatches
    if isinstance(counts, tuple):
        raise ModelError(SOURCE, "pipeline.microbatches", f"expected one number, got {', '.join(map(str, counts))}")
    try:
        chunks = pipeline.chunks if isinstance(pipeline.chunks, int) else max(pipeline.chunks)
        operations = 3 * pipeline.devices * chunks * counts
    except PipelineError as error:
        raise ModelError(SOURCE, error.key, error.message) from None
    if operations > MOST_OPERATIONS:
        problem = f"the form takes at most {MOST_OPERATIONS} operations (3 x stages x microbatches), got {operations}"
        raise ModelError(SOURCE, "pipeline.microbatches", f"{problem}; `ppopt solve` and `ppopt plot` take more")
