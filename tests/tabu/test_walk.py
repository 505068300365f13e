"""Move after move: what a walk knows of its plan is what the plan is, compiled or not."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppopt import compiled, tabu
from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.heuristics import baselines
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Mix, Pipeline
from ppopt.schedule import Schedule
from ppopt.tabu.jobs import Jobs
from ppopt.tabu.kept import Kept
from ppopt.tabu.loop import arrange
from ppopt.tabu.paths import EXCESS, KICKS, MOVES
from ppopt.tabu.walk import Walk
from ppopt.timing.links import begun, network_in_turn
from tests.support.cases import worst
from tests.support.strategies import machines, objectives

UNEVEN = Costs(per="stage", forward=(4, 6, 5, 4), backward_input=(5, 5, 6, 4), backward_weight=(2, 3, 3, 2))
EACH = {
    "linear": Pipeline(3, 6, costs=Costs(forward=4, backward_input=3, backward_weight=3), memory=Memory(limit=2)),
    "wave": Pipeline(2, 6, placement="wave", chunks=2, costs=UNEVEN, links=Links(1), memory=Memory(limit=3)),
    "retained": Pipeline(2, 6, placement="loop", chunks=2, costs=UNEVEN, memory=Memory(retained=0.25, limit=3)),
    "links": Pipeline(3, 5, links=Links(1, occupancy=2), costs=Costs(forward=3, backward_input=4, backward_weight=3)),
    "pairs": Pipeline(2, 6, placement="bidirectional", costs=Costs(forward=3, backward_input=3, overlap=5)),
    "fused": Pipeline(3, 6, costs=Costs(forward=4, backward=9), links=Links(1), memory=Memory(limit=2)),
    "nothing takes no time": Pipeline(2, 6, costs=Costs(forward=2, backward_input=0, backward_weight=3), memory=Memory(limit=2)),
    "exchanged": Pipeline(
        3,
        6,
        costs=Costs(forward=4, backward_input=3, backward_weight=3, optimizer=(0, 2, 1)),
        data_parallel=DataParallel((2, 0, 1), (6, 0, 1)),
    ),
    "unequal": Pipeline(2, 4, costs=Costs(forward=4, backward=9), memory=Memory(limit=7), mix=Mix(microbatch_costs=(3, 1, 2, 4))),
}


def walked(start: Schedule, objective: Objective, seed: int) -> Walk:
    network, _ = network_in_turn(start.pipeline, start.order, begun(start))
    walk = Walk(network, Jobs.of(network), objective, seed)
    walk.begin(np.arange(walk.jobs.nodes))
    return walk


def check(walk: Walk) -> None:
    """Everything is in its row, in the order of its family; what is held too much is counted; times are those of the order."""
    jobs, plan, excess = walk.jobs, walk.plan, 0
    assert sorted(plan.sequence) == list(range(jobs.nodes))
    assert (plan.sequence[plan.place] == np.arange(jobs.nodes)).all()
    assert (plan.ranked[plan.rank] == np.arange(jobs.nodes)).all()
    for machine, (a, b) in enumerate(pairwise(jobs.begin.tolist())):
        row, held = plan.sequence[a:b], 0
        assert (jobs.machine[row] == machine).all()
        for family in set(jobs.family[row].tolist()):
            own = row[jobs.family[row] == family]
            assert (np.diff(own) > 0).all() or walk.network.pipeline.mix.differs
        for place, node in enumerate(row.tolist(), a):
            assert plan.level[place] == held
            excess += max(0, held + jobs.claim[node] - jobs.room[machine])
            held += jobs.change[node]
    assert walk.work.counts[EXCESS] == excess
    heads, tails = plan.head.copy(), plan.tail.copy()
    assert arrange(jobs.nodes, 2**40, jobs, plan, walk.work)
    assert (heads == plan.head).all()
    assert (tails == plan.tail).all()


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("name", EACH)
def test_what_is_known_is_so(name: str, objective: Objective) -> None:
    walk = walked(worst(EACH[name], objective), objective, seed=5)
    check(walk)
    for moves in (1, 2, 3, 50, 1, 200):
        walk.moves = moves
        walk.go_on(0)
        if walk.over:
            walk.begin(walk.best)
        check(walk)
    assert walk.work.counts[MOVES] > 20


@pytest.mark.skipif(not compiled.available(), reason="there is no numba")
@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("name", EACH)
def test_compiled_or_not(name: str, objective: Objective) -> None:
    found = []
    for quick in (False, True):
        with compiled.using(quick):
            walk = walked(worst(EACH[name], objective), objective, seed=7)
            for _ in range(4):
                walk.go_on(0)
            found.append((walk.plan.sequence.tolist(), walk.work.best.tolist(), walk.work.counts.tolist()))
    assert found[0] == found[1]


@settings(max_examples=60)
@given(machines(40), objectives, st.integers(0, 5))
def test_whatever_a_pipeline_has(pipeline: Pipeline, objective: Objective, seed: int) -> None:
    """From any list schedule on: a walk ends with a schedule that keeps all rules, and has the value that it is said to have."""
    if tabu.unknown(pipeline) is not None:
        return
    start = random.Random(seed).choice(baselines(pipeline))[1]
    if violations(pipeline, start):  # an order of two routes may be out of memory
        return
    walk = walked(start, objective, seed)
    for _ in range(3):
        if walk.over:
            walk.begin(walk.best)
        walk.go_on(0)
    found = walk.schedule(walk.best)
    assert violations(pipeline, found) == []
    assert found.objective(objective) == walk.value <= start.objective(objective)


def test_memory_is_exceeded_on_the_way_alone() -> None:
    """Moves lead through orders that need more than there is; what they come by does not."""
    pipeline = EACH["wave"]
    start = worst(pipeline, "makespan")
    walk, often = walked(start, "makespan", seed=3), []
    for _ in range(2):
        exceeded = 0
        for _ in range(200):
            walk.moves = 1
            walk.go_on(0)
            exceeded += walk.work.counts[EXCESS] > 0
        often.append(exceeded)
        assert walk.value < start.makespan
        assert violations(pipeline, walk.schedule(walk.best)) == []
        walk.begin(np.arange(walk.jobs.nodes))
    assert sorted(often)[0] == 0  # every second walk keeps to what there is
    assert 0 < sorted(often)[1] < 200


@pytest.mark.parametrize("name", ["linear", "links", "wave", "retained"])
def test_random_moves_lead_to_a_guide(name: str) -> None:
    """Half of the way to another order, then all of it; then moves are those of a search again."""
    schedules = [schedule for _, schedule in baselines(EACH[name])]
    one, other = min(schedules, key=lambda each: each.makespan), worst(EACH[name], "makespan")
    walk = walked(one, "makespan", seed=1)
    to = walked(other, "makespan", seed=1)
    node = {number: node for node, number in enumerate(walk.network.number)}
    sequence = np.array([node[number] for number in to.network.number])
    guide = np.argsort(sequence)
    kept = Kept(walk.jobs, seed=1)
    far = kept.swaps(walk.plan.sequence, guide)
    assert far > 4
    walk.begin(walk.plan.sequence.copy(), far // 2, guide)
    walk.moves = far // 2
    walk.go_on(0)
    check(walk)
    assert kept.swaps(walk.plan.sequence, guide) == far - far // 2
    walk.begin(np.arange(walk.jobs.nodes), far, guide)
    walk.moves = far
    walk.go_on(0)
    assert walk.plan.sequence.tolist() == sequence.tolist()
    assert walk.work.counts[KICKS] == 0
