"""What all steps have in common."""

from __future__ import annotations

from ppopt.constraints import Family, Precede
from ppopt.heuristics import baselines
from ppopt.op import Kind as OpKind
from ppopt.pipeline import Costs, DataParallel, Memory, Pipeline
from ppopt.search import tuning
from ppopt.search.step import Step
from ppopt.search.steps.binding_order import BindingOrder
from ppopt.search.steps.closed_forms import MemoryBound, OneMachine, Work
from ppopt.search.steps.list_schedules import ListSchedules
from ppopt.search.steps.modulo_scheduling import ModuloScheduling
from ppopt.search.steps.neighbourhoods import Neighbourhoods
from ppopt.search.steps.smaller_pipelines import FewerDevices
from ppopt.search.steps.state_graph import StateGraph
from ppopt.search.strategies import BEGIN_SMALL, SMALL
from ppopt.search.turns import Turn, each_turn
from tests.support.search import run_of

CLOSED_FORMS = (Work, OneMachine, MemoryBound, BindingOrder)


def test_why_steps_do_not_apply() -> None:
    free, bound = Pipeline(2, 3), (Precede(Family(0, OpKind.F), Family(1, OpKind.F), shift=0),)
    assert ModuloScheduling().applies(run_of(free)) is None
    assert "makespan" in str(ModuloScheduling().applies(run_of(free, objective="span")))
    assert "microbatches apart" in str(ModuloScheduling().applies(run_of(free, words=bound)))
    assert "no schedule" in str(Neighbourhoods().applies(run_of(free)))
    passes = Pipeline(2, 3, data_parallel=DataParallel(1, per_pass=True))
    assert "between its operations" in str(Neighbourhoods().applies(run_of(passes)))
    assert "unlimited" in str(StateGraph().applies(run_of(free)))
    assert StateGraph().applies(run_of(Pipeline(2, 3, memory=Memory(limit=2)))) is None
    assert f"fewer than {tuning.MANY_DEVICES}" in str(FewerDevices().applies(run_of(free)))


def test_every_step_charges_the_clock() -> None:
    """In deterministic mode: no turn of the tables is free."""
    costs = Costs(forward=(7, 9, 8), backward_input=(8, 9, 9), backward_weight=5)
    pipeline, tried = Pipeline(3, 5, costs=costs, memory=Memory(limit=2)), dict[type[Step], Turn]()
    for turn in each_turn((*BEGIN_SMALL, *SMALL)):
        tried.setdefault(turn.step, turn)
    for turn in tried.values():
        run = run_of(pipeline, seconds=30)
        if turn.step is not ListSchedules:
            run.incumbent.offer(baselines(pipeline)[0][1], "a test")
        before = run.clock.left
        run.take(turn, 0.1)
        if run.taken and not run.taken[-1].outcome.startswith("left out"):
            least = tuning.LEAST if turn.step in CLOSED_FORMS else 1.2 * tuning.LEAST
            assert before - run.clock.left >= least - 1e-9, turn.step.name
