"""Kernels of a GPU in a trace of PyTorch's profiler, by when the processor launched them.

A range of the processor (``user_annotation``) says when an operation launched its work, not when the GPU did it. Nor do the
GPU's own ranges (``gpu_user_annotation``): there a kernel belongs to the innermost range of the thread that launched it. So
a range that has others inside lacks their kernels, and a backward, which other threads launch, lacks all (seen with PyTorch
2.11, an H100). A launch and its kernel have one correlation number, and while an operation runs nothing else of its rank is
launched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

LAUNCHES = ("cuda_runtime", "cuda_driver")
"""Categories of calls that launch something; ROCm has the same."""
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of what a GPU does."""
Stream: TypeAlias = tuple[Any, Any]
"""A GPU, and one of its streams."""


class Kernel(NamedTuple):
    """What a GPU did, in microseconds: when it was launched, when it began, when it ended."""

    launched: float
    begin: float
    end: float


@dataclass
class Kernels:
    """The work of the GPUs in a trace."""

    _launches: dict[int, float] = field(default_factory=dict)
    _work: list[tuple[int, Stream, float, float]] = field(default_factory=list)

    def add(self, event: Mapping[str, Any]) -> None:
        """One more event of the trace; those of other categories are of no account."""
        arguments = event.get("args") or {}
        correlation, category = arguments.get("correlation"), event.get("cat")
        if correlation is None:
            return
        if category in LAUNCHES:
            self._launches[correlation] = float(event["ts"])
        elif category in WORK:
            begin = float(event["ts"])
            self._work.append((correlation, (event.get("pid"), event.get("tid")), begin, begin + float(event["dur"])))

    def on_one_stream(self, ranges: Iterable[tuple[float, float]]) -> Launched | None:
        """The work of the stream that computes: of those on which something was launched within ``ranges``, the one that had most
        to do there, by number, since a message may last as long as it waits. ``None``: there is none."""
        streams: dict[Stream, list[Kernel]] = defaultdict(list)
        for correlation, stream, begin, end in self._work:
            launched = self._launches.get(correlation)
            if launched is not None:
                streams[stream].append(Kernel(launched, begin, end))
        within, best, most = list(ranges), None, 0
        for kernels in streams.values():
            found = Launched(sorted(kernels))
            count = sum(found.count(*each) for each in within)
            if count > most:
                best, most = found, count
        return best


class Launched:
    """What a stream of a GPU did, in the order of its launches, in which it is done."""

    def __init__(self, kernels: list[Kernel]) -> None:
        self._kernels = kernels
        self._launches = [kernel.launched for kernel in kernels]
        self._ends = list(accumulate((kernel.end for kernel in kernels), max))

    def _between(self, begin: float, end: float) -> tuple[int, int]:
        return bisect_left(self._launches, begin), bisect_left(self._launches, end)

    def count(self, begin: float, end: float) -> int:
        """How much was launched from ``begin`` to ``end``."""
        first, last = self._between(begin, end)
        return last - first

    def done(self, begin: float, end: float) -> tuple[float, float]:
        """From when to when the stream did what was launched from ``begin`` to ``end``; nothing takes no time, after what was
        launched before it."""
        first, last = self._between(begin, end)
        if first == last:
            idle = max(begin, self._ends[first - 1]) if first else begin
            return idle, idle
        return self._kernels[first].begin, max(kernel.end for kernel in self._kernels[first:last])
