"""Overlapped pairs as a decision: both solvers, the bounds, and all orders there are."""

import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import tuned
from random_pipelines import random_pipeline
from unaided import optimum, solved

from ppopt import bounds, cpsat, ilp
from ppopt.bounds import Objective
from ppopt.clock import Limits
from ppopt.constraints import (
    Family,
    Pairable,
    Precede,
    always_split,
    cuts_of,
    free_choices,
    in_order,
    pairs_of,
    pairs_save_time,
    splitting_is_free,
)
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Order
from ppopt.search import Result, solve, verify
from ppopt.timing import CyclicOrder, time_order

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


def with_pairs(rng: random.Random, most_ops: int, links: bool = False) -> Pipeline:
    """A random pipeline in which some pair saves time."""
    while True:
        plain = random_pipeline(rng, most_ops)
        overlap: Any = rng.randint(1, 4) if rng.random() < 0.6 else [rng.randint(0, 4) for _ in range(plain.devices)]
        changes: dict[str, Any] = {"costs": dataclasses.replace(plain.costs, overlap=overlap)}
        if links:
            changes["links"] = Links(plain.links.latency, rng.choice([1, 2]), rng.random() < 0.5)
        pipeline = plain.changed(**changes, route_of_microbatch=plain.route_of_microbatch)
        if pairs_save_time(pipeline):
            return pipeline


# --- all orders there are ------------------------------------------------------------------------------------------


def paired_rows(ops: Sequence[int], pipeline: Pipeline) -> Iterator[tuple[int, ...]]:
    """Every order of a device's operations, with every set of pairs."""
    slots = pipeline.stages * pipeline.microbatches
    forwards = [op for op in ops if op // slots == Kind.F]
    backwards = [op for op in ops if op // slots == Kind.B]
    for count in range(min(len(forwards), len(backwards)) + 1):
        for some in itertools.combinations(forwards, count):
            for others in itertools.permutations(backwards, count):
                pairs = [pipeline.index.pair(f, b) for f, b in zip(some, others, strict=True)]
                yield from itertools.permutations([*(op for op in ops if op not in {*some, *others}), *pairs])


def by_enumeration(pipeline: Pipeline) -> int:
    """The least makespan over all orders with a fused backward."""
    kinds = (Kind.F, Kind.B)
    rows: list[list[tuple[int, ...]]] = []
    for device in range(pipeline.devices):
        ops = [
            (kind * pipeline.stages + stage) * pipeline.microbatches + m
            for kind, stage, m in itertools.product(kinds, range(pipeline.stages), range(pipeline.microbatches))
            if pipeline.routes[pipeline.route_of_microbatch[m]][stage] == device
        ]
        rows.append(list(paired_rows(ops, pipeline)))
    best = None
    for orders in itertools.product(*rows):
        order = Order(pipeline.index, tuple(np.array(row, dtype=np.int64) for row in orders))
        try:
            schedule = time_order(pipeline, order)
        except CyclicOrder:
            continue
        if schedule.within_memory and (best is None or schedule.makespan < best):
            best = schedule.makespan
    assert best is not None
    return best


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline(1, 3, costs=Costs(forward=2, backward=3, overlap=4), memory=Memory(limit=2)),
        Pipeline(2, 2, costs=Costs(forward=(2, 3), backward=(3, 5), overlap=(4, 5)), links=Links(1)),
        Pipeline(2, 2, "bidirectional", costs=Costs(forward=2, backward=3, overlap=3)),
    ],
    ids=["one device", "linear", "bidirectional"],
)
def test_all_orders(pipeline: Pipeline) -> None:
    least = by_enumeration(pipeline)
    assert optimum(cpsat, pipeline, "makespan", (*free_choices(pipeline), *cuts_of(pipeline))) == least
    assert optimum(cpsat, pipeline, "makespan", pairs_of(pipeline)) == least
    assert optimum(ilp, pipeline, "makespan", (*free_choices(pipeline), *cuts_of(pipeline))) == least
    assert solve(pipeline, workers=1).value == least


# --- methods against each other ------------------------------------------------------------------------------------


def agree(seeds: range, most_ops: int, links: bool = False) -> Counter[str]:
    """How many instances each method decides, none of them differently."""
    count: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        pipeline, objective = with_pairs(rng, most_ops, links), rng.choice(OBJECTIVES)
        chosen = solved(cpsat, pipeline, objective, (*free_choices(pipeline), *cuts_of(pipeline)))
        if chosen.schedule is None or chosen.schedule.objective(objective) != chosen.lower_bound:
            continue
        best = chosen.lower_bound
        count["cp-sat"] += 1
        count["paired"] += chosen.schedule.order.paired
        for name, solver, words in (
            ("without cuts", cpsat, pairs_of(pipeline)),
            ("in order", cpsat, (*free_choices(pipeline), *in_order(pipeline))),
            ("ilp", ilp, (*free_choices(pipeline), *cuts_of(pipeline))),
        ):
            found = solved(solver, pipeline, objective, words, seconds=3)
            assert found.lower_bound <= best, f"seed {seed}: {name}"
            if found.schedule is not None:
                assert found.schedule.objective(objective) >= best, f"seed {seed}: {name}"
                count[name] += found.lower_bound == found.schedule.objective(objective)
        split = always_split(pipeline) if splitting_is_free(pipeline) else ()
        without = optimum(cpsat, pipeline, objective, (*split, *cuts_of(pipeline)))
        if without is not None:
            assert best <= without, f"seed {seed}: more choice is worse"
            count["gain"] += best < without
        hold(pipeline, objective, best, count, f"seed {seed}")
    return count


def hold(pipeline: Pipeline, objective: Objective, best: int, count: Counter[str], name: str) -> None:
    """Every bound holds for the optimum with pairs; how many reach it is counted."""
    floor = bounds.machine(pipeline, pairs=True)
    assert floor is not None
    half = floor.value // 2
    found = {
        "work": bounds.work(pipeline, objective, pairs=True),
        "machine": bounds.machine(pipeline, objective, pairs=True),
        "memory": bounds.memory(pipeline, objective, pairs=True),
        "window": tuned.window(pipeline, half, half, objective, makespan=floor.value, pairs=True),
        "graph": tuned.throughput(pipeline, pairs=True, limits=Limits.of(2)) if objective == "makespan" else None,
    }
    for key, bound in found.items():
        if bound is not None:
            assert bound.value <= best, f"{name}: {key}"
            count[key] += bound.value == best


def test_methods_agree() -> None:
    count = agree(range(24), most_ops=15)
    assert count["cp-sat"] >= 22
    assert count["ilp"] >= 15
    assert count["without cuts"] >= 20
    assert count["gain"] >= 5
    assert count["machine"] >= 3
    assert count["memory"] >= 2


def test_methods_agree_where_transfers_hold_links() -> None:
    count = agree(range(100, 107), most_ops=12, links=True)
    assert count["cp-sat"] >= 6
    assert count["ilp"] >= 3
    assert count["gain"] >= 2


@pytest.mark.slow
def test_methods_agree_on_300() -> None:
    count = agree(range(1000, 1420), most_ops=18) + agree(range(2000, 2080), most_ops=15, links=True)
    assert count["ilp"] >= 300
    assert count["gain"] >= 80


def test_bounds_that_count_pairs_in_full_are_too_high() -> None:
    """The flags matter: without them the same bounds miss the optimum."""
    pipeline = Pipeline(1, 3, costs=Costs(forward=2, backward=3, overlap=4))
    best = solve(pipeline, workers=1).value
    assert best == 2 + 4 + 4 + 3
    for of in (bounds.work, bounds.machine):
        assert of(pipeline).value == 15  # type: ignore[union-attr]
        assert of(pipeline, pairs=True).value <= best  # type: ignore[union-attr]
    assert bounds.machine(pipeline, pairs=True).value == best  # type: ignore[union-attr]  # a first F and a last B are alone


# --- what may be left out ------------------------------------------------------------------------------------------


def test_pairs_that_save_nothing_are_no_choice() -> None:
    assert pairs_of(Pipeline(4, 8, "bidirectional", costs=Costs(overlap=3))) == ()
    assert pairs_of(Pipeline(4, 8)) == ()
    words = pairs_of(Pipeline(2, 4, "bidirectional", costs=Costs(overlap=Fraction(5, 2))))
    families = [(Family(0, Kind.F), Family(1, Kind.F, 1)), (Family(0, Kind.B), Family(1, Kind.B, 1))]
    assert words[0] == Pairable(*families)


def test_named_pairs_bind_as_they_are() -> None:
    pipeline = Pipeline(2, 4, "bidirectional", costs=Costs(overlap=2))
    bound, free = solve(pipeline, order="dualpipe", workers=1), solve(pipeline, workers=1)
    (row,) = [row for row in free.named if row.name == "dualpipe"]
    assert row.schedule is not None
    assert bound.value == row.schedule.makespan
    assert free.value is not None
    assert free.value <= bound.value
    assert not any(isinstance(word, Pairable) for word in bound.binding)


def test_an_order_between_two_operations_keeps_them_apart() -> None:
    pipeline = Pipeline(1, 2, costs=Costs(forward=2, backward=3, overlap=4))
    assert optimum(cpsat, pipeline, "makespan", pairs_of(pipeline)) == 9
    apart = Precede(Family(0, Kind.B), Family(0, Kind.F), shift=1)  # B(0), then F(1)
    for solver in (cpsat, ilp):
        assert optimum(solver, pipeline, "makespan", (*pairs_of(pipeline), apart)) == 10


# --- DualPipe's own setting ----------------------------------------------------------------------------------------


def setting(devices: int, overlap: Fraction) -> Pipeline:
    """Two directions, the memory that DualPipe needs."""
    return Pipeline(devices, 2 * devices, "bidirectional", costs=Costs(overlap=overlap), memory=Memory(limit=devices + 1))


@pytest.mark.parametrize(("overlap", "dualpipe", "bound"), [(Fraction(3), 26, 25), (Fraction(5, 2), 24, 23)])
def test_never_worse_than_dualpipe(overlap: Fraction, dualpipe: int, bound: int) -> None:
    result = solve(setting(4, overlap), workers=1, seconds=1)
    (row,) = [row for row in result.named if row.name == "dualpipe"]
    assert row.schedule is not None
    assert row.makespan == dualpipe
    assert result.value is not None
    assert bound <= result.lower_bound <= result.value <= dualpipe


def test_forwards_that_wait_for_a_pair_leave_the_time_before_the_first_backward_idle() -> None:
    # Device 3 begins at 3, and its first backward can at 11: 8 forwards find room before that. With n of its 16 forwards in pairs
    # everything takes 3 + 48 - n / 2; and the backwards take 11 + 32 + n / 2. Each alone allows 46.5 or less.
    bound = bounds.machine(setting(8, Fraction(5, 2)), pairs=True)
    assert bound is not None
    assert bound.value == 2 * 47


def test_a_second_opinion_runs_pairs_too() -> None:
    pipeline = Pipeline(2, 3, costs=Costs(forward=2, backward=3, overlap=4))
    result = solve(pipeline, workers=1)
    assert (result.reason, result.schedule is not None and result.schedule.order.paired) == ("optimal", True)
    assert verify(result, workers=1).confirmed
    assert refuted(result) is False


def refuted(result: Result) -> bool | None:
    """What the second opinion says of a bound that is one tick too high."""
    ticks = result.ticks._replace(lower_bound=result.ticks.lower_bound + 1)
    return verify(dataclasses.replace(result, ticks=ticks), workers=1).confirmed


def test_a_window_of_spans_counts_on_the_makespan_of_its_own_relaxation() -> None:
    """The makespan is 14, that of the operations as they count beside pairs 13; windows of 14 would count idle time twice."""
    costs = Costs("stage", forward=(2, 4, 0), backward_input=(0, 0, 1), backward_weight=(0, 3, 1), backward=(3, 2, 4), overlap=4)
    latency = ((0, 3, 0), (1, 0, 1), (0, 1, 0))
    pipeline = Pipeline(3, 1, costs=costs, links=Links(latency))
    floor = bounds.machine(pipeline, pairs=True)
    assert floor is not None
    assert floor.value == 14
    assert tuned.window(pipeline, 7, 7, "span", makespan=floor.value, pairs=True) is None
    assert solve(pipeline, objective="span", workers=1).value == 13
