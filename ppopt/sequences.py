"""Sequences of several lengths: lists of them, how frameworks put them into microbatches, and how one is cut into pieces.

A *bag* is a list of the places of sequences that make up a microbatch; :func:`lengths_of` gives their lengths, as
``pipeline.lengths`` has them.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

Bags: TypeAlias = list[list[int]]


def lengths_of(bags: Iterable[Iterable[int]], lengths: Sequence[int]) -> list[list[int]]:
    """The lengths of the sequences of each bag."""
    return [[lengths[i] for i in bag] for bag in bags]


# --- lists of lengths ---


def generated(name: str, count: int, seed: int = 0, longest: int = 16384) -> list[int]:
    """``count`` lengths in tokens, at most ``longest``, of one of the :data:`GENERATORS`.

    Raises:
        ValueError: there is no such generator, or no length is possible.
    """
    if name not in GENERATORS:
        raise ValueError(f"expected one of {', '.join(GENERATORS)}, got {name!r}")
    if count < 1 or longest < 1:
        raise ValueError(f"expected at least one sequence of at least one token, got {count} of at most {longest}")
    rng = random.Random(seed)
    return [max(1, min(longest, round(GENERATORS[name](rng, longest)))) for _ in range(count)]


def _lognormal(median: float, sigma: float, least: int = 1) -> Callable[[random.Random, int], float]:
    return lambda rng, longest: max(least, rng.lognormvariate(math.log(median), sigma))


def _bimodal(rng: random.Random, longest: int) -> float:
    return longest if rng.random() < 0.15 else rng.lognormvariate(math.log(1500), 0.6)


GENERATORS: dict[str, Callable[[random.Random, int], float]] = {
    "wiki": _lognormal(600, 1.45, 16),
    "pretrain-128k": _lognormal(1000, 2.0),
    "megatron-mock": _lognormal(4096 * math.exp(-(1.1**2) / 2), 1.1, 1024),
    "rl-bimodal": _bimodal,
    "uniform": lambda rng, longest: rng.randint(1, longest),
}
"""Long tails (``wiki``, ``pretrain-128k``), Megatron's mock data, answers of which 15 % are cut off, and uniform ones."""


def multipliers(count: int, deviation: float, seed: int = 0) -> list[float]:
    """DynaPipe's factors of microbatches: normal around 1, within 0.1 and 10, scaled to a mean of 1 (and to three digits)."""
    rng = random.Random(seed)
    drawn = [min(10.0, max(0.1, rng.gauss(1, deviation))) for _ in range(count)]
    mean = sum(drawn) / count
    return [max(0.001, round(x / mean, 3)) for x in drawn]


# --- sequences into microbatches ---


def karmarkar_karp(weights: Sequence[int], parts: int) -> Bags:
    """``parts`` bags of nearly equal weight, by largest differencing (as verl and slime run it: sizes are free).

    Two partitions whose largest and smallest bags differ most are merged, the largest of one with the smallest of the other,
    until one is left.

    Raises:
        ValueError: there are fewer weights than bags.
    """
    if not 1 <= parts <= len(weights):
        raise ValueError(f"expected 1 to {len(weights)} bags, got {parts}")
    heap: list[tuple[int, int, list[tuple[int, list[int]]]]] = []
    for turn, i in enumerate(sorted(range(len(weights)), key=lambda i: (weights[i], i))):
        heap.append((-weights[i] if parts > 1 else 0, -turn, [(weights[i], [i]), *((0, []) for _ in range(parts - 1))]))
    heapq.heapify(heap)
    turn = len(heap)
    while len(heap) > 1:
        one, other = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        merged = [(a + b, [*x, *y]) for (a, x), (b, y) in zip(one, reversed(other), strict=True)]
        merged.sort(key=lambda part: (part[0], len(part[1]), part[1]), reverse=True)
        heapq.heappush(heap, (merged[-1][0] - merged[0][0], -turn, merged))
        turn += 1
    return [sorted(bag) for _, bag in heap[0][2]]


def verl_weight(length: int) -> int:
    """What verl takes for the work of a sequence: ``24576 s + s^2``, full attention at a hidden size of 4096."""
    return 24576 * length + length * length


def verl(lengths: Sequence[int], most: int, multiple: int = 1) -> Bags:
    """verl's microbatches: as many as the tokens need at ``most`` each, a multiple of ``multiple``, of nearly equal work; in its
    order, small ones at both ends. The cap gives their number alone and is not kept.

    Raises:
        ValueError: a sequence is longer than the cap, or there are fewer sequences than microbatches.
    """
    _check_cap(lengths, most)
    count = min(len(lengths), -(-sum(lengths) // most))
    count = -(-count // multiple) * multiple
    weights = [verl_weight(length) for length in lengths]
    bags = karmarkar_karp(weights, count)
    down = sorted(range(count), key=lambda b: (sum(weights[i] for i in bags[b]), b), reverse=True)
    return [bags[b] for b in (*down[::2][::-1], *down[1::2])]


def megatron_pack(lengths: Sequence[int], most: int, multiple: int = 1) -> Bags:
    """Megatron's ``dp_balanced``: in the order of arrival, a new bag where one would hold more than ``most`` tokens; then the
    last sequence of the latest bag with several gets one of its own, until their number is a multiple.

    Raises:
        ValueError: a sequence is longer than the cap, or there are too few sequences for the multiple.
    """
    _check_cap(lengths, most)
    bags: Bags = []
    held = most + 1
    for i, length in enumerate(lengths):
        if held + length > most:
            bags.append([])
            held = 0
        bags[-1].append(i)
        held += length
    while len(bags) % multiple:
        several = [bag for bag in bags if len(bag) > 1]
        if not several:
            raise ValueError(f"expected sequences for a multiple of {multiple} bags, got {len(lengths)}")
        bags.append([several[-1].pop()])
    return bags


def dynapipe_cut(
    times: Sequence[float], devices: int, replicas: int = 1, chunks: int = 1, fits: Callable[[int], bool] = lambda count: True
) -> Bags:
    """DynaPipe's microbatches: the sequences by time, longest first, cut into runs so that
    ``(devices - 1) * longest / chunks + sum / replicas`` is least. ``fits``: whether so many sequences may be one microbatch.

    The time of a run is that of its longest sequence times their number: they are padded. Exact, by dynamic programming for each
    time that a run may have.

    Raises:
        ValueError: nothing fits.
    """
    order = sorted(range(len(times)), key=lambda i: (-times[i], i))
    run = [[times[order[a]] * (b - a) for b in range(len(order) + 1)] for a in range(len(order))]
    best: tuple[float, list[int]] | None = None
    for longest in sorted({run[a][b] for a in range(len(order)) for b in range(a + 1, len(order) + 1)}):
        least: list[tuple[float, int]] = [(0.0, 0)]
        for n in range(1, len(order) + 1):
            ways = [
                (least[i][0] + run[i][n], i) for i in range(n) if run[i][n] <= longest and fits(n - i) and least[i][0] < math.inf
            ]
            least.append(min(ways, default=(math.inf, 0)))
        value = (devices - 1) * longest / chunks + least[-1][0] / replicas
        if least[-1][0] < math.inf and (best is None or value < best[0]):
            cuts, n = [len(order)], len(order)
            while n:
                n = least[n][1]
                cuts.append(n)
            best = value, cuts[::-1]
    if best is None:
        raise ValueError("no run of sequences fits")
    return [order[a:b] for a, b in zip(best[1], best[1][1:], strict=False)]


def _check_cap(lengths: Sequence[int], most: int) -> None:
    if max(lengths) > most:
        raise ValueError(f"expected sequences of at most {most} tokens, got one of {max(lengths)}")


# --- one sequence into pieces ---


def balanced_pieces(length: int, pieces: int, linear: float, quadratic: float, multiple: int = 1) -> list[int]:
    """The lengths of ``pieces`` pieces of a sequence with equal FLOPs (Seq1F1B's balanced cut), first the longest.

    The FLOPs up to token b are ``quadratic * b^2 / 2 + linear * b``. All pieces but the first are rounded down to
    multiples of ``multiple``; the first takes the rest.

    Raises:
        ValueError: there are fewer tokens than pieces, or nothing takes any time.
    """
    if not 1 <= pieces * multiple <= length:
        raise ValueError(f"expected a sequence of at least {pieces * multiple} tokens for {pieces} pieces, got {length}")
    if linear < 0 or quadratic < 0 or not linear + quadratic:
        raise ValueError(f"expected FLOPs per token >= 0, and some > 0, got {linear} and {quadratic}")
    whole = quadratic * length**2 / 2 + linear * length

    def token(share: float) -> float:
        """Up to which token that share of the FLOPs is."""
        goal = whole * share
        if not quadratic:
            return goal / linear
        return (math.sqrt(linear**2 + 2 * quadratic * goal) - linear) / quadratic

    ends = [*(token(k / pieces) for k in range(1, pieces)), float(length)]
    behind = [max(1, int((end - begin) // multiple)) * multiple for begin, end in pairwise(ends)]
    return [length - sum(behind), *behind]


def piece_costs(pieces: Sequence[int], linear: float, quadratic: float) -> list[float]:
    """The FLOPs of each piece of a sequence: it attends to all that is before it (:func:`balanced_pieces`)."""
    ends = [0, *accumulate(pieces)]
    return [quadratic * (b * b - a * a) / 2 + linear * (b - a) for a, b in pairwise(ends)]
