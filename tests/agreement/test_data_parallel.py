"""Data-parallel traffic: all orders, and back ends that are not told of it."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from ppopt import cpsat, ilp
from ppopt.bounds import Objective
from ppopt.clock import Limits
from ppopt.constraints import Lead, Tail, cuts_of, free_choices, rules_of
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order
from ppopt.search import horizon, solve
from ppopt.timing import time_order
from tests.support.strategies import each
from tests.support.traffic import wave
from tests.support.unaided import optimum


def orders(pipeline: Pipeline) -> Iterator[list[list[str]]]:
    """All orders of a fused wave of two devices: any interleaving of the microbatches."""
    ways = []
    for first, second in ((0, 3), (1, 2)):
        chains = [[f"{first}F{m}", f"{second}F{m}", f"{second}B{m}", f"{first}B{m}"] for m in range(pipeline.microbatches)]
        turns = sorted(set(itertools.permutations([m for m in range(len(chains)) for _ in range(4)])))
        ways.append([[chains[m][turn[:i].count(m)] for i, m in enumerate(turn)] for turn in turns])
    return map(list, itertools.product(*ways))


def played(rows: list[list[str]], gather: Sequence[int], scatter: Sequence[int]) -> int | None:
    """The makespan of an order of unit operations by playing it, networks and all; ``None``: it gets stuck."""
    ready = {}  # by stage, when its device has gathered it
    for stages in ((0, 3), (1, 2)):
        time = 0
        for stage in stages:
            time = ready[stage] = time + gather[stage]
    ends: dict[str, int] = {}
    queues, free = [list(row) for row in rows], [0, 0]
    while any(queues):
        for device, queue in enumerate(queues):
            op = queue[0] if queue else ""
            stage, kind, m = int(op[0]) if op else 0, op[1:2], op[2:]
            need = {"F": f"{stage - 1}F{m}", "B": f"{stage + 1}B{m}", "": ""}[kind]
            need = f"3F{m}" if need.startswith("4") else need
            if op and (need in ends or need.startswith("-")):
                free[device] = ends[op] = max(free[device], ends.get(need, 0), ready[stage]) + 1
                queue.pop(0)
                break
        else:
            return None
    last = []
    for stages in ((3, 0), (2, 1)):
        time = 0
        for stage in stages:
            time = max(time, *(end for op, end in ends.items() if op.startswith(f"{stage}B"))) + scatter[stage]
        last.append(time)
    return max(last)


@settings(max_examples=4)
@given(each(0, 3, 4), each(0, 3, 4))
def test_all_orders(gather: tuple[int, ...], scatter: tuple[int, ...]) -> None:
    pipeline = wave(2, gather, scatter)
    values = {}
    for rows in orders(pipeline):
        value = played(rows, gather, scatter)
        if value is not None:
            values[str(rows)] = value
            if len(values) % 20 == 0:
                assert time_order(pipeline, Order.of(pipeline, rows)).makespan == value
    least = min(values.values())
    cut = (*free_choices(pipeline), *cuts_of(pipeline))
    assert optimum(cpsat, pipeline, "makespan", cut) == optimum(ilp, pipeline, "makespan", cut) == least
    assert solve(pipeline, workers=1).value == least


@pytest.mark.parametrize("left_out", [Lead, Tail])
@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("solver", [cpsat, ilp], ids=["cp-sat", "ilp"])
def test_a_back_end_without_the_traffic_finds_too_little(solver: Any, objective: Objective, left_out: type) -> None:
    pipeline = wave(1, (3, 0, 1, 6), (4, 2, 1, 5))
    whole = optimum(solver, pipeline, objective, cuts_of(pipeline))
    assert whole is not None
    words = [word for word in (*rules_of(pipeline), *cuts_of(pipeline)) if not isinstance(word, left_out)]
    until = horizon(pipeline) * (pipeline.devices if objective == "span" else 1)
    limits = Limits.of(60, workers=1)
    less = solver.solve(pipeline, words, objective=objective, lower=0, upper=until, horizon=until, limits=limits)
    assert less.lower_bound < whole
    assert less.schedule is None or less.schedule.objective(objective) >= whole
