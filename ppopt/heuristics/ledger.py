"""The account of one memory while jobs run."""

from __future__ import annotations

from ppopt.heuristics.ranked import Ranked


class Ledger:
    """What a memory holds, and how far the stages that claim it have come.

    With ``reserve`` a job may claim only where every microbatch can still be finished afterwards, one after the other, the oldest
    first. Forwards of early stages could otherwise fill a device that has several stages, and nothing would go on; and forwards
    of any stage one whose input gradients claim more. An input gradient needs no more than room for itself: its weight gradient
    follows without any claim, and then nothing of both is held.
    """

    def __init__(self, jobs: Ranked, memory: int, *, reserve: bool) -> None:
        self._stages = jobs.claims.claimers[memory]
        self._amount, self._returned, self._claimer, self._finishes = jobs.amount, jobs.returned, jobs.claimer, jobs.finishes
        self._more = any(stage.more for stage in self._stages)
        self._reserve = reserve and (self._more or len(self._stages) > 1)
        self._claimed = [0] * len(self._stages)  # per stage, how many microbatches have claimed
        self._back = [0] * len(self._stages)  # per stage, how many of their input gradients have claimed more
        self._finished = [0] * len(self._stages)  # per stage, how many of them hold nothing any more
        self.limit = jobs.claims.limits[memory]
        self.held = 0

    def fits(self, job: int) -> bool:
        """Whether there is room for what the job claims."""
        limit = self.limit
        if self.held + self._amount[job] > limit:
            return False
        if not self._reserve or self._claimer[job] >= len(self._stages):
            return True
        claimed, place = self._claimed, self._claimer[job]
        claimed[place] += 1
        fits = all(
            turn >= stage.count or self._to_finish(stage.route, turn) <= limit
            for stage, turn in zip(self._stages, claimed, strict=True)
            if stage.amount
        )
        if fits and self._more:
            fits = self._can_go_back(limit)
        claimed[place] -= 1
        return fits

    def claim(self, job: int) -> None:
        """The job starts."""
        self.held += self._amount[job]
        place = self._claimer[job]
        if place < len(self._stages):
            self._claimed[place] += 1
        else:
            self._back[place - len(self._stages)] += 1

    def give_back(self, job: int) -> None:
        """The job has ended."""
        self.held -= self._returned[job]
        if self._reserve and self._finishes[job] >= 0:
            self._finished[self._finishes[job]] += 1

    def _to_finish(self, route: int, turn: int) -> int:
        """The most that is held while the microbatch of this turn is finished, all older ones having been: what it has yet to
        claim with its forwards, and what it and the younger ones hold. The routes take turns."""
        total = 0
        for i, stage in enumerate(self._stages):
            if stage.route == route and self._claimed[i] <= turn:
                total += stage.amount
            else:
                older = max(self._finished[i], turn + (stage.route < route))
                total += stage.amount * max(0, self._claimed[i] - older)
        return total

    def _can_go_back(self, limit: int) -> bool:
        """Whether every microbatch has room for its input gradients, the oldest first, each stage by stage from the last one on.

        A stage gives back all that it holds before the one before it takes anything. From one microbatch to the next what is held
        when an input gradient starts only falls, so of each stage the first microbatch that has yet to go back is looked at.
        """
        for i, stage in enumerate(self._stages):
            turn = self._back[i]
            if stage.more and turn < stage.count:
                later = zip(self._stages[i + 1 :], self._finished[i + 1 :], strict=True)
                over = sum(other.amount for other, done in later if other.route == stage.route and done <= turn)
                if self._to_finish(stage.route, turn) - over + stage.more > limit:
                    return False
        return True
