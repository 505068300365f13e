"""A list of cuts that may have a better schedule than the best, with what is known of each, and for what it is asked next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ppopt.bounds.certified_cuts import CertifiedCuts
from ppopt.bounds.many_cuts import ManyCuts, ends_of
from ppopt.bounds.shaving import Shaving
from ppopt.pipeline import IntArray

NEVER = 2**62
"""What nothing is asked for."""
EDGES, SHAVING, BOUNDS, LOOKED = range(4)
"""By what cuts may be refuted, their bounds raised, and schedules found (:attr:`Listed.asked`)."""

WAYS = Fraction(1, 2), Fraction(3, 4), Fraction(1)
"""Parts of the way from the bound of a list to the best: cuts are to be refuted below each of them, one after the other.
Measured, 28 layers with placement and chunks open, 60 s: of one with 1800 listed cuts 0.6 to 1.1 % stay open, 2.5 % where they
are asked below the best alone; five that are proved take as long."""
DECIDED = 4
"""Of so many cuts at most it is decided at once whether they have less than a target; of more only where the target is near the
bound. Measured, four profiles of 24 and 28 layers, 60 s: with 2 as with this, with 1 one that is proved in 32 s stays open."""
NEAR = Fraction(1, 8)
"""How far from the bound of a list a target is near, as a part of the way to the best: while that bound stays as it is, targets
are halved thrice at most."""


@dataclass(frozen=True)
class SomeCuts:
    """Some cuts: a row for each, where its stages end."""

    ends: IntArray

    def has(self, counts: Sequence[int]) -> bool:
        """Whether a cut is one of them."""
        return bool(np.any(np.all(self.ends == ends_of(counts), axis=1)))


@dataclass
class Begun:
    """A cut that is not settled: its shaving, and whether it was ``looked`` at."""

    shaving: Shaving
    looked: bool = False


@dataclass
class Listed:
    """Cuts (``ends``: a row for each) with their ``bounds`` in ticks: all of less than ``below`` ticks that are left.

    ``tight``: whether edge finding was asked of all, maybe when ``below`` was more. ``least``: the bound when shaving began.
    ``gained``: see :mod:`ppopt.bounds.shaving`. ``begun``: what is not settled, by the ends and below what.
    """

    ends: IntArray
    bounds: IntArray
    below: int
    tight: bool = False
    least: int | None = None
    gained: IntArray | None = None
    begun: dict[tuple[bytes, int], Begun] = field(default_factory=dict)
    asked: IntArray = field(init=False)
    """Of each cut (a row) the least number of ticks, of those that may matter still, below which edge finding, then shaving, did
    not refute it, edge finding raised its bound, and a look found nothing (:mod:`ppopt.bounds.tight_lists`)."""

    def __post_init__(self) -> None:
        self.asked = np.full((len(self.ends), 4), NEVER, dtype=np.int64)

    def todo(self, by: int, below: int | None = None) -> IntArray:
        """Places of the cuts that are to be asked for less than ``below`` ticks (:attr:`below`), the least bounds first: those
        that may have less, and were not asked for as little before; once for their bounds. ``by``: a column of :attr:`asked`."""
        asked, below = self.asked[:, by], self.below if below is None else below
        todo = np.flatnonzero((asked == NEVER if by == BOUNDS else asked > below) & (self.bounds < below))
        return todo[np.argsort(self.bounds[todo], kind="stable")]

    def target(self, by: int, decides: bool) -> tuple[int, int] | None:
        """Below how many ticks cuts are to be refuted next, and how many may be left by shaving then; ``None``: all were asked.

        ``by``: a column of :attr:`asked` of what is asked for in the end; ``decides``: what shaving leaves is decided. To decide
        more than :data:`DECIDED` cuts takes long. So where that many are known to be left below a target, it is halved towards
        the bound of all, until it is :data:`NEAR`: then as many may be left as there are.
        """
        least = self.bound if self.least is None else self.least
        ways = (least + math.ceil(way * (self.below - least)) for way in WAYS)
        target = next((target for target in ways if len(self.waiting(target, by, decides))), None)
        if target is None or not decides:
            return None if target is None else (target, len(self.ends))
        left = np.sort(self.asked[(self.bounds < self.asked[:, SHAVING]) & (self.asked[:, SHAVING] < NEVER), SHAVING])
        too_many, low = int(left[DECIDED]) if len(left) > DECIDED else NEVER, self.bound
        if too_many > target:
            return target, DECIDED
        half = (too_many - low) // 2
        if half and too_many - low > NEAR * (self.below - low):
            return low + half, DECIDED
        return too_many, len(self.ends)

    def waiting(self, target: int, by: int, decides: bool) -> IntArray:
        """Places of the cuts that are to be refuted below a target (:meth:`target`), the least bounds first."""
        if decides:
            return np.argsort(self.bounds, kind="stable")[: np.count_nonzero(self.bounds < target)]
        return self.todo(by if target == self.below else SHAVING, target)

    @property
    def bound(self) -> int:
        """No cut that is left has less, in ticks."""
        return min(self.below, int(self.bounds.min(initial=self.below)))

    def add(self, ends: IntArray, bounds: IntArray) -> None:
        """List some cuts more."""
        self.ends, self.bounds = np.concatenate([self.ends, ends]), np.concatenate([self.bounds, bounds])
        self.asked = np.concatenate([self.asked, np.full((len(ends), 4), NEVER, dtype=np.int64)])

    def raised(self, many: ManyCuts, since: int) -> None:
        """With what certificates say that were learned behind so many."""
        if since < many.learned and len(self.ends):
            np.maximum(self.bounds, CertifiedCuts(many, since).bounds(self.ends), out=self.bounds)
            self.shorten(self.below)

    def shorten(self, below: int) -> None:
        """Without the cuts that do not have less than that many ticks, and without what was begun for more."""
        self.below = below
        self._keep(self.bounds < below)
        least = self.bound
        self.begun = {key: begun for key, begun in self.begun.items() if least < key[1] <= below}

    def leave_out(self, low: IntArray, high: IntArray) -> None:
        """Without the cuts that lie in one of some boxes: rows of the lowest and of the highest ends."""
        single = np.all(low == high, axis=1)
        self._keep(~np.isin(_as_bytes(self.ends), _as_bytes(low[single])))
        for least, most in zip(low[~single], high[~single], strict=True):
            self._keep(~np.all((self.ends >= least) & (self.ends <= most), axis=1))

    def _keep(self, kept: npt.NDArray[np.bool_]) -> None:
        self.ends, self.bounds, self.asked = self.ends[kept], self.bounds[kept], self.asked[kept]


def _as_bytes(rows: IntArray) -> npt.NDArray[np.void]:
    """Each row as one value."""
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
