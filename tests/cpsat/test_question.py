"""Questions to CP-SAT: decisions, grids, hints, limits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from ppopt import cpsat, ilp
from ppopt.bounds.device_times import device_times
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import cuts_of, rules_of, weights_in_order
from ppopt.cpsat.model import Model
from ppopt.heuristics import each_baseline, list_schedule
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Objective
from ppopt.search import solve
from ppopt.search.problem import Problem
from ppopt.solvers.device_times import NOTHING_KNOWN, DeviceTimes
from ppopt.timing import broken
from tests.support.asked import best, value
from tests.support.strategies import pipelines


def test_decisions_at_once():
    """Both answers may come in time, at least one does, and none is wrong; what is out of the question needs no search."""
    pipeline = Pipeline(3, 4, memory=Memory(limit=2))
    least = value(pipeline)
    words = (*rules_of(pipeline), *cuts_of(pipeline, ()))
    decisions = cpsat.Decisions(pipeline, words, "makespan", most=least + 3, horizon=least + 3)
    limits = Limits.of(60, workers=2)
    with decisions:
        for targets in ((least - 1, least), (least, least + 3), (least - 2, least - 1), (0, least)):
            answered: dict[int, cpsat.Outcome] = {}
            while len(answered) < 2:
                asked = [target for target in targets if target not in answered]
                outcomes = decisions.ask(asked, limits)
                assert set(decisions.going) == {target for target, of in zip(asked, outcomes, strict=True) if of is None}
                answered |= {target: of for target, of in zip(asked, outcomes, strict=True) if of is not None}
            for target, outcome in answered.items():
                assert outcome.lower_bound == target + (target < least)
                assert (outcome.schedule is None) == (target < least)
                assert outcome.schedule is None or least <= outcome.schedule.makespan <= target
    assert decisions.going == ()


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_a_model_made_for_more_answers_for_less(objective: Objective) -> None:
    """What is least is refuted and found as by a model that is made for it, on each grid; so is what nothing has time for."""

    @settings(max_examples=25)
    @given(pipelines(15), st.integers(1, 9))
    def on(pipeline: Pipeline, more: int) -> None:
        least = value(pipeline, objective=objective)
        problem, limits = Problem(pipeline, objective), Limits.of(60, workers=2)
        for grid, known in ((1, problem.device_times), (1, NOTHING_KNOWN), (2, NOTHING_KNOWN)):
            questions = cpsat.Decisions(
                pipeline, problem.all_words, objective=objective, most=least + more, horizon=problem.ended_by(least + more),
                grid=grid, known=known,
            )  # fmt: skip
            for target in (least - 1, least, 0, least + more):
                (outcome,) = questions.ask([target], limits)
                plain = best(pipeline, objective=objective, lower=target, upper=target, grid=grid)
                assert outcome.lower_bound == plain.lower_bound, (pipeline, target)
                if grid == 1:  # on a coarse one operations may pass each other that take no step, and then it is no schedule
                    assert (outcome.schedule is None) == (plain.schedule is None), (pipeline, target)

    on()


def test_a_choice_that_is_longer_than_the_horizon_is_not_taken():
    # W alone would take 500, so every backward is fused: as if there were no other way.
    fused = Pipeline(3, 3, costs=Costs(forward=(3, 4, 3), backward=(2, 4, 4)), memory=Memory(limit=2))
    costs = Costs(forward=(3, 4, 3), backward=(2, 4, 4), backward_input=1, backward_weight=500)
    either = fused.changed(costs=costs)
    words = (*rules_of(either), *cuts_of(either))
    for solver in (cpsat, ilp):
        found, refuted = (
            solver.solve(
                either, words, objective="makespan", lower=0, upper=upper, horizon=upper, limits=Limits.of(20, workers=1)
            )
            for upper in (40, 39)
        )
        assert found.schedule is not None
        assert found.lower_bound == found.schedule.makespan == value(fused) == 40
        assert (refuted.schedule, refuted.lower_bound) == (None, 40)
    assert solve(either, workers=1).value == 40


def test_a_decision_finds_or_refutes():
    pipeline = Pipeline(2, 1)
    assert best(pipeline, lower=5, upper=5).schedule is not None
    assert best(pipeline, lower=4, upper=4).lower_bound == 5
    assert best(pipeline, lower=0, upper=0).lower_bound == 1  # longer than the horizon by a single operation


def test_a_coarse_grid_bounds_from_below_and_times_truly():
    pipeline = Pipeline(2, 2, costs=Costs(forward=1009, backward_input=997, backward_weight=503), links=Links(latency=13))
    exact = value(pipeline, upper=20000)
    limits = Limits.of(10, workers=1)
    words = (*rules_of(pipeline), *cuts_of(pipeline))
    coarse = cpsat.solve(pipeline, words, objective="makespan", lower=0, upper=20000, horizon=20000, limits=limits, grid=100)
    assert coarse.schedule is not None
    assert coarse.lower_bound <= exact <= coarse.schedule.makespan
    assert violations(pipeline, coarse.schedule) == []


def test_a_hint_is_complete():
    choice = Costs(backward_input=1, backward_weight=2, backward=2)
    for pipeline in (Pipeline(3, 3, memory=Memory(limit=2, retained=0.5)), Pipeline(2, 3, costs=choice, memory=Memory(limit=2))):
        schedule = list_schedule(pipeline, rules_of(pipeline))
        for objective in ("makespan", "span"):
            for cuts in (cuts_of(pipeline), ()):
                model = Model(pipeline, (*rules_of(pipeline), *cuts), objective=objective, horizon=99, lower=0, upper=99)
                model.hint(schedule)
                assert len(set(model.model.proto.solution_hint.vars)) == len(model.model.proto.variables)
                solver = cp_model.CpSolver()
                solver.parameters.fix_variables_to_their_hinted_value = True
                assert solver.solve(model.model) == cp_model.OPTIMAL
                assert solver.objective_value == schedule.objective(objective)


def test_a_hint_takes_the_order_of_weight_gradients_that_the_cuts_ask_for():
    """The schedule breaks the cut, and is found again at the same length."""
    pipeline = Pipeline(2, 4, placement="loop", chunks=2, memory=Memory(limit=4))
    cuts = weights_in_order(pipeline)
    schedules = [schedule for _, schedule in each_baseline(pipeline) if broken(schedule, cuts)][:2]
    assert schedules
    for schedule in schedules:
        words = (*rules_of(pipeline), *cuts_of(pipeline))
        model = Model(pipeline, words, objective="makespan", horizon=99, lower=0, upper=99)
        model.hint(schedule)
        solver = cp_model.CpSolver()
        solver.parameters.fix_variables_to_their_hinted_value = True
        assert solver.solve(model.model) == cp_model.OPTIMAL
        assert solver.objective_value == schedule.makespan


def test_as_many_threads_as_workers_and_one_in_deterministic_mode():
    assert [Limits.of(1, workers=3, deterministic=mode).threads for mode in (False, True)] == [3, 1]


def test_the_same_seed_repeats_in_deterministic_mode():
    pipeline = Pipeline(3, 4, memory=Memory(limit=2), costs=Costs(forward=5, backward_input=4, backward_weight=3))
    words = (*rules_of(pipeline), *cuts_of(pipeline))
    orders = [
        cpsat.solve(
            pipeline, words, objective="makespan", lower=0, upper=500, horizon=500,
            limits=Limits.of(5, seed=3, deterministic=True),
        ).schedule.order
        for _ in range(2)
    ]  # fmt: skip
    assert orders[0] == orders[1]


def test_a_model_that_takes_long_to_build_is_given_up() -> None:
    pipeline = Pipeline(4, 8, placement="wave", chunks=2, memory=Memory(limit=3))
    words = (*rules_of(pipeline), *cuts_of(pipeline))
    outcome = cpsat.solve(
        pipeline, words, objective="makespan", lower=30, upper=30, horizon=30, limits=Limits.of(1e-9, workers=1)
    )
    assert (outcome.schedule, outcome.lower_bound) == (None, 30)


def test_devices_have_started_by_then():
    # Work 9 each. Device 1 waits for 0F0, so it starts at 1 at the earliest; by 3, as proved, some best schedule's has started.
    pipeline = Pipeline(2, 3, memory=Memory(limit=3))
    proved = device_times(pipeline)
    assert proved.begun == [0, 3]
    assert value(pipeline, objective="span", known=proved) == 9
    assert value(pipeline, objective="span", known=proved._replace(begun=[0, 0])) == 10


def test_how_far_operations_are_from_both_ends_of_their_device():
    # Forward 1, backward 2. Between forward and backward of device 0 come one each on device 1, and six ticks of device 2.
    pipeline = Pipeline(3, 2, costs=Costs(backward=2))
    proved, index = device_times(pipeline), pipeline.index
    forwards, backwards = ([index.number(Op(0, kind, n)) for n in (0, 1)] for kind in (Kind.F, Kind.B))
    assert [proved.head[op] for op in (*forwards, *backwards)] == [0, 1, 7, 10]
    assert [proved.tail[op] for op in (*forwards, *backwards)] == [11, 8, 2, 0]

    def least(known: DeviceTimes) -> int:
        return best(pipeline, objective="span", lower=12, upper=12, known=known).lower_bound

    assert least(proved) == 12
    assert least(proved._replace(head={backwards[1]: 11})) == 13
    assert least(proved._replace(tail={backwards[1]: 1})) == 13


def test_what_is_proved_of_devices_keeps_the_least_span():
    compared = 0

    @settings(max_examples=10)
    @given(pipelines(15).filter(lambda pipeline: any(time is not None for time in device_times(pipeline).begun[1:])))
    def on(pipeline: Pipeline) -> None:
        nonlocal compared
        proved = device_times(pipeline)
        compared += 1
        span = value(pipeline, objective="span")
        for grid in (1, 2, 3):
            known = best(pipeline, objective="span", lower=span, upper=span, known=proved, grid=grid)
            assert known.lower_bound <= span, pipeline

    on()
    assert compared >= 8
