"""The least memory with which a pipeline that leaves its cut open can run at all: one microbatch at a time, on the best cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from ppopt.bounds.certificates import Certificate
from ppopt.bounds.ways import Part, Way
from ppopt.clock import Limits
from ppopt.interrupt import uninterrupted
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.search.layer_amounts import saved_by


def least_memory(pipeline: Pipeline, shares: Sequence[Fraction], limits: Limits) -> Fraction:
    """The smallest factor by which ``shares`` of each device have to be multiplied for some cut to have room for a microbatch.

    Where what recomputes is open, all that can does. Where microbatches differ, it is about the sequence that holds most. Where
    the time is over before that is known, or the pipeline has two ways, it is a lower bound.
    """
    with uninterrupted():  # the solver is imported when it is used
        from ppopt.bounds.cuts import CutModel
    layers, static = pipeline.layers, pipeline.memory.static
    assert layers is not None
    parts = zip(layers.each("activation"), layers.each("weights"), strict=True)
    most = pipeline.mix.most_held(pipeline.microbatches)
    held = [
        ((activation or Fraction(0)) - saved_by(layers, group, pipeline.recompute)) * most + (weights or Fraction(0))
        for group, (activation, weights) in enumerate(parts)
    ]
    own = [held[group] for group in layers.group_of]
    beside = static if isinstance(static, tuple) else (static,) * pipeline.devices
    if len(pipeline.ways) > 1:
        return (sum(own, Fraction(0)) + sum(beside)) / (sum(shares) or 1)
    per_unit = math.lcm(*(value.denominator for value in (*own, *beside)))
    common = math.lcm(*(share.numerator for share in shares if share))
    nothing = [0] * len(own)
    stages = len(pipeline.routes[0])
    model = CutModel({Kind.F: [int(value * per_unit) for value in own], Kind.I: nothing, Kind.W: nothing}, stages)
    for device, share in enumerate(shares):
        if share:
            factor = int(common / share)
            times = {Part(Kind.F, stage): factor for stage, on in enumerate(pipeline.routes[0]) if on == device}
            model.learn(Certificate((Way(),), Way.of(times, int(beside[device] * per_unit) * factor), (Way(),)))
    return Fraction(model.least(limits, 0, 2**49).bound, per_unit * common)
