"""Repetition: the least time per microbatch."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import product

from ppopt.periodic.middle import periodic_in
from ppopt.periodic.modulo import Rotation, least_period, rotation
from ppopt.periodic.periodic import Periodic
from ppopt.periodic.placing import quickened, rotations
from ppopt.periodic.state import OneGraph
from ppopt.schedule import Schedule

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


class Periods:
    """The questions about the period of one graph."""

    def __init__(self, of: OneGraph) -> None:
        self.of = of
        self.rotations: dict[int, Rotation] = {}
        """Per number of microbatches the one with the shortest period."""
        self.shown = dict(of.own.shown) if of.own is not None else {}
        self.shortest = dict(self.shown)
        """Per number of microbatches the shortest period that is left to ask for."""

    def look(self, schedule: Schedule) -> None:
        """Begin with what a schedule repeats in its middle, if that is better than what there is."""
        with self.of.all.step("the middle of the best schedule") as answer:
            found = periodic_in(schedule, self.of.graph)
            if found is not None:
                self.rotations[found.step] = rotation_ = Rotation.of(found)
                if found.makespan_for(self.of.all.counts) is None:  # of another remainder
                    found = rotation_.begun(self.of.all.counts)
                answer += [f"{found.step} microbatches per {self.of.all.pipeline.time(found.period)}", self.of.keep(found)]
            else:
                answer.append("does not repeat")

    def fastest(self) -> Periodic | None:
        """The least time per microbatch that is found, of ``_STEPS`` microbatches per period at most, for ``_SHARE`` of the time.

        Operations are placed for one microbatch first; then a model is asked for less, first roughly for all numbers of
        microbatches. No less than the bound leaves room for is looked for.
        """
        steps = range(1, min(_STEPS, *self.of.all.counts) + 1) if any(self.of.graph.work_per_microbatch) else ()
        best = self.of.own
        with self.of.within(_SHARE * self.of.left):
            if best is not None:
                self.rotations[best.step] = Rotation.of(best)
            if self.of.all.start[0] is None:
                placed = self.placed(steps[:1], None, self.of.left / 4)
                if placed is not None and (best is None or placed.period * best.step <= best.period * placed.step):
                    best = placed
            for parts, step in product(_PARTS, steps):
                if not self.of.done and (step == 1 or step * len(self.of.graph.families) <= _MODELLED):
                    best = self.modelled(step, best, parts)
            return self.placed(steps, best, self.of.left)

    def modelled(self, step: int, best: Periodic | None, parts: int) -> Periodic | None:
        """A smaller period of ``step`` microbatches than the ``best`` one's, up to that part of it; or the best."""
        enough = Fraction(self.of.all.lower, min(self.of.all.counts))
        low = self.shortest.setdefault(step, least_period(self.of.graph, step))
        high = None if best is None else -(-best.period * step // best.step)
        if high is not None and (low >= high - high // parts or high <= enough * step):
            return best
        with self.of.all.step(f"a period of {step} microbatches") as answer:
            found = self.least(step, low, high, parts)
            answer.append("no better one" if found is None else f"{self.of.all.pipeline.time(found.period)}")
            if found is not None:
                best = self.of.trimmed(found.begun(self.of.all.counts), _FEW)
                answer.append(self.of.keep(best))
        return best

    def least(self, step: int, low: int, high: int | None, parts: int) -> Rotation | None:
        """A rotation with the smallest period in ``low..high - 1`` that is found, up to that part of it.

        By bisection, nearer to ``high`` than to ``low``: it takes little time to find the next one around the last. If both are
        near, or without ``high``, first with ``low`` itself; then with the first for which there is one, in growing steps.
        """
        best, rise, period = None, max(1, self.of.grid // 2), low
        if high is not None and (high - low) * _NEAR > high:
            period = (low + 2 * high) // 3
        while (high is None or low < high - high // parts) and not self.of.done:
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
            found, sure = rotation(self.of.graph, period, step, self.of.limits, patience, near, reach)
            if found is not None:
                self.rotations[step] = found = quickened(found, self.of.graph) or found
                return found, True
        return None, sure

    def placed(self, steps: Iterable[int], best: Periodic | None, seconds: float) -> Periodic | None:
        """The least time per microbatch by placing operations singly, or the ``best``; of several that with the best end.

        Where there is one, with other seeds.
        """
        value = None if best is None else (Fraction(best.period, best.step), 0)
        seeds = range(1) if best is None else range(1, _SEEDS)
        with self.of.within(seconds):
            for seed, step in product(seeds, steps):
                if self.of.done or (value is not None and value[0] <= Fraction(least_period(self.of.graph, step), step)):
                    continue
                with self.of.all.step(f"placing {step} microbatches") as answer:
                    best, value = self._placed(step, seed, best, value, answer)
        return best

    def _placed(
        self, step: int, seed: int, best: Periodic | None, value: tuple[Fraction, int] | None, answer: list[str]
    ) -> tuple[Periodic | None, tuple[Fraction, int] | None]:
        """The best with one seed, and its value: the time per microbatch, then what beginning and end take."""
        for found in rotations(self.of.graph, step, seed=self.of.limits.seed + seed):
            self.of.limits.clock.charge(_TRIAL)
            if self.of.done:
                break
            time = None if found is None else Fraction(found.period, step)
            if found is None or time is None or (value is not None and time > value[0]):
                continue
            begun = self.of.trimmed(found.begun(self.of.all.counts), _FEW)
            constant = begun.makespan - begun.microbatches[0] // step * begun.period
            if value is None or best is None or time < value[0] or (step == best.step and constant < value[1]):
                best, value = begun, (time, constant)
                self.rotations[step] = found
                answer[:] = [f"{self.of.all.pipeline.time(found.period)}", self.of.keep(begun)]
        if not answer:
            answer.append("no better one")
        return best, value

    def fewer(self, base: Periodic) -> None:
        """The same time per microbatch with fewer microbatches per period, if that is found."""
        for step in (step for step in range(1, base.step) if base.period * step % base.step == 0):
            with self.of.all.step(f"a period of {step} microbatches, as fast") as answer:
                period = base.period * step // base.step
                seeds = range(self.of.limits.seed, self.of.limits.seed + _SEEDS)
                some = (next(rotations(self.of.graph, step, seed=seed), None) for seed in seeds)
                placed = next((one for one in some if one is not None and one.period <= period), None)
                self.of.limits.clock.charge(_SEEDS * _TRIAL)
                if placed is None:
                    placed, _ = self.rotated(period, step)
                answer.append("none found" if placed is None else self.of.keep(placed.begun(self.of.all.counts)))
            if placed is not None or self.of.done:
                break

    @property
    def patience(self) -> float:
        """Seconds for a question about a period."""
        return min(5.0, self.of.left / 8)
