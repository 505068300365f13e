"""The tables of the strategies, and the conditions of their turns."""

from __future__ import annotations

import pytest

from ppopt.constraints import Family, Precede
from ppopt.heuristics import baselines
from ppopt.op import Kind as OpKind
from ppopt.pipeline import Costs, Memory, Mix, Offload, Pipeline
from ppopt.search import strategies, tuning
from ppopt.search.problem import Problem
from ppopt.search.run import Run
from ppopt.search.step import Kind, Step
from ppopt.search.steps.decisions import Decide
from ppopt.search.steps.integer_program import IntegerProgram
from ppopt.search.steps.list_schedules import PacedSchedules
from ppopt.search.steps.makespan_first import MakespanFirst
from ppopt.search.steps.modulo_scheduling import ModuloScheduling
from ppopt.search.steps.neighbourhoods import Neighbourhoods
from ppopt.search.steps.tabu_search import TabuSearch
from ppopt.search.steps.windows import Windows
from ppopt.search.strategies import BEGIN_LARGE, BEGIN_SMALL, ILP, LARGE, SMALL, SPAN_FIRST, strategy_of
from ppopt.search.turns import Entry, Rounds, Turn, each_turn
from tests.support.search import begun, run_of, take

TABLES: tuple[tuple[Entry, ...], ...] = (BEGIN_SMALL, BEGIN_LARGE, SMALL, LARGE, ILP, SPAN_FIRST)

FEW, MANY, LONG = Pipeline(2, 3), Pipeline(20, 20), Pipeline(8, 60)
"""Of few operations; of many, with as many devices as microbatches; of many, with more microbatches."""
DIFFERING = Pipeline(2, 2, mix=Mix(microbatch_costs=[1, 2]))
LIMITED = Pipeline(2, 3, memory=Memory(limit=1))
WAIT = (Precede(Family(0, OpKind.F), Family(1, OpKind.F)),)


def test_tables() -> None:
    steps = {turn.step for entries in TABLES for turn in each_turn(entries)}
    assert len({step.name for step in steps}) == len(steps)
    for step in steps:
        assert step.kind in Kind
        assert step.__doc__
    small, large = Problem(Pipeline(2, 3)), Problem(Pipeline(8, 512))
    assert strategy_of(small, "auto") == (*BEGIN_SMALL, *SMALL)
    assert strategy_of(large, "auto") == (*BEGIN_LARGE, *LARGE)
    assert strategy_of(Problem(Pipeline(2, 3), "span"), "auto") == (*BEGIN_SMALL, *SMALL)
    assert strategy_of(Problem(Pipeline(8, 512), "span"), "auto") == (*BEGIN_LARGE, *SPAN_FIRST, *LARGE)
    assert strategy_of(Problem(Pipeline(2, 3), "span", WAIT), "auto") == (*BEGIN_SMALL, *SMALL)
    assert strategy_of(Problem(Pipeline(8, 512), words=WAIT), "auto") == (*BEGIN_SMALL, *SMALL)
    assert strategy_of(large, "ilp") == ILP
    assert strategy_of(large, "ilp", "highs") == (*ILP[:-1], Turn(IntegerProgram, options={"engine": "highs"}))


def test_every_step_is_in_a_table() -> None:
    def below(kind: type[Step]) -> set[type[Step]]:
        return {kind, *(each for sub in kind.__subclasses__() for each in below(sub))}

    used = {turn.step for entries in TABLES for turn in each_turn(entries)}
    there = {step for step in below(Step) if step.__module__.startswith("ppopt.") and "name" in vars(step)}
    assert used == there


def test_a_search_that_never_closes_ends_with_rounds_or_whatever_is_left() -> None:
    assert isinstance(SMALL[-1], Rounds)
    assert {turn.step for turn in each_turn((SMALL[-1],))} >= {Decide, Neighbourhoods}
    assert isinstance(LARGE[-2], Turn)
    assert (LARGE[-2].step, LARGE[-2].share.part) == (ModuloScheduling, 1.0)
    assert isinstance(ILP[-1], Turn)
    assert ILP[-1].step is IntegerProgram
    assert all(turn.step is MakespanFirst for turn in each_turn(SPAN_FIRST))


def opened(pipeline: Pipeline, share: float) -> Run:
    """A search whose gap is that share of its best value."""
    run = begun(run_of(pipeline))
    run.incumbent.prove(round((1 - share) * run.incumbent.value), "a test")
    return run


def improved(gained: bool) -> Run:
    run = run_of(FEW)
    run.step(Neighbourhoods).gained = gained
    return run


def moved(pipeline: Pipeline, over: bool | None) -> Run:
    """A search whose last tabu search came to an end, or not; ``None``: there was none."""
    run = run_of(pipeline)
    if over is not None:
        take(begun(run), TabuSearch, 10.0 if over else 1e-6)
    return run


def with_windows(pipeline: Pipeline, gained: bool | None) -> Run:
    run = run_of(pipeline)
    run.step(Windows).gained = gained
    return run


def paced() -> Run:
    run = run_of(FEW)
    take(run, PacedSchedules, 0.01)
    return run


def repeated(limit: int) -> Run:
    run = run_of(Pipeline(4, 40, memory=Memory(limit=limit)))
    take(run, ModuloScheduling)
    return run


def offered(source: str) -> Run:
    run = run_of(FEW)
    run.incumbent.offer(baselines(FEW)[0][1], source)
    return run


CONDITIONS = {
    "many": (strategies.many, lambda: run_of(MANY), lambda: run_of(FEW)),
    "wide": (strategies.wide, lambda: opened(FEW, 2 * tuning.WIDE), lambda: opened(FEW, 0)),
    "wide of many": (strategies.wide, lambda: opened(MANY, 0), lambda: opened(FEW, 0)),
    "far": (strategies.far, lambda: opened(FEW, 2 * tuning.WIDE), lambda: opened(FEW, 0)),
    "far of many": (strategies.far, lambda: opened(FEW, 2 * tuning.WIDE), lambda: opened(MANY, 2 * tuning.WIDE)),
    "differing": (strategies.differing, lambda: run_of(DIFFERING), lambda: run_of(FEW)),
    "span": (strategies.span, lambda: run_of(FEW, objective="span"), lambda: run_of(FEW)),
    "asking": (strategies.asking, lambda: run_of(FEW, objective="span"), lambda: run_of(MANY, objective="span")),
    "answering": (strategies.answering, lambda: run_of(MANY), lambda: run_of(Pipeline(30, 40))),
    "answering of few": (strategies.answering, lambda: run_of(MANY), lambda: run_of(FEW)),
    "fresh": (strategies.fresh, lambda: run_of(FEW), paced),
    "gained": (strategies.gained(Neighbourhoods), lambda: improved(True), lambda: improved(False)),
    "over": (strategies.over, lambda: moved(MANY, True), lambda: moved(MANY, False)),
    "unbeaten": (strategies.unbeaten, lambda: moved(FEW, True), lambda: moved(FEW, False)),
    "unbeaten what was not taken": (strategies.unbeaten, lambda: moved(FEW, True), lambda: moved(FEW, None)),
    "unbeaten of few": (strategies.unbeaten, lambda: moved(FEW, True), lambda: moved(MANY, True)),
    "again": (
        strategies.again(Windows),
        lambda: with_windows(MANY, True),
        lambda: with_windows(MANY, False),
    ),
    "again what was not taken": (strategies.again(Windows), lambda: with_windows(MANY, None), lambda: with_windows(MANY, False)),
    "again with few": (
        strategies.again(Windows),
        lambda: with_windows(FEW, False),
        lambda: with_windows(MANY, False),
    ),
    "gained of windows": (strategies.gained(Windows), lambda: with_windows(FEW, True), lambda: with_windows(FEW, False)),
    "gained of none": (strategies.gained(Windows), lambda: with_windows(FEW, True), lambda: with_windows(FEW, None)),
    "loose": (strategies.loose, lambda: opened(LIMITED, 2 * tuning.WIDE), lambda: opened(LIMITED, 0)),
    "loose of unlimited": (strategies.loose, lambda: opened(LIMITED, 2 * tuning.WIDE), lambda: opened(FEW, 2 * tuning.WIDE)),
    "long": (strategies.long, lambda: run_of(LONG), lambda: run_of(MANY)),
    "long of few": (strategies.long, lambda: run_of(LONG), lambda: run_of(FEW)),
    "tight": (
        strategies.tight,
        lambda: run_of(Pipeline(4, 16, memory=Memory(limit=2))),
        lambda: run_of(Pipeline(4, 16, memory=Memory(limit=3))),
    ),
    "coarse": (strategies.coarse, lambda: run_of(Pipeline(2, 3, costs=Costs(forward=12345))), lambda: run_of(FEW)),
    "few microbatches": (strategies.few_microbatches, lambda: run_of(Pipeline(4, 52)), lambda: run_of(Pipeline(4, 53))),
    "short": (strategies.short, lambda: run_of(Pipeline(4, 16)), lambda: run_of(Pipeline(4, 17))),
    "copying": (
        strategies.copying,
        lambda: run_of(FEW.changed(offload=Offload(time=1))),
        lambda: run_of(FEW.changed(offload=Offload(time=1)), objective="span"),
    ),
    "several": (strategies.several, lambda: run_of(LONG), lambda: run_of(Pipeline(8, 1000))),
    "full speed": (strategies.full_speed, lambda: repeated(4), lambda: repeated(2)),
    "not from modulo scheduling": (
        strategies.not_from_modulo_scheduling,
        lambda: offered("a test"),
        lambda: offered(ModuloScheduling.name),
    ),
    "nothing found": (strategies.nothing_found, lambda: run_of(FEW), lambda: offered("a test")),
    "to beat": (strategies.to_beat, lambda: run_of(FEW, enough=20), lambda: run_of(FEW)),
    "to beat with many": (strategies.to_beat, lambda: run_of(FEW, enough=20), lambda: run_of(MANY, enough=20)),
    "narrow": (strategies.narrow, lambda: opened(FEW, 0), lambda: opened(FEW, 2 * tuning.WIDE)),
    "bound": (strategies.bound, lambda: run_of(FEW, words=WAIT), lambda: run_of(FEW)),
    "no": (strategies.no(strategies.span), lambda: run_of(FEW), lambda: run_of(FEW, objective="span")),
    "every": (
        strategies.every(strategies.span, strategies.many),
        lambda: run_of(MANY, objective="span"),
        lambda: run_of(FEW, objective="span"),
    ),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_tells_two_searches_apart(name: str) -> None:
    condition, where, where_not = CONDITIONS[name]
    assert condition(where()) is True
    assert condition(where_not()) is False


def test_every_condition_is_tested() -> None:
    used = {turn.when for entries in TABLES for turn in each_turn(entries)}
    made = {
        vars(strategies)[name]
        for name in vars(strategies)
        if getattr(vars(strategies)[name], "__module__", "") == strategies.__name__
    }
    conditions = {each.__name__ for each in made if getattr(each, "__annotations__", {}).get("run") == "Run"}
    assert conditions == {condition.__name__ for condition, *_ in CONDITIONS.values()} - {"<lambda>"}
    assert len(used) > 8
