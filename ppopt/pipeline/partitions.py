"""Partitions: how many layers each stage has, in stage order."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise, product
from typing import TYPE_CHECKING, Any, TypeAlias

from ppopt.pipeline.layers import Layers, kind_of
from ppopt.pipeline.parts import PipelineError

if TYPE_CHECKING:
    from ppopt.pipeline.routes import Routes

BEST = "best"
"""The partition that is left open."""
WORDS = ("even", "balanced", BEST)
Counts: TypeAlias = tuple[int, ...]

_NODES = 100_000
"""Of the search for a balanced partition where a device has several stages. Measured: they take half a second, and last for all
models of up to 12 layers."""


def read_partition(value: Any, layers: Layers | None) -> str | Counts:
    """``value`` as one of the words, or as numbers of layers; empty where there are no layers.

    Raises:
        PipelineError: it is neither, there are no layers to cut, or the numbers do not add up to all layers.
    """
    key = "pipeline.partition"
    if layers is None:
        if value in ("", None):
            return ""
        raise PipelineError(key, f"there are no layers to cut: it needs [[layers]], got {value!r}")
    if value in ("", None):
        return BEST
    if isinstance(value, str) and value in WORDS:
        return value
    if not isinstance(value, list | tuple):
        expected = f"one of {', '.join(WORDS)}, the number of layers of each stage, or (in files and flags) a layout"
        raise PipelineError(key, f"expected {expected}, got {value!r}")
    for stage, count in enumerate(value):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise PipelineError(f"{key}[{stage}]", f"expected a whole number >= 0 of layers, got {count!r}")
    if sum(value) != len(layers):
        raise PipelineError(key, f"expected the numbers to add up to {len(layers)} layers, got {sum(value)}")
    return tuple(value)


def check_stages(layers: Layers, stages: int) -> None:
    """Raise where there are fewer layers than stages.

    Raises:
        PipelineError: there are.
    """
    if len(layers) < stages:
        raise PipelineError("pipeline.partition", f"{stages} stages need a layer each, and there are only {len(layers)} layers")


def even(layers: Layers, stages: int) -> Counts:
    """Layers dealt equally, the first stages one more where that leaves a remainder: those of the largest group.

    Where that has fewer layers than there are stages, as in a hybrid of many small groups, it is all layers from the first to the
    last one whose name occurs more than once in the model, its number left out (:func:`~ppopt.pipeline.layers.kind_of`). What
    comes before those that are dealt goes to the first stage, what comes after them to the last, as frameworks do.

    Raises:
        PipelineError: a stage would be left without a layer.
    """
    groups = layers.groups
    first = last = max(range(len(groups)), key=lambda i: groups[i].count)
    if groups[first].count < stages:
        named = Counter(kind_of(groups[group].name) for group in layers.group_of)
        repeated = [i for i, group in enumerate(groups) if named[kind_of(group.name)] > 1] or [first]
        first, last = repeated[0], repeated[-1]
    dealt = sum(group.count for group in groups[first : last + 1])
    share, more = divmod(dealt, stages)
    counts = [share + (stage < more) for stage in range(stages)]
    counts[0] += sum(group.count for group in groups[:first])
    counts[-1] += sum(group.count for group in groups[last + 1 :])
    if min(counts) == 0:
        names = " to ".join(repr(groups[i].name) for i in dict.fromkeys((first, last)))
        problem = f'"even" leaves stage {counts.index(0)} without a layer: {stages} stages, and {dealt} layers {names} to deal'
        raise PipelineError("pipeline.partition", problem)
    return tuple(counts)


@lru_cache(maxsize=256)
def balanced(work: tuple[Fraction, ...], routes: Routes, route_of_microbatch: tuple[int, ...]) -> Counts:
    """The partition with the least largest work of a device, for all microbatches; every stage has a layer.

    Where a device has several stages, and the layers are many, it is the least that a search of bounded length finds. ``work`` is
    that of each layer and microbatch.
    """
    share = Counter(route_of_microbatch)
    times: list[list[int]] = [[0] * len(routes[0]) for _ in range(1 + max(map(max, routes)))]
    for route, devices in enumerate(routes):
        for stage, device in enumerate(devices):
            times[device][stage] += share[route]
    scale = math.lcm(*(value.denominator for value in work))
    whole = [int(value * scale) for value in work]
    common = math.gcd(*whole) or 1
    whole = [value // common for value in whole]
    if len(routes) == 1 and len(set(routes[0])) == len(routes[0]):
        return LeastLargest(whole, len(routes[0])).counts(len(whole), len(routes[0]))
    cut = _Cut(whole, times)
    cut.improve()
    cut.search()
    cut.improve()
    return cut.counts


class LeastLargest:
    """The first layers cut into stages, each on a device of its own, so that the largest work of a stage is least."""

    def __init__(self, work: Sequence[int], stages: int) -> None:
        before = [0, *accumulate(work)]
        layers, far = len(work), 1 + before[-1]
        best: list[int] = [0] + [far] * layers
        self._begins: list[list[int]] = []
        for stage in range(1, stages + 1):
            row, begins = [far] * (layers + 1), [0] * (layers + 1)
            for end in range(stage, layers + 1):
                ways = ((max(best[begin], before[end] - before[begin]), begin) for begin in range(stage - 1, end))
                row[end], begins[end] = min(ways)
            best = row
            self._begins.append(begins)

    def counts(self, layers: int, stages: int) -> Counts:
        """The number of layers of each stage, for the first ``layers`` layers; every stage has one."""
        counts, end = [], layers
        for begins in reversed(self._begins[:stages]):
            counts.append(end - begins[end])
            end = begins[end]
        return tuple(reversed(counts))


class _Cut:
    """A cut of layers into stages, several of them to a device, and the work of each device."""

    def __init__(self, work: Sequence[int], times: Sequence[Sequence[int]]) -> None:
        self.layers, self.stages, self.times = len(work), len(times[0]), times
        self.before = [0, *accumulate(work)]
        self.visits = [[(device, of[s]) for device, of in enumerate(times) if of[s]] for s in range(self.stages)]
        share = self.before[-1] / self.stages
        self.ends = [0] * (self.stages + 1)
        self.ends[-1] = self.layers
        for s in range(1, self.stages):  # about as much for every stage
            near = bisect_left(self.before, s * share)
            self.ends[s] = min(max(near, self.ends[s - 1] + 1), self.layers - self.stages + s)

    def load(self, ends: Sequence[int]) -> list[int]:
        """Per device its work."""
        found = [0] * len(self.times)
        for s, of in enumerate(self.visits):
            work = self.before[ends[s + 1]] - self.before[ends[s]]
            for device, count in of:
                found[device] += count * work
        return found

    def key(self, ends: Sequence[int]) -> tuple[int, int, int]:
        """The largest work of a device; then how uneven devices and stages are."""
        load = self.load(ends)
        stages = [self.before[b] - self.before[a] for a, b in pairwise(ends)]
        return max(load), sum(value * value for value in load), sum(value * value for value in stages)

    def improve(self) -> None:
        """Move one end, or several that follow each other, by a layer or two, as long as that is better."""
        best, improved = self.key(self.ends), True
        while improved:
            improved = False
            for first, length, by in product(range(1, self.stages), (1, 2, 3, self.stages // 2), (-1, 1, -2, 2)):
                moved = list(self.ends)
                for s in range(first, min(first + length, self.stages)):
                    moved[s] += by
                if all(a < b for a, b in pairwise(moved)) and (key := self.key(moved)) < best:
                    self.ends, best, improved = moved, key, True

    def search(self) -> None:
        """A cut with less work of the busiest device, by branch and bound over the stages, as far as :data:`_NODES` last."""
        best = self.key(self.ends)[0]
        whole, left = sum(map(sum, zip(*self.times, strict=True))) // self.stages, _NODES
        ends, load = [0] * (self.stages + 1), [0] * len(self.times)
        ends[-1] = self.layers

        def below(s: int) -> bool:
            """Whether the stages from ``s`` on can be cut so that every device has less than the best; then ``ends`` says how."""
            nonlocal left
            left -= 1
            begin, last = ends[s], s == self.stages - 1
            remaining = self.before[-1] - self.before[begin]
            if left < 0 or remaining * whole > len(load) * (best - 1) - sum(load):
                return False
            least = self.layers if last else begin + 1
            for end in range(least, self.layers - (self.stages - 1 - s) + 1):
                work = self.before[end] - self.before[begin]
                if any(load[device] + count * work >= best for device, count in self.visits[s]):
                    return False
                for device, count in self.visits[s]:
                    load[device] += count * work
                ends[s + 1] = end
                if last or below(s + 1):
                    return True
                for device, count in self.visits[s]:
                    load[device] -= count * work
            return False

        while below(0):
            self.ends, best = list(ends), max(load)
            load = [0] * len(self.times)

    @property
    def counts(self) -> Counts:
        """The number of layers of each stage."""
        return tuple(b - a for a, b in pairwise(self.ends))
