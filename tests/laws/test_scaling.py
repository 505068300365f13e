"""What changes nothing and what scales everything, for every pipeline."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import strategies as st

from ppopt import bounds
from ppopt.bounds import Objective
from ppopt.clock import Limits
from ppopt.constraints import cuts_of, free_choices, rules_of
from ppopt.heuristics import baselines
from ppopt.pipeline import Costs, DataParallel, Layers, Links, Memory, Pipeline
from ppopt.schedule import Transfers
from ppopt.search import solve
from ppopt.search.over_cuts import OverCuts
from ppopt.timing import exposed_traffic
from tests.support.search import least
from tests.support.strategies import longer, machines, objectives
from tests.support.tiers import drawn, thorough

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


@drawn(8, 16, machines(40))
def test_scaling_all_times_scales_all_results(pipeline: Pipeline) -> None:
    larger = longer(pipeline, 3)
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
            if less is not None and more is not None:  # memory speaks of whole ticks, of which the coarser says a little more
                assert more.value == 3 * less.value or (of is bounds.memory and abs(more.value - 3 * less.value) < 3)


@drawn(3, 6, machines(14), objectives)
def test_scaling_all_times_scales_the_optimum(pipeline: Pipeline, objective: Objective) -> None:
    scaled = longer(pipeline, 3)
    assert Fraction(least(scaled, objective), scaled.ticks.per_unit) == 3 * Fraction(
        least(pipeline, objective), pipeline.ticks.per_unit
    )


LARGE = (10**9, 10**10 + 3, 10**11)
"""Ticks in one: as many as in times of twelve digits. From numbers of 2**31 on solvers may go wrong."""

ONE_LARGE = [pytest.param(factor, marks=() if factor == LARGE[1] else thorough) for factor in LARGE]
"""One of them in a quick run."""


def uneven(factor: int) -> Pipeline:
    """One whose proof takes decisions and windows."""
    forward, input_, weight = (6, 7, 5, 8, 9, 7), (7, 1, 9, 1, 8, 5), (4, 0, 4, 2, 1, 2)
    costs = Costs(per="stage", forward=forward, backward_input=input_, backward_weight=weight)
    memory = Memory(activation=(3, 6, 3, 2, 6, 5), limit=34)
    return longer(Pipeline(3, 4, "wave", 2, costs=costs, links=Links(1), memory=memory), factor)


@pytest.mark.parametrize("factor", [1, *ONE_LARGE])
def test_the_optimum_is_the_same_in_fine_ticks(factor: int) -> None:
    """Of which all times are multiples of many."""
    result = solve(uneven(factor), seconds=60, workers=1)
    assert (result.reason, result.value) == ("optimal", 148 * factor)


@pytest.mark.parametrize("factor", ONE_LARGE)
def test_nothing_untrue_is_proved_in_fine_ticks(factor: int) -> None:
    """One stage takes a tick longer, so that times have no more in common."""
    pipeline = uneven(factor)
    forward = pipeline.costs.forward
    assert isinstance(forward, tuple)
    costs = replace(pipeline.costs, forward=(forward[0] + 1, *forward[1:]))
    result = solve(pipeline.changed(costs=costs), seconds=2, workers=1)
    assert result.value is not None
    assert 148 * factor <= result.value
    assert result.lower_bound <= 148 * factor + 8  # the forwards and what waits for them


@drawn(3, 30, machines(14), objectives, st.sampled_from(LARGE))
def test_the_optimum_of_any_is_the_same_in_fine_ticks(pipeline: Pipeline, objective: Objective, factor: int) -> None:
    scaled = longer(pipeline, factor)
    value = Fraction(least(pipeline, objective), pipeline.ticks.per_unit)
    assert Fraction(least(scaled, objective), scaled.ticks.per_unit) == factor * value


LAYERS = [(2, 8, 0, 2), (1, 8, 1, 0), (2, 6, 3, 0), (4, 1, 4, 3), (1, 9, 0, 1), (1, 9, 4, 3), (1, 3, 0, 4), (3, 4, 3, 1)]


def layered(time: int, amount: int) -> Pipeline:
    """One of layers within a limit of memory, whose partition is open."""
    names = ("forward", "backward_input", "backward_weight")
    layers = [
        {"name": f"{n}", "activation": held * amount} | {name: value * time for name, value in zip(names, times, strict=True)}
        for n, (*times, held) in enumerate(LAYERS)
    ]
    return Pipeline(3, 2, layers=Layers(layers), partition="best", memory=Memory(limit=10 * amount + min(amount - 1, 7)))


@pytest.mark.parametrize(("time", "amount"), [(1, 1), *((factor, 1) for factor in LARGE), *((1, factor) for factor in LARGE)])
def test_no_more_is_known_of_all_cuts_in_fine_ticks_or_in_bytes(time: int, amount: int) -> None:
    """The best cut takes 92 in coarse ones."""
    over = OverCuts(layered(time, amount), "makespan", Fraction(0))
    assert over.least(Limits.of(30, workers=1), Fraction(100 * time), None) is not None
    assert over.bound <= 92 * time


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
