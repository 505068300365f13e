"""What every schedule of a pipeline must obey."""

from __future__ import annotations

from ppopt.constraints.words import Capacity, Exclusive, Family, Hold, OneOf, Precede, Stream, Word
from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def rules_of(pipeline: Pipeline) -> tuple[Word, ...]:
    """The rules of any schedule of this pipeline; a few per stage, whatever the number of microbatches.

    Every microbatch runs forward through its route and back; a backward is run as ``B``, or as ``I`` and ``W`` where the
    costs have them; results travel over links; a device runs one operation at a time and stays within its memory.
    """
    rules: list[Word] = [*data_of(pipeline)]
    rules += [Exclusive(streams) for streams in _streams_of_devices(pipeline)]
    rules += memory_of(pipeline)
    return tuple(rules)


def data_of(pipeline: Pipeline) -> tuple[Word, ...]:
    """The rules about data: what is run, and what it waits for."""
    return tuple(rule for route in range(len(pipeline.routes)) for rule in _data_of_route(pipeline, route))


def backward_kinds(pipeline: Pipeline) -> tuple[Kind, ...]:
    """The kinds that hand a gradient upstream: ``B``, and ``I`` where the costs have it."""
    return (Kind.B, Kind.I) if pipeline.costs.split else (Kind.B,)


def _data_of_route(pipeline: Pipeline, route: int) -> list[Word]:
    devices, latency = pipeline.routes[route], pipeline.ticks.latency
    kinds = backward_kinds(pipeline)
    rules: list[Word] = []
    for stage, device in enumerate(devices):
        forward = Family(stage, Kind.F, route)
        alternatives: list[tuple[Stream, ...]] = [(Family(stage, Kind.B, route),)]
        rules.append(OneOf(((forward,),)))
        if Kind.I in kinds:
            alternatives.append((Family(stage, Kind.I, route), Family(stage, Kind.W, route)))
            rules.append(Precede(Family(stage, Kind.I, route), Family(stage, Kind.W, route)))
        rules.append(OneOf(tuple(alternatives)))
        if stage:
            lag = int(latency[devices[stage - 1], device])
            rules.append(Precede(Family(stage - 1, Kind.F, route), forward, lag=lag))
        if stage == len(devices) - 1:
            rules += [Precede(forward, Family(stage, kind, route)) for kind in kinds]
        else:
            lag = int(latency[devices[stage + 1], device])
            rules += [
                Precede(Family(stage + 1, upstream, route), Family(stage, kind, route), lag=lag)
                for upstream in kinds
                for kind in kinds
            ]
    return rules


def _streams_of_devices(pipeline: Pipeline) -> list[tuple[Stream, ...]]:
    kinds = tuple(Kind) if pipeline.costs.split else (Kind.F, Kind.B)
    streams: list[list[Stream]] = [[] for _ in range(pipeline.devices)]
    for route, devices in enumerate(pipeline.routes):
        for stage, device in enumerate(devices):
            streams[device] += [Family(stage, kind, route) for kind in kinds]
    return [tuple(of_device) for of_device in streams]


def memory_of(pipeline: Pipeline) -> tuple[Capacity, ...]:
    """The memory limit of every device, static memory taken off; nothing where there is no limit."""
    amounts = pipeline.amounts
    if amounts.limit is None:
        return ()
    capacities = []
    for device in range(pipeline.devices):
        holds: list[Hold] = []
        for route, devices in enumerate(pipeline.routes):
            for stage, held_on in enumerate(devices):
                if held_on == device:
                    holds += _holds_of(pipeline, route, stage)
        capacities.append(Capacity(tuple(holds), int(amounts.limit[device] - amounts.static[device])))
    return tuple(capacities)


def _holds_of(pipeline: Pipeline, route: int, stage: int) -> list[Hold]:
    activation = int(pipeline.amounts.activation[route, stage])
    retained = int(pipeline.amounts.retained[route, stage])
    forward, full, input_, weight = (Family(stage, kind, route) for kind in Kind)
    if not pipeline.costs.split:
        holds = [Hold(forward, (full,), activation)]
    else:
        holds = [Hold(forward, (full, input_), activation - retained), Hold(forward, (full, weight), retained)]
    return [hold for hold in holds if hold.amount]
