"""Every bound against optima that share nothing with it: a plain model of the whole pipeline, operation by operation."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

ortools = pytest.importorskip("ortools.sat.python.cp_model")

from ppopt import bounds  # noqa: E402
from ppopt.op import Kind  # noqa: E402
from ppopt.pipeline import Costs, Links, Memory, Pipeline  # noqa: E402


def optimum(pipeline: Pipeline, objective: str, in_order: bool = True, patience: float = 0.5) -> int | None:
    """The optimum by CP-SAT: one interval per operation of every microbatch, each way of the backward optional.

    ``in_order`` keeps microbatches in order at every forward and every handing over of a gradient: the cut without which
    only the smallest cases are solved; :func:`test_order_of_microbatches_costs_nothing` solves these without. ``None`` where it
    takes longer than ``patience`` (deterministic time).
    """
    model = ortools.CpModel()
    duration, latency, amounts = pipeline.ticks.duration, pipeline.ticks.latency, pipeline.amounts
    horizon = int(pipeline._horizon())
    on_device: list[list] = [[] for _ in range(pipeline.devices)]
    times: list[list] = [[] for _ in range(pipeline.devices)]
    held: list[list] = [[] for _ in range(pipeline.devices)]
    latest: dict = {}
    for microbatch in range(pipeline.microbatches):
        route = pipeline.route_of_microbatch[microbatch]

        def keep_order(*key, value, latest=latest):
            if in_order and key in latest:
                model.add(value >= latest[key])
            latest[key] = value

        devices = pipeline.routes[route]
        forward_end: list = []
        forward_start: list = []

        def op(device: int, length: int, presence=None, on_device=on_device, times=times):
            start = model.new_int_var(0, horizon, "")
            if presence is None:
                on_device[device].append(model.new_fixed_size_interval_var(start, length, ""))
            else:
                on_device[device].append(model.new_optional_fixed_size_interval_var(start, length, presence, ""))
            times[device].append((start, length, presence))
            return start

        for stage, device in enumerate(devices):
            start = op(device, int(duration[route, Kind.F, stage]))
            if stage:
                model.add(start >= forward_end[-1] + int(latency[devices[stage - 1], device]))
            forward_start.append(start)
            keep_order(route, stage, "F", value=start)
            forward_end.append(start + int(duration[route, Kind.F, stage]))
        gradient = None
        for stage in reversed(range(pipeline.stages)):
            device = devices[stage]
            activation, retained = int(amounts.activation[route, stage]), int(amounts.retained[route, stage])
            full, input_, weight = (int(duration[route, kind, stage]) for kind in (Kind.B, Kind.I, Kind.W))
            handed, released, finished = (model.new_int_var(0, horizon, "") for _ in range(3))
            ways = [(model.new_bool_var(""), Kind.B)] + ([(model.new_bool_var(""), Kind.I)] if input_ >= 0 else [])
            model.add_exactly_one(literal for literal, _ in ways)
            for literal, kind in ways:
                length = full if kind == Kind.B else input_
                start = op(device, length, literal)
                model.add(start >= forward_end[stage]).only_enforce_if(literal)
                if gradient is not None:
                    lag = int(latency[devices[stage + 1], device])
                    model.add(start >= gradient + lag).only_enforce_if(literal)
                model.add(handed == start + length).only_enforce_if(literal)
                model.add(released == start + length).only_enforce_if(literal)
                if kind == Kind.B:
                    model.add(finished == start + length).only_enforce_if(literal)
                else:
                    late = op(device, weight, literal)
                    model.add(late >= start + length).only_enforce_if(literal)
                    model.add(finished == late + weight).only_enforce_if(literal)
            gradient = handed
            keep_order(route, stage, "I", value=handed)
            keep_order(route, stage, "W", value=finished)
            for amount, end in ((activation - retained, released), (retained, finished)):
                size = model.new_int_var(0, horizon, "")
                held[device].append((model.new_interval_var(forward_start[stage], size, end, ""), amount))
    spans = []
    for device in range(pipeline.devices):
        model.add_no_overlap(on_device[device])
        if amounts.limit is not None:
            room = int(amounts.limit[device] - amounts.static[device])
            model.add_cumulative([interval for interval, _ in held[device]], [amount for _, amount in held[device]], room)
        first, last = model.new_int_var(0, horizon, ""), model.new_int_var(0, horizon, "")
        for start, length, presence in times[device]:
            for constraint in (model.add(first <= start), model.add(last >= start + length)):
                if presence is not None:
                    constraint.only_enforce_if(presence)
        spans.append((first, last))
    value = model.new_int_var(0, horizon, "")
    for first, last in spans:
        model.add(value >= last - (first if objective == "span" else 0))
    model.minimize(value)
    solver = ortools.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = patience
    return int(round(solver.objective_value)) if solver.solve(model) == ortools.OPTIMAL else None


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
            retained=rng.choice([None, None, "0.4", 0, 1]) and rng.choice([0.4, 0.5, 0, 1]),
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


CLOSED_FORM = (bounds.work, bounds.machine, bounds.memory)


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_never_above_the_optimum(objective):
    decided = tight = 0
    for seed in range(40):
        pipeline = case(seed)
        best = optimum(pipeline, objective)
        if best is None:
            continue
        decided += 1
        found = [bound.value for bound in (of(pipeline, objective) for of in CLOSED_FORM) if bound is not None]
        assert max(found) <= best, f"seed {seed}"
        tight += max(found) == best
    assert decided >= 25
    assert tight >= 15, "too few tight cases: a bound one tick too high would go unnoticed"
