"""The only order that binding constraints leave."""

import pytest

from ppopt import cpsat
from ppopt.constraints import Family, Listed, Precede, chain
from ppopt.named import find
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, DataParallel, Links, Memory, Mix, Pipeline
from ppopt.search.steps.binding_order import ARGUMENT, BindingOrder
from tests.support.search import bound_by_name, run_of, take
from tests.support.unaided import optimum


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_a_named_order_is_settled(objective: str) -> None:
    pipeline = Pipeline(3, 6)
    run = bound_by_name(pipeline, "1f1b", objective=objective)
    take(run, BindingOrder)
    schedule = find("1f1b").schedule(pipeline)
    assert run.incumbent.best is not None
    assert run.incumbent.best.order == schedule.order
    assert (run.incumbent.lower, run.incumbent.proved_by) == (run.incumbent.value, ARGUMENT)
    assert run.incumbent.value == schedule.makespan if objective == "makespan" else run.incumbent.value <= schedule.device_span


def test_what_is_open_is_left_open() -> None:
    """Rules alone, a schedule without an order of W, and links whose transfers may take turns."""
    for run in (
        run_of(Pipeline(3, 6)),
        run_of(Pipeline(2, 3), words=(Precede(Family(0, Kind.F), Family(1, Kind.F)),)),
        bound_by_name(Pipeline(3, 6, links=Links(occupancy=1)), "1f1b"),
    ):
        take(run, BindingOrder)
        assert run.taken[-1].outcome == "leaves something open"
        assert run.incumbent.best is None
        assert not run.incumbent.infeasible


def test_traffic_counts_in_the_least_span() -> None:
    """Of the order with what devices do before and after it: CP-SAT, on the same words, finds no smaller span."""
    run = bound_by_name(Pipeline(3, 6, data_parallel=DataParallel(1)), "1f1b", objective="span")
    take(run, BindingOrder)
    problem = run.problem
    assert run.incumbent.lower == run.incumbent.value == optimum(cpsat, problem.pipeline, "span", problem.words)


def test_the_only_order_may_be_too_much() -> None:
    run = bound_by_name(Pipeline(3, 6, memory=Memory(limit=2)), "1f1b")
    take(run, BindingOrder)
    assert run.incumbent.infeasible
    assert run.taken[-1].outcome == "the only order exceeds the memory limit"
    assert run.incumbent.lower == find("1f1b").schedule(Pipeline(3, 6)).makespan


def test_orders_that_wait_for_each_other_are_refuted() -> None:
    ops = [[Op(0, Kind.F, 0), Op(0, Kind.F, 1)], [Op(1, Kind.F, 1), Op(1, Kind.F, 0)]]
    rows = [[*ops[0], Op(0, Kind.B, 0), Op(0, Kind.B, 1)], [ops[1][0], Op(1, Kind.B, 1), ops[1][1], Op(1, Kind.B, 0)]]
    words = tuple(chain(Listed(tuple(row))) for row in rows)
    stuck = (*words, Precede(Listed((ops[1][1],)), Listed((ops[0][1],))))
    run = run_of(Pipeline(2, 2, costs=Costs(backward=2)), words=stuck)
    take(run, BindingOrder)
    assert run.incumbent.infeasible
    assert run.taken[-1].outcome == "no order obeys all of it"


def test_an_order_of_microbatches_out_of_turn_is_refuted() -> None:
    """Of two pieces of a sequence the second one goes back first."""
    pipeline = Pipeline(1, 2, costs=Costs(backward=2), mix=Mix(pieces=2))
    for back, fits in (((1, 0), True), ((0, 1), False)):
        row = (Op(0, Kind.F, 0), Op(0, Kind.F, 1), *(Op(0, Kind.B, m) for m in back))
        run = run_of(pipeline, words=(chain(Listed(row)),))
        take(run, BindingOrder)
        assert (run.incumbent.best is not None, run.incumbent.infeasible) == (fits, not fits)
