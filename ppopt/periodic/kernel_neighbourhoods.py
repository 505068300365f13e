"""Kernels made better by large neighbourhood search: some operations are arranged anew by CP-SAT, the others keep their order.

Shaw, "Using constraint programming and local search methods to solve vehicle routing problems" (CP 1998), as for schedules
(:mod:`ppopt.cpsat.neighbourhood`). Every question is for any shorter period: a kernel that is found then gets the least period
of its order. Measured on nine pipelines of 6 to 16 devices, up to half of 1F1B's memory, in 25 s: periods are up to 3 % smaller
than those of single questions for whole kernels, which aim at a third of the way to the bound.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ppopt.clock import Limits
from ppopt.cpsat import engine
from ppopt.cpsat.running import Known
from ppopt.interrupt import check
from ppopt.periodic.kernel import Kernel
from ppopt.periodic.kernel_model import KernelModel
from ppopt.periodic.kernel_placing import with_least_period
from ppopt.periodic.tuning import ModuloTuning


@dataclass
class Improving:
    """The best kernel of an unroll factor, and how far the search around it has come."""

    kernel: Kernel
    chance: random.Random
    """Where the next neighbourhoods are."""
    size: float
    """Operations that are arranged anew at a time."""
    patience: float
    """Seconds for one question."""
    exhausted: bool = False
    """Whether a search with everything arranged anew has found nothing."""
    refuted: bool = False
    """Whether it has shown that there is nothing to be found."""

    @classmethod
    def of(cls, kernel: Kernel, tuning: ModuloTuning, seed: int) -> Improving:
        """A search that begins with as many operations as those of one microbatch."""
        chance = random.Random(f"{seed} {kernel.unroll}")
        return cls(kernel, chance, float(len(kernel.start)), tuning.neighbourhoods.patience)

    @property
    def operations(self) -> int:
        """Of the kernel."""
        return len(self.kernel.start) * self.kernel.unroll

    def take(self, kernel: Kernel) -> None:
        """Go on from a better one."""
        self.kernel, self.exhausted, self.refuted = kernel, False, False

    def begin_again(self) -> None:
        """What was in vain before may be worth another try."""
        self.exhausted = self.refuted


def improve(search: Improving, least: int, limits: Limits, tuning: ModuloTuning) -> bool:
    """Make a kernel better until the time is over or its period is ``least``; whether that worked.

    As many neighbourhoods are searched at a time as there are workers. Where everything was arranged anew from the beginning, for
    as long as one may be searched at most, in vain, the search is exhausted.

    Raises:
        KeyboardInterrupt: a signal came before the search.
    """
    given = search.kernel.period
    at_most = search.size >= search.operations and search.patience >= tuning.neighbourhoods.most_patience
    while search.kernel.period > least and not limits.clock.over and not search.exhausted:
        check()
        _round(search, limits, tuning)
    better = search.kernel.period < given
    search.exhausted |= at_most and not better
    return better


def _round(search: Improving, limits: Limits, tuning: ModuloTuning) -> None:
    """One neighbourhood per worker. Those that are searched through grow, as in :mod:`ppopt.cpsat.neighbourhood`."""
    kernel, growth = search.kernel, tuning.neighbourhoods.growth
    graph, all_free = kernel.graph, search.size >= search.operations
    neighbourhoods = [_neighbourhood(search) for _ in range(limits.threads)]
    models = [KernelModel(graph, kernel.period - 1, kernel.unroll, kernel, tuning.reach, free=free) for free in neighbourhoods]
    asked = [model for model in models if model.possible]
    seeds = [search.chance.randrange(2**31) for _ in asked]
    posted = [model.model for model in asked]
    answers = engine.at_once(posted, limits, engine.SMALL, seconds=search.patience, seeds=seeds) if posted else []
    for model, answer in zip(asked, answers, strict=True):
        if answer.found:
            found = model.found(answer)
            found = with_least_period(found, graph) or found
            if found.period < search.kernel.period:
                search.take(found)
    through = sum(answer.known is not Known.OPEN for answer in answers) + len(models) - len(asked)
    factor = growth if 2 * through >= len(models) else 1 / growth
    search.size = min(max(1.0, search.size * factor), float(search.operations))
    better = search.kernel is not kernel
    if all_free and not better and through == len(models):
        search.exhausted = search.refuted = True
    search.patience = tuning.neighbourhoods.patience_after(search.patience, better)


def _neighbourhood(search: Improving) -> set[int]:
    """The operations that start first from some time of the period on: of all devices, or of a few next to each other.

    Links are machines like devices.
    """
    kernel, chance = search.kernel, search.chance
    graph, unroll, machines = kernel.graph, kernel.unroll, len(kernel.graph.machines)
    size = round(search.size)
    if size >= search.operations:
        return set(range(search.operations))
    several = machines if chance.random() < 0.5 else chance.randint(1, machines)
    first, since = chance.randrange(machines), chance.randrange(kernel.period)
    own = {(first + place) % machines for place in range(several)}
    near = [
        ((int(row[copy]) - since) % kernel.period, family * unroll + copy)
        for family, row in enumerate(kernel.start)
        if own.intersection(graph.machines_of[family])
        for copy in range(unroll)
    ]
    return {operation for _, operation in sorted(near)[:size]}
