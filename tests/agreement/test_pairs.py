"""Overlapped pairs as a decision: all orders there are."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from ppopt import cpsat, ilp
from ppopt.constraints import cuts_of, free_choices, pairs_of
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Order
from ppopt.search import solve
from ppopt.timing import CyclicOrder, time_order
from tests.support.tiers import thorough
from tests.support.unaided import optimum


def paired_rows(ops: Sequence[int], pipeline: Pipeline) -> Iterator[tuple[int, ...]]:
    """Every order of a device's operations, with every set of pairs."""
    slots = pipeline.stages * pipeline.microbatches
    forwards = [op for op in ops if op // slots == Kind.F]
    backwards = [op for op in ops if op // slots == Kind.B]
    for count in range(min(len(forwards), len(backwards)) + 1):
        for some in itertools.combinations(forwards, count):
            for others in itertools.permutations(backwards, count):
                pairs = [pipeline.index.pair(f, b) for f, b in zip(some, others, strict=True)]
                yield from itertools.permutations([*(op for op in ops if op not in {*some, *others}), *pairs])


def by_enumeration(pipeline: Pipeline) -> int:
    """The least makespan over all orders with a fused backward."""
    kinds = (Kind.F, Kind.B)
    rows: list[list[tuple[int, ...]]] = []
    for device in range(pipeline.devices):
        ops = [
            (kind * pipeline.stages + stage) * pipeline.microbatches + m
            for kind, stage, m in itertools.product(kinds, range(pipeline.stages), range(pipeline.microbatches))
            if pipeline.routes[pipeline.route_of_microbatch[m]][stage] == device
        ]
        rows.append(list(paired_rows(ops, pipeline)))
    best = None
    for orders in itertools.product(*rows):
        order = Order(pipeline.index, tuple(np.array(row, dtype=np.int64) for row in orders))
        try:
            schedule = time_order(pipeline, order)
        except CyclicOrder:
            continue
        if schedule.within_memory and (best is None or schedule.makespan < best):
            best = schedule.makespan
    assert best is not None
    return best


LONG = Costs(forward=1, backward_input=1, backward_weight=1, backward=4, overlap=3)
"""A pair takes less than its forward and B, but no less than its forward, I and W."""


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline(1, 3, costs=Costs(forward=2, backward=3, overlap=4), memory=Memory(limit=2)),
        Pipeline(2, 2, costs=Costs(forward=(2, 3), backward=(3, 5), overlap=(4, 5)), links=Links(1)),
        pytest.param(Pipeline(2, 2, "bidirectional", costs=Costs(forward=2, backward=3, overlap=3)), marks=thorough),
        Pipeline(1, 3, costs=LONG, memory=Memory(retained=3, limit=2)),
    ],
    ids=["one device", "linear", "bidirectional", "no room to split"],
)
def test_all_orders(pipeline: Pipeline) -> None:
    least = by_enumeration(pipeline)
    assert optimum(cpsat, pipeline, "makespan", (*free_choices(pipeline), *cuts_of(pipeline))) == least
    assert optimum(cpsat, pipeline, "makespan", pairs_of(pipeline)) == least
    assert optimum(ilp, pipeline, "makespan", (*free_choices(pipeline), *cuts_of(pipeline))) == least
    assert solve(pipeline, workers=1).value == least
