"""Trees of tables as TOML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any


def toml_text(tree: Mapping[str, Any]) -> str:
    """A tree as TOML reads it: plain keys first, then its tables, and lists of tables; deeper tables are inline.

    Values are texts, numbers, truth values, lists and tables of these; ``None`` is left out.
    """
    return "\n".join(_lines(tree)).strip() + "\n"


def _lines(tree: Mapping[str, Any]) -> Iterator[str]:
    tables = {key: value for key, value in tree.items() if isinstance(value, Mapping)}
    arrays = {key: value for key, value in tree.items() if _of_tables(value)}
    yield from _pairs({key: value for key, value in tree.items() if key not in tables and key not in arrays})
    for key, table in tables.items():
        if table:
            yield from ("", f"[{key}]", *_pairs(table))
    for key, rows in arrays.items():
        for row in rows:
            yield from ("", f"[[{key}]]", *_pairs(row))


def _of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None:
            yield f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    plain = key.replace("_", "").replace("-", "")
    return key if plain.isascii() and plain.isalnum() else json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items() if item is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")  # all its digits, and no others
    return json.dumps(value, ensure_ascii=False)
