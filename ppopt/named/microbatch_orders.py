"""In which order frameworks run microbatches that differ: their rules, by name. Each gives the microbatches in their order.

The pieces of a sequence stay together, and the rule is about the sequences.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeAlias

from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.sequences import full_attention

Turns: TypeAlias = tuple[int, ...]
"""Microbatches, or sequences, in the order in which they run."""
MOST_PERMUTATIONS = 24
"""How many orders ``dynapipe-order`` tries at most, beside the given one."""


@dataclass(frozen=True)
class Sizes:
    """What a rule looks at: of each sequence its time over all stages, its tokens' squares, and its features."""

    work: tuple[int, ...]
    """Forward and backward on all stages, in ticks."""
    squares: tuple[int, ...]
    """The sum of the squares of its lengths; without lengths its work."""
    features: tuple[tuple[int, ...], ...]
    """The forward on the first stage and on the last, the backward on the first and on the last, in ticks."""
    weight: tuple[int, ...]
    """What verl takes for its work: 24576 times its tokens and their squares; without lengths its work."""


@dataclass(frozen=True)
class MicrobatchOrder:
    """A rule by its name. ``orders`` gives one order, or several of which the best is taken."""

    name: str
    summary: str
    source: str
    orders: Callable[[Sizes], Iterator[Turns]]
    simulates: bool = False
    """Whether it times several orders and takes the best."""


def sizes_of(pipeline: Pipeline) -> Sizes:
    """What the rules look at, sequence by sequence."""
    duration, mix = pipeline.ticks.duration, pipeline.mix
    route = pipeline.route_of_microbatch
    sequences = mix.sequences(pipeline.microbatches)
    times = [(duration[route[m], Kind.F], duration[route[m], Kind.B]) for m in range(pipeline.microbatches)]
    work = [int((forward + backward).sum()) for forward, backward in times]
    squares = [sum(s * s for s in bag) for bag in mix.lengths] or work
    weight = [sum(map(full_attention, bag)) for bag in mix.lengths] or work
    features = [(int(f[0]), int(f[-1]), int(b[0]), int(b[-1])) for f, b in times]

    def whole(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(sum(values[m] for m in sequence) for sequence in sequences)

    each = [tuple(sum(features[m][i] for m in sequence) for i in range(4)) for sequence in sequences]
    return Sizes(whole(work), whole(squares), tuple(each), whole(weight))


def _sorted(values: Sequence[int], sign: int) -> Turns:
    """From the least on, or from the largest on; of equal ones the first comes first."""
    return tuple(sorted(range(len(values)), key=lambda i: (sign * values[i], i)))


def verl(weight: Sequence[int]) -> Turns:
    """Descending, of equal ones the later first; then every other one backwards, and the rest: small ones at both ends."""
    down = sorted(range(len(weight)), key=lambda i: (weight[i], i), reverse=True)
    return (*down[::2][::-1], *down[1::2])


def verl_rank(weight: Sequence[int]) -> Turns:
    """Ascending; every other one, then the rest backwards: large ones in the middle."""
    up = _sorted(weight, 1)
    return (*up[::2], *up[1::2][::-1])


def clusters(features: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Numbers of points in ``count`` clusters of near ones at most (Lloyd's k-means from points that are far from each other)."""
    points = [tuple(map(float, point)) for point in features]

    def away(a: Sequence[float], b: Sequence[float]) -> float:
        return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))

    centres = [points[0]]
    while len(centres) < min(count, len(set(points))):
        centres.append(max(points, key=lambda point: min(away(point, centre) for centre in centres)))
    found: list[list[int]] = []
    for _ in range(50):
        nearest = [min(range(len(centres)), key=lambda c: away(point, centres[c])) for point in points]
        parted = [[i for i, c in enumerate(nearest) if c == own] for own in range(len(centres))]
        parted = [part for part in parted if part]
        if parted == found:
            break
        found = parted
        centres = [tuple(sum(points[i][d] for i in part) / len(part) for d in range(len(points[0]))) for part in found]
    return found


def dynapipe(sizes: Sizes) -> Iterator[Turns]:
    """The given order; and each order of four clusters of like microbatches (three of more than 20), random inside each. Up to
    four microbatches: each order of these."""
    many = len(sizes.work)
    yield tuple(range(many))
    if many <= 4:
        yield from permutations(range(many))
        return
    rng = random.Random(0)
    parts = clusters(sizes.features, 3 if many > 20 else 4)
    for part in parts:
        rng.shuffle(part)
    for order in list(permutations(parts))[:MOST_PERMUTATIONS]:
        yield tuple(i for part in order for i in part)


_VERL = "verl-project/verl verl/utils/seqlen_balancing.py"
ORDERS: dict[str, MicrobatchOrder] = {
    order.name: order
    for order in (
        MicrobatchOrder(
            "longest-first", "descending by work", "list scheduling's own rule", lambda sizes: iter([_sorted(sizes.work, -1)])
        ),
        MicrobatchOrder("shortest-first", "ascending by work", "its reverse", lambda sizes: iter([_sorted(sizes.work, 1)])),
        MicrobatchOrder(
            "verl",
            "descending by 24576 times the tokens and the sum of their squares, then every other one backwards, and the rest",
            f"{_VERL}, rearrange_micro_batches",
            lambda sizes: iter([verl(sizes.weight)]),
        ),
        MicrobatchOrder(
            "verl-2452",
            "descending by the sum of the squares of the lengths",
            "verl-project/verl pull request 2452",
            lambda sizes: iter([_sorted(sizes.squares, -1)]),
        ),
        MicrobatchOrder(
            "verl-rank",
            "ascending; every other one, then the rest backwards",
            "verl-project/verl verl/trainer/ppo/ray_trainer.py, _balance_batch",
            lambda sizes: iter([verl_rank(sizes.weight)]),
        ),
        MicrobatchOrder(
            "dynapipe-order",
            "the best of the given order and of those of four clusters",
            "Jiang et al. 2024, DynaPipe; dynapipe/schedule_opt/execution_planner.py",
            dynapipe,
            simulates=True,
        ),
    )
}
"""The rules by name."""


def orders_of(pipeline: Pipeline, name: str) -> Iterator[Turns]:
    """The microbatches of a pipeline in the order, or the orders, of a rule.

    Raises:
        KeyError: there is no such rule.
    """
    sequences = pipeline.mix.sequences(pipeline.microbatches)
    for turns in ORDERS[name].orders(sizes_of(pipeline)):
        yield tuple(m for i in turns for m in sequences[i])
