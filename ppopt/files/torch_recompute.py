"""What PyTorch runs twice: activations that are made again by stages whose backward is split (docs/torch.md)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.pipeline.rewriting import working_once, written_out
from ppopt.schedule import Schedule
from ppopt.text import number
from ppopt.timing import begun, in_turn, time_order


def twice(schedule: Schedule) -> tuple[str, ...]:
    """What the makespan is where these stages make their activations again in ``W`` as well as in ``I``, in a sentence.

    Non-reentrant checkpointing runs the forward again in every pass of autograd, and ``W`` is one for every group of parameters:
    once is the least. Stage 0 has no pass in ``I``. Nothing where no stage recomputes and splits its backward.
    """
    pipeline = schedule.pipeline
    extra = _again(pipeline)
    slots = pipeline.stages * pipeline.microbatches
    split = {
        int(n) % slots // pipeline.microbatches
        for row in schedule.order.rows
        for n in row[(row >= Kind.W * slots) & (row < (Kind.W + 1) * slots)]
    }
    stages = [stage for stage in sorted(split) if stage and extra[stage]]
    if not stages:
        return ()
    flat = written_out(_unlimited(pipeline.flat()))
    weight = flat.costs.backward_weight
    assert isinstance(weight, tuple), "what recomputes is written out stage by stage"
    longer = tuple(w + extra[s] * (s in stages) for s, w in enumerate(weight))
    slower = flat.changed(
        costs=replace(flat.costs, backward_weight=longer, backward=flat.costs.backward or _whole(flat)),
        route_of_microbatch=pipeline.route_of_microbatch,
    )
    order = schedule.order
    timed = in_turn(slower, order, begun(schedule)) if slower.lines else time_order(slower, order)
    unit = f" {pipeline.units.time}".rstrip()
    makespan, planned = (number(each.pipeline.time(each.makespan)) for each in (timed, schedule))
    names = ", ".join(map(str, stages))
    several = len(stages) > 1
    return (
        f"stage{'s' * several} {names} recompute{'s' * (not several)} with a split backward: PyTorch makes the activations again "
        f"in I and, with non-reentrant checkpointing, in W too, once at least: makespan {makespan}{unit} or more, planned "
        f"{planned}{unit}; reentrant checkpointing fails there",
    )


def _again(pipeline: Pipeline) -> list[Fraction]:
    """By stage, the time in which it makes its activations again, in the user's unit."""
    if pipeline.recompute == "none":
        return [Fraction(0)] * pipeline.stages
    kept = working_once(pipeline)
    times = [[Fraction(int(tick), each.ticks.per_unit) for tick in each.ticks.duration[0, Kind.B]] for each in (pipeline, kept)]
    return [a - b for a, b in zip(*times, strict=True)]


def _unlimited(pipeline: Pipeline) -> Pipeline:
    memory = replace(pipeline.memory, limit=None)
    return pipeline.changed(memory=memory, route_of_microbatch=pipeline.route_of_microbatch)


def _whole(pipeline: Pipeline) -> tuple[Fraction, ...]:
    """What a backward in one piece takes, stage by stage: it makes the activations again once."""
    per_unit = pipeline.ticks.per_unit
    return tuple(Fraction(int(tick), per_unit) for tick in pipeline.ticks.duration[0, Kind.B])
