"""The constraints are the definition: from the rules and a schedule's constraints CP-SAT finds its order and no other."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from ortools.sat.python import cp_model

from ppopt.constraints import Precede, Word, rules_of
from ppopt.cpsat.model import Model
from ppopt.named import NAMED
from ppopt.op import Op
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order
from tests.support import golden
from tests.support.many import each


def small(schedule: str) -> dict[str, golden.Entry]:
    """The exact entries of up to four devices."""
    return {name: entry for name, entry in golden.of(schedule, "exact").items() if entry["devices"] <= 4}


def definition_of(entry: dict[str, Any], pipeline: Pipeline) -> tuple[Word, ...]:
    return NAMED[entry["schedule"]].words(pipeline, **entry["params"])


def model_of(pipeline: Pipeline, words: Iterable[Word], horizon: int, decide: bool) -> Model:
    lower = horizon if decide else 0
    return Model(pipeline, (*rules_of(pipeline), *words), objective="makespan", horizon=horizon, lower=lower, upper=horizon)


def solved(model: Model) -> tuple[Any, cp_model.CpSolver]:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 60
    return solver.solve(model.model), solver


def forbid(model: Model, order: list[list[str]], pipeline: Pipeline) -> None:
    """Some device runs two neighbours of ``order`` the other way round."""
    swapped = []
    for row in Order.of(pipeline, order).rows:
        for a, b in pairwise([pipeline.index.op(number) for number in row.tolist()]):
            first, second = (pipeline.index.number(op if isinstance(op, Op) else op.forward) for op in (a, b))
            literal = model.model.new_bool_var("")
            model.model.add(model.start[second] + model.modes[second][0].size <= model.start[first]).only_enforce_if(literal)
            swapped.append(literal)
    model.model.add_bool_or(swapped)


@pytest.mark.parametrize("case", ["unit", "profiled"])
@pytest.mark.parametrize("schedule", golden.FIRST_SIX)
def test_the_constraints_alone_give_the_golden_makespan(schedule: str, case: str) -> None:
    def check(entry: golden.Entry) -> None:
        timing = entry["timing"][case]
        pipeline = golden.pipeline_of(entry, timing)
        model = model_of(pipeline, definition_of(entry, pipeline), 2 * timing["makespan"], decide=False)
        status, solver = solved(model)
        assert status == cp_model.OPTIMAL
        assert model.value(solver) == timing["makespan"]

    each(small(schedule), check)


@pytest.mark.parametrize("schedule", golden.FIRST_SIX)
def test_the_constraints_pin_the_golden_order(schedule: str) -> None:
    def check(entry: golden.Entry) -> None:
        timing = entry["timing"]["unit"]
        pipeline = golden.pipeline_of(entry, timing)
        words = definition_of(entry, pipeline)
        model = model_of(pipeline, words, 3 * timing["makespan"], decide=True)
        status, solver = solved(model)
        assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        numbers, starts = model.found(solver)
        when = {str(pipeline.index.op(n)): t for n, t in zip(numbers.tolist(), starts.tolist(), strict=True)}
        assert [sorted(row, key=when.__getitem__) for row in entry["order"]] == entry["order"]
        assert len(when) == sum(map(len, entry["order"]))
        other = model_of(pipeline, words, 3 * timing["makespan"], decide=True)
        forbid(other, entry["order"], pipeline)
        assert solved(other)[0] == cp_model.INFEASIBLE

    each(small(schedule), check)


def kind_of(word: Word) -> str:
    """What kind of constraint a word is: which kinds of operations it orders, and whether within one stream."""
    if not isinstance(word, Precede):
        return type(word).__name__
    ends = []
    for stream in (word.before, word.after):
        families = getattr(stream, "families", (stream,))
        ends.append("".join(sorted({family.kind.name for family in families if hasattr(family, "kind")})) or "listed")
    return " before ".join(ends)


def entry_of(schedule: str) -> golden.Entry:
    """A golden entry of the schedule with three or four devices, if there is one, and many microbatches."""
    entries = small(schedule).values()
    return max([e for e in entries if e["devices"] >= 3] or entries, key=lambda e: e["microbatches"])


IMPLIED = {("zb-h1", "I before I")}
"""Said for clarity only: ``W`` pins it from both sides, and ``F`` does before the first ``W``."""


@pytest.mark.parametrize("schedule", golden.FIRST_SIX)
def test_without_one_kind_of_constraint_another_order_is_possible(schedule: str) -> None:
    entry = entry_of(schedule)
    timing = entry["timing"]["unit"]
    pipeline = golden.pipeline_of(entry, timing)
    definition = definition_of(entry, pipeline)

    def check(kind: str) -> None:
        model = model_of(pipeline, [word for word in definition if kind_of(word) != kind], 3 * timing["makespan"], decide=True)
        forbid(model, entry["order"], pipeline)
        possible = (cp_model.INFEASIBLE,) if (schedule, kind) in IMPLIED else (cp_model.OPTIMAL, cp_model.FEASIBLE)
        assert solved(model)[0] in possible

    each({kind_of(word): kind_of(word) for word in definition if isinstance(word, Precede)}, check)
