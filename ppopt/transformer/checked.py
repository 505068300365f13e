"""What is checked of the numbers of an estimate, and the error that says what is wrong with one."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any


class EstimateError(ValueError):
    """Sizes or settings of which no estimate can be made. ``key`` is the dotted key of the file, such as
    ``transformer.hidden``."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.key = key
        self.message = message


def whole(key: str, value: Any, least: int = 1) -> int:
    """``value`` as a whole number, at least ``least`` and at most 10^12.

    Raises:
        EstimateError: it is no such number; ``key`` names it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10**12:
        raise EstimateError(key, f"expected a whole number from {least} to 10^12, got {value!r}")
    return value


def optional(key: str, value: Any, least: int = 1) -> int | None:
    """``value`` as a whole number, or ``None``.

    Raises:
        EstimateError: it is neither.
    """
    return None if value is None else whole(key, value, least)


def number(key: str, value: Any, least: float = 0.0, most: float = math.inf, *, positive: bool = True) -> float:
    """``value`` as a finite float above ``least`` (at least, where not ``positive``) and at most ``most``.

    Raises:
        EstimateError: it is no such number; ``key`` names it.
    """
    expected = f"a number {'>' if positive else '>='} {least:g}" + ("" if most == math.inf else f" and <= {most:g}")
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise EstimateError(key, f"expected {expected}, got {value!r}")
    found = float(value)
    if not math.isfinite(found) or not least <= found <= most or (positive and found == least):
        raise EstimateError(key, f"expected {expected}, got {value}")
    return found


def flag(key: str, value: Any) -> bool:
    """``value`` as a truth value.

    Raises:
        EstimateError: it is none.
    """
    if not isinstance(value, bool):
        raise EstimateError(key, f"expected true or false, got {value!r}")
    return value


def word(key: str, value: Any, words: Sequence[str]) -> str:
    """``value`` as one of some words.

    Raises:
        EstimateError: it is none of them.
    """
    if not isinstance(value, str) or value not in words:
        raise EstimateError(key, f"expected one of {', '.join(words)}, got {value!r}")
    return value


def check_keys(table: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Raise where a key of ``[table]`` is unknown.

    Raises:
        EstimateError: one is; the message suggests the nearest.
    """
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {table}.{near[0]}?" if near else f"expected one of {', '.join(known)}"
            raise EstimateError(f"{table}.{key}", f"unknown key; {hint}")
