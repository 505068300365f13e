"""Iterated local search over cuts and orders: compared with the best over all cuts, each solved alone."""

from fractions import Fraction

import pytest

from ppopt.checker import violations
from ppopt.clock import Clock
from ppopt.constraints import rules_of
from ppopt.heuristics import list_schedule
from ppopt.named import find
from ppopt.pipeline import DataParallel, Memory, Pipeline, PipelineError
from ppopt.schedule import Objective, Schedule
from ppopt.search import Settings, solve_closed
from ppopt.search.iterated import IteratedSearch
from ppopt.search.listed import Promising
from ppopt.search.near_cuts import value_of
from ppopt.search.order_on_cuts import OrderOnCuts
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.step import Taken
from tests.support.layered import MODEL, cuts, on

SETTINGS = Settings(seconds=60, workers=1)
WAVE = Pipeline(2, 5, "wave", 2, layers=MODEL, partition=(2, 2, 2, 1))
TIGHT = WAVE.changed(memory=Memory(limit=24))
BOUND = tuple(find("1f1b").words(Pipeline(2, 5)))


def counted() -> Clock:
    """Seconds that do not depend on the machine."""
    return Clock(60, deterministic=True)


def searches(
    pipeline: Pipeline, seconds: float = 2.0, objective: Objective = "makespan", room: bool = True, workers: int = 1
) -> IteratedSearch:
    """``room``: whether cuts have room for a microbatch."""
    over = OverCuts(pipeline.changed(partition="best"), objective, Fraction(0))
    on_cuts = OrderOnCuts(over, lambda counts: on(pipeline, counts) if room else None, 0)
    return IteratedSearch(Settings(seconds=60, workers=workers), seconds, on_cuts)


def some_schedule(pipeline: Pipeline) -> Schedule:
    schedule = list_schedule(pipeline, rules_of(pipeline))
    assert schedule is not None
    return schedule


def least(pipeline: Pipeline) -> Fraction:
    """The best over all cuts, each solved alone."""
    values = []
    for counts in cuts(len(MODEL), pipeline.stages):
        try:
            result = solve_closed(pipeline.changed(partition=counts), settings=SETTINGS)
        except PipelineError:
            continue
        if result.schedule is not None:
            assert result.reason == "optimal"
            values.append(value_of(result.schedule, "makespan"))
    return min(values)


@pytest.mark.parametrize("pipeline", [WAVE, TIGHT], ids=["free", "within memory"])
def test_it_gets_to_the_best_cut_and_order(pipeline: Pipeline) -> None:
    optimum, best, search, steps = least(pipeline), some_schedule(pipeline), searches(pipeline), list[Taken]()
    assert best.within_memory
    assert value_of(best, "makespan") > optimum
    for _ in range(10):
        before = best
        best = search.improved(best, optimum, counted(), steps)
        assert best.within_memory
        assert not violations(best.pipeline, best)
        assert best is before or value_of(best, "makespan") < value_of(before, "makespan")
        assert (steps[-1].outcome == "nothing found") is (best is before)
    assert value_of(best, "makespan") == optimum
    assert best.pipeline.counts != pipeline.counts


def test_workers_go_on_from_what_each_other_find() -> None:
    optimum, best, search, steps = least(WAVE), some_schedule(WAVE), searches(WAVE, 100.0, workers=3), list[Taken]()
    best = search.improved(best, optimum, Clock(100), steps)  # it ends as soon as one of them is there
    assert value_of(best, "makespan") == optimum
    assert not violations(best.pipeline, best)


def test_after_an_interrupt_what_workers_have_found_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    start, search, clock = some_schedule(WAVE), searches(WAVE, 100.0, workers=2), Clock(100)
    away = search._on_cuts.away

    def stopped(schedule: Schedule) -> Schedule | None:
        if value_of(schedule, "makespan") < value_of(start, "makespan"):
            raise KeyboardInterrupt
        return away(schedule)

    monkeypatch.setattr(search._on_cuts, "away", stopped)
    best = search.improved(start, 0, clock, [])
    assert value_of(best, "makespan") < value_of(start, "makespan")
    assert clock.interrupted


def test_where_the_bound_is_met_nothing_is_searched() -> None:
    best, steps = some_schedule(WAVE), list[Taken]()
    assert searches(WAVE).improved(best, value_of(best, "makespan"), counted(), steps) is best
    assert steps[0].name.startswith("orders and cuts in turn, 0 times")


def test_it_ends_where_no_other_cut_has_room() -> None:
    best, steps = some_schedule(WAVE), list[Taken]()
    assert searches(WAVE, room=False).improved(best, 0, Clock(0.01, deterministic=True), steps) is best
    assert steps[0].outcome == "nothing found"


@pytest.mark.parametrize("everywhere", [False, True])
def test_rounds_begin_where_something_better_may_be(everywhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    best, search = some_schedule(WAVE), searches(WAVE)
    own, begun, elsewhere = search._on_cuts, list[Counts](), 0

    def on(schedule: Schedule, counts: Counts) -> None:
        begun.append(counts)

    def elsewhere_too(schedule: Schedule) -> Schedule | None:
        nonlocal elsewhere
        elsewhere += 1
        return None

    monkeypatch.setattr(own, "on", on)
    monkeypatch.setattr(own, "away", elsewhere_too)
    promising = ((2, 1, 2, 2), (1, 2, 2, 2), (3, 2, 1, 1))
    steps = list[Taken]()
    search.improved(best, 0, Clock(0.1, deterministic=True), steps, Promising(promising, everywhere))
    assert steps[0].name.endswith("from some moves away" if everywhere else "from cuts that are left")
    if everywhere:
        assert begun == list(promising)  # once
        assert elsewhere > len(promising)
    else:
        assert begun[:6] == [*promising, *promising]
        assert elsewhere == 0


def test_turns_in_vain_wait_longer_while_the_bound_rises() -> None:
    best, search = some_schedule(WAVE), searches(WAVE, 1.0)
    assert not search.due(best, (), 0.5)
    assert search.due(best, (), 1.0)
    search.improved(best, 1, Clock(0), [])
    assert search.seconds == 2.0
    assert not search.due(best, (), 3.9)
    assert search.due(best, (), 4.1)
    search.improved(best, 1, Clock(0), [])  # the bound is as it was
    assert search.seconds == 4.0
    assert search.due(best, (), 8.1)
    search.improved(best, 2, Clock(0), [])
    assert not search.due(best, (), 23.9)
    assert search.improved(best, value_of(best, "makespan") - 1, counted(), []) is not best  # over with the first that is better
    assert search.seconds == 1.0
    assert search.due(best, (), 0.0)  # it found something: at once
    search.improved(best, 3, Clock(0), [])
    assert not search.due(best, (), 0.0)
    search.again()
    assert search.due(best, (), 0.0)


def test_it_is_not_useful_where_times_on_other_cuts_are_not_known() -> None:
    best = some_schedule(WAVE)
    assert searches(WAVE).useful(best, ())
    assert not searches(WAVE).useful(best, BOUND)
    assert not searches(WAVE, objective="span").useful(best, ())
    stepped, overlapped = (WAVE.changed(data_parallel=DataParallel(reduce_scatter=1, overlap=of)) for of in (False, True))
    assert searches(stepped).useful(some_schedule(stepped), ())
    loop = overlapped.changed(placement="loop")
    assert not searches(loop).useful(some_schedule(loop), ())
