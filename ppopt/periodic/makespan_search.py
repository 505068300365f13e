"""Modulo scheduling: the shortest prologue and epilogue around a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ppopt.cpsat.neighbourhood import improved
from ppopt.cpsat.running import Known
from ppopt.periodic.epilogue import (
    Epilogue,
    reversed_periodic,
    shortened_by_cpsat,
    shortened_by_list_scheduling,
)
from ppopt.periodic.graph_search import GraphSearch
from ppopt.periodic.kernel_in_schedule import repeated_as
from ppopt.periodic.local_improvement import locally_improved
from ppopt.periodic.periodic_model import PeriodicModel, Question, search_model
from ppopt.periodic.periodic_schedule import PeriodicSchedule, retimed, schedule_of


class MakespanSearch:
    """The questions about the makespan of one graph, where its kernel is known."""

    def __init__(self, search: GraphSearch) -> None:
        self.search, self.shared, self.tuning = search, search.shared, search.tuning
        self.coarse_graph = search.graph.rounded(search.grid)
        self.coarsely = search.grid > 1 and search.graph.several_stages
        """Whether the coarser grid is worth a question."""
        self.in_vain = search.progressed.in_vain
        self.open = True
        """Whether the last round left a question open."""
        self.fruitless = 0
        """How many local improvements have found nothing."""
        self.coarse_idle = 0
        """Coarse steps above the bound that are asked for next."""
        self.coarse_from = 0
        """The number of microbatches from which on coarse questions are worth it."""
        self.refuted_below = self.shared.lower
        """Makespans below are refuted at all sizes."""
        self.sides = 0
        """How often an end was shortened: the epilogue and the prologue take turns."""

    def unroll_twice(self) -> None:
        """Go on with two kernels as one."""
        assert self.search.best is not None
        self.search.best = self.search.least_unrolled = self.search.best.unrolled_twice(self.shared.counts)
        self.refuted_below, self.coarse_from, self.fruitless = self.shared.lower, 0, 0

    def rounds(self) -> None:
        """All kinds of questions in turn, for longer and longer, while something is open."""
        search = self.search
        patience, self.open = search.left / 16, True
        while search.best is not None and search.least_unrolled is not None and not search.done and self.open:
            self.open = False
            self.ask_all_sizes(search.least_unrolled, self.shared.lower, patience)
            if self.coarsely and not search.done:
                self.ask_coarsely(search.least_unrolled, 2 * patience)
            if not search.done:
                self.search_neighbourhoods(search.best, 3 * patience)
            if not search.done:
                self.bisect(search.least_unrolled, patience)
            if not search.done:
                self.shorten_ends(search.best, patience)
            if not search.done and self.fits(search.best.microbatches):
                self.improve_locally(search.best, patience)
            patience *= 2

    def sizes(self, periodic: PeriodicSchedule) -> Iterator[tuple[int, ...]]:
        """Numbers of microbatches to solve, per route: from the smallest on, with one kernel more each."""
        unroll, counts = periodic.unroll, self.shared.counts
        most = (min(counts) - unroll) // unroll
        least = max(0, most - 3 * max(periodic.microbatches) // unroll)
        for copies in range(most, least - 1, -1):
            yield tuple(count - copies * unroll for count in counts)

    def ask_all_sizes(self, periodic: PeriodicSchedule, value: int, patience: float) -> Known:
        """Ask for a makespan at all sizes up to one where it is found, or the second where it stays open."""
        tried = 0
        for counts in self.sizes(periodic):
            answer = self.ask(periodic, counts, value, patience)
            if answer is Known.OPEN:
                tried += 1
                self.open = True
                if value == self.shared.lower:
                    self.coarse_from = max(self.coarse_from, max(counts))
            if answer is Known.FOUND or tried == 2 or self.search.done:
                return answer if answer is Known.FOUND else Known.OPEN
        return Known.OPEN if tried else Known.NONE

    def ask(self, periodic: PeriodicSchedule, counts: tuple[int, ...], value: int, patience: float) -> Known:
        """Whether there is a schedule with a makespan of ``value`` of all microbatches, at this size."""
        if not self.fits(counts):
            self.open = True
            return Known.OPEN
        copies = (self.shared.counts[0] - counts[0]) // periodic.unroll
        question = Question(counts, value - copies * periodic.period, periodic.period, periodic.unroll)
        patience = min(patience, self.search.left)
        if self.in_vain.asked(question, patience):
            return Known.NONE if self.in_vain.refuted(question) else Known.OPEN
        model = PeriodicModel(self.search.graph, question)
        if not model.possible:
            self.in_vain.note(question, patience, refuted=True)
            return Known.NONE
        with self.shared.asking(self._text(periodic, counts, value)) as answer:
            found, sure = search_model(model, self.search.limits, patience)
            if found is not None:
                answer.append(self.search.offer(found))
                return Known.FOUND
            answer.append("there is none" if sure else "open")
            self.in_vain.note(question, patience, refuted=sure)
        return Known.NONE if sure else Known.OPEN

    def ask_coarsely(self, periodic: PeriodicSchedule, patience: float) -> None:
        """On the coarser grid, with slack for what it leaves out, a makespan near the bound; its order with the true times."""
        search, unroll, grid = self.search, periodic.unroll, self.search.grid
        period = max(unroll * max(self.coarse_graph.work_per_microbatch), periodic.period // grid)
        clock = search.limits.clock.slice(patience)
        for counts in self.sizes(periodic):
            if max(counts) < self.coarse_from:
                continue
            if not self.fits(counts):
                break
            copies, kernels = (self.shared.counts[0] - counts[0]) // unroll, counts[0] // unroll
            idle = max(0, self.shared.lower - (copies + kernels) * periodic.period)
            while not search.done and not clock.over:
                makespan = kernels * period + -(-idle // grid) + self.coarse_idle
                coarse, seconds = Question(counts, makespan, period, unroll), min(patience / 2, search.left)
                if self.in_vain.asked((coarse, grid), seconds):
                    self.open |= not self.in_vain.refuted((coarse, grid))
                    self.coarse_idle += 1
                    continue
                model = PeriodicModel(self.coarse_graph, coarse, slack=1)
                if not model.possible:
                    break
                question = f"coarse: {_sum(counts)} microbatches in {makespan} steps of {grid} ticks"
                with self.shared.asking(question) as answer:
                    found, sure = search_model(model, search.limits, seconds)
                    if found is not None:
                        self.coarse_from = max(counts) + unroll
                        timed = retimed(found, search.graph, periodic.period)
                        answer.append("too slow with the true times" if timed is None else search.offer(timed))
                        return
                    answer.append("there is none" if sure else "open")
                    self.in_vain.note((coarse, grid), seconds, refuted=sure)
                    self.coarse_idle += 1
                    self.open = True

    def bisect(self, periodic: PeriodicSchedule, patience: float) -> None:
        """Bisection between what is refuted at all sizes and the best; what stays open is left aside, in ever larger parts."""
        value, least = periodic.makespan_for(self.shared.counts), self.shared.value
        best = least if value is None or least is None else min(value, least)
        low, aside, left = self.refuted_below, 2, None
        while best is not None and low < best and aside < 200 and not self.search.done:
            middle = best - max(1, (best - low) // aside)
            if middle == left:
                break
            found = self.ask_all_sizes(periodic, middle, patience / 2)
            if found is Known.OPEN:
                left = middle
                aside *= 4
            elif found is Known.FOUND:
                best = min(best, self.shared.value or best)
            else:
                low = middle + 1
                self.refuted_below = max(self.refuted_below, low)

    def fits(self, counts: Sequence[int]) -> bool:
        """Whether a schedule of ``counts`` microbatches is small enough to be modelled as a whole."""
        return sum(counts[family.route] for family in self.search.graph.families) <= self.tuning.modelled

    def shorten_ends(self, periodic: PeriodicSchedule, seconds: float) -> None:
        """Shorten epilogue and prologue, each by list scheduling, then by CP-SAT, while one of them gets shorter."""
        search = self.search
        clock = search.limits.clock.slice(seconds)
        sides = self.sides
        with self.shared.asking(f"prologue and epilogue of {_sum(periodic.microbatches)} microbatches") as answer:
            unchanged = 0
            while unchanged < 2 and not clock.over and not search.done:
                value = periodic.makespan
                found = reversed_periodic(periodic, search.reversed_graph) if sides % 2 else periodic
                found = self._with_shorter_epilogue(found, clock.left / 4)
                periodic = reversed_periodic(found, search.graph) if sides % 2 else found
                sides += 1
                unchanged = 0 if periodic.makespan < value else unchanged + 1
            self.sides = sides + 1
            answer.append(search.offer(periodic))

    def _with_shorter_epilogue(self, periodic: PeriodicSchedule, seconds: float) -> PeriodicSchedule:
        search, size = self.search, Epilogue(periodic).size
        trial = self.tuning.operation_seconds * max(1, size)
        trials = max(4, int(seconds / 2 / trial))
        found = shortened_by_list_scheduling(periodic, search.limits.clock, trials=trials, chance=search.chance)
        search.limits.clock.charge(trials * trial)
        if size <= self.tuning.decided:
            reach = max(1, *search.graph.duration) * (2 + search.chance.randrange(4))
            found, _ = shortened_by_cpsat(found, search.limits, reach=reach, seconds=seconds / 2)
        return found

    def improve_locally(self, periodic: PeriodicSchedule, patience: float) -> None:
        """Move operations around where they are."""
        reach = max(1, *self.search.graph.duration) * (1 + self.fruitless % 4)
        question = f"{_sum(periodic.microbatches)} microbatches, operations moved by up to {self.shared.pipeline.time(reach)}"
        with self.shared.asking(question) as answer:
            found, sure = locally_improved(periodic, self.search.limits, reach=reach, seconds=patience)
            self.open |= not sure or found.makespan < periodic.makespan
            self.fruitless += found.makespan == periodic.makespan
            answer.append(self.search.offer(found))

    def search_neighbourhoods(self, periodic: PeriodicSchedule, patience: float) -> None:
        """Search neighbourhoods of a schedule with a few kernels more, where the kernel is at full speed and stays as it is."""
        counts, unroll, more = self.shared.counts, periodic.unroll, self.tuning.more_kernels
        few, fastest = periodic.microbatches[0] + more * unroll, unroll * max(self.search.graph.work_per_microbatch)
        if len(counts) > 1 or few > counts[0] or periodic.period > fastest:
            return
        copies = (counts[0] - few) // unroll
        with self.shared.asking(f"neighbourhoods in {few} microbatches") as answer:
            small = schedule_of(self.shared.pipeline.changed(microbatches=few), periodic)
            lower = max(0, self.shared.lower - copies * periodic.period)
            limits, tuning = self.search.limits.slice(patience), self.tuning.neighbourhoods
            outcome = improved(small, objective="makespan", lower=lower, limits=limits, tuning=tuning)
            self.open |= outcome.schedule is not None
            from_the_middle = sorted(range(more + 1), key=lambda before: abs(2 * before - more))
            ways = (repeated_as(outcome.schedule or small, periodic, before) for before in from_the_middle)
            found = next(filter(None, ways), None)
            answer.append("nothing that repeats" if found is None else self.search.offer(found))

    def _text(self, periodic: PeriodicSchedule, counts: tuple[int, ...], value: int) -> str:
        time = self.shared.pipeline.time
        kernel = f"{periodic.unroll} per {time(periodic.period)}"
        return f"{kernel}: {_sum(counts)} microbatches for a makespan of {time(value)}"


def _sum(counts: Sequence[int]) -> str:
    """Numbers of microbatches per route as one text."""
    return "+".join(map(str, counts))
