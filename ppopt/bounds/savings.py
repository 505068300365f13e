"""What recomputing saves at least costs, whatever layers are in a stage and whichever of them recompute.

A layer that recomputes takes ``t`` ticks longer for each microbatch and holds ``s`` less of it; which of its levels it does that
at, if at any, is open. At a *price* of ``p`` ticks for what is saved its *surplus* is the largest ``p s - t`` of its levels,
or 0 if none is above that. So ``t >= p s - surplus`` however it recomputes, and of a stage

    ``longer >= p saved - (sum of the surplus of its layers)``

where ``longer`` is what its backward takes longer, and ``saved`` what it holds less. That is linear in sums over layers, and so
holds for every cut. Of a single layer the prices between which another level is worth the most say all that there is, but for
mixtures of levels: the least convex function below its times. Those of a stage are the sums of these functions, and the prices of
all its layers together say all of them (the conjugate of a sum is the sum of the conjugates).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ppopt.op import Kind

Levels: TypeAlias = Sequence[tuple[int, int]]
"""The levels of a layer: what each takes longer, in ticks, and how much less is held, both for a microbatch."""

LARGEST = 2**58
"""No sum over layers of prices times amounts is larger: a constraint of the solver adds up four of these at most."""


class Price(NamedTuple):
    """To save ``amount`` is worth ``ticks``."""

    ticks: int
    amount: int


class Savings:
    """What the layers of a model save and take, where it is open what recomputes.

    ``levels``: of each layer; ``unkept``: of each layer how much less is left between ``I`` and ``W`` at most; ``kinds``: of each
    stage the operation that takes longer. Times may be rounded down, and amounts up.
    """

    def __init__(self, levels: Sequence[Levels], unkept: Sequence[int], kinds: Sequence[Kind]) -> None:
        self.levels, self.unkept, self.kinds = tuple(map(tuple, levels)), list(unkept), tuple(kinds)
        hulls = {of: _hull(of) for of in set(self.levels)}
        self.most = [hulls[of][-1][1] for of in self.levels]
        """How much less each layer holds at most."""
        self.longest = [hulls[of][-1][0] for of in self.levels]
        """The least time in which it saves as much."""
        self._slopes = {Fraction(b[0] - a[0], b[1] - a[1]) for hull in hulls.values() for a, b in pairwise(hull)}

    @cached_property
    def prices(self) -> tuple[Price, ...]:
        """Those that say something, ascending; rounded where numbers would be too large. Any price is as true."""
        found = (self._rounded(slope) for slope in sorted(self._slopes) if slope)
        return tuple(dict.fromkeys(price for price in found if price.ticks and price.amount))

    def _rounded(self, slope: Fraction) -> Price:
        ticks, amount = slope.as_integer_ratio()
        largest = max(ticks * sum(self.most), amount * sum(self.longest))
        part = -(-largest // LARGEST)
        return Price(ticks // part, amount // part)

    def surplus(self, price: Price) -> list[int]:
        """Per layer, what its best level is worth beyond what it takes: ``price.amount`` times that in ticks."""
        ticks, amount = price
        best = {of: max((ticks * saved - amount * time for time, saved in of), default=0) for of in set(self.levels)}
        return [max(best[of], 0) for of in self.levels]


def _hull(levels: Levels) -> list[tuple[int, int]]:
    """The levels that are worth the most at some price, none of them first: ascending in what they take and save."""
    found = [(0, 0)]
    for time, saved in sorted(levels, key=lambda level: (level[1], -level[0])):
        if saved <= 0:
            continue
        while len(found) > 1 and _above(found[-2], found[-1], (time, saved)):
            found.pop()
        if found[-1][1] == saved:
            found.pop()
        found.append((time, saved))
    return found


def _above(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Whether ``b`` is not below the line from ``a`` to ``c``."""
    return (b[0] - a[0]) * (c[1] - a[1]) >= (c[0] - a[0]) * (b[1] - a[1])
