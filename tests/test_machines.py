"""Both solvers, the bounds, the list scheduler and the checker on pipelines with everything that a machine may have."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import pytest
import tuned
from pulp import PulpSolverError
from random_pipelines import random_machine
from unaided import optimum, solved

from ppopt import bounds, cpsat, ilp
from ppopt.bounds import Objective
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import (
    Capacity,
    Exclusive,
    Family,
    OneOf,
    Pairable,
    Precede,
    Word,
    cuts_of,
    free_choices,
    pairs_of,
    pairs_save_time,
    rules_of,
    sends,
)
from ppopt.cpsat import question
from ppopt.heuristics import baselines
from ppopt.ilp import engine
from ppopt.op import Kind
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline
from ppopt.schedule import Transfers
from ppopt.search import horizon, solve
from ppopt.solvers.outcome import Outcome
from ppopt.timing import exposed_traffic, time_order
from ppopt.timing.links import begun, in_turn

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
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
    "traffic": lambda p: p.ticks.margins and not p.data_parallel.overlap,
    "overlapping traffic": lambda p: p.ticks.margins and p.data_parallel.overlap and p.stages > p.devices,
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
        tuned.window(pipeline, half, half, objective, makespan=floor.value, pairs=True, limits=Limits.of(2, workers=1)),
        tuned.throughput(pipeline, pairs=True, limits=Limits.of(1)) if objective == "makespan" else None,
    ):
        assert bound is None or bound.value <= best, f"seed {seed}: {bound.argument}"
    for _, schedule in baselines(pipeline)[:2]:
        assert violations(pipeline, schedule, earliest=True) == [], f"seed {seed}"
        assert schedule.objective(objective) >= best, f"seed {seed}"


def thrice(pipeline: Pipeline) -> Pipeline:
    """All times three times as long, in ticks of the same length."""

    def longer(value: Any) -> Any:
        return tuple(map(longer, value)) if isinstance(value, tuple) else 3 * value if isinstance(value, Fraction) else value

    parts = {
        name: replace(part, **{field.name: longer(getattr(part, field.name)) for field in fields(part)})
        for name, part in (("costs", pipeline.costs), ("links", pipeline.links), ("data_parallel", pipeline.data_parallel))
    }
    return pipeline.changed(**parts, route_of_microbatch=pipeline.route_of_microbatch)


@pytest.mark.parametrize("seed", range(12))
def test_scaling_all_times_scales_all_results(seed: int) -> None:
    pipeline = random_machine(random.Random(seed), 40)
    larger = thrice(pipeline)
    assert (larger.ticks.duration.max(), larger.ticks.lead.max()) == (
        3 * pipeline.ticks.duration.max(),
        3 * pipeline.ticks.lead.max(),
    )
    for (_, once), (_, scaled) in zip(baselines(pipeline), baselines(larger), strict=True):
        assert once.order == scaled.order
        assert (3 * once.makespan, 3 * once.device_span) == (scaled.makespan, scaled.device_span)
        assert 3 * exposed_traffic(once) == exposed_traffic(scaled)
        for a, b in zip((*once.start, *once.transfers.start), (*scaled.start, *scaled.transfers.start), strict=True):
            assert (3 * a == b).all()
    for objective in OBJECTIVES:
        for of in (bounds.work, bounds.machine, bounds.memory):
            less, more = of(pipeline, objective, pairs=True), of(larger, objective, pairs=True)
            assert (less is None) == (more is None)
            assert less is None or more is None or more.value == 3 * less.value


@pytest.mark.parametrize("seed", range(4))
def test_scaling_all_times_scales_the_optimum(seed: int) -> None:
    pipeline, objective = random_machine(random.Random(seed), 14), OBJECTIVES[seed % 2]
    values = [solve(p, objective=objective, seconds=20, workers=1) for p in (pipeline, thrice(pipeline))]
    assert {result.reason for result in values} == {"optimal"}
    assert 3 * values[0].lower_bound == values[1].lower_bound


def test_what_traffic_exposes_is_measured_with_the_transfers_in_their_order() -> None:
    # the best order of the transfers is another one than first come, first served, which alone takes longer than all of this
    links = Links(Fraction(1, 2), ((0, 0, 1, 1), (0, 0, 1, 1), (1, 1, 0, 0), (1, 1, 0, 0)), True)
    pipeline = Pipeline(4, 6, links=links, data_parallel=DataParallel(1, 1))
    schedule = solve(pipeline, seconds=20, workers=1).schedule
    assert schedule is not None
    without = pipeline.changed(data_parallel=DataParallel())
    assert time_order(without, schedule.order).makespan > in_turn(without, schedule.order, begun(schedule)).makespan
    assert 0 < exposed_traffic(schedule) <= 2 * pipeline.ticks.per_unit


@pytest.mark.parametrize("seed", range(12))
def test_what_takes_nothing_changes_nothing(seed: int) -> None:
    """Links that are never held, pairs that save nothing, traffic of no length: the same rules, cuts and schedules as without."""
    machine = random_machine(random.Random(seed), 40)
    everyone = [(a, b) for a in range(machine.devices) for b in range(machine.devices) if a != b]
    plain, same = (
        machine.changed(
            costs=replace(machine.costs, overlap=overlap),
            links=links,
            data_parallel=traffic,
            route_of_microbatch=machine.route_of_microbatch,
        )
        for overlap, links, traffic in (
            (None, Links(machine.links.latency), DataParallel()),
            (1000, Links(machine.links.latency, 0, True, [everyone]), DataParallel(0, 0, True, "stage")),
        )
    )
    assert rules_of(same) == rules_of(plain)
    assert cuts_of(same) == cuts_of(plain)
    assert free_choices(same) == free_choices(plain)
    for (_, a), (_, b) in zip(baselines(plain), baselines(same), strict=True):
        assert a.order == b.order
        assert [row.tolist() for row in a.start] == [row.tolist() for row in b.start]
        assert (a.makespan, a.device_spans, b.transfers) == (b.makespan, b.device_spans, Transfers())
    for objective in OBJECTIVES:
        for of in (bounds.work, bounds.machine, bounds.memory):
            assert of(plain, objective) == of(same, objective, pairs=True)


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


# --- without a rule ------------------------------------------------------------------------------------------------


def rule_of(word: Word) -> str:
    """Which rule a word is part of."""
    if isinstance(word, Precede):
        assert isinstance(word.before, Family)
        assert isinstance(word.after, Family)
        kinds = ["F" if family.kind == Kind.F else "W" if family.kind == Kind.W else "B" for family in (word.before, word.after)]
        ends = ["transfer" if sends(s) else kind for s, kind in zip((word.before, word.after), kinds, strict=True)]
        return f"{ends[0]} before {ends[1]}"
    if isinstance(word, Exclusive):
        sending = [sends(stream) for stream in word.streams]
        return "device" if not any(sending) else "link" if all(sending) else "blocking"
    if isinstance(word, OneOf):
        stream = word.alternatives[0][0]
        assert isinstance(stream, Family)
        return f"{'transfer' if sends(stream) else 'F' if stream.kind == Kind.F else 'B'} is run"
    assert isinstance(word, Capacity)
    return "memory"


RULES = (
    *("F is run", "B is run", "F before F", "F before B", "B before B", "B before W", "device", "memory"),
    *("transfer is run", "F before transfer", "B before transfer", "transfer before F", "transfer before B", "link", "blocking"),
)


def outcome(solver: Any, pipeline: Pipeline, seconds: float) -> Outcome:
    until = horizon(pipeline)
    words, limits = (*rules_of(pipeline), *free_choices(pipeline)), Limits.of(seconds, workers=1)
    found: Outcome = solver.solve(pipeline, words, objective="makespan", lower=0, upper=until, horizon=until, limits=limits)
    return found


def found_out(solver: Any, back_end: str, pipeline: Pipeline, best: int, dropped: str, patch: pytest.MonkeyPatch) -> bool:
    """Whether a solver whose model is not told a rule claims less than the optimum, or finds what is no schedule."""
    model = getattr(solver, back_end)

    def untold(pipeline: Pipeline, words: Sequence[Word], **settings: Any) -> Any:
        return model(pipeline, [word for word in words if isinstance(word, Pairable) or rule_of(word) != dropped], **settings)

    patch.setattr(solver, back_end, untold)
    begun = time.monotonic()
    try:
        found = outcome(solver, pipeline, seconds=5)
    except (ValueError, KeyError, PulpSolverError):  # what it found has no times, or something in it is not run
        return True
    claimed = found.lower_bound < best and time.monotonic() - begun < 4  # else it may have run out of time
    return claimed or (found.schedule is not None and bool(violations(pipeline, found.schedule)))


@pytest.mark.parametrize(("solver", "back_end"), [(question, "Model"), (engine, "Program")], ids=["cp-sat", "ilp"])
def test_every_rule_that_a_back_end_is_not_told_is_found_out(solver: Any, back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left, both_ways = set(RULES), [[[0, 1], [1, 0]]]
    for pipeline in (
        Pipeline(2, 2, costs=Costs(backward=2, backward_input=1, backward_weight=1), memory=Memory(limit=1)),
        Pipeline(2, 2),
        Pipeline(2, 3, costs=Costs(backward=2), links=Links(0, 3, False, both_ways)),
        Pipeline(2, 2, costs=Costs(backward=2), links=Links(0, 3, True)),
    ):
        some = left & {rule_of(word) for word in rules_of(pipeline)}
        whole = outcome(solver, pipeline, seconds=10)
        assert whole.schedule is not None
        assert whole.lower_bound == whole.schedule.makespan
        for rule in sorted(some):
            with monkeypatch.context() as patch:
                left -= {rule} if found_out(solver, back_end, pipeline, whole.lower_bound, rule, patch) else set()
    assert not left
