"""Repetition: the order in which it asks its questions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule
from ppopt.solvers.neighbourhood import improved
from ppopt.solvers.outcome import Limits, Outcome
from ppopt.solvers.repetition.budget import Budget
from ppopt.solvers.repetition.ends import (
    LARGEST,
    SECONDS,
    End,
    rearranged,
    reversed_pattern,
    reversed_periodic,
    shortened,
)
from ppopt.solvers.repetition.middle import periodic_in, repeated_as
from ppopt.solvers.repetition.modulo import Rotation, least_period, rotation
from ppopt.solvers.repetition.pattern import Pattern, counts_of, patterns_of
from ppopt.solvers.repetition.periodic import Periodic, retimed, schedule_of
from ppopt.solvers.repetition.placing import quickened, rotations
from ppopt.solvers.repetition.polish import polished
from ppopt.solvers.repetition.recurrence import Question, Recurrence, search

_STEPS = 4
"""Most microbatches per period that are tried."""
_SEEDS = 8
"""Seeds with which periods are sought by placing operations: the first one, and the others where a search goes on."""
_FEW = 8
"""Variations of the ends by which periods of the same length are compared."""
_TRIAL = 0.02
"""Deterministic seconds for placing the operations of a period; about what it takes."""
_SHARE = 0.7
"""Of the time, for the period."""
_REACH = 2
"""Turns by which operations may come nearer or go away from each other, around a rotation."""
_MODELLED = 800
"""Operations of several microbatches up to which their period is modelled."""
_NEAR = 20
"""Part of a period by which another one is near."""
_PARTS = (50, 1000, 10**9)
"""Parts of a period by which a smaller one is sought, one after the other."""
_MORE = 5
"""Periods more in a schedule whose neighbourhoods are searched."""
_MIDDLE = (2, 3, 1, 4, 0, 5)
"""How many of these come before the one that is repeated, in the order in which that is tried."""
_LONGEST = 12
"""Most microbatches per period, once no better time per microbatch is found."""
_LARGE = 6000
"""Operations of a small schedule up to which it is modelled as a whole."""
_FINE = 8
"""With shortest operations of more ticks than this, orders are sought on a coarser grid too."""


@dataclass(frozen=True)
class Step:
    """What was asked, what came of it, and how long it took."""

    question: str
    answer: str
    seconds: float


@dataclass(frozen=True)
class Repeated(Outcome):
    """``periodic``: what the schedule is an expansion of, or the best that was found where none is; ``lower_bound`` is the given
    one. ``base``: of the shortest period that with the fewest microbatches."""

    periodic: Periodic | None = None
    base: Periodic | None = None
    steps: tuple[Step, ...] = ()


Progress = Callable[[int | None, int], None]


def solve(
    pipeline: Pipeline,
    *,
    lower_bound: int,
    limits: Limits,
    upper: int | None = None,
    start: Periodic | None = None,
    base: Periodic | None = None,
    like: Schedule | None = None,
    progress: Progress | None = None,
) -> Repeated:
    """The best periodic schedule found for the makespan, expanded to the pipeline's microbatches; none at or above ``upper``.

    Data-parallel traffic does not count here. ``lower_bound`` is a proved one for that, in ticks; the search is over when it is
    met. The time of the search does not depend on the number of microbatches; that of the expansion does. ``start`` and ``base``
    are what an earlier search of this pipeline has found; ``like`` is a schedule of it, with any number of microbatches, whose
    middle may repeat.
    """
    search_ = _Search(pipeline, lower_bound, limits, upper, (start, base), like, progress)
    try:
        search_.run()
    except KeyboardInterrupt:  # what was found is kept
        search_.budget.interrupted = True
    best = search_.best
    schedule = None if best is None else schedule_of(pipeline, best)
    if (
        schedule is not None and not schedule.within_memory
    ):  # operations that take no time may tie with each other in another order
        schedule = search_.known = None
    budget = search_.budget
    known = search_.known, search_.base
    return Repeated(schedule, lower_bound, budget.spent, budget.interrupted, *known, tuple(search_.steps))


class _Search:
    def __init__(
        self,
        pipeline: Pipeline,
        lower: int,
        limits: Limits,
        upper: int | None,
        start: tuple[Periodic | None, Periodic | None],
        like: Schedule | None,
        progress: Progress | None,
    ) -> None:
        self.pipeline, self.lower, self.start, self.like, self.progress = pipeline, lower, start, like, progress
        self.counts = counts_of(pipeline)
        self.budget = Budget(limits)
        self.best: Periodic | None = None
        self.known: Periodic | None = None
        self.base: Periodic | None = None
        self.value = upper
        self.steps: list[Step] = []

    def run(self) -> None:
        """Until the bound is met or the time is over."""
        if min(self.counts) == 0:
            return
        patterns = patterns_of(self.pipeline)
        for place, pattern in enumerate(patterns):
            if self.done:
                return
            _OnePattern(self, pattern, self.budget.left / (len(patterns) - place)).run()

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do, or no time."""
        met = self.value is not None and self.value <= self.lower
        gap = self.value is not None and self.value - self.lower <= self.budget.limits.gap * self.value
        return met or gap or self.budget.left <= 0

    def know(self, periodic: Periodic, base: Periodic | None, shown: dict[int, int]) -> None:
        """Note a pattern's best, if it is better than that of another one, and what is shown of the pattern's periods."""
        value, known = (None if p is None else p.makespan_for(self.counts) for p in (periodic, self.known))
        if self.known is None or (value is not None and (known is None or value < known)):
            self.known, self.base = replace(periodic, shown=tuple(shown.items())), base

    def keep(self, periodic: Periodic) -> str:
        """Take it as the best if it is; and what to say of it."""
        value = periodic.makespan_for(self.counts)
        if value is None:
            return "found, for other numbers of microbatches"
        if self.value is None or value < self.value:
            self.best, self.value = periodic, value
            if self.progress is not None:
                self.progress(value, self.lower)
        return f"makespan {self.pipeline.time(value)}"

    @contextmanager
    def step(self, question: str) -> Iterator[list[str]]:
        """Note a step; its answer is what is put in the list."""
        begun, answer = time.monotonic(), list[str]()
        yield answer
        self.steps.append(Step(question, ", ".join(answer), time.monotonic() - begun))


class _OnePattern:
    """The questions about one pattern, within ``seconds``."""

    def __init__(self, search_: _Search, pattern: Pattern, seconds: float) -> None:
        self.all, self.pattern, self.budget = search_, pattern, search_.budget
        self.until = self.budget.left - seconds
        shortest = min((time for time in pattern.duration if time), default=1)
        self.grid = shortest if shortest > _FINE else 1
        self.coarse = pattern.coarse(self.grid)
        self.several = self.grid > 1 and pattern.several
        self.refuted: set[Question] = set()
        self.open = True
        self.own, self.base = (one if one is not None and one.pattern == pattern else None for one in search_.start)
        """The best, and of the shortest period that with the fewest microbatches: questions about it are the easiest."""
        self.rotations: dict[int, Rotation] = {}
        """Per number of microbatches the one with the shortest period."""
        self.shown = dict(self.own.shown) if self.own is not None else {}
        self.shortest = dict(self.shown)
        """Per number of microbatches the shortest period that is left to ask for."""
        self.chance, self.turn = random.Random(self.budget.limits.seed), 0
        self.turned = reversed_pattern(pattern)
        self.stuck, self.rise, self.pace, self.low = 0, 0, 0, search_.lower

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.budget.left - self.until)

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do, or no time."""
        return self.all.done or self.left <= 0

    def run(self) -> None:
        """First the period, then the beginning and the end; where these leave nothing open, with a longer period."""
        if self.own is not None and self.own.makespan_for(self.all.counts) is None:  # of another remainder
            self.own = Rotation.of(self.own).begun(self.all.counts)
        if self.own is not None:
            self.keep(self.own)
        tried = self.base
        if self.all.like is not None:
            self.look(self.all.like)
        self.own = self.fastest()
        if self.base is not None and self.base is not tried and not self.done:
            self.fewer(self.base)
        base = self.base
        if self.own is not None and not self.done:
            self.ends(self.own, self.left / 16)
        known = self.own
        while self.own is not None and not self.done:
            value = self.own.makespan_for(self.all.counts)
            self.rounds()
            known = self.own if self.own.makespan_for(self.all.counts) != value else known
            base = self.base if base is None or self.base is None or self.base.step <= base.step else base
            if 2 * self.own.step > _LONGEST:
                break
            self.own = self.base = self.own.doubled(self.all.counts)
            self.low, self.pace, self.stuck = self.all.lower, 0, 0
        if known is not None:
            self.all.know(known, base, self.shown)

    def rounds(self) -> None:
        """All kinds of questions in turn, for longer and longer, while something is open."""
        patience, self.open = self.left / 16, True
        while self.own is not None and self.base is not None and not self.done and self.open:
            self.open = False
            self.ask_all(self.base, self.all.lower, patience)
            if self.several and not self.done:
                self.ask_coarsely(self.base, 2 * patience)
            if not self.done:
                self.around(self.own, 3 * patience)
            if not self.done:
                self.halve(self.base, patience)
            if not self.done:
                self.ends(self.own, patience)
            if not self.done and self.fits(self.own.microbatches):
                self.polish(self.own, patience)
            patience *= 2

    def keep(self, periodic: Periodic) -> str:
        """Take it as this pattern's best if it is, and as the best of all if it is that; and what to say of it."""
        value, own = (None if p is None else p.makespan_for(self.all.counts) for p in (periodic, self.own))
        if own is None or (value is not None and value < own):
            self.own = periodic
        pace = (Fraction(periodic.period, periodic.step), periodic.step)
        if self.base is None or pace < (Fraction(self.base.period, self.base.step), self.base.step):
            self.base = periodic
        return self.all.keep(periodic)

    # --- the period ---

    def look(self, schedule: Schedule) -> None:
        """Begin with what a schedule repeats in its middle, if that is better than what there is."""
        with self.all.step("the middle of the best schedule") as answer:
            found = periodic_in(schedule, self.pattern)
            if found is not None:
                self.rotations[found.step] = rotation_ = Rotation.of(found)
                if found.makespan_for(self.all.counts) is None:  # of another remainder
                    found = rotation_.begun(self.all.counts)
                answer += [f"{found.step} microbatches per {self.all.pipeline.time(found.period)}", self.keep(found)]
            else:
                answer.append("does not repeat")

    def fastest(self) -> Periodic | None:
        """The least time per microbatch that is found, of ``_STEPS`` microbatches per period at most, for ``_SHARE`` of the time.

        Operations are placed for one microbatch first; then a model is asked for less, first roughly for all numbers of
        microbatches. No less than the bound leaves room for is looked for.
        """
        steps = range(1, min(_STEPS, *self.all.counts) + 1) if any(self.pattern.work) else ()
        best, until = self.own, self.until
        self.until = self.budget.left - _SHARE * self.left
        if best is not None:
            self.rotations[best.step] = Rotation.of(best)
        if self.all.start[0] is None:
            placed = self.placed(steps[:1], None, self.left / 4)
            if placed is not None and (best is None or placed.period * best.step <= best.period * placed.step):
                best = placed
        for parts, step in product(_PARTS, steps):
            if not self.done and (step == 1 or step * len(self.pattern.families) <= _MODELLED):
                best = self.modelled(step, best, parts)
        best = self.placed(steps, best, self.left)
        self.until = until
        return best

    def modelled(self, step: int, best: Periodic | None, parts: int) -> Periodic | None:
        """A smaller period of ``step`` microbatches than the ``best`` one's, up to that part of it; or the best."""
        enough = Fraction(self.all.lower, min(self.all.counts))
        low = self.shortest.setdefault(step, least_period(self.pattern, step))
        high = None if best is None else -(-best.period * step // best.step)
        if high is not None and (low >= high - high // parts or high <= enough * step):
            return best
        with self.all.step(f"a period of {step} microbatches") as answer:
            found = self.least(step, low, high, parts)
            answer.append("no better one" if found is None else f"{self.all.pipeline.time(found.period)}")
            if found is not None:
                best = self.trimmed(found.begun(self.all.counts), _FEW)
                answer.append(self.keep(best))
        return best

    def least(self, step: int, low: int, high: int | None, parts: int) -> Rotation | None:
        """A rotation with the smallest period in ``low..high - 1`` that is found, up to that part of it.

        By bisection, nearer to ``high`` than to ``low``: it takes little time to find the next one around the last. If both are
        near, or without ``high``, first with ``low`` itself; then with the first for which there is one, in growing steps.
        """
        best, rise, period = None, max(1, self.grid // 2), low
        if high is not None and (high - low) * _NEAR > high:
            period = (low + 2 * high) // 3
        while (high is None or low < high - high // parts) and not self.done:
            found, sure = self.rotated(period, step)
            if found is not None:
                best, high = found, found.period
            else:
                self.shortest[step] = low = period + 1
                rise *= 2
                if sure:
                    self.shown[step] = low
            period = low + rise if high is None else (low + 2 * high) // 3
        return best

    def rotated(self, period: int, step: int) -> tuple[Rotation | None, bool]:
        """A rotation with no longer a period, around the best one that there is, then anywhere; and whether that is certain."""
        known = [found for found in self.rotations.values() if step % found.step == 0]
        best = min(known, key=lambda found: Fraction(found.period, found.step), default=None)
        near = None if best is None else best.unrolled(step // best.step)
        sure = False
        for reach in (None,) if near is None else (_REACH, None):
            patience = self.patience / (1 if reach is None else 2)
            found, sure = rotation(self.pattern, period, step, self.budget, patience, near, reach)
            if found is not None:
                self.rotations[step] = found = quickened(found, self.pattern) or found
                return found, True
        return None, sure

    def placed(self, steps: Iterable[int], best: Periodic | None, seconds: float) -> Periodic | None:
        """The least time per microbatch by placing operations singly, or the ``best``; of several that with the best end.

        Where there is one, with other seeds.
        """
        until, self.until = self.until, self.budget.left - seconds
        value = None if best is None else (Fraction(best.period, best.step), 0)
        seeds = range(1) if best is None else range(1, _SEEDS)
        for seed, step in product(seeds, steps):
            if self.done or (value is not None and value[0] <= Fraction(least_period(self.pattern, step), step)):
                continue
            with self.all.step(f"placing {step} microbatches") as answer:
                for found in rotations(self.pattern, step, seed=self.budget.limits.seed + seed):
                    self.budget.charge(_TRIAL)
                    if self.done:
                        break
                    time = None if found is None else Fraction(found.period, step)
                    if found is None or time is None or (value is not None and time > value[0]):
                        continue
                    begun = self.trimmed(found.begun(self.all.counts), _FEW)
                    constant = begun.makespan - begun.microbatches[0] // step * begun.period
                    if value is None or best is None or time < value[0] or (step == best.step and constant < value[1]):
                        best, value = begun, (time, constant)
                        self.rotations[step] = found
                        answer[:] = [f"{self.all.pipeline.time(found.period)}", self.keep(begun)]
                if not answer:
                    answer.append("no better one")
        self.until = until
        return best

    def fewer(self, base: Periodic) -> None:
        """The same time per microbatch with fewer microbatches per period, if that is found."""
        for step in (step for step in range(1, base.step) if base.period * step % base.step == 0):
            with self.all.step(f"a period of {step} microbatches, as fast") as answer:
                period = base.period * step // base.step
                seeds = range(self.budget.limits.seed, self.budget.limits.seed + _SEEDS)
                some = (next(rotations(self.pattern, step, seed=seed), None) for seed in seeds)
                placed = next((one for one in some if one is not None and one.period <= period), None)
                self.budget.charge(_SEEDS * _TRIAL)
                if placed is None:
                    placed, _ = self.rotated(period, step)
                answer.append("none found" if placed is None else self.keep(placed.begun(self.all.counts)))
            if placed is not None or self.done:
                break

    @property
    def patience(self) -> float:
        """Seconds for a question about a period."""
        return min(5.0, self.left / 8)

    # --- beginning and end ---

    def sizes(self, periodic: Periodic) -> Iterator[tuple[int, ...]]:
        """Numbers of microbatches to solve, ascending: all small ones, then with growing steps."""
        step, counts = periodic.step, self.all.counts
        most = (min(counts) - step) // step
        least = max(0, most - 3 * max(periodic.microbatches) // step)
        for copies in range(most, least - 1, -1):
            yield tuple(count - copies * step for count in counts)

    def ask_all(self, seed: Periodic, value: int, patience: float) -> bool | None:
        """Ask for a makespan at all sizes up to one where it is found, or the second where it stays open.

        Whether it is found; ``None``: open.
        """
        tried = 0
        for counts in self.sizes(seed):
            answer = self.ask(seed, counts, value, patience)
            if answer is None:
                tried += 1
                self.open = True
                if value == self.all.lower:
                    self.pace = max(self.pace, max(counts))
            if answer or tried == 2 or self.done:
                return True if answer else None
        return None if tried else False

    def ask(self, seed: Periodic, counts: tuple[int, ...], value: int, patience: float) -> bool | None:
        """Whether there is a schedule with a makespan of ``value`` of all microbatches, at this size; ``None``: it stays open."""
        if not self.fits(counts):
            self.open = True
            return None
        copies = (self.all.counts[0] - counts[0]) // seed.step
        question = Question(counts, value - copies * seed.period, seed.period, seed.step)
        model = None if question in self.refuted else Recurrence(self.pattern, question)
        if model is None or not model.possible:
            self.refuted.add(question)
            return False
        with self.all.step(self._text(seed, counts, value)) as answer:
            found, sure = search(model, self.budget, min(patience, self.left))
            if found is not None:
                answer.append(self.keep(found))
                return True
            answer.append("there is none" if sure else "open")
            if sure:
                self.refuted.add(question)
                return False
        return None

    def ask_coarsely(self, seed: Periodic, patience: float) -> None:
        """On the coarser grid, with slack for what it leaves out, a makespan near the bound; its order with the true times."""
        period = max(seed.step * max(self.coarse.work), seed.period // self.grid)
        until = self.budget.left - patience
        for counts in self.sizes(seed):
            if max(counts) < self.pace:
                continue
            if not self.fits(counts):
                break
            copies = (self.all.counts[0] - counts[0]) // seed.step
            turns = counts[0] // seed.step
            idle = max(0, self.all.lower - (copies + turns) * seed.period)
            while not self.done and self.budget.left > until:
                makespan = turns * period + -(-idle // self.grid) + self.rise
                model = Recurrence(self.coarse, Question(counts, makespan, period, seed.step), slack=1)
                if not model.possible:
                    break
                with self.all.step(f"coarse: {_text(counts)} microbatches in {makespan} steps of {self.grid} ticks") as answer:
                    found, sure = search(model, self.budget, patience / 2)
                    if found is not None:
                        self.pace = max(counts) + seed.step
                        timed = retimed(found, self.pattern, seed.period)
                        answer.append("too slow with the true times" if timed is None else self.keep(timed))
                        return
                    answer.append("there is none" if sure else "open")
                    self.rise += 1
                    self.open = True

    def halve(self, seed: Periodic, patience: float) -> None:
        """Bisection between what is refuted at all sizes and the best; what stays open is left aside, in ever larger parts."""
        value = seed.makespan_for(self.all.counts)
        best = self.all.value if value is None or self.all.value is None else min(value, self.all.value)
        low, aside, left = self.low, 2, None
        while best is not None and low < best and aside < 200 and not self.done:
            middle = best - max(1, (best - low) // aside)
            if middle == left:
                break
            found = self.ask_all(seed, middle, patience / 2)
            if found is None:
                left = middle
                aside *= 4
            elif found:
                best = min(best, self.all.value or best)
            else:
                low = middle + 1
                self.low = max(self.low, low)

    def fits(self, counts: Sequence[int]) -> bool:
        """Whether a schedule of so many microbatches is small enough to be modelled as a whole."""
        return sum(counts[family.route] for family in self.pattern.families) <= _LARGE

    def ends(self, seed: Periodic, seconds: float) -> None:
        """Shorten the end and the beginning, each by list scheduling, then by CP-SAT, while one of them gets shorter."""
        until = self.budget.left - seconds
        turned, turn = self.turned, self.turn
        with self.all.step(f"ends of {_text(seed.microbatches)} microbatches") as answer:
            unchanged = 0
            while unchanged < 2 and self.budget.left > until and not self.done:
                value = seed.makespan
                found = reversed_periodic(seed, turned) if turn % 2 else seed
                found = self.end(found, max(0.0, self.budget.left - until) / 4)
                seed = reversed_periodic(found, self.pattern) if turn % 2 else found
                turn += 1
                unchanged = 0 if seed.makespan < value else unchanged + 1
            self.turn = turn + 1
            answer.append(self.keep(seed))

    def trimmed(self, seed: Periodic, trials: int) -> Periodic:
        """End and beginning by list scheduling alone."""
        end = rearranged(seed, trials=trials, chance=self.chance)
        begin = rearranged(reversed_periodic(end, self.turned), trials=trials, chance=self.chance)
        self.budget.charge(2 * trials * sum(map(len, seed.start)) * SECONDS)
        return reversed_periodic(begin, self.pattern)

    def end(self, seed: Periodic, seconds: float) -> Periodic:
        """A shorter end, if one is found."""
        size = End(seed).size
        trials = max(4, int(seconds / 2 / (SECONDS * max(1, size))))
        found = rearranged(seed, trials=trials, chance=self.chance)
        self.budget.charge(trials * size * SECONDS)
        if size <= LARGEST:
            reach = max(1, *self.pattern.duration) * (2 + self.chance.randrange(4))
            found, _ = shortened(found, self.budget, reach=reach, seconds=min(seconds / 2, self.left))
        return found

    def polish(self, seed: Periodic, patience: float) -> None:
        """Move operations around where they are."""
        reach = max(1, *self.pattern.duration) * (1 + self.stuck % 4)
        with self.all.step(f"polish {seed.microbatches} microbatches, {self.all.pipeline.time(reach)} around") as answer:
            found, sure = polished(seed, self.budget, reach=reach, seconds=min(patience, self.left))
            self.open |= not sure or found.makespan < seed.makespan
            self.stuck += found.makespan == seed.makespan
            answer.append(self.keep(found))

    def around(self, seed: Periodic, patience: float) -> None:
        """Search neighbourhoods of a schedule with a few periods more, where the middle is at full speed and stays as it is."""
        few = seed.microbatches[0] + _MORE * seed.step
        if len(self.all.counts) > 1 or few > self.all.counts[0] or seed.period > seed.step * max(self.pattern.work):
            return
        copies = (self.all.counts[0] - few) // seed.step
        with self.all.step(f"neighbourhoods in {few} microbatches") as answer:
            small = schedule_of(self.all.pipeline.changed(microbatches=few), seed)
            lower = max(0, self.all.lower - copies * seed.period)
            limits = replace(self.budget.limits, seconds=min(patience, self.left))
            outcome = improved(small, objective="makespan", lower=lower, limits=limits)
            self.budget.charge(outcome.spent)
            self.budget.interrupted |= outcome.interrupted
            self.open |= outcome.schedule is not None
            ways = (repeated_as(outcome.schedule or small, seed, more) for more in _MIDDLE)
            found = next(filter(None, ways), None)
            answer.append("nothing that repeats" if found is None else self.keep(found))

    def _text(self, seed: Periodic, counts: tuple[int, ...], value: int) -> str:
        time = self.all.pipeline.time
        return f"{seed.step} per {time(seed.period)}: {_text(counts)} microbatches for a makespan of {time(value)}"


def _text(counts: Sequence[int]) -> str:
    return "+".join(map(str, counts))
