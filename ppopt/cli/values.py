"""Values on the command line: numbers, lists of them, and words, as types of click's parameters."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from ppopt.layouts import is_layout
from ppopt.pipeline import CHOOSE, as_number
from ppopt.pipeline.partitions import WORDS


class Limit(click.ParamType):  # type: ignore[type-arg]
    """A memory limit: a number, one per device with commas between, or ``none``."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A decimal, a list of decimals, or the word ``none``."""
        if not isinstance(value, str) or value == "none":
            return value
        numbers = [self._number(part.strip(), param, ctx) for part in value.split(",")]
        return numbers if len(numbers) > 1 else numbers[0]

    def _number(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            number = Decimal(text)
        except InvalidOperation:
            number = Decimal("nan")
        if not number.is_finite() or number < 0:
            expected = "expected a number >= 0, one per device with commas between, or none"
            self.fail(f"{expected}; got {text!r}{as_number('memory.limit', text)}", param, ctx)
        return number


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """A finite number, larger than zero (or at least zero)."""

    name = "number"

    def __init__(self, least: float = 0.0, most: float = math.inf, positive: bool = False) -> None:
        self.least, self.most, self.positive = least, most, positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A float in range."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or not self.least <= number <= self.most or (self.positive and number == 0):
            expected = f"a finite number {'>' if self.positive else '>='} {self.least:g}"
            expected += f" and <= {self.most:g}" if self.most < math.inf else ""
            self.fail(f"expected {expected}, got {value!r}", param, ctx)
        return number


class Counts(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers >= 1 with commas between."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """A tuple of integers."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(part) for part in value.split(","))
        except ValueError:
            numbers = (0,)
        if min(numbers) < 1:
            self.fail(f"expected a whole number >= 1, or several with commas between (2,4); got {value!r}", param, ctx)
        return numbers


class Doubling(Counts):
    """Whole numbers >= 1 with commas between, or ``8..1024``: 8, 16, 32, …, 1024."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """A tuple of integers, ascending."""
        first, dots, last = value.partition("..") if isinstance(value, str) else ("", "", "")
        if not dots:
            return tuple(sorted(set(super().convert(value, param, ctx))))
        (low,), (high,) = (super(Doubling, self).convert(part, param, ctx)[:1] for part in (first, last))
        if low > high:
            self.fail(f"expected the smaller number first, got {value!r}", param, ctx)
        return tuple(low << k for k in range((high // low).bit_length()))


class Stages(click.ParamType):  # type: ignore[type-arg]
    """Which stages recompute: a word or the name of a level, or stages with commas between."""

    name = "stages"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word, or a list of integers."""
        if not isinstance(value, str) or re.fullmatch(r"[A-Za-z_][\w-]*", value):
            return value
        try:
            return [int(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"expected none, all, {CHOOSE}, or stages with commas between (0,2); got {value!r}", param, ctx)


class Partition(click.ParamType):  # type: ignore[type-arg]
    """How the layers are cut: a word, the number of layers of each stage with commas between, or a layout of a runtime."""

    name = "partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word, a list of integers, or the layout: Megatron's string, a list of a list of names for each stage."""
        if not isinstance(value, str) or value in WORDS:
            return value
        try:
            if value.lstrip().startswith("["):
                return json.loads(value)
            if is_layout(value):
                return value
            return [int(part) for part in value.split(",")]
        except (ValueError, RecursionError):
            words = ", ".join(WORDS)
            problem = f"expected {words}, the layers of each stage (11,10,10,11), a layout of Megatron (Et*2|t*3L) or, as JSON, "
            self.fail(f"{problem}a list of module names for each stage; got {value!r}", param, ctx)
