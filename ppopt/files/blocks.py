"""The blocks of a stage in a profiler trace: ranges of ``torch.profiler.record_function`` inside the ranges of its operations.

A *block* is a layer that the user's forward puts a name on. Of ranges inside each other only the outermost counts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ppopt.op import Kind, Op, Send

BLOCK = r"[^:#]+"
"""The names of blocks, as a regular expression: PyTorch and its libraries put a colon or a # into those of their own ranges."""
NO_BLOCK = r"(?!)"
"""Nothing: where the layers are of no interest, no trace is refused for them."""
Parts: TypeAlias = dict[tuple[int, Kind | Send], list[list[float]]]
"""(stage, kind) -> for each sample the seconds before the first block, of each block in the forward's order, after the last."""

_ROUNDING = 1.0
"""Microseconds by which a range may seem to end after the one that it is in."""


class Span(NamedTuple):
    """A range of a trace, in microseconds."""

    name: str
    begin: float
    end: float


@dataclass
class Ranges:
    """The ranges of one thread, or of one stream of a GPU, whose names match a pattern."""

    pattern: re.Pattern[str]
    spans: list[Span] = field(default_factory=list)
    _begins: list[float] = field(default_factory=list)

    def add(self, name: str, begin: float, duration: float) -> None:
        """One more range, unless its name is another one's."""
        if self.pattern.fullmatch(name):
            self.spans.append(Span(name, begin, begin + duration))

    def sort(self) -> None:
        """To be called once all are there."""
        self.spans.sort(key=lambda span: (span.begin, -span.end))
        self._begins = [span.begin for span in self.spans]

    def inside(self, op: Op, begin: float, end: float, names: Collection[str] | None) -> list[Span]:
        """The outermost ranges that begin inside an operation, in the order of time; with ``names``: of those names alone.

        Raises:
            ValueError: one ends after the operation.
        """
        found: list[Span] = []
        for span in self.spans[bisect_left(self._begins, begin) : bisect_left(self._begins, end)]:
            if (found and span.begin < found[-1].end) or (names is not None and span.name not in names):
                continue
            if span.end > end + _ROUNDING:
                raise ValueError(f"the range {span.name!r} begins inside PP:{op} and ends after it")
            found.append(span)
        return found


def check_names(op: Op, spans: Sequence[Span], expected: Sequence[str]) -> None:
    """Raise where a forward does not run the blocks of its stage, each of them once.

    Raises:
        ValueError: it does not.
    """
    names = [span.name for span in spans]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise ValueError(f"PP:{op} runs the block {twice!r} twice; give every layer a name of its own")
    if names != list(expected):
        shown, others = (", ".join(map(repr, each)) or "none" for each in (names, expected))
        raise ValueError(f"PP:{op} runs the blocks {shown}; another forward of its stage runs {others}")


def parts_of_forward(spans: Sequence[Span], begin: float, end: float) -> list[float]:
    """Seconds before, of, and after the blocks of a forward that computes from ``begin`` to ``end``; empty without blocks.

    A block lasts until the next one begins, the last one until its own end.
    """
    if not spans:
        return []
    ends = [*(max(span.begin, begin) for span in spans), spans[-1].end, end]
    return [max(0.0, b - a) / 1e6 for a, b in zip([begin, *ends], ends, strict=False)]


def parts_of_backward(spans: Sequence[Span], names: Sequence[str], begin: float, end: float) -> list[float]:
    """The same of a backward that shows all blocks by name, in the forward's order; empty if it does not.

    What is before the first one belongs to it: all of the backward belongs to blocks.
    """
    if not names or {span.name for span in spans} != set(names):
        return []
    parts = [0.0] * (len(names) + 2)
    begins = [begin, *(span.begin for span in spans[1:]), end]
    for i, span in enumerate(spans):
        parts[1 + names.index(span.name)] += (begins[i + 1] - begins[i]) / 1e6
    return parts
