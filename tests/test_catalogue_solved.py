"""The constraints of every named schedule, compiled to CP-SAT: they allow its own order, and the best of what they leave open."""

from typing import Any

import golden
import pytest
from ortools.sat.python import cp_model

from ppopt.constraints import rules_of
from ppopt.cpsat.model import Model
from ppopt.named import NAMED, find
from ppopt.pipeline import Costs, Links, Pipeline

FIRST_SIX = {"gpipe", "1f1b", "interleaved-1f1b", "hanayo", "zb-h1", "dualpipe"}
"""Tested at length in test_definitions."""
PINNED = [
    pytest.param(e, id=e["id"])
    for e in golden.entries()
    if e["order_is"] == "exact" and e["schedule"] not in FIRST_SIX and e["devices"] <= 3 and e["microbatches"] <= 7
]


def best(pipeline: Pipeline, name: str, upper: int, **params: Any) -> int:
    """The best makespan that the rules and the schedule's constraints allow, found without an order handed over."""
    words = find(name).words(pipeline, **params)
    model = Model(pipeline, (*rules_of(pipeline), *words), objective="makespan", horizon=upper, lower=0, upper=upper)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 60
    assert solver.solve(model.model) == cp_model.OPTIMAL
    return model.value(solver)


@pytest.mark.parametrize("entry", PINNED)
def test_pinned_constraints_alone_give_the_golden_makespan(entry: dict[str, Any]) -> None:
    timing = entry["timing"]["uneven"]
    assert (
        best(golden.pipeline_of(entry, timing), entry["schedule"], 2 * timing["makespan"], **entry["params"])
        == timing["makespan"]
    )


def test_every_pinned_schedule_is_among_them() -> None:
    names = {e["schedule"] for e in golden.entries() if e["order_is"] == "exact"} - FIRST_SIX
    assert {p.values[0]["schedule"] for p in PINNED} == names


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "params"),
    [
        ("zb-1p", 3, 4, {}),
        ("zb-2p", 2, 4, {}),
        ("zb-1p", 3, 4, {"limit": 2}),
        ("zb-h2", 3, 5, {"variant": "heuristic"}),
        ("zb-v", 2, 3, {"variant": "adapted"}),
        ("v-half", 2, 3, {}),
        ("v-min", 3, 2, {}),
        ("chimera", 4, 4, {"merge": "greedy"}),
        ("chimera", 2, 6, {"merge": "greedy"}),
        ("bitpipe", 2, 4, {"merge": "greedy"}),
    ],
)
def test_a_solver_fills_what_is_open_no_worse_than_the_rule(
    name: str, devices: int, microbatches: int, params: dict[str, Any]
) -> None:
    costs = Costs(forward=4, backward_input=6, backward_weight=2)
    schedule = find(name).schedule(Pipeline(devices, microbatches, costs=costs, links=Links(1)), **params)
    found = best(schedule.pipeline, name, schedule.makespan, **params)
    assert max(schedule.work) <= found <= schedule.makespan


def test_no_merge_that_keeps_each_directions_order_beats_chimeras_slots() -> None:
    """At T_B = 2 T_F, D = 4, M = 8 the slots, made for equal costs, take 30; so does the best merge of the two directions."""
    pipeline = find("chimera").place(Pipeline(4, 8))
    assert find("chimera").schedule(pipeline).makespan == best(pipeline, "chimera", 40, merge="greedy") == 30


@pytest.mark.parametrize("name", ["bitpipe", "pipedream", "seq1f1b"])
def test_schedules_without_a_golden_order_are_pinned_too(name: str) -> None:
    schedule = find(name).schedule(Pipeline(2, 4, costs=Costs(forward=2, backward_input=2, backward_weight=4), links=Links(1)))
    assert best(schedule.pipeline, name, 2 * schedule.makespan) == schedule.makespan


def test_no_schedule_is_left_out() -> None:
    tested = FIRST_SIX | {p.values[0]["schedule"] for p in PINNED} | {"bitpipe", "pipedream", "seq1f1b", "v-half", "v-min"}
    assert set(NAMED) == tested | {"zb-1p", "zb-2p"}
