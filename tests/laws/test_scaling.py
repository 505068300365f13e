"""What changes nothing and what scales everything, for every pipeline."""

from dataclasses import replace

from ppopt import bounds
from ppopt.bounds import Objective
from ppopt.constraints import cuts_of, free_choices, rules_of
from ppopt.heuristics import baselines
from ppopt.pipeline import DataParallel, Links, Pipeline
from ppopt.schedule import Transfers
from ppopt.search import solve
from ppopt.timing import exposed_traffic
from tests.support.strategies import machines, objectives, thrice
from tests.support.tiers import drawn

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


@drawn(8, 16, machines(40))
def test_scaling_all_times_scales_all_results(pipeline: Pipeline) -> None:
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


@drawn(3, 6, machines(14), objectives)
def test_scaling_all_times_scales_the_optimum(pipeline: Pipeline, objective: Objective) -> None:
    values = [solve(p, objective=objective, seconds=60, workers=1) for p in (pipeline, thrice(pipeline))]
    assert {result.reason for result in values} == {"optimal"}
    assert 3 * values[0].lower_bound == values[1].lower_bound


@drawn(8, 16, machines(40))
def test_what_takes_nothing_changes_nothing(machine: Pipeline) -> None:
    """Links that are never held, pairs that save nothing, traffic of no length: the same rules, cuts and schedules as without."""
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
