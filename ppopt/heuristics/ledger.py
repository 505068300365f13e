"""The account of one memory while jobs run."""

from __future__ import annotations

from ppopt.heuristics.ranked import Ranked


class Ledger:
    """What a memory holds, and how far the families that claim it have come.

    With ``reserve`` a job may claim only where every microbatch can still be finished afterwards, one after the other, the oldest
    first. Forwards of early stages could otherwise fill a device that has several stages, and nothing would go on.
    """

    def __init__(self, jobs: Ranked, memory: int, *, reserve: bool) -> None:
        self._families = jobs.claims.claimers[memory]
        self._amount, self._returned, self._claimer, self._finishes = jobs.amount, jobs.returned, jobs.claimer, jobs.finishes
        self._reserve = reserve and len(self._families) > 1
        self._claimed = [0] * len(self._families)  # per family, how many microbatches have claimed
        self._finished = [0] * len(self._families)  # per family, how many of them hold nothing any more
        self.limit = jobs.claims.limits[memory]
        self.held = 0

    def fits(self, job: int) -> bool:
        """Whether there is room for what the job claims."""
        limit = self.limit
        if self.held + self._amount[job] > limit:
            return False
        if not self._reserve:
            return True
        claimed, family = self._claimed, self._claimer[job]
        claimed[family] += 1
        fits = all(
            turn >= family.count or self._to_finish(family.route, turn) <= limit
            for family, turn in zip(self._families, claimed, strict=True)
        )
        claimed[family] -= 1
        return fits

    def claim(self, job: int) -> None:
        """The job starts."""
        self.held += self._amount[job]
        self._claimed[self._claimer[job]] += 1

    def give_back(self, job: int) -> None:
        """The job has ended."""
        self.held -= self._returned[job]
        if self._reserve and self._finishes[job] >= 0:
            self._finished[self._finishes[job]] += 1

    def _to_finish(self, route: int, turn: int) -> int:
        """The most that is held while the microbatch of this turn is finished, all older ones having been: what it has yet to
        claim, and what it and the younger ones hold. The routes take turns."""
        total = 0
        for i, family in enumerate(self._families):
            if family.route == route and self._claimed[i] <= turn:
                total += family.amount
            else:
                older = max(self._finished[i], turn + (family.route < route))
                total += family.amount * max(0, self._claimed[i] - older)
        return total
