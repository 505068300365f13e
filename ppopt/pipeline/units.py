"""Labels of times and amounts, and what a microbatch stands for; no schedule depends on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ppopt.pipeline.parts import PipelineError, exact

_MICROSECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), Fraction(10**6)),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), Fraction(10**3)),
    **dict.fromkeys(("us", "µs", "μs", "microsecond", "microseconds"), Fraction(1)),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), Fraction(1, 1000)),
}
_UNIT = re.compile(r"(\d+(?:\.\d+)?)?\s*([a-zA-Zµμ]+)")


def microseconds(unit: str) -> Fraction | None:
    """How many microseconds ``ms``, ``0.1 ms``, … are; ``None`` where the label is no unit of time."""
    match = _UNIT.fullmatch(unit.strip())
    scale = _MICROSECONDS.get(match[2]) if match else None
    return Fraction(match[1] or 1) * scale if match and scale else None


@dataclass(frozen=True)
class Units:
    """Labels of tables and pictures; and how much of the training data one microbatch is, for throughputs.

    Raises:
        PipelineError: a number of samples or tokens is not positive.
    """

    time: str = ""
    memory: str = ""
    samples_per_microbatch: Fraction | None = None
    tokens_per_microbatch: Fraction | None = None

    if TYPE_CHECKING:

        def __init__(
            self, time: str = "", memory: str = "", samples_per_microbatch: Any = None, tokens_per_microbatch: Any = None
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("samples_per_microbatch", "tokens_per_microbatch"):
            given = getattr(self, name)
            if given is None:
                continue
            value = exact(f"units.{name}", given)
            if not value:
                raise PipelineError(f"units.{name}", "expected a number > 0, got 0")
            object.__setattr__(self, name, value)
