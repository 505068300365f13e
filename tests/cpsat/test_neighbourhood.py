"""Large neighbourhood search: a window's model is right about the whole schedule, and it ends with an optimum."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings

from ppopt import cpsat
from ppopt.bounds import Objective, machine, memory
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import cuts_of, free_choices
from ppopt.cpsat.around import Around
from ppopt.cpsat.engine import DECIDING, SPANS, search
from ppopt.cpsat.neighbourhood import Grown, improved, in_two
from ppopt.cpsat.window import Window
from ppopt.heuristics import baselines
from ppopt.heuristics.baselines import with_room
from ppopt.named import find
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Mix, Offload, Pipeline
from ppopt.schedule import Schedule
from ppopt.search.tuning import NEIGHBOURHOODS
from ppopt.timing import time_order
from tests.support import tuned
from tests.support.cases import Case, left_open, some, worst
from tests.support.strategies import pipelines
from tests.support.tiers import thorough
from tests.support.unaided import optimum

PIPELINES = {
    "one stage each": Pipeline(3, 5, costs=Costs(forward=4, backward_input=3, backward_weight=3), memory=Memory(limit=2)),
    "wave": Pipeline(
        2, 4, placement="wave", chunks=2, costs=Costs(forward=4, backward_input=4, backward_weight=2), memory=Memory(limit=1.5)
    ),
    "links": Pipeline(3, 3, links=Links(1, occupancy=2), costs=Costs(forward=3, backward_input=4, backward_weight=3)),
    "exchanged": Pipeline(
        3,
        4,
        costs=Costs(forward=4, backward_input=3, backward_weight=3, optimizer=(0, 2, 1)),
        data_parallel=DataParallel((2, 0, 1), (6, 0, 1)),
    ),
    "exchanged stage by stage": Pipeline(
        2,
        4,
        placement="wave",
        chunks=2,
        costs=Costs(forward=4, backward_input=4, backward_weight=2),
        data_parallel=DataParallel((3, 1, 2, 5), (9, 2, 2, 7), per="stage", overlap=True),
    ),
    "blocking": Pipeline(
        3, 3, links=Links(1, occupancy=2, blocking=True), costs=Costs(forward=3, backward_input=4, backward_weight=3)
    ),
}


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("name", PIPELINES)
def test_a_window_knows_what_becomes_of_the_whole(name: str, objective: Objective) -> None:
    """What the model of a window says of the objective holds for the schedule that it leads to, exactly."""
    rng, changed = random.Random(3), 0
    for _, schedule in baselines(PIPELINES[name]):
        around = Around(schedule, objective)
        since, until = sorted(rng.sample(sorted(set(around.start)), 2))
        window = Window(around, since, until)
        answer = search(window.model, Limits.of(0.3, deterministic=True), SPANS if objective == "span" else DECIDING)
        assert answer.found
        found = window.schedule(answer)
        assert found is not None
        assert violations(schedule.pipeline, found) == []
        assert found.objective(objective) <= answer.objective <= schedule.objective(objective)
        if "blocking" not in name:  # there what happens elsewhere may be out of the way at last
            assert found.objective(objective) == answer.objective or objective == "span"
        changed += found.order != schedule.order
    assert changed


@pytest.mark.parametrize("name", PIPELINES)
def test_the_worst_list_schedule_becomes_an_optimum(name: str) -> None:
    pipeline = PIPELINES[name]
    best = optimum(cpsat, pipeline, "makespan", (*free_choices(pipeline), *cuts_of(pipeline)))
    assert best is not None
    start = worst(pipeline, "makespan")
    found = tuned.improved(start, objective="makespan", lower=0, limits=Limits.of(60, workers=2)).schedule or start
    assert violations(pipeline, found) == []
    assert found.makespan == best  # in the end everything was in the window


def test_a_search_goes_on_where_another_one_stopped() -> None:
    start, grown = worst(Pipeline(4, 16, memory=Memory(limit=4)), "makespan"), Grown()
    first = {False: NEIGHBOURHOODS.first_size, True: NEIGHBOURHOODS.first_size_where_begins_move}

    def searched(seconds: float) -> Schedule:
        limits = Limits.of(seconds, deterministic=True)
        return tuned.improved(start, objective="makespan", lower=0, limits=limits, grown=grown).schedule or start

    searched(0.05)
    assert grown.chance is not None
    size, at = grown.size[False], grown.chance.getstate()
    assert size > first[False]
    searched(0.2)
    assert grown.chance.getstate() != at  # other windows
    assert grown.size[False] > size
    again = Grown()
    few = worst(Pipeline(2, 3), "makespan")
    assert tuned.improved(few, objective="makespan", lower=0, limits=Limits.of(60, deterministic=True), grown=again).schedule
    assert again.size == first  # everything was in a window


@pytest.mark.parametrize(("examples", "fewest"), [(5, 1), pytest.param(10, 2, marks=thorough)], ids=["few", "all"])
def test_random_pipelines(examples: int, fewest: int) -> None:
    better = 0

    @settings(max_examples=examples)
    @given(some(pipelines(30)).filter(left_open))
    def on(case: Case) -> None:
        nonlocal better
        pipeline, objective = case
        start = worst(pipeline, objective)
        found = tuned.improved(start, objective=objective, lower=0, limits=Limits.of(0.5, workers=1)).schedule
        if found is not None:
            better += 1
            assert violations(pipeline, found) == []
            assert found.objective(objective) < start.objective(objective)

    on()
    assert better >= fewest


def test_what_was_found_before_an_interrupt_is_kept() -> None:
    def interrupt(value: int | None, lower: int) -> None:
        raise KeyboardInterrupt

    start = worst(Pipeline(2, 4), "makespan")
    outcome = tuned.improved(start, objective="makespan", lower=0, limits=Limits.of(10, workers=1), progress=interrupt)
    assert outcome.interrupted
    assert outcome.schedule is not None
    assert outcome.schedule.makespan < start.makespan


def test_the_same_again_in_deterministic_mode() -> None:
    pipeline = Pipeline(4, 5, placement="wave", chunks=2, costs=Costs(forward=7, backward_input=8, backward_weight=5))
    start = worst(pipeline, "makespan")
    limits = [Limits.of(0.2, deterministic=True) for _ in range(2)]
    first, again = (tuned.improved(start, objective="makespan", lower=0, limits=each) for each in limits)
    assert first.schedule is not None
    assert again.schedule is not None
    assert first.schedule.order == again.schedule.order
    assert limits[0].clock.spent == limits[1].clock.spent > 0


def test_no_search_where_the_bound_is_met() -> None:
    start = worst(PIPELINES["wave"], "makespan")
    assert tuned.improved(start, objective="makespan", lower=start.makespan, limits=Limits.of(5)).schedule is None


COPYING = {
    "one stage each": Pipeline(3, 5, memory=Memory(limit=1), offload=Offload(time=1)),
    "shared": Pipeline(3, 4, memory=Memory(limit=2), offload=Offload(time=1.5, amount=0.8, engines=1, shared=[[0, 1]])),
    "chunks": Pipeline(2, 4, placement="wave", chunks=2, memory=Memory(limit=1.5), offload=Offload(time=1, margin=0.5)),
    "fused": Pipeline(3, 4, costs=Costs(backward=2), memory=Memory(limit=2), offload=Offload(time=0.5, host_limit=3)),
}


@pytest.mark.parametrize("name", ["one stage each", *(pytest.param(name, marks=thorough) for name in list(COPYING)[1:])])
def test_windows_move_copies_to_the_host(name: str) -> None:
    """What is found keeps all rules, is better than what it begins with, and never below the bounds."""
    pipeline = COPYING[name]
    lower = max(bound.value for of in (machine, memory) if (bound := of(pipeline)) is not None)
    start = max((s for _, s in with_room(pipeline) if s.within_memory), key=lambda s: s.makespan)
    limits = Limits.of(2, workers=1, deterministic=True)
    found = improved(start, objective="makespan", lower=lower, limits=limits, tuning=NEIGHBOURHOODS).schedule
    assert found is not None
    assert violations(pipeline, found) == []
    assert lower <= found.makespan < start.makespan


def test_backwards_are_split_before_windows_with_copies() -> None:
    pipeline = COPYING["one stage each"]
    fused = time_order(pipeline, find("1f1b").order(pipeline))
    split = in_two(fused)
    assert violations(pipeline, split) == []
    assert split.makespan <= fused.makespan
    assert sum(map(len, split.order.rows)) == 3 * 15
    whole = COPYING["fused"]
    kept = time_order(whole, find("1f1b").order(whole))
    assert in_two(kept) is kept


def test_a_window_beside_copies_keeps_the_given_order() -> None:
    """Beside copies no chain says in which order a stage runs its microbatches; where they differ the model may say it."""
    of = Pipeline(2, 3, mix=Mix(lengths=[1, 2, 1], length=1), memory=Memory(limit=3), offload=Offload(time=0.5))
    around = Around(time_order(of, find("1f1b").order(of)), "makespan")
    node = around.paths.network.node.tolist()
    for stage in range(2):
        for kind in (Kind.F, Kind.B):
            places = [node[of.index.number(Op(stage, kind, m))] for m in range(3)]
            assert min(places) >= 0
            assert all((after, 0) in around.data[before] for before, after in pairwise(places))
