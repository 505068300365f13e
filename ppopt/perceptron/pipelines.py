"""A perceptron on a grid as the pipeline of one replica, for the schedules and the search of this package."""

from __future__ import annotations

import math
from typing import Any

from ppopt.perceptron.cost_models import CostModel
from ppopt.perceptron.sizes import Grid, Perceptron
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Pipeline, Units

DIGITS = 5
"""Digits of the longest time."""


def pipeline_of(perceptron: Perceptron, grid: Grid, model: CostModel) -> Pipeline:
    """The stages of a replica as a pipeline on the linear placement, in ms and GB (1e9 bytes); any schedule may run it.

    A forward is what a stage runs on a microbatch, with the sums over its tensor parts; the backward is split into the gradients
    of its input and of its weights, which add to those of microbatches before (here of every microbatch; the first has none to
    add to). A transfer holds its link; with the quirk ``blocking`` it stops both ends. Sums over replicas come behind. Of the
    memory, ``static`` are weights and their gradients, ``activation`` what the products and ReLUs of a stage keep. What
    ``inputs-in-step`` sends is left out, and so is what replicas gather.

    Raises:
        EstimateError: the perceptron cannot be cut like that.
    """
    grid.check(perceptron)
    samples, parts = perceptron.batch // grid.data // grid.microbatches, grid.tensor
    each = perceptron.layers // grid.pipeline
    costs: dict[str, list[float]] = {"forward": [], "backward_input": [], "backward_weight": []}
    kept, sent = [], []
    for stage in range(grid.pipeline):
        forward = back = weight = held = 0.0
        for layer in range(stage * each, (stage + 1) * each):
            inner, outer = (perceptron.width // (parts if cut else 1) for cut in (layer % 2, 1 - layer % 2))
            summed = model.all_reduce(model.number_bytes * samples * perceptron.width, parts) if parts > 1 else 0.0
            forward += model.product(samples, inner, outer) + model.elementwise(samples * outer)
            back += model.product(samples, outer, inner) + model.elementwise(samples * outer, 2)
            weight += model.product(inner, samples, outer)
            weight += model.elementwise(inner * outer, 2) if grid.microbatches > 1 else 0.0
            forward, back = forward + summed * (layer % 2), back + summed * (1 - layer % 2)
            held += model.number_bytes * samples * (inner + outer)
        if stage == grid.pipeline - 1:
            forward += 2 * model.elementwise(samples * outer)
        for name, seconds in zip(costs, (forward, back, weight), strict=True):
            costs[name].append(seconds)
        kept.append(held)
        sent.append(model.send(model.number_bytes * samples * outer))
    gradients = model.number_bytes * perceptron.width**2 // parts
    ranks = parts if parts > 1 and "gradients-in-tensor-group" in model.quirks else grid.data
    scatter = each * model.all_reduce(gradients, ranks) if grid.data > 1 else 0.0
    update = {"optimizer": model.elementwise(perceptron.width**2 // parts, 2)} if model.optimizer else {}
    return _pipeline(grid, costs, scatter, update, kept, sent, 2.0 * each * gradients, blocking="blocking" in model.quirks)


def _pipeline(
    grid: Grid,
    costs: dict[str, list[float]],
    scatter: float,
    update: dict[str, float],
    kept: list[float],
    sent: list[float],
    static: float,
    *,
    blocking: bool,
) -> Pipeline:
    """In whole parts of a ms, rounded to so many digits of the longest time."""
    longest = 1000 * max(max(values) for values in costs.values())
    places = DIGITS - 1 - math.floor(math.log10(longest))

    def ms(seconds: float) -> float:
        return round(1000 * seconds, places)

    devices = range(grid.pipeline)
    given: dict[str, Any] = {name: [ms(s) for s in each] for name, each in costs.items()}
    given |= {name: ms(s) for name, s in update.items()}
    table: Any = [[ms(sent[min(a, b)]) if abs(a - b) == 1 else 0 for b in devices] for a in devices]
    return Pipeline(
        grid.pipeline,
        grid.microbatches,
        costs=Costs(per="stage", **given),
        links=Links(occupancy=table, blocking=blocking),
        memory=Memory([round(size / 1e9, 9) for size in kept], static=round(static / 1e9, 9)),
        data_parallel=DataParallel(reduce_scatter=ms(scatter)),
        units=Units("ms", "GB"),
    )
