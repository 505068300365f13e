"""A list of cuts that may have a better schedule than the best, with what is known of each, and for what it is asked next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ppopt.bounds.certified_cuts import CertifiedCuts
from ppopt.bounds.many_cuts import ManyCuts, ends_of
from ppopt.bounds.shaving import Shaving
from ppopt.pipeline import IntArray

NEVER = 2**62
"""What nothing is asked for."""
EDGES, SHAVING, BOUNDS, LOOKED, HARD, GIVEN_UP = COLUMNS = range(6)
"""By what cuts may be refuted, their bounds raised, and schedules found, and how a decision ended (:attr:`Listed.asked`)."""

WAYS = Fraction(1, 2), Fraction(3, 4), Fraction(1)
"""Parts of the way from the bound of a list to the best: cuts are to be refuted below each of them, one after the other.
Measured, 28 layers with placement and chunks open, 60 s: of one with 1800 listed cuts 0.6 to 1.1 % stay open, 2.5 % where they
are asked below the best alone; five that are proved take as long."""
DECIDED = 8
"""So many cuts at most may be hard below a target that is not near the bound. Measured, 26 and 28 layers with placement and
chunks open, 60 s: two profiles are proved in 37 and 31 s; with 4 the one in 42 s, and the other stays 0.1 % open where its first
value is not the best, of which seven are hard and five of these are decided in a second."""
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
    """A cut that is not settled: its shaving, which took so many ``seconds``, whether it was ``looked`` at, and whether it was
    tried as long to decide it."""

    shaving: Shaving
    seconds: float = 0.0
    looked: bool = False
    tried: bool = False


class Target(NamedTuple):
    """Cuts are to be refuted ``below`` so many ticks; where no more than ``few`` are hard, these are decided for so many
    ``seconds``."""

    below: int
    few: int
    seconds: float


@dataclass
class Listed:
    """Cuts (``ends``: a row for each) with their ``bounds`` in ticks: all of less than ``below`` ticks that are left.

    ``tight``: whether edge finding was asked of all, maybe when ``below`` was more. ``least``: the bound when shaving began.
    ``gained``: see :mod:`ppopt.bounds.shaving`. ``begun``: what is not settled, by the ends and below what. ``spare``: seconds
    that shaving has taken beside those that hard cuts have, on the way to the best.
    """

    ends: IntArray
    bounds: IntArray
    below: int
    tight: bool = False
    least: int | None = None
    gained: IntArray | None = None
    begun: dict[tuple[bytes, int], Begun] = field(default_factory=dict)
    spare: float = 0.0
    asked: IntArray = field(init=False)
    """Of each cut (a row) the least number of ticks, of those that may matter still, below which edge finding, then shaving, did
    not refute it, edge finding raised its bound, a look found nothing, it is *hard* (neither shaving nor a decision that took as
    long says whether it has less), and the decision was given up (:mod:`ppopt.bounds.tight_lists`)."""

    def __post_init__(self) -> None:
        self.asked = np.full((len(self.ends), len(COLUMNS)), NEVER, dtype=np.int64)

    def todo(self, by: int, below: int | None = None) -> IntArray:
        """Places of the cuts that are to be asked for less than ``below`` ticks (:attr:`below`), the least bounds first: those
        that may have less, and were not asked for as little before; once for their bounds. ``by``: a column of :attr:`asked`."""
        asked, below = self.asked[:, by], self.below if below is None else below
        todo = np.flatnonzero((asked == NEVER if by == BOUNDS else asked > below) & (self.bounds < below))
        return todo[np.argsort(self.bounds[todo], kind="stable")]

    def target(self, by: int, decides: bool) -> Target | None:
        """Below how many ticks cuts are to be refuted next; ``None``: all were asked.

        ``by``: a column of :attr:`asked` of what is asked for in the end; ``decides``: what shaving leaves is decided. Hard cuts
        are decided last, for the best, and once for all; on the way to it for no longer than shaving takes. Where more than
        :data:`DECIDED` are hard below a target, or one is given up, it is halved towards the bound of all, until it is
        :data:`NEAR`: there as many may be hard as there are.
        """
        least = self.bound if self.least is None else self.least
        ways = [least + math.ceil(way * (self.below - least)) for way in WAYS]
        if decides and self.bound < self.below:
            hard, given_up, low = self._below_what(HARD), self._below_what(GIVEN_UP), self.bound
            too_many = min([*hard[DECIDED : DECIDED + 1], *given_up[:1]], default=NEVER)
            due = [target for target in ways if low < target and (self.spare > 0 or not self._shaved(target))]
            target = min([*due, self.below])
            if target < too_many:
                seconds = math.inf if target == self.below else self.spare
                return Target(target, DECIDED, seconds if self._shaved(target) else 0.0)
            half = (too_many - low) // 2
            if half and too_many - low > NEAR * (self.below - low):
                return Target(low + half, DECIDED, math.inf)
            if too_many not in given_up:
                return Target(too_many, len(self.ends), math.inf)
        target_of_all = next((target for target in ways if len(self.waiting(target, by, False))), None)
        return None if target_of_all is None else Target(target_of_all, len(self.ends), 0.0)

    def _shaved(self, target: int) -> bool:
        """Whether of all cuts that may have less it is known that they are hard."""
        hard = self.asked[:, HARD]
        return not np.any((self.bounds < target) & ((hard > target) | (hard <= self.bounds)))

    def _below_what(self, by: int) -> list[int]:
        """Below what cuts were asked in vain that may have less still, the least first."""
        asked = self.asked[:, by]
        return sorted(asked[(self.bounds < asked) & (asked < NEVER)].tolist())

    def note(self, place: int, by: int, below: int) -> None:
        """A cut was asked in vain."""
        before = self.asked[place, by]
        self.asked[place, by] = below if before <= self.bounds[place] else min(before, below)  # else refuted otherwise

    def waiting(self, target: int, by: int, decides: bool) -> IntArray:
        """Places of the cuts that are to be refuted below a target (:meth:`target`), the least bounds first."""
        if decides:
            return np.argsort(self.bounds, kind="stable")[: np.count_nonzero(self.bounds < target)]
        return self.todo(by if target == self.below else SHAVING, target)

    @property
    def bound(self) -> int:
        """No cut that is left has less, in ticks."""
        return min(self.below, int(self.bounds.min(initial=self.below)))

    @property
    def makespans(self) -> range:
        """What listed cuts may be asked for, in ticks."""
        return range(self.bound, self.below)

    def add(self, ends: IntArray, bounds: IntArray) -> None:
        """List some cuts more."""
        self.ends, self.bounds = np.concatenate([self.ends, ends]), np.concatenate([self.bounds, bounds])
        self.asked = np.concatenate([self.asked, np.full((len(ends), len(COLUMNS)), NEVER, dtype=np.int64)])

    def raised(self, many: ManyCuts, since: int) -> None:
        """With what certificates say that were learned behind so many."""
        if since < many.learned and len(self.ends):
            np.maximum(self.bounds, CertifiedCuts(many, since).bounds(self.ends), out=self.bounds)
            self.shorten(self.below)

    def shorten(self, below: int) -> None:
        """Without the cuts that do not have less than that many ticks, and without what was begun for more."""
        self.below = below
        self._keep(self.bounds < below)
        makespans = self.makespans
        self.begun = {key: begun for key, begun in self.begun.items() if key[1] - 1 in makespans}

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
