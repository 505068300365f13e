"""The constraints are the definition: from the rules and a schedule's constraints CP-SAT finds its order and no other."""

from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import golden
import pytest
from ortools.sat.python import cp_model

from ppopt.constraints import Precede, Word, rules_of
from ppopt.cpsat.model import Model
from ppopt.named import NAMED
from ppopt.op import Op
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order

FIRST_SIX = ("gpipe", "1f1b", "interleaved-1f1b", "hanayo", "zb-h1", "dualpipe")


def small(entry: dict[str, Any]) -> bool:
    return entry["schedule"] in FIRST_SIX and entry["devices"] <= 4 and entry["order_is"] == "exact"


SMALL = [pytest.param(entry, id=entry["id"]) for entry in golden.entries() if small(entry)]


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
@pytest.mark.parametrize("entry", SMALL)
def test_the_constraints_alone_give_the_golden_makespan(entry: dict[str, Any], case: str) -> None:
    timing = entry["timing"][case]
    pipeline = golden.pipeline_of(entry, timing)
    model = model_of(pipeline, definition_of(entry, pipeline), 2 * timing["makespan"], decide=False)
    status, solver = solved(model)
    assert status == cp_model.OPTIMAL
    assert model.value(solver) == timing["makespan"]


@pytest.mark.parametrize("entry", SMALL)
def test_the_constraints_pin_the_golden_order(entry: dict[str, Any]) -> None:
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


def kind_of(word: Word) -> str:
    """What kind of constraint a word is: which kinds of operations it orders, and whether within one stream."""
    if not isinstance(word, Precede):
        return type(word).__name__
    ends = []
    for stream in (word.before, word.after):
        families = getattr(stream, "families", (stream,))
        ends.append("".join(sorted({family.kind.name for family in families if hasattr(family, "kind")})) or "listed")
    return " before ".join(ends)


@cache
def entry_of(schedule: str) -> dict[str, Any]:
    """A golden entry of the schedule with three or four devices and more microbatches than the warm-up."""
    candidates = [e for e in golden.entries() if e["schedule"] == schedule and small(e) and e["devices"] >= 3]
    return max(
        candidates or [e for e in golden.entries() if e["schedule"] == schedule and small(e)], key=lambda e: e["microbatches"]
    )


def dropped() -> Iterable[Any]:
    for schedule in FIRST_SIX:
        entry = entry_of(schedule)
        words = definition_of(entry, golden.pipeline_of(entry, entry["timing"]["unit"]))
        for kind in dict.fromkeys(kind_of(word) for word in words if isinstance(word, Precede)):
            yield pytest.param(entry, kind, id=f"{schedule}-{kind.replace(' ', '-')}")


IMPLIED = {("zb-h1", "I before I")}
"""Said for clarity only: ``W`` pins it from both sides, and ``F`` does before the first ``W``."""


@pytest.mark.parametrize(("entry", "kind"), list(dropped()))
def test_without_one_kind_of_constraint_another_order_is_possible(entry: dict[str, Any], kind: str) -> None:
    timing = entry["timing"]["unit"]
    pipeline = golden.pipeline_of(entry, timing)
    words = [word for word in definition_of(entry, pipeline) if kind_of(word) != kind]
    model = model_of(pipeline, words, 3 * timing["makespan"], decide=True)
    forbid(model, entry["order"], pipeline)
    possible = (cp_model.INFEASIBLE,) if (entry["schedule"], kind) in IMPLIED else (cp_model.OPTIMAL, cp_model.FEASIBLE)
    assert solved(model)[0] in possible
