"""What ``ppopt estimate`` reads: a TOML file with ``[transformer]`` and the rest, or a bare ``config.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ppopt.files.model import FORMAT, Change, ModelError, Tree, changed_tree, place_of, tree_of_text
from ppopt.files.text import FileError, read_text, source_of
from ppopt.transformer import Asked, EstimateError, asked_of
from ppopt.transformer.tables import KEYS

TABLES = (*KEYS, "search", "recipe")
"""The tables of a file for estimates and plans; ``[search]`` says what a plan may choose among, ``[recipe]`` what it is set
beside. An estimate leaves both alone."""


@dataclass(frozen=True)
class Source:
    """A file that was read for an estimate: its tables, with the content of the ``config.json`` in place of its name.

    ``origin`` names in messages and comments where sizes are from; ``changes`` were made from outside.
    """

    path: str
    tables: Mapping[str, Any]
    name: str
    origin: str
    changes: tuple[Change, ...] = ()

    def asked(self) -> Asked:
        """What an estimate is asked for.

        Raises:
            ModelError: a key is unknown, a value wrong, or something is left open.
        """
        try:
            return asked_of({name: self.tables[name] for name in KEYS if name in self.tables})
        except EstimateError as error:
            raise self.error(error) from None

    def error(self, error: EstimateError) -> ModelError:
        """The error with the place that its key is from."""
        in_config = bool(error.key) and error.key.split(".")[0] not in KEYS
        place = self.origin if in_config else place_of(error.key, source_of(self.path), self.changes)
        return ModelError(place, error.key, error.message)


def read_source(path: str, changes: Sequence[Change] = ()) -> Source:
    """The file at ``path`` (``-`` is standard input), TOML or a ``config.json``, with ``changes`` made to it first.

    Raises:
        ModelError: it cannot be read, is neither, or has unknown tables.
    """
    where = source_of(path)
    text = _text(path, where)
    origin = where
    if text.lstrip()[:1] == "{":
        tree: Tree = {"transformer": {"config": _json(text, where)}}
    else:
        tree = tree_of_text(text, where)
        table = tree.get("transformer")
        if isinstance(table, dict) and isinstance(table.get("config"), str):
            folder = "" if path == "-" else os.path.dirname(path)
            tree = {**tree, "transformer": {**table, "config": os.path.join(folder, table["config"])}}
    tree = changed_tree(tree, changes)
    version = tree.pop("format", FORMAT)
    if version != FORMAT or isinstance(version, bool):
        raise ModelError(where, "format", f"expected {FORMAT}, the only format that this version reads, got {version!r}")
    name = tree.pop("name", "" if path == "-" else os.path.splitext(os.path.basename(path))[0])
    if not isinstance(name, str):
        raise ModelError(where, "name", f"expected a text, got {name!r}")
    for key, value in tree.items():
        if key not in TABLES:
            problem = f"unknown key; expected one of {', '.join(('format', 'name', *TABLES))}"
            raise ModelError(place_of(key, where, changes), key, problem)
        if not isinstance(value, dict):
            raise ModelError(place_of(key, where, changes), key, f"expected a table [{key}], got {value!r}")
    table = tree.get("transformer", {})
    if isinstance(table.get("config"), str):
        origin = table["config"]
        tree["transformer"] = {**table, "config": _json(_text(origin, origin), origin)}
    return Source(path, tree, name, origin, tuple(changes))


def _text(path: str, where: str) -> str:
    try:
        return read_text(path)
    except FileError as error:
        raise ModelError(where, "", str(error)) from None


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(where, "", f"not a JSON file: {error}") from None
    if not isinstance(tree, dict):
        raise ModelError(where, "", "expected an object of keys, as a config.json is")
    return tree


__all__ = ["TABLES", "Source", "read_source"]
