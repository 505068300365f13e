"""Every bound against optima that share nothing with it: a plain model of the whole pipeline, operation by operation."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from ppopt.bounds.latest_starts import beside_span
from ppopt.clock import Limits
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from tests.support import tuned
from tests.support.places import DATA
from tests.support.plain_model import optimum
from tests.support.tiers import SOME, thorough


def case(seed: int) -> Pipeline:
    """A small pipeline; placements, uneven costs, latencies, ways of the backward and memory limits in turn."""
    rng = random.Random(seed)
    devices = rng.choice([1, 2, 2, 3, 3])
    placement, chunks = rng.choice([("linear", 1), ("loop", 2), ("wave", 2), ("bidirectional", 1), ("routes", 1), ("linear", 1)])
    stages = devices * chunks
    routes: tuple[tuple[int, ...], ...] = ()
    if placement == "routes":
        placement = "linear"
        stages = devices + rng.randint(0, 2)
        route = [*range(devices), *(rng.randrange(devices) for _ in range(stages - devices))]
        rng.shuffle(route)
        routes = (tuple(route),)
    elif placement == "bidirectional" and devices == 1:
        placement = "linear"
    microbatches = rng.randint(1, 5 if stages <= 2 else 4 if stages <= 3 else 3 if stages <= 4 else 2)

    def values(low: int, high: int, even: bool):
        return rng.randint(low, high) if even else [rng.randint(low, high) for _ in range(stages)]

    even = rng.random() < 0.5
    forward, input_, weight = values(0 if rng.random() < 0.2 else 1, 5, even), values(1, 5, even), values(0, 4, even)
    costs = Costs(per="stage", forward=forward, backward_input=input_, backward_weight=weight)
    way = rng.random()
    if way < 0.2:
        costs = Costs(per="stage", forward=forward, backward=input_)
    elif way < 0.35:
        costs = replace(costs, backward=values(2, 6, even))
    if rng.random() < 0.3:
        latency = [[0 if a == b else rng.randint(0, 3) for b in range(devices)] for a in range(devices)]
    else:
        latency = rng.choice([0, 0, 1, 3])
    memory = Memory()
    if rng.random() < 0.8:
        amounts = [rng.randint(1, 2) for _ in range(stages)] if rng.random() < 0.3 else 1
        memory = Memory(
            activation=amounts,
            retained=rng.choice([None, 0, 0.4, 0.5, 1]),
            static=rng.choice([0, 1]),
        )
        least = Pipeline(devices, microbatches, placement, chunks, routes, memory=replace(memory, limit=100), costs=costs)
        need = [0] * devices
        for r, route_ in enumerate(least.routes):
            of_route = [0] * devices
            for s, d in enumerate(route_):
                of_route[d] += least.amounts.activation[r, s] / least.amounts.per_unit
            need = [max(a, b) for a, b in zip(need, of_route, strict=True)]
        static = [float(s) / least.amounts.per_unit for s in least.amounts.static]
        extra = [rng.choice([0, 0.5, 1, 1, 2, 3]) for _ in range(devices)]
        memory = replace(memory, limit=[n + s + e for n, s, e in zip(need, static, extra, strict=True)])
    links = Links(latency=latency)
    return Pipeline(devices, microbatches, placement, chunks, routes, costs=costs, links=links, memory=memory)


def crowded(seed: int) -> Pipeline:
    """Little memory and more microbatches: the device span's windows depend on how late devices may begin and end."""
    rng = random.Random(seed)
    devices = rng.choice([2, 2, 3])
    chunks = rng.choice([1, 1, 1, 2]) if devices == 2 else 1
    microbatches = rng.randint(3, 4 if devices == 3 or chunks == 2 else 6)

    def values(low: int, high: int):
        return [rng.randint(low, high) for _ in range(devices * chunks)] if rng.random() < 0.5 else rng.randint(low, high)

    return Pipeline(
        devices,
        microbatches,
        rng.choice(["loop", "wave"]) if chunks == 2 else "linear",
        chunks,
        costs=Costs(per="stage", forward=values(1, 3), backward_input=values(1, 3), backward_weight=values(0, 2)),
        links=Links(latency=rng.choice([0, 0, 1])),
        memory=Memory(limit=[chunks * rng.randint(1, 2) for _ in range(devices)], retained=rng.choice([None, None, 0.5])),
    )


OPTIMA = json.loads((DATA / "small_optima.json").read_text())
"""Per seed of :func:`case` and :func:`crowded` the optimal makespan and device span; ``null`` where that took too long."""


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize(
    ("make", "seeds"),
    [
        (case, (0, 1, 2, 4)),
        pytest.param(case, (3, 7, 9, 11, 13, 15), marks=thorough),
        (crowded, (1,)),
        pytest.param(crowded, (2,), marks=thorough),
    ],
)
def test_the_recorded_optima(make, seeds, objective):
    for seed in seeds:
        assert optimum(make(seed), objective, patience=5) == OPTIMA[make.__name__][seed][objective == "span"], f"seed {seed}"


def recorded(make, objective: str) -> list[tuple[int, int]]:
    optima = [row[objective == "span"] for row in OPTIMA[make.__name__]]
    return [(seed, value) for seed, value in enumerate(optima) if value is not None]


@SOME
@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_never_above_the_optimum(objective, every):
    """All bounds; most of them are tight, and from each argument some, so one that is a tick too high is found."""
    tight: Counter[str] = Counter()
    cases = recorded(case, objective)[:: min(every, 2)]
    for seed, optimal in cases:
        best = None
        for bound in tuned.best(case(seed), objective, target=optimal, limits=Limits.of(0.1, deterministic=True)):
            assert best is None or bound.value > best.value
            best = bound
            assert best.value <= optimal, f"seed {seed}: {best}"
        tight[best.argument] += best.value == optimal
    assert len(cases) > 150 / min(every, 2)
    assert tight.total() > 0.75 * len(cases)
    assert min(tight[argument] for argument in ("work", "one-machine", "memory", "window certificate")) > 0


@SOME
@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("make", [case, crowded])
def test_windows_of_any_length_and_grain_are_valid(make, objective, every):
    """Without a target, and far from the lengths that the ladder would choose."""
    tight = used = 0
    makespans = dict(recorded(make, "makespan"))
    for seed, optimal in recorded(make, objective)[:40:every]:
        makespan, pipeline = makespans.get(seed), make(seed)
        for share, grain in ((2, 1), (3, 1), (4, 1), (3, 2)):
            first = (makespan or 0) // share
            if first >= grain:
                window = tuned.window(
                    pipeline,
                    first,
                    makespan - first,
                    objective,
                    makespan=makespan,
                    grain=grain,
                    limits=Limits.of(0.1, deterministic=True),
                )
                assert window is not None
                used += 1
                tight += window.value == optimal
                assert window.value <= optimal, f"seed {seed}, {first} ticks, grain {grain}: {window}"
    assert used > 80 / every
    assert tight > used / 4


@pytest.mark.parametrize("make", [case, crowded])
def test_a_makespan_is_no_longer_than_the_span_and_what_is_beside_it(make):
    makespans = dict(recorded(make, "makespan"))
    known = 0
    for seed, span in recorded(make, "span"):
        beside = beside_span(make(seed))
        if beside is not None and seed in makespans:
            known += 1
            assert span >= makespans[seed] - beside, f"seed {seed}"
    assert known >= 20


def test_order_of_microbatches_costs_nothing():
    """The cut that makes the plain model of these tests quick keeps the optimum, as do the bounds that rest on it."""
    compared = 0
    for seed in range(25):
        pipeline = case(seed)
        if pipeline.microbatches * pipeline.stages <= 8:
            with_cut, without = optimum(pipeline, "makespan"), optimum(pipeline, "makespan", in_order=False)
            if with_cut is not None and without is not None:
                compared += 1
                assert with_cut == without, f"seed {seed}"
    assert compared > 5
