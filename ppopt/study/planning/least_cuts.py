"""Lower bounds of the step time on a placement with one or two stages for each device, over all cuts; and cuts that attain them.

*A device.* Let it hold stages of whole layers, of which a whole number recompute at each level, the same for every microbatch.
Its first operation starts no earlier than the forwards of all layers before its first stage take, nor before its all-gather;
behind its last one come reduce-scatter and optimizer. Between the two are, whatever recomputes,

- M times the work of its layers, with what is computed again;
- what its stages hold, times how long, over the room beside the weights. A microbatch of a stage holds its activations from its F
  to the end of its gradient of the input, at least as long as the way from there to the last layer and back, and what computing
  the stage again takes; then what is retained for as long as the rest of its backward;
- with one stage: as the room is for n whole microbatches, M / n rounded up such ways one after the other. For the k-th F that
  starts waits until k - n microbatches have left, and each stays that long. With two stages that hold as much, the room is for
  whole numbers of that;
- until the first gradient comes back, the way to it; and behind that all work but what the room let the device do before.

The least choice of what recomputes gives the bound of the device.

*A cut.* Stages are layers in a row. On the linear placement, those of the devices from the first one on are a row that grows at
its end; of a wave with two stages, those from the last device on are a row that grows at both ends; of a loop, two rows that grow
side by side. So the cut with the least largest bound of a device follows by dynamic programming over these rows, and no schedule
of any cut takes less.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppopt.pipeline import routes_of
from ppopt.study.planning.floors import MARGIN, SMALL, Floats, Floors

SLACK = 1.002
"""How much longer than the bound a cut may take that is given. Measured: 1.001 and 1.005 give the same values on Llama 3 70B."""
OPTIONS = 8
"""Choices of what recomputes in a stage that are told apart; of more, two neighbours count as one with the less of each."""
ALIKE = 0.1
"""What it counts that the work of the two stages of a device differs, beside what it differs from that of other devices.
Schedules for a wave expect alike stages; the number itself is not measured."""
LARGEST = 3_000_000
"""Pairs of stages of a device, with what recomputes in them, that are compared at most."""
WIDER = (1.25, 3, math.inf)
"""How far above its bound for all placements one is looked for, one after the other: the nearer, the fewer cuts. Not measured."""
Indices = NDArray[np.int64]
Option = tuple[float, float, float]
"""What a stage computes again, what it holds, and what of that it retains."""


class _TooLargeError(Exception):
    """There are more pairs of stages than it pays to compare."""


class LeastCut(NamedTuple):
    """No cut has a schedule of less than ``bound``; ``counts`` is one whose own bound is near it, if there is any below the
    latest."""

    bound: float
    counts: tuple[int, ...] | None = None


def least_cut(floors: Floors, placement: str, chunks: int, latest: float = math.inf, stretch: float = 1.0) -> LeastCut:
    """The least bound of all cuts on a placement, in ms; cuts of ``latest`` or more are not told apart.

    ``stretch``: with ways so many times as long as they are at least; then it is no bound but what to expect.
    """
    if floors.shared == math.inf:
        return LeastCut(math.inf)
    least = floors.least
    stages = floors.devices * chunks
    if stages > floors.layers:
        return LeastCut(math.inf)
    if stages == floors.layers and chunks > 2:  # there is one cut
        counts = (1,) * stages
        return LeastCut(max(least, floors.of_cut(counts, routes_of(placement, floors.devices, chunks)[0])), counts)
    if least >= latest or chunks > 2:
        return LeastCut(least)
    for wide in WIDER:
        limit = min(latest, max(least, SMALL) * wide)
        search = _Search(floors, placement, chunks, limit, stretch)
        try:
            found = search.linear() if chunks == 1 else search.pairs()
        except _TooLargeError:
            return LeastCut(least)
        if found is not None:
            return LeastCut(max(least, found.bound * (1 - MARGIN)), found.counts)
        if limit == latest:
            break
    return LeastCut(max(least, latest))


class _Search:
    """The cuts of a placement, each device within ``limit``."""

    def __init__(self, floors: Floors, placement: str, chunks: int, limit: float, stretch: float) -> None:
        self.floors, self.limit, self.stretch = floors, limit * (1 + MARGIN), stretch
        self.route = routes_of(placement, floors.devices, chunks)[0]
        self.wave = placement == "wave"
        stages = len(self.route)
        hops = [int(a != b) for a, b in itertools.pairwise(self.route)]
        self.before = [sum(hops[:s]) * floors.latency for s in range(stages)]
        self.behind = [2 * sum(hops[s:]) * floors.latency for s in range(stages)]
        self.longest = self._longest()
        self.room = min(floors.room, 1e300)  # finite, so that nothing of it is nothing

    def _longest(self) -> int:
        """Most layers that a stage may have."""
        floors = self.floors
        work = np.concatenate(([0.0], np.cumsum(floors.work))) * floors.microbatches
        most = floors.layers - len(self.route) + 1
        fits = [n for n in range(1, most + 1) if (work[n:] - work[:-n]).min() <= self.limit]
        return max(fits, default=0)

    # --- stages: [first layer, number of layers - 1] ---

    def _sums(self, of: Floats) -> Floats:
        sums = np.concatenate(([0.0], np.cumsum(of), np.full(self.longest, math.inf)))
        begins = np.arange(self.floors.layers)[:, None]
        with np.errstate(invalid="ignore"):
            found: Floats = sums[begins + 1 + np.arange(self.longest)] - sums[begins]
        return found

    @cached_property
    def _options(self) -> Floats:
        """``[kind of amount, first layer, number - 1, option]``; infinite where there is none."""
        rows = self.floors.rows
        levels = [
            list(zip(*(of[layer] for of in (rows.again, rows.keeps, rows.kept)), strict=True))
            for layer in range(self.floors.layers)
        ]
        known: dict[tuple[int, ...], list[Option]] = {(): [(0.0, 0.0, 0.0)]}
        table = np.full((3, self.floors.layers, self.longest, OPTIONS), math.inf)
        for begin in range(self.floors.layers):
            groups: tuple[int, ...] = ()
            for n in range(min(self.longest, self.floors.layers - begin)):
                one = groups
                groups = (*groups, int(rows.group[begin + n]))
                if groups not in known:
                    both = itertools.product(known[one], levels[begin + n])
                    known[groups] = _few(_unbeaten(_together(a, b) for a, b in both))
                for k, option in enumerate(known[groups]):
                    table[:, begin, n, k] = option
        return table

    @cached_property
    def _parts(self) -> dict[str, Floats]:
        floors = self.floors
        names = ("forward", "gradient", "rest", "work", "weights", "after")
        found = {name: self._sums(getattr(floors, name)) for name in names}
        found["gather"] = self._sums(floors.rows.gather)
        begins = np.arange(floors.layers)[:, None]
        found["head"] = np.broadcast_to((np.cumsum(floors.forward) - floors.forward)[begins], found["work"].shape)
        found["way"] = np.broadcast_to(self.stretch * floors.way[begins], found["work"].shape)
        return found

    # --- one stage for each device ---

    def linear(self) -> LeastCut | None:
        """The linear placement; ``None``: no cut is within the limit."""
        count, devices = self.floors.layers, self.floors.devices
        tables = [self._one(stage) for stage in range(devices)]
        best = [np.full(count + 1, math.inf)]
        best[0][0] = 0.0
        for table in tables:
            new = np.full(count + 1, math.inf)
            for n in range(min(self.longest, count)):
                ends = np.arange(n + 1, count + 1)
                new[ends] = np.minimum(new[ends], np.maximum(best[-1][ends - n - 1], table[ends - n - 1, n]))
            best.append(new)
        bound = float(best[-1][count])
        if bound == math.inf:
            return None
        counts, end, most = [], count, min(bound * SLACK, self.limit)
        for device in reversed(range(devices)):
            begins = [
                b for b in range(max(0, end - self.longest), end) if max(best[device][b], tables[device][b, end - b - 1]) <= most
            ]
            even = end * device / (device + 1)  # about as many for each of those that are left
            begin = min(begins, key=lambda b: abs(b - even))
            counts.append(end - begin)
            end = begin
        return LeastCut(bound, tuple(reversed(counts)))

    def _one(self, stage: int) -> Floats:
        """The bounds of a device with one stage."""
        floors, parts = self.floors, self._parts
        many = floors.microbatches
        base = np.maximum(parts["head"] + self.before[stage], parts["gather"])
        room = self.room - parts["weights"]
        best = np.full(base.shape, math.inf)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            for k in range(OPTIONS):
                again, holds, kept = self._options[:, :, :, k]
                number = np.clip(np.floor(room * (1 + MARGIN) / np.maximum(holds, 1e-300)), 0, many)
                work = many * (parts["work"] + again)
                way = parts["way"] + self.behind[stage] + again
                turns = np.ceil(many / np.maximum(number, 0.5)) * (way + np.where(kept >= holds, parts["rest"], 0.0))
                area = many * (holds * way + kept * parts["rest"]) / np.maximum(room, 1e-300)
                first = parts["way"] - parts["gradient"] + self.behind[stage]
                filled = first + work - number * parts["forward"]
                back = many * (parts["forward"] + parts["gradient"] + again) + self._tail(stage)
                time = base + np.maximum.reduce([work, turns, area, filled]) + parts["after"]
                time = np.maximum(time, base + back)
                best = np.minimum(best, np.where((number >= 1) & (room > 0) & np.isfinite(time), time, math.inf))
        return np.where(best <= self.limit, best, math.inf)

    def _tail(self, stage: int) -> Floats:
        """Until the first layer has its gradient, behind the stage's."""
        before = np.cumsum(self.floors.gradient) - self.floors.gradient
        return before[:, None] + self.before[stage]

    # --- two stages for each device ---

    def pairs(self) -> LeastCut | None:
        """The wave or the loop with two stages for each device; ``None``: no cut is within the limit."""
        count, devices = self.floors.layers, self.floors.devices
        order = range(devices - 1, -1, -1) if self.wave else range(devices)
        tables: dict[int, _Pairs] = {}
        best = [self._begun()]
        for device in order:
            tables[device] = found = self._two(device)
            new = np.full(best[-1].shape, math.inf)
            for begin, n, other, m, time in found.by_length():
                source = (..., begin + n, other) if self.wave else (..., begin, other)
                target = (..., begin, other + m) if self.wave else (..., begin + n, other + m)
                values = np.maximum(best[-1][source], time)
                new[target] = np.minimum(new[target], values)
            best.append(new)
        ends = [(0, count)] if self.wave else [(m, m, count) for m in range(count + 1)]
        end = min(ends, key=lambda at: best[-1][at])
        bound = float(best[-1][end])
        if bound == math.inf:
            return None
        return LeastCut(bound, self._traced(end, list(order), tables, best, min(bound * SLACK, self.limit)))

    def _begun(self) -> Floats:
        """Of no device: ``[begin, end]`` of the row; or ``[middle, end of the one row, of the other]``."""
        count = self.floors.layers
        middles = np.arange(count + 1)
        best = np.full((count + 1,) * (2 if self.wave else 3), math.inf)
        best[(middles, middles) if self.wave else (middles, np.zeros_like(middles), middles)] = 0.0
        return best

    def _traced(
        self, end: tuple[int, ...], order: Sequence[int], tables: dict[int, _Pairs], best: Sequence[Floats], most: float
    ) -> tuple[int, ...]:
        """A cut within ``most``, the work of each device near that of all, and that of its stages alike."""
        counts = [0] * len(self.route)
        even = float(self.floors.work.sum()) / self.floors.devices
        work = self._parts["work"]
        for place, device in reversed(list(enumerate(order))):
            of = tables[device]
            i, j = end[-2:]
            own = (of.begin == i) if self.wave else (of.begin + of.number == i)
            own &= (of.other + of.layers == j) & (of.time <= most)
            near: list[tuple[float, tuple[int, ...], int, int]] = []
            for at in np.flatnonzero(own).tolist():
                begin, n, other, m = int(of.begin[at]), int(of.number[at]), int(of.other[at]), int(of.layers[at])
                source = (begin + n, other) if self.wave else (end[0], begin, other)
                if best[place][source] <= most:
                    one, two = float(work[begin, n - 1]), float(work[other, m - 1])
                    near.append((abs(one + two - even) + ALIKE * abs(one - two), source, n, m))
            _, end, n, m = min(near)
            first, second = (s for s, own_device in enumerate(self.route) if own_device == device)
            counts[first], counts[second] = n, m
        return tuple(counts)

    def _two(self, device: int) -> _Pairs:
        """The bounds of a device for every pair of stages that it may have.

        Raises:
            _TooLargeError: there are too many.
        """
        floors, parts, count = self.floors, self._parts, self.floors.layers
        one, two = (s for s, own in enumerate(self.route) if own == device)
        stages = len(self.route)
        begins, numbers = np.meshgrid(np.arange(count), np.arange(1, self.longest + 1), indexing="ij")
        fits = (begins + numbers <= count) & (parts["weights"] <= self.room) & (floors.microbatches * parts["work"] <= self.limit)
        first = np.argwhere(fits & (begins >= one) & (begins + numbers <= count - (stages - 1 - one)))
        second = np.argwhere(fits & (begins >= two) & (begins + numbers <= count - (stages - 1 - two)))
        if not len(first) or not len(second):
            return _Pairs.none()
        work = [parts["work"][tuple(of.T)] * floors.microbatches for of in (first, second)]
        weights = [parts["weights"][tuple(of.T)] for of in (first, second)]
        ends = first.sum(axis=1) + 1
        if len(first) * len(second) > 10 * LARGEST:
            raise _TooLargeError
        possible = work[0][:, None] + work[1][None, :] <= self.limit
        possible &= weights[0][:, None] + weights[1][None, :] <= self.room
        possible &= self._shared(device, work, first, second)
        possible &= second[None, :, 0] - ends[:, None] >= two - one - 1
        if two == one + 1:
            possible &= second[None, :, 0] == ends[:, None]
        pairs = np.argwhere(possible)
        a, b = first[pairs[:, 0]], second[pairs[:, 1]]
        usable = [int(np.isfinite(self._options[0, of[:, 0], of[:, 1]]).sum(axis=1).max(initial=0)) for of in (a, b)]
        if len(pairs) * math.prod(usable) > LARGEST:
            raise _TooLargeError
        found = _Pairs(a[:, 0], a[:, 1] + 1, b[:, 0], b[:, 1] + 1, self._pair_times((one, two), (a, b)))
        return found.below(self.limit)

    def _shared(self, device: int, work: Sequence[Floats], first: Indices, second: Indices) -> NDArray[np.bool_]:
        """Of a device's pairs of stages those that leave no more work to the other devices than they have time for."""
        floors = self.floors
        before = np.concatenate(([0.0], np.cumsum(floors.work))) * floors.microbatches
        slack = (1 + MARGIN) * self.limit
        fits: NDArray[np.bool_] = work[0][:, None] + work[1][None, :] >= before[-1] - (floors.devices - 1) * slack
        if self.wave:  # the devices before this one have the layers around these
            around = before[first[:, 0]][:, None] + (before[-1] - before[second.sum(axis=1) + 1])[None, :]
            fits &= (around <= device * slack) & (before[-1] - around <= (floors.devices - device) * slack)
        return fits

    def _pair_times(self, stages: tuple[int, int], of: tuple[Indices, Indices]) -> Floats:
        """The bounds of a device with these two stages, over what recomputes in them."""
        floors, many = self.floors, self.floors.microbatches
        one, two = ({name: part[tuple(place.T)] for name, part in self._parts.items()} for place in of)
        base = np.maximum(one["head"] + self.before[stages[0]], one["gather"] + two["gather"])
        after, plain = one["after"] + two["after"], one["work"] + two["work"]
        room = self.room - one["weights"] - two["weights"]
        total = float(floors.forward.sum())
        back = total + self.before[-1] + two["way"] - two["gradient"] - two["forward"] - (total - two["head"] - two["forward"])
        back = back + self.behind[stages[1]] / 2
        best = np.full(len(base), math.inf)
        chosen = [self._options[:, place[:, 0], place[:, 1]] for place in of]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            for k, j in itertools.product(range(OPTIONS), repeat=2):
                (again, holds, kept), (again2, holds2, kept2) = chosen[0][:, :, k], chosen[1][:, :, j]
                if not (np.isfinite(again) & np.isfinite(again2)).any():
                    continue
                work = many * (plain + again + again2)
                area = holds * (one["way"] + self.behind[stages[0]] + again) + kept * one["rest"]
                area = area + holds2 * (two["way"] + self.behind[stages[1]] + again2) + kept2 * two["rest"]
                alike = (np.abs(holds - holds2) <= MARGIN * holds) & (holds > 0)
                whole = np.floor(room * (1 + MARGIN) / np.where(alike, holds, 1.0)) * holds
                within = np.where(alike, whole, room)
                gained = room * np.maximum(
                    one["forward"] / np.maximum(holds, 1e-300), two["forward"] / np.maximum(holds2, 1e-300)
                )
                filled = back - base + work - np.minimum(gained, many * (one["forward"] + two["forward"]))
                time = base + np.maximum.reduce([work, many * area / np.maximum(within, 1e-300), filled]) + after
                fits = (holds + holds2 <= room * (1 + MARGIN)) & np.isfinite(time)
                best = np.minimum(best, np.where(fits, time, math.inf))
        return best


class _Pairs(NamedTuple):
    """Of pairs of stages: where each begins, its number of layers, and the bound of a device that holds both."""

    begin: Indices
    number: Indices
    other: Indices
    layers: Indices
    time: Floats

    @classmethod
    def none(cls) -> _Pairs:
        """No pair."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty, empty, np.zeros(0))

    def below(self, limit: float) -> _Pairs:
        """Those whose bound is no more than that."""
        kept = self.time <= limit
        return _Pairs(*(of[kept] for of in self))  # type: ignore[arg-type]

    def by_length(self) -> Iterable[tuple[Indices, int, Indices, int, Floats]]:
        """Together those of as many layers: no two of them lead to the same row from one row."""
        for n, m in sorted(set(zip(self.number.tolist(), self.layers.tolist(), strict=True))):
            own = (self.number == n) & (self.layers == m)
            yield self.begin[own], n, self.other[own], m, self.time[own]


def _together(one: Option, other: Option) -> Option:
    """Rounded in a way that does not depend on the order."""
    return tuple(float(f"{a + b:.12g}") for a, b in zip(one, other, strict=True))  # type: ignore[return-value]


def _unbeaten(options: Iterable[Option]) -> list[Option]:
    """Those that no other one beats in time and amount; with the least that is retained of what they beat."""
    kept: list[Option] = []
    for again, holds, retained in sorted(options):
        if kept and holds >= kept[-1][1]:
            kept[-1] = (*kept[-1][:2], min(kept[-1][2], retained))
        else:
            kept.append((again, holds, retained))
    return kept


def _few(options: list[Option]) -> list[Option]:
    """No more than :data:`OPTIONS`: of neighbours the less of each amount."""
    while len(options) > OPTIONS:
        pairs = [options[i : i + 2] for i in range(0, len(options), 2)]
        options = [(pair[0][0], pair[-1][1], min(of[2] for of in pair)) for pair in pairs]
    return options
