"""The constraints of every named schedule, compiled to CP-SAT: they allow its own order, and the best of what they leave open."""

from typing import Any

import pytest
from ortools.sat.python import cp_model

from ppopt.constraints import rules_of
from ppopt.cpsat.model import Model
from ppopt.named import NAMED, find
from ppopt.pipeline import Costs, Links, Pipeline
from tests.support import golden
from tests.support.many import each

PINNED = tuple(name for name in golden.SCHEDULES if name not in {*golden.FIRST_SIX, "v-half", "v-min"})
"""The schedules of which all or most golden orders are exact."""


def small(name: str) -> dict[str, golden.Entry]:
    """The exact entries that are solved at once."""
    return {key: e for key, e in golden.of(name, "exact").items() if e["devices"] <= 3 and e["microbatches"] <= 7}


def best(pipeline: Pipeline, name: str, upper: int, **params: Any) -> int:
    """The best makespan that the rules and the schedule's constraints allow, found without an order handed over."""
    words = find(name).words(pipeline, **params)
    model = Model(pipeline, (*rules_of(pipeline), *words), objective="makespan", horizon=upper, lower=0, upper=upper)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 60
    assert solver.solve(model.model) == cp_model.OPTIMAL
    return model.value(solver)


@pytest.mark.parametrize("name", PINNED)
def test_pinned_constraints_alone_give_the_golden_makespan(name: str) -> None:
    def check(entry: golden.Entry) -> None:
        timing = entry["timing"]["uneven"]
        pipeline = golden.pipeline_of(entry, timing)
        assert best(pipeline, name, 2 * timing["makespan"], **entry["params"]) == timing["makespan"]

    each(small(name), check)


def test_every_pinned_schedule_is_among_them() -> None:
    assert {e["schedule"] for e in golden.entries().values() if e["order_is"] == "exact"} - set(golden.FIRST_SIX) == set(PINNED)


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
        ("looped-pp", 2, 4, {}),
        ("fslpp", 2, 4, {"group": 2, "filling": "oldest-stage"}),
        ("cuckoo", 2, 6, {}),
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


@pytest.mark.parametrize("name", ["bitpipe", "pipedream", "seq1f1b", "ddp", "fsdp"])
def test_schedules_without_a_golden_order_are_pinned_too(name: str) -> None:
    schedule = find(name).schedule(Pipeline(2, 4, costs=Costs(forward=2, backward_input=2, backward_weight=4), links=Links(1)))
    assert best(schedule.pipeline, name, 2 * schedule.makespan) == schedule.makespan


def test_no_schedule_is_left_out() -> None:
    tested = set(golden.FIRST_SIX) | set(PINNED) | {"bitpipe", "pipedream", "seq1f1b", "v-half", "v-min", "ddp", "fsdp"}
    assert set(NAMED) == tested | {"zb-1p", "zb-2p", "looped-pp", "fslpp", "cuckoo"}
