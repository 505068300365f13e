"""Pipelines for modulo scheduling."""

from fractions import Fraction
from itertools import islice

from ppopt.checker import violations
from ppopt.constraints import FamilyGraph, graphs_of
from ppopt.periodic import PeriodicSchedule
from ppopt.periodic.periodic_schedule import order_from
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.timing import time_order
from tests.support import tuned

REAL = Costs(forward=185, backward_input=181, backward_weight=93)

LINKS = Links(latency=6)

PIPELINES = {
    "one device": Pipeline(1, 40),
    "linear": Pipeline(4, 40, memory=Memory(limit=3)),
    "real costs": Pipeline(4, 40, costs=REAL, links=LINKS, memory=Memory(limit=3, retained=Fraction("0.366"))),
    "wave": Pipeline(4, 40, placement="wave", chunks=2, costs=REAL, links=LINKS, memory=Memory(activation=1, limit=3)),
    "loop": Pipeline(3, 40, placement="loop", chunks=2, costs=REAL, links=LINKS, memory=Memory(activation=1, limit=2)),
    "two routes": Pipeline(2, 40, placement="bidirectional", memory=Memory(limit=3)),
    "uneven": Pipeline(3, 40, costs=Costs(forward=(1, 30, 2), backward_input=(2, 1, 20), backward_weight=(1, 2, 0))),
    "fused": Pipeline(3, 40, costs=Costs(backward=2), memory=Memory(limit=3)),
    "slow links": Pipeline(2, 40, links=Links(latency=70), memory=Memory(limit=4)),
    "nothing takes time": Pipeline(2, 40, costs=Costs(forward=0, backward_input=0, backward_weight=0)),
}


def graph_of(name: str) -> FamilyGraph:
    return graphs_of(PIPELINES[name])[0]


def keeps_the_rules(name: str, periodic: PeriodicSchedule) -> None:
    """The checker has nothing against it, with none, one and five periods more."""
    assert periodic.is_valid()
    for copies in (0, 1, 5):
        counts = [count + copies * periodic.unroll for count in periodic.microbatches]
        pipeline = PIPELINES[name].changed(microbatches=sum(counts))
        schedule = time_order(pipeline, order_from(pipeline, periodic.graph, periodic.expanded(copies)))
        assert violations(pipeline, schedule) == []
        promised = periodic.makespan_for(counts)
        assert promised is not None
        assert schedule.makespan <= promised


def examples(name: str, unroll: int) -> list[PeriodicSchedule]:
    routes = len(PIPELINES[name].routes)
    found = (kernel for kernel in tuned.placed_kernels(graph_of(name), unroll) if kernel is not None)
    return [kernel.with_ends((40 // routes,) * routes) for kernel in islice(found, 2)]
