"""Both solvers, the bounds, the list scheduler and the checker on pipelines with everything that a machine may have."""

import random
from collections import Counter

import pytest
from random_pipelines import random_machine
from unaided import optimum, solved

from ppopt import bounds
from ppopt.bounds import Objective
from ppopt.bounds.throughput import throughput
from ppopt.check import violations
from ppopt.constraints import cuts_of, free_choices, pairs_of, pairs_save_time
from ppopt.pipeline import Pipeline
from ppopt.solvers import cpsat, ilp
from ppopt.timing import baselines

FEATURES = {
    "latency": lambda p: p.ticks.latency.any(),
    "occupancy": lambda p: p.lines,
    "shared": lambda p: any(len(line) > 1 for line in p.lines),
    "blocking": lambda p: p.lines and p.links.blocking,
    "pairs": pairs_save_time,
    "two routes": lambda p: len(p.routes) > 1,
    "written-out routes": lambda p: p.placement == "routes",
    "stages": lambda p: p.costs.per == "stage",
    "speeds": lambda p: p.costs.per == "device" and isinstance(p.costs.forward, tuple),
    "limits": lambda p: isinstance(p.memory.limit, tuple),
    "traffic": lambda p: p.ticks.traffic and not p.data_parallel.overlap,
    "overlapping traffic": lambda p: p.ticks.traffic and p.data_parallel.overlap and p.stages > p.devices,
}


def agree(seeds: range, most_ops: int) -> Counter[str]:
    """In how many instances both solvers prove the optimum, and what these have; nobody says anything else."""
    count: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        pipeline = random_machine(rng, most_ops)
        objective: Objective = rng.choice(["makespan", "makespan", "span"])
        words = (*free_choices(pipeline), *cuts_of(pipeline))
        best = optimum(cpsat, pipeline, objective, words, seconds=20)
        if best is None:
            continue
        count["cp-sat"] += 1
        other = solved(ilp, pipeline, objective, words, seconds=4)
        assert other.lower_bound <= best, f"seed {seed}: ILP"
        if other.schedule is not None:
            assert other.schedule.objective(objective) >= best, f"seed {seed}: ILP"
            if other.lower_bound == other.schedule.objective(objective):
                count["both"] += 1
                count.update(name for name, of in FEATURES.items() if of(pipeline))
        whole = solved(cpsat, pipeline, objective, pairs_of(pipeline), seconds=2)
        assert whole.lower_bound <= best, f"seed {seed}: without cuts"
        assert whole.schedule is None or whole.schedule.objective(objective) >= best, f"seed {seed}: without cuts"
        hold(pipeline, objective, best, seed)
    return count


def hold(pipeline: Pipeline, objective: Objective, best: int, seed: int) -> None:
    """No bound is above the optimum, no schedule below it, and what the list scheduler makes passes the checker."""
    floor = bounds.machine(pipeline, pairs=True)
    assert floor is not None
    half = floor.value // 2
    for bound in (
        bounds.work(pipeline, objective, pairs=True),
        bounds.machine(pipeline, objective, pairs=True),
        bounds.memory(pipeline, objective, pairs=True),
        bounds.window(pipeline, half, half, objective, makespan=floor.value, pairs=True, time_limit=2),
        throughput(pipeline, pairs=True, seconds=1) if objective == "makespan" else None,
    ):
        assert bound is None or bound.value <= best, f"seed {seed}: {bound.argument}"
    for _, schedule in baselines(pipeline)[:2]:
        assert violations(pipeline, schedule, earliest=True) == [], f"seed {seed}"
        assert schedule.objective(objective) >= best, f"seed {seed}"


def test_methods_agree() -> None:
    count = agree(range(24), most_ops=12)
    assert count["both"] >= 18
    assert all(count[name] for name in FEATURES)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1480, 40))
def test_methods_agree_on_many(first: int) -> None:
    """Twelve parts of 40, each with at least 26 that both prove: 312 in all."""
    count = agree(range(first, first + 40), most_ops=18)
    print(dict(count))  # shown with -s
    assert count["both"] >= 26
