"""Modulo scheduling: the least time per microbatch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import product, takewhile

from ppopt.periodic.graph_search import GraphSearch
from ppopt.periodic.kernel import Kernel, least_period
from ppopt.periodic.kernel_in_schedule import kernel_in
from ppopt.periodic.kernel_model import find_kernel
from ppopt.periodic.kernel_neighbourhoods import Improving, improve
from ppopt.periodic.kernel_placing import placed_kernels, with_least_period
from ppopt.periodic.periodic_schedule import PeriodicSchedule
from ppopt.schedule import Schedule

Value = tuple[Fraction, int]
"""The time per microbatch, then what prologue and epilogue take beside whole periods."""

IMPROVING = 0.8
"""Share of the period's time that kernels may be made better in neighbourhoods. Measured on a loop of two chunks on 8 devices
within half of 1F1B's memory: with half, behind questions for whole kernels, a minute leads to 650 per microbatch, so to 634."""
FIRST_TURN = 1.0
"""Seconds for the neighbourhoods of a kernel at first, then twice as many and so on. Measured: with half of it the larger kernels
of 8 devices get their first turn with as little time as their placing takes, and are made better 10 s later."""


class PeriodSearch:
    """The questions about the period of one graph."""

    def __init__(self, search: GraphSearch) -> None:
        self.search, self.shared, self.tuning, self.progressed = search, search.shared, search.tuning, search.progressed
        self.kernels: dict[int, Kernel] = {}
        """Per unroll factor the kernel with the shortest period."""
        for unroll, improving in self.progressed.improving.items():
            self.kernels[unroll] = improving.kernel
        self.period_bounds = dict(search.best.period_bounds) if search.best is not None else {}
        """Per unroll factor what the period is proved to be at least."""
        self.next_period = dict(self.period_bounds)
        """Per unroll factor the shortest period that is left to ask for."""

    def take_kernel_of(self, schedule: Schedule) -> None:
        """Begin with the kernel of a schedule, if that is better than what there is."""
        counts = self.shared.counts
        with self.shared.asking("the kernel of the best schedule") as answer:
            found = kernel_in(schedule, self.search.graph, self.tuning)
            if found is not None:
                self.kernels[found.unroll] = kernel = Kernel.of(found)
                if found.makespan_for(counts) is None:  # of another remainder
                    found = kernel.with_ends(counts)
                time = self.shared.pipeline.time(found.period)
                answer += [f"{found.unroll} microbatches per {time}", self.search.offer(found)]
            else:
                answer.append("it has none")

    def fastest(self) -> PeriodicSchedule | None:
        """The least time per microbatch that is found in the period's share of the time.

        Operations are placed for one microbatch first. Then the kernels of all unroll factors are made better in neighbourhoods.
        Then a model is asked for less. No less than the bound leaves room for is looked for.
        """
        search, tuning = self.search, self.tuning
        unrolls = range(1, min(tuning.most_unroll, *self.shared.counts) + 1) if any(search.graph.work_per_microbatch) else ()
        best = search.best
        with search.within(tuning.period_share * search.left):
            if best is not None and (best.unroll not in self.kernels or best.period < self.kernels[best.unroll].period):
                self.kernels[best.unroll] = Kernel.of(best)
            if self.shared.known.best is None:
                placed = self.place(unrolls[:1], None, search.left / 4)
                if placed is not None and (best is None or placed.period * best.unroll <= best.period * placed.unroll):
                    best = placed
            modelled = [unroll for unroll in unrolls if unroll == 1 or unroll * len(search.graph.families) <= tuning.decided]
            best = self.in_neighbourhoods(modelled, best, IMPROVING * search.left)
            for unroll in modelled:
                if not search.done:
                    best = self.with_smaller_period(unroll, best)
            return self.place(unrolls, best, search.left)

    def in_neighbourhoods(self, unrolls: Sequence[int], best: PeriodicSchedule | None, seconds: float) -> PeriodicSchedule | None:
        """The kernels of these unroll factors made better in neighbourhoods, in turns that get longer and longer; the best.

        Until the time is over or all are exhausted.
        """
        search, turn, open_ = self.search, FIRST_TURN, True
        for improving in self.progressed.improving.values():
            improving.begin_again()
        with search.within(seconds):
            while open_ and not search.done:
                open_ = False
                for unroll in unrolls:
                    least = self.least(unroll)
                    if best is not None and least * best.unroll >= best.period * unroll:
                        continue
                    with search.within(turn):
                        one = self.improving(unroll, least)
                        if one is not None and not one.exhausted and not search.done:
                            best = self.improved(one, least, best)
                            open_ = True
                turn *= 2
        return best

    def improving(self, unroll: int, least: int) -> Improving | None:
        """The best kernel of this unroll factor, or some of a smaller one; placed first, unless one has the ``least`` period."""
        search, known = self.search, self.progressed.improving
        found = [kernel.unrolled(unroll // kernel.unroll) for kernel in self.kernels.values() if unroll % kernel.unroll == 0]
        if unroll not in known and min((kernel.period for kernel in found), default=math.inf) > least:
            placed = placed_kernels(search.graph, unroll, search.limits.clock, self.tuning, seed=search.limits.seed)
            found += filter(None, takewhile(lambda _: not search.done, placed))
        best = min(found, key=lambda kernel: kernel.period, default=None)
        if best is not None and unroll not in known:
            known[unroll] = Improving.of(best, self.tuning, search.limits.seed)
        elif best is not None and best.period < known[unroll].kernel.period:
            known[unroll].take(best)
        return known.get(unroll)

    def improved(self, one: Improving, least: int, best: PeriodicSchedule | None) -> PeriodicSchedule | None:
        """A kernel made better for as long as there is time; with ends if it is faster than the ``best``, else that."""
        unroll = one.kernel.unroll
        with self.shared.asking(f"neighbourhoods of a kernel of {unroll} microbatches") as answer:
            better = improve(one, least, self.search.limits, self.tuning)
            self.kernels[unroll] = one.kernel
            answer.append(f"{self.shared.pipeline.time(one.kernel.period)}" if better else "no better one")
            if best is None or one.kernel.period * best.unroll < best.period * unroll:
                best = self.search.with_shorter_ends(one.kernel.with_ends(self.shared.counts))
                answer.append(self.search.offer(best))
        return best

    def least(self, unroll: int) -> int:
        """A period below which there is no kernel of this unroll factor, or none is of use."""
        enough = Fraction(self.shared.lower, min(self.shared.counts))
        return max(math.ceil(enough * unroll), self.period_bounds.get(unroll, 0), least_period(self.search.graph, unroll))

    def with_smaller_period(self, unroll: int, best: PeriodicSchedule | None) -> PeriodicSchedule | None:
        """A smaller period than the ``best`` one's, the smallest of this unroll factor that is found; or the best."""
        low = self.next_period[unroll] = max(self.next_period.get(unroll, 0), self.least(unroll))
        high = None if best is None else -(-best.period * unroll // best.unroll)
        if high is not None and low >= high:
            return best
        with self.shared.asking(f"a kernel of {unroll} microbatches") as answer:
            found = self.smallest_period(unroll, low, high)
            answer.append("no better one" if found is None else f"{self.shared.pipeline.time(found.period)}")
            if found is not None:
                best = self.search.with_shorter_ends(found.with_ends(self.shared.counts))
                answer.append(self.search.offer(best))
        return best

    def smallest_period(self, unroll: int, low: int, high: int | None) -> Kernel | None:
        """A kernel with the smallest period in ``low..high - 1`` that is found.

        By bisection, nearer to ``high`` than to ``low``: it takes little time to find the next one around the last. If both are
        near, or without ``high``, first with ``low`` itself; then with the first for which there is one, in growing steps.
        """
        best, rise, period = None, max(1, self.search.grid // 2), low
        if high is not None and (high - low) * self.tuning.near > high:
            period = (low + 2 * high) // 3
        while (high is None or low < high) and not self.search.done:
            found, sure = self.kernel_with(period, unroll)
            if found is not None:
                best, high = found, found.period
            else:
                self.next_period[unroll] = low = period + 1
                rise *= 2
                if sure:
                    self.period_bounds[unroll] = low
            period = low + rise if high is None else (low + 2 * high) // 3
        return best

    def kernel_with(self, period: int, unroll: int) -> tuple[Kernel | None, bool]:
        """A kernel with no longer a period, around the best one that there is, then anywhere; and whether that is certain."""
        known = [found for found in self.kernels.values() if unroll % found.unroll == 0]
        best = min(known, key=lambda found: Fraction(found.period, found.unroll), default=None)
        near = None if best is None else best.unrolled(unroll // best.unroll)
        sure = False
        for reach in (None,) if near is None else (self.tuning.reach, None):
            patience = min(self.patience / (1 if reach is None else 2), self.search.left)
            question = (unroll, period) if reach is None or near is None else (unroll, period, reach, near.period)
            if self.progressed.in_vain.asked(question, patience):
                sure = self.progressed.in_vain.refuted(question)
                continue
            found, sure = find_kernel(self.search.graph, period, unroll, self.search.limits, patience, near, reach)
            if found is not None:
                self.kernels[unroll] = found = with_least_period(found, self.search.graph) or found
                return found, True
            self.progressed.in_vain.note(question, patience, refuted=sure)
        return None, sure

    def place(self, unrolls: Iterable[int], best: PeriodicSchedule | None, seconds: float) -> PeriodicSchedule | None:
        """The least time per microbatch by placing operations singly, or the ``best``; of several that with the best ends.

        Where there is a best one, with other seeds.
        """
        value = None if best is None else (Fraction(best.period, best.unroll), 0)
        first = self.progressed.seed
        seeds = range(1) if best is None else range(first, first + self.tuning.variations - 1)
        with self.search.within(seconds):
            for seed, unroll in product(seeds, unrolls):
                least = Fraction(least_period(self.search.graph, unroll), unroll)
                if self.search.done or (value is not None and value[0] <= least):
                    continue
                self.progressed.seed = max(first, seed)
                with self.shared.asking(f"placing a kernel of {unroll} microbatches") as answer:
                    best, value = self._placed(unroll, seed, best, value, answer)
        return best

    def _placed(
        self, unroll: int, seed: int, best: PeriodicSchedule | None, value: Value | None, answer: list[str]
    ) -> tuple[PeriodicSchedule | None, Value | None]:
        """The best with one seed, and its value."""
        limits = self.search.limits
        for found in placed_kernels(self.search.graph, unroll, limits.clock, self.tuning, seed=limits.seed + seed):
            if self.search.done:
                break
            time = None if found is None else Fraction(found.period, unroll)
            if found is None or time is None or (value is not None and time > value[0]):
                continue
            complete = self.search.with_shorter_ends(found.with_ends(self.shared.counts))
            ends = complete.makespan - complete.microbatches[0] // unroll * complete.period
            if value is None or best is None or time < value[0] or (unroll == best.unroll and ends < value[1]):
                best, value = complete, (time, ends)
                self.kernels[unroll] = found
                answer[:] = [f"{self.shared.pipeline.time(found.period)}", self.search.offer(complete)]
        if not answer:
            answer.append("no better one")
        return best, value

    def unroll_less(self, periodic: PeriodicSchedule) -> None:
        """The same time per microbatch with a smaller unroll factor, if that is found."""
        search, graph = self.search, self.search.graph
        for unroll in (unroll for unroll in range(1, periodic.unroll) if periodic.period * unroll % periodic.unroll == 0):
            with self.shared.asking(f"a kernel of {unroll} microbatches, as fast") as answer:
                period = periodic.period * unroll // periodic.unroll
                seed, clock = search.limits.seed, search.limits.clock
                seeds = range(seed, seed + self.tuning.variations)
                first = (next(placed_kernels(graph, unroll, clock, self.tuning, seed=seed), None) for seed in seeds)
                kernel = next((one for one in first if one is not None and one.period <= period), None)
                if kernel is None:
                    kernel, _ = self.kernel_with(period, unroll)
                answer.append("none found" if kernel is None else search.offer(kernel.with_ends(self.shared.counts)))
            if kernel is not None or search.done:
                break

    @property
    def patience(self) -> float:
        """Seconds for a question about a period."""
        return min(5.0, self.search.left / 8)
