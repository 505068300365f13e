"""Bags of sequences, and what the rules that make them have in common.

A *bag* is a list of the places of sequences that make up a microbatch; :func:`lengths_of` gives their lengths, as
``pipeline.lengths`` has them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

Bags: TypeAlias = list[list[int]]
Weight: TypeAlias = Callable[[int], int]
"""What a sequence of so many tokens is taken to be worth in work."""


def lengths_of(bags: Iterable[Iterable[int]], lengths: Sequence[int]) -> list[list[int]]:
    """The lengths of the sequences of each bag."""
    return [[lengths[i] for i in bag] for bag in bags]


def full_attention(length: int) -> int:
    """``24576 s + s^2``: verl's work of a sequence, all of its attention at a hidden size of 4096."""
    return 24576 * length + length * length


def causal_attention(length: int) -> int:
    """``49152 s + s^2``: half of the attention (what comes later is masked) at a hidden size of 4096."""
    return 49152 * length + length * length


def imbalance(bags: Sequence[Sequence[int]], lengths: Sequence[int], weight: Weight = full_attention) -> float:
    """The work of the heaviest bag over the mean of all (WLB-LLM's measure); 1: all are equal."""
    work = [sum(weight(lengths[i]) for i in bag) for bag in bags]
    return max(work) * len(work) / sum(work)


def longest_first(lengths: Sequence[int], places: Iterable[int] | None = None) -> list[int]:
    """The places of sequences, the longest first; of equal ones the first."""
    return sorted(range(len(lengths)) if places is None else places, key=lambda i: (-lengths[i], i))


def check_lengths(lengths: Sequence[int], most: int, multiple: int) -> None:
    """Raise where no bags can be made.

    Raises:
        ValueError: there is no sequence, or one without a token, or the cap or the multiple is not a whole number >= 1.
    """
    if not lengths or min(lengths) < 1:
        raise ValueError(f"expected at least one sequence, each of at least one token, got {list(lengths)}")
    for name, value in {"most": most, "multiple": multiple}.items():
        if value < 1:
            raise ValueError(f"{name}: expected a whole number >= 1, got {value}")


def check_cap(lengths: Sequence[int], most: int, multiple: int) -> None:
    """:func:`check_lengths`, and that no sequence alone has more than the cap.

    Raises:
        ValueError: one has.
    """
    check_lengths(lengths, most, multiple)
    if max(lengths) > most:
        raise ValueError(f"expected sequences of at most {most} tokens, got one of {max(lengths)}")


def no_multiple(count: int, multiple: int) -> ValueError:
    """The error where so many sequences cannot be a multiple of bags."""
    return ValueError(f"expected sequences for a multiple of {multiple} bags, got {count}")


def first_fit(lengths: Sequence[int], most: int, order: Iterable[int]) -> Bags:
    """The sequences in that order, each into the first bag in which it fits, else into a new one.

    One of more than ``most`` tokens is alone in its bag.
    """
    bags: Bags = []
    held: list[int] = []
    for i in order:
        into = next((b for b, tokens in enumerate(held) if tokens + lengths[i] <= most), len(bags))
        if into == len(bags):
            bags.append([])
            held.append(0)
        bags[into].append(i)
        held[into] += lengths[i]
    return bags


def split_to_multiple(bags: Bags, multiple: int, weights: Sequence[int], *, last: bool) -> None:
    """Split the heaviest bag with several sequences, until the number of bags is a multiple.

    Its sequences go, the heaviest first, to the half with less (or the first half); the first half stays, the other one is a
    new bag at the end. ``last``: of equally heavy bags the last one is split, else the first.

    Raises:
        ValueError: no bag with several sequences is left.
    """
    while len(bags) % multiple:
        several = [b for b, bag in enumerate(bags) if len(bag) > 1]
        if not several:
            raise no_multiple(len(weights), multiple)
        which = max(several, key=lambda b: (sum(weights[i] for i in bags[b]), b if last else -b))
        halves: tuple[list[int], list[int]] = [], []
        work = [0, 0]
        for i in longest_first(weights, bags[which]):
            half = int(work[1] < work[0])
            halves[half].append(i)
            work[half] += weights[i]
        bags[which] = halves[0]
        bags.append(halves[1])


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
