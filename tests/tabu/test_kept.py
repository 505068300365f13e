"""What the best walks found, and where the next one begins."""

import numpy as np

from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.tabu import HABITS
from ppopt.tabu.jobs import Jobs
from ppopt.tabu.kept import Kept
from ppopt.tabu.paths import BEST, GUIDED, KICKS
from ppopt.tabu.walk import Walk
from ppopt.timing.links import begun, network_in_turn
from tests.support.cases import worst

PIPELINE = Pipeline(3, 6, costs=Costs(forward=4, backward_input=3, backward_weight=3), memory=Memory(limit=2))


def walk_and_kept() -> tuple[Walk, Kept]:
    start = worst(PIPELINE, "makespan")
    network, _ = network_in_turn(PIPELINE, start.order, begun(start))
    jobs = Jobs.of(network)
    return Walk(network, jobs, "makespan", seed=0), Kept(jobs, seed=0)


def found(kept: Kept, walk: Walk, value: int, swapped: int, over: bool = True) -> None:
    """Keep that a walk found this value with two neighbours swapped."""
    walk.work.best[:] = np.arange(walk.jobs.nodes)
    walk.work.best[[swapped, swapped + 1]] = walk.work.best[[swapped + 1, swapped]]
    walk.work.counts[BEST], walk.over = value, over
    kept.keep(walk)


def test_the_best_few_are_kept_once() -> None:
    walk, kept = walk_and_kept()
    kept.keep(walk)  # it has no begin yet
    assert kept.walks == []
    for value in range(HABITS.kept + 3):
        found(kept, walk, 50 - value, value)
    assert [one.value for one in kept.walks] == [50 - value for value in range(HABITS.kept + 3)][: -HABITS.kept - 1 : -1]
    found(kept, walk, kept.best.value, HABITS.kept + 2)
    assert len({one.value for one in kept.walks}) == HABITS.kept


def test_the_best_goes_on_where_it_was_cut_short() -> None:
    walk, kept = walk_and_kept()
    found(kept, walk, 40, 0, over=False)
    found(kept, walk, 50, 2)
    kept.send(walk)
    assert walk.plan.sequence.tolist() == kept.best.sequence.tolist()
    assert not walk.over
    assert walk.work.counts[KICKS] == 0
    kept.send(walk)  # once
    assert walk.work.counts[KICKS] == HABITS.random


def test_between_two_that_are_far_from_each_other() -> None:
    walk, kept = walk_and_kept()
    for value in range(HABITS.kept):
        found(kept, walk, 50 - value, value)
    kept.send(walk)
    assert walk.work.counts[[KICKS, GUIDED]].tolist() == [HABITS.random, 0]  # they are two swaps from each other
    for one, begin in zip(kept.walks, (0, 2, 4, 6, 8), strict=True):
        row = one.sequence[: walk.jobs.begin[1]]
        row[:] = np.roll(np.arange(len(row)), begin)
    kept.send(walk)
    assert walk.work.counts[GUIDED] == 1
    assert 0 < walk.work.counts[KICKS] < 100


def test_swaps() -> None:
    """Of neighbours on each machine: as many as there are pairs in another order."""
    walk, kept = walk_and_kept()
    sequence = np.arange(walk.jobs.nodes)
    guide = sequence.copy()
    assert kept.swaps(sequence, guide) == 0
    end = int(walk.jobs.begin[1])
    sequence[:end] = sequence[:end][::-1].copy()
    assert kept.swaps(sequence, guide) == end * (end - 1) // 2
