"""The order of the best cut, improved on its own cut and run on the cuts near it."""

from fractions import Fraction

import pytest

from ppopt.clock import Clock
from ppopt.named import find
from ppopt.op import Kind, Op
from ppopt.pipeline import DataParallel, Memory, Pipeline
from ppopt.schedule import Objective, Order, Schedule
from ppopt.search import Settings, solve_closed
from ppopt.search.best_order import BestOrder
from ppopt.search.cuts import moved
from ppopt.search.order_on_cuts import OrderOnCuts
from ppopt.search.over_cuts import Counts, OverCuts
from ppopt.search.step import Taken
from ppopt.timing import time_order
from tests.support.layered import MODEL, on

SETTINGS = Settings(seconds=60, workers=1)
WAVE = Pipeline(2, 5, "wave", 2, layers=MODEL, partition=(2, 2, 2, 1))
BOUND = tuple(find("1f1b").words(Pipeline(2, 5)))


def one_after_the_other(pipeline: Pipeline) -> Schedule:
    """The worst schedule: a microbatch at a time."""
    rows: list[list[Op]] = [[] for _ in range(pipeline.devices)]
    for m in range(pipeline.microbatches):
        for kind, stages in ((Kind.F, range(4)), (Kind.B, reversed(range(4)))):
            for stage in stages:
                rows[pipeline.routes[0][stage]].append(Op(stage, kind, m))
    return time_order(pipeline, Order.of(pipeline, rows))


def at(counts: Counts) -> Pipeline | None:
    return on(WAVE, counts)


def searches(seconds: float = 60.0, objective: Objective = "makespan") -> BestOrder:
    over = OverCuts(WAVE.changed(partition="best"), objective, Fraction(0))
    return BestOrder(objective, SETTINGS, at, seconds, OrderOnCuts(over, at, 0))


def test_the_order_gets_better_and_stays_on_its_cut() -> None:
    worst, steps = one_after_the_other(WAVE), list[Taken]()
    optimum = solve_closed(WAVE, settings=SETTINGS).ticks.value
    order = searches()
    best = order.improved(worst, 0, Clock(60), steps)
    assert best.pipeline is WAVE
    assert optimum is not None
    assert optimum <= best.makespan < worst.makespan
    assert steps[0].name == "the order on 2,2,2,1"
    assert steps[0].outcome == f"best {WAVE.time(best.makespan)}"


def test_where_nothing_is_left_to_gain_it_is_not_searched_again() -> None:
    order, steps, best = searches(), list[Taken](), solve_closed(WAVE, settings=SETTINGS).schedule
    assert best is not None
    assert order.due(best, (), 60)
    assert order.improved(best, 0, Clock(60), steps) is best
    assert steps[0].outcome == "nothing found"
    assert not order.due(best, (), 10**6)
    assert order.due(one_after_the_other(WAVE), (), 10**6)


def test_a_search_that_was_cut_short_is_longer_the_next_time_and_waits_longer_for_it() -> None:
    order, worst = searches(1.0), one_after_the_other(WAVE)
    assert not order.due(worst, (), 0.5)
    assert order.due(worst, (), 1.0)
    order.improved(worst, 0, Clock(0), [])
    assert order.seconds == 2.0
    assert not order.due(worst, (), 3.9)
    assert order.due(worst, (), 2 * (2.0 + order.spent))
    assert order.improved(worst, 0, Clock(60), []) is not worst
    assert order.due(worst, (), 0.0)  # it found something: at once


def test_another_cut_races_with_the_best_while_that_is_in_reach() -> None:
    own, optimum = one_after_the_other(WAVE), solve_closed(WAVE, settings=SETTINGS).schedule
    assert optimum is not None
    steps = list[Taken]()
    raced = searches().raced(own, (), 0, Fraction(optimum.makespan + 1, WAVE.ticks.per_unit), Clock(60), steps)
    assert optimum.makespan <= raced.makespan < own.makespan
    assert steps[0].outcome.startswith("best ")
    assert searches().raced(own, (), 0, Fraction(own.makespan + 1), Clock(60), steps) is own  # it is below that already
    before = len(steps)
    assert searches().raced(optimum, (), 0, Fraction(1), Clock(60), steps) is optimum
    assert [step.outcome for step in steps[before:]] == ["nothing found"]
    assert searches().raced(own, BOUND, 0, Fraction(1), Clock(60), steps) is own  # windows know nothing of what binds


def test_the_order_of_another_cut_is_searched_at_once_and_shortly() -> None:
    order = searches(1.0)
    order.improved(one_after_the_other(WAVE), 0, Clock(0), [])
    assert order.seconds == 2.0
    other = one_after_the_other(WAVE.changed(partition=(1, 2, 2, 2)))
    assert order.due(other, (), 0.0) is False
    order.improved(other, 0, Clock(0), [])
    assert order.seconds == 2.0


@pytest.mark.parametrize("words", [(), BOUND], ids=["free", "bound"])
def test_it_is_not_due_where_windows_know_nothing(words: tuple[object, ...]) -> None:
    stepped = one_after_the_other(WAVE.changed(data_parallel=DataParallel(reduce_scatter=1)))
    for schedule in (one_after_the_other(WAVE), stepped):
        assert searches().due(schedule, words, 60) is (not words)  # type: ignore[arg-type]
    assert not searches().due(None, (), 60)


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_the_order_is_run_on_other_cuts_where_nothing_binds(objective: Objective) -> None:
    uneven, steps = (4, 1, 1, 1), list[Taken]()
    own = solve_closed(WAVE.changed(partition=uneven), objective, settings=SETTINGS).schedule
    assert own is not None
    found = searches(objective=objective).on_other_cuts(own, (), (), Clock(60), steps)
    value = found.objective(objective)
    assert value < own.objective(objective)
    assert found.pipeline.counts != uneven
    assert steps[0].outcome == f"best {found.pipeline.time(value)} on {','.join(map(str, found.pipeline.counts))}"
    assert searches(objective=objective).on_other_cuts(own, BOUND, (), Clock(60), steps) is own
    assert searches(objective=objective).on_other_cuts(own, (), (), Clock(0), steps) is own


def test_spans_are_not_looked_for_on_cuts_that_are_left_out() -> None:
    own = solve_closed(WAVE.changed(partition=(4, 1, 1, 1)), "span", settings=SETTINGS).schedule
    assert own is not None
    assert searches(objective="span").on_other_cuts(own, (), set(moved((4, 1, 1, 1))), Clock(60), []) is own


def test_no_schedule_is_below_what_is_known_of_its_cut() -> None:
    """With the optimum as what is least, the search ends there; memory is kept."""
    limit = Fraction(int(max(one_after_the_other(WAVE).peak_memory)), WAVE.amounts.per_unit)
    tight = WAVE.changed(memory=Memory(limit=limit))
    optimum = solve_closed(tight, settings=SETTINGS).ticks.value
    assert optimum is not None
    best = searches().improved(one_after_the_other(tight), Fraction(optimum, tight.ticks.per_unit), Clock(60), [])
    assert best.within_memory
    assert best.makespan >= optimum
