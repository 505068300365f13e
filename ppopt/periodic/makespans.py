"""Repetition: the shortest beginning and end around a period."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ppopt.cpsat.engine import Known
from ppopt.cpsat.neighbourhood import improved
from ppopt.periodic.ends import LARGEST, SECONDS, End, rearranged, reversed_periodic, shortened
from ppopt.periodic.middle import repeated_as
from ppopt.periodic.periodic import Periodic, retimed, schedule_of
from ppopt.periodic.polish import polished
from ppopt.periodic.recurrence import Question, Recurrence, search
from ppopt.periodic.state import OneGraph

_MORE = 5
"""Periods more in a schedule whose neighbourhoods are searched."""
_MIDDLE = (2, 3, 1, 4, 0, 5)
"""How many of these come before the one that is repeated, in the order in which that is tried."""
_LARGE = 6000
"""Operations of a small schedule up to which it is modelled as a whole."""


class Makespans:
    """The questions about the makespan of one graph, where its period is known."""

    def __init__(self, of: OneGraph) -> None:
        self.of = of
        self.coarse = of.graph.rounded(of.grid)
        self.several = of.grid > 1 and of.graph.several_stages
        self.refuted: set[Question] = set()
        self.open = True
        self.stuck, self.rise, self.pace, self.low, self.turn = 0, 0, 0, of.all.lower, 0

    def doubled(self) -> None:
        """Go on with two periods as one."""
        assert self.of.own is not None
        self.of.own = self.of.base = self.of.own.doubled(self.of.all.counts)
        self.low, self.pace, self.stuck = self.of.all.lower, 0, 0

    def rounds(self) -> None:
        """All kinds of questions in turn, for longer and longer, while something is open."""
        patience, self.open = self.of.left / 16, True
        while self.of.own is not None and self.of.base is not None and not self.of.done and self.open:
            self.open = False
            self.ask_all(self.of.base, self.of.all.lower, patience)
            if self.several and not self.of.done:
                self.ask_coarsely(self.of.base, 2 * patience)
            if not self.of.done:
                self.around(self.of.own, 3 * patience)
            if not self.of.done:
                self.halve(self.of.base, patience)
            if not self.of.done:
                self.ends(self.of.own, patience)
            if not self.of.done and self.fits(self.of.own.microbatches):
                self.polish(self.of.own, patience)
            patience *= 2

    def sizes(self, periodic: Periodic) -> Iterator[tuple[int, ...]]:
        """Numbers of microbatches to solve, ascending: all small ones, then with growing steps."""
        step, counts = periodic.step, self.of.all.counts
        most = (min(counts) - step) // step
        least = max(0, most - 3 * max(periodic.microbatches) // step)
        for copies in range(most, least - 1, -1):
            yield tuple(count - copies * step for count in counts)

    def ask_all(self, seed: Periodic, value: int, patience: float) -> Known:
        """Ask for a makespan at all sizes up to one where it is found, or the second where it stays open."""
        tried = 0
        for counts in self.sizes(seed):
            answer = self.ask(seed, counts, value, patience)
            if answer is Known.OPEN:
                tried += 1
                self.open = True
                if value == self.of.all.lower:
                    self.pace = max(self.pace, max(counts))
            if answer is Known.FOUND or tried == 2 or self.of.done:
                return answer if answer is Known.FOUND else Known.OPEN
        return Known.OPEN if tried else Known.NONE

    def ask(self, seed: Periodic, counts: tuple[int, ...], value: int, patience: float) -> Known:
        """Whether there is a schedule with a makespan of ``value`` of all microbatches, at this size."""
        if not self.fits(counts):
            self.open = True
            return Known.OPEN
        copies = (self.of.all.counts[0] - counts[0]) // seed.step
        question = Question(counts, value - copies * seed.period, seed.period, seed.step)
        model = None if question in self.refuted else Recurrence(self.of.graph, question)
        if model is None or not model.possible:
            self.refuted.add(question)
            return Known.NONE
        with self.of.all.step(self._text(seed, counts, value)) as answer:
            found, sure = search(model, self.of.limits, patience)
            if found is not None:
                answer.append(self.of.keep(found))
                return Known.FOUND
            answer.append("there is none" if sure else "open")
            if sure:
                self.refuted.add(question)
        return Known.NONE if sure else Known.OPEN

    def ask_coarsely(self, seed: Periodic, patience: float) -> None:
        """On the coarser grid, with slack for what it leaves out, a makespan near the bound; its order with the true times."""
        period = max(seed.step * max(self.coarse.work_per_microbatch), seed.period // self.of.grid)
        clock = self.of.limits.clock.slice(patience)
        for counts in self.sizes(seed):
            if max(counts) < self.pace:
                continue
            if not self.fits(counts):
                break
            copies = (self.of.all.counts[0] - counts[0]) // seed.step
            turns = counts[0] // seed.step
            idle = max(0, self.of.all.lower - (copies + turns) * seed.period)
            while not self.of.done and not clock.over:
                makespan = turns * period + -(-idle // self.of.grid) + self.rise
                model = Recurrence(self.coarse, Question(counts, makespan, period, seed.step), slack=1)
                if not model.possible:
                    break
                with self.of.all.step(
                    f"coarse: {_text(counts)} microbatches in {makespan} steps of {self.of.grid} ticks"
                ) as answer:
                    found, sure = search(model, self.of.limits, patience / 2)
                    if found is not None:
                        self.pace = max(counts) + seed.step
                        timed = retimed(found, self.of.graph, seed.period)
                        answer.append("too slow with the true times" if timed is None else self.of.keep(timed))
                        return
                    answer.append("there is none" if sure else "open")
                    self.rise += 1
                    self.open = True

    def halve(self, seed: Periodic, patience: float) -> None:
        """Bisection between what is refuted at all sizes and the best; what stays open is left aside, in ever larger parts."""
        value = seed.makespan_for(self.of.all.counts)
        best = self.of.all.value if value is None or self.of.all.value is None else min(value, self.of.all.value)
        low, aside, left = self.low, 2, None
        while best is not None and low < best and aside < 200 and not self.of.done:
            middle = best - max(1, (best - low) // aside)
            if middle == left:
                break
            found = self.ask_all(seed, middle, patience / 2)
            if found is Known.OPEN:
                left = middle
                aside *= 4
            elif found is Known.FOUND:
                best = min(best, self.of.all.value or best)
            else:
                low = middle + 1
                self.low = max(self.low, low)

    def fits(self, counts: Sequence[int]) -> bool:
        """Whether a schedule of ``counts`` microbatches is small enough to be modelled as a whole."""
        return sum(counts[family.route] for family in self.of.graph.families) <= _LARGE

    def ends(self, seed: Periodic, seconds: float) -> None:
        """Shorten the end and the beginning, each by list scheduling, then by CP-SAT, while one of them gets shorter."""
        clock = self.of.limits.clock.slice(seconds)
        turned, turn = self.of.turned, self.turn
        with self.of.all.step(f"ends of {_text(seed.microbatches)} microbatches") as answer:
            unchanged = 0
            while unchanged < 2 and not clock.over and not self.of.done:
                value = seed.makespan
                found = reversed_periodic(seed, turned) if turn % 2 else seed
                found = self.end(found, clock.left / 4)
                seed = reversed_periodic(found, self.of.graph) if turn % 2 else found
                turn += 1
                unchanged = 0 if seed.makespan < value else unchanged + 1
            self.turn = turn + 1
            answer.append(self.of.keep(seed))

    def end(self, seed: Periodic, seconds: float) -> Periodic:
        """A shorter end, if one is found."""
        size = End(seed).size
        trials = max(4, int(seconds / 2 / (SECONDS * max(1, size))))
        found = rearranged(seed, trials=trials, chance=self.of.chance)
        self.of.limits.clock.charge(trials * size * SECONDS)
        if size <= LARGEST:
            reach = max(1, *self.of.graph.duration) * (2 + self.of.chance.randrange(4))
            found, _ = shortened(found, self.of.limits, reach=reach, seconds=seconds / 2)
        return found

    def polish(self, seed: Periodic, patience: float) -> None:
        """Move operations around where they are."""
        reach = max(1, *self.of.graph.duration) * (1 + self.stuck % 4)
        with self.of.all.step(f"polish {seed.microbatches} microbatches, {self.of.all.pipeline.time(reach)} around") as answer:
            found, sure = polished(seed, self.of.limits, reach=reach, seconds=patience)
            self.open |= not sure or found.makespan < seed.makespan
            self.stuck += found.makespan == seed.makespan
            answer.append(self.of.keep(found))

    def around(self, seed: Periodic, patience: float) -> None:
        """Search neighbourhoods of a schedule with a few periods more, where the middle is at full speed and stays as it is."""
        few, fastest = seed.microbatches[0] + _MORE * seed.step, seed.step * max(self.of.graph.work_per_microbatch)
        if len(self.of.all.counts) > 1 or few > self.of.all.counts[0] or seed.period > fastest:
            return
        copies = (self.of.all.counts[0] - few) // seed.step
        with self.of.all.step(f"neighbourhoods in {few} microbatches") as answer:
            small = schedule_of(self.of.all.pipeline.changed(microbatches=few), seed)
            lower = max(0, self.of.all.lower - copies * seed.period)
            outcome = improved(small, objective="makespan", lower=lower, limits=self.of.limits.slice(patience))
            self.open |= outcome.schedule is not None
            ways = (repeated_as(outcome.schedule or small, seed, more) for more in _MIDDLE)
            found = next(filter(None, ways), None)
            answer.append("nothing that repeats" if found is None else self.of.keep(found))

    def _text(self, seed: Periodic, counts: tuple[int, ...], value: int) -> str:
        time = self.of.all.pipeline.time
        return f"{seed.step} per {time(seed.period)}: {_text(counts)} microbatches for a makespan of {time(value)}"


def _text(counts: Sequence[int]) -> str:
    return "+".join(map(str, counts))
