"""Two solvers, four bounds and the second opinion, held against each other on random small pipelines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import tuned
from random_pipelines import random_pipeline
from unaided import optimum, solved

from ppopt import bounds, cpsat, ilp
from ppopt.bounds import Bound, Objective
from ppopt.clock import Limits
from ppopt.constraints import Word, always_split, cuts_of, in_order, splitting_is_free
from ppopt.heuristics import baselines
from ppopt.pipeline import Memory, Pipeline
from ppopt.search import horizon
from ppopt.search.second_opinion import second_opinion

Case = tuple[int, Pipeline, Objective]
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
CLOSED_FORM = (bounds.work, bounds.machine)


def cases(seeds: range, most_ops: int, settled: bool = True) -> list[Case]:
    """A random pipeline and objective for each seed; with ``settled=False`` one that greedy scheduling and bounds leave open."""
    drawn = []
    for seed in seeds:
        rng = random.Random(seed)
        while True:
            pipeline, objective = random_pipeline(rng, most_ops), rng.choice(OBJECTIVES)
            if settled or greedy(pipeline, objective) > max(of(pipeline, objective).value for of in CLOSED_FORM):
                break
        drawn.append((seed, pipeline, objective))
    return drawn


def greedy(pipeline: Pipeline, objective: Objective) -> int:
    """The best of the list scheduler."""
    return min(schedule.objective(objective) for _, schedule in baselines(pipeline))


def restricted(pipeline: Pipeline) -> tuple[Word, ...]:
    """Every backward split, where that keeps the optimum."""
    return always_split(pipeline) if splitting_is_free(pipeline) else ()


def best_of(pipeline: Pipeline, objective: Objective) -> int | None:
    """The optimum by CP-SAT; ``None`` where it is not done in time, or lets operations without duration pass each other."""
    return optimum(cpsat, pipeline, objective, (*restricted(pipeline), *cuts_of(pipeline)))


def windows(pipeline: Pipeline, objective: Objective) -> Bound | None:
    """The best window certificate of a few lengths."""
    floor = bounds.machine(pipeline)
    if objective != "makespan" or floor is None:
        return None
    longest = floor.value // 2
    found = [tuned.window(pipeline, length, length, makespan=floor.value) for length in {longest, 2 * longest // 3}]
    return max((bound for bound in found if bound is not None), key=lambda bound: bound.value, default=None)


BOUNDS: dict[str, Callable[[Pipeline, Objective], Bound | None]] = {
    "work": bounds.work,
    "one-machine": bounds.machine,
    "memory": bounds.memory,
    "window": windows,
}


def agree(drawn: Sequence[Case]) -> Counter[str]:
    """How many cases each method decides; every decision and every bound is held against the optimum.

    A bound counts where one tick more would have been too much: no mistake of a tick goes unnoticed there.
    """
    count: Counter[str] = Counter()
    for seed, pipeline, objective in drawn:
        best = best_of(pipeline, objective)
        if best is None:
            continue
        count["cp-sat"] += 1
        outcome = solved(ilp, pipeline, objective, (*restricted(pipeline), *cuts_of(pipeline)), seconds=2)
        assert outcome.lower_bound <= best, f"seed {seed}: ILP"
        if outcome.schedule is not None:
            assert outcome.schedule.objective(objective) >= best, f"seed {seed}: ILP"
            count["ilp"] += outcome.lower_bound == outcome.schedule.objective(objective) == best
        found = {name: bound for name, of in BOUNDS.items() if (bound := of(pipeline, objective)) is not None}
        for name, bound in found.items():
            assert bound.value <= best, f"seed {seed}: {name}"
            count[name] += bound.value == best
        start = greedy(pipeline, objective)
        assert start >= best, f"seed {seed}: list scheduling"
        if max(bound.value for bound in found.values()) == start:
            assert start == best, f"seed {seed}: proved by a bound alone"
            count["proved without a solver"] += 1
    return count


def test_solvers_and_bounds_agree() -> None:
    count = agree([*cases(range(40), most_ops=15), *cases(range(100, 124), most_ops=27, settled=False)])
    assert count["cp-sat"] >= 58
    assert count["ilp"] >= 45
    assert 30 <= count["proved without a solver"] <= 55
    for name in BOUNDS:
        assert count[name] >= 10, f"{name}: too few tight cases, a bound one tick too high might go unnoticed"


@pytest.mark.slow
def test_solvers_and_bounds_agree_on_500() -> None:
    count = agree([*cases(range(1000, 1400), most_ops=18), *cases(range(2000, 2250), most_ops=30, settled=False)])
    assert count["ilp"] >= 500
    for name in BOUNDS:
        assert count[name] >= 100


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_one_tick_too_high_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = BOUNDS[name]

    def too_high(pipeline: Pipeline, objective: Objective) -> Bound | None:
        bound = of(pipeline, objective)
        return None if bound is None else Bound(bound.value + 1, bound.argument)

    monkeypatch.setitem(BOUNDS, name, too_high)
    with pytest.raises(AssertionError, match=name):
        agree(cases(range(20), most_ops=12))


@pytest.mark.parametrize("left_out", ["all", "always_split", "room_in_order", "in_order and room_in_order"])
def test_every_cut_can_be_left_out(left_out: str) -> None:
    """``room_in_order`` holds with ``in_order`` only, so that one is never left out alone."""
    compared = 0
    for seed, pipeline, objective in cases(range(200, 212), most_ops=15, settled=False):
        best = best_of(pipeline, objective)
        words: tuple[Word, ...] = {
            "all": (),
            "always_split": cuts_of(pipeline),
            "room_in_order": (*restricted(pipeline), *in_order(pipeline)),
            "in_order and room_in_order": restricted(pipeline),
        }[left_out]
        outcome = solved(cpsat, pipeline, objective, words)
        if best is not None and outcome.schedule is not None:
            assert outcome.lower_bound == outcome.schedule.objective(objective) == best, f"seed {seed}"
            compared += 1
    assert compared >= 10


FIRST = ("work", "CP-SAT", "ILP")


@pytest.mark.parametrize("first", FIRST)
def test_a_second_opinion_confirms_what_is_true_and_refutes_what_is_not(first: str) -> None:
    confirmed = 0
    for seed, pipeline, objective in cases(range(300, 310), most_ops=18, settled=False):
        best = best_of(pipeline, objective)
        if not best:
            continue
        for bound in (best, best + 1):
            opinion = second_opinion(
                pipeline,
                objective=objective,
                bound=bound,
                proved_by=first,
                horizon=horizon(pipeline) * pipeline.devices,
                limits=Limits.of(seconds=60, workers=1),
            )
            assert opinion.confirmed is (bound == best), f"seed {seed}"
            assert opinion.trials[-1].route == opinion.route
            assert not (opinion.route or "").startswith(first) or opinion.route == "CP-SAT without cuts"
            if bound > best:
                assert opinion.schedule is not None
                assert opinion.schedule.objective(objective) == best
        confirmed += 1
    assert confirmed >= 8


def test_a_second_opinion_that_is_not_reached_says_so() -> None:
    pipeline = Pipeline(8, 128, placement="wave", chunks=2, memory=Memory(limit=4))
    least = bounds.memory(pipeline)
    assert least is not None
    claim = least.value + least.value // 50  # not even a list scheduler comes near, and no bound refutes it
    opinion = second_opinion(
        pipeline,
        objective="makespan",
        bound=claim,
        proved_by="CP-SAT",
        horizon=claim - 1,
        limits=Limits.of(seconds=0.3, workers=1),
    )
    assert (opinion.confirmed, opinion.route, opinion.schedule) == (None, None, None)
    outcomes = {trial.route: trial.outcome for trial in opinion.trials}
    assert outcomes["lower bounds"].startswith("at least ")
    assert outcomes["ILP"].startswith("too large for the ILP: ")
    assert outcomes["CP-SAT without cuts"] == "not decided in the time"
