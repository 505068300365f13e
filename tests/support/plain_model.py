"""A plain model of the whole pipeline, operation by operation, that shares nothing with the package."""

from __future__ import annotations

from ortools.sat.python import cp_model

from ppopt import bounds
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.pipeline.ticks import horizon_of


def optimum(pipeline: Pipeline, objective: str, in_order: bool = True, patience: float = 0.5) -> int | None:
    """The optimum by CP-SAT: one interval per operation of every microbatch, each way of the backward optional.

    ``in_order`` keeps microbatches in order at every forward and every handing over of a gradient: the cut without which
    only the smallest cases are solved; :func:`test_order_of_microbatches_costs_nothing` solves these without. ``None`` where it
    takes longer than ``patience`` (deterministic time).
    """
    model = cp_model.CpModel()
    duration, latency, amounts = pipeline.ticks.duration, pipeline.ticks.latency, pipeline.amounts
    horizon = horizon_of(pipeline)
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
            begun, handed, released, finished = (model.new_int_var(0, horizon, "") for _ in range(4))
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
                    model.add(begun == start + length).only_enforce_if(literal)  # nothing is held from there on
                    model.add(finished == start + length).only_enforce_if(literal)
                else:
                    late = op(device, weight, literal)
                    model.add(late >= start + length).only_enforce_if(literal)
                    model.add(begun == start).only_enforce_if(literal)
                    model.add(finished == late + weight).only_enforce_if(literal)
            gradient = handed
            keep_order(route, stage, "I", value=handed)
            keep_order(route, stage, "W", value=finished)
            kept = min(activation, retained)
            for amount, begin, end in (
                (activation - kept, forward_start[stage], released),
                (kept, forward_start[stage], finished),
                (retained - kept, begun, finished),
            ):
                size = model.new_int_var(0, horizon, "")
                held[device].append((model.new_interval_var(begin, size, end, ""), amount))
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
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = patience
    return round(solver.objective_value) if solver.solve(model) == cp_model.OPTIMAL else None


def linear(devices, microbatches, forward=1, input_=1, weight=1, latency=0, limit=None, placement="linear", chunks=1, **memory):
    """Costs of one operation; memory in activations of one stage."""
    return Pipeline(
        devices,
        microbatches,
        placement,
        chunks,
        costs=Costs(per="stage", forward=forward, backward_input=input_, backward_weight=weight),
        links=Links(latency=latency),
        memory=Memory(limit=limit, **memory),
    )


def idle(bound: bounds.Bound | None, pipeline: Pipeline) -> int:
    assert bound is not None
    return bound.value - int(pipeline.work.max())


REAL = {"forward": 185, "input_": 181, "weight": 93, "latency": 6}
