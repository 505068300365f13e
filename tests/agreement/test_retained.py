"""More retained than held, where splitting a backward takes memory: every order of two devices, gone through one by one."""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any, TypeAlias

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from ppopt import cpsat, ilp
from ppopt.checker import violations
from ppopt.constraints import cuts_of, free_choices
from ppopt.op import Kind
from ppopt.pipeline import Costs, Links, Memory, Pipeline, PipelineError
from ppopt.search import solve
from tests.support.search import least
from tests.support.unaided import solved

Row: TypeAlias = tuple[tuple[str, int], ...]
"""Kinds and microbatches in the order of a device."""


SHARE = pytest.mark.parametrize("share", [1, pytest.param(3, marks=pytest.mark.thorough)], ids=["few", "more"])


def rows(ways: tuple[str, ...], held: int, retained: int, room: int, *, in_order: bool) -> Iterator[Row]:
    """Every order of one stage within its memory, each microbatch run in its way; ``in_order``: of each kind."""

    def on(row: Row, left: tuple[str, ...]) -> Iterator[Row]:
        if not any(left):
            yield row
        for m, rest in enumerate(left):
            if not rest or (in_order and {*rest[0].replace("B", "I")} & {*"".join(left[:m]).replace("B", "I")}):
                continue
            longer = (*row, (rest[0], m))
            if most_held(longer, held, retained) <= room:
                yield from on(longer, (*left[:m], rest[1:], *left[m + 1 :]))

    yield from on((), ways)


def most_held(row: Row, held: int, retained: int) -> int:
    """By what each microbatch holds before, while and after each of its operations runs."""
    now, most = Counter[int](), 0
    for kind, m in row:
        now[m] = {"F": held, "B": held, "I": max(held, retained), "W": retained}[kind]
        most = max(most, sum(now.values()))
        now[m] = {"F": held, "B": 0, "I": retained, "W": 0}[kind]
    return most


def makespan(first: Row, second: Row, costs: list[dict[str, int]], latency: int) -> int | None:
    """Every operation as early as can be; ``None``: the two orders wait for each other."""
    ends: dict[tuple[int, str, int], int] = {}
    at, free = [0, 0], [0, 0]
    moved = True
    while moved:
        moved = False
        for d, row in enumerate((first, second)):
            while at[d] < len(row):
                kind, m = row[at[d]]
                needed = free[d]
                if kind == "F" and d == 1:
                    needed = max(needed, ends.get((0, "F", m), 10**6) + latency)
                elif kind in "BI" and d == 0:
                    needed = max(needed, min(ends.get((1, other, m), 10**6) for other in "BI") + latency)
                if needed >= 10**6:
                    break
                free[d] = ends[d, kind, m] = needed + costs[d][kind]
                at[d] += 1
                moved = True
    return max(free) if at == [len(first), len(second)] else None


def best(pipeline: Pipeline, *, in_order: bool) -> int:
    """The least makespan of all orders."""
    amounts, ticks = pipeline.amounts, pipeline.ticks
    assert amounts.limit is not None
    each = []
    for d in range(2):
        held, retained, room = (int(of) for of in (amounts.activation[0, d], amounts.retained[0, d], amounts.limit[d]))
        ways = product(("FB", "FIW"), repeat=pipeline.microbatches)
        each.append([row for way in ways for row in rows(way, held, retained, room, in_order=in_order)])
    costs = [{kind.name: int(ticks.duration[0, kind, d]) for kind in Kind} for d in range(2)]
    latency = int(ticks.latency[0, 1])
    return min(value for a, b in product(*each) if (value := makespan(a, b, costs, latency)) is not None)


@st.composite
def two_devices(draw: st.DrawFn, microbatches: int) -> Pipeline:
    """Stages that retain more than they hold, with recompute or without; in whole numbers."""

    def each(low: int, high: int) -> Any:
        return draw(st.tuples(*[st.integers(low, high)] * 2))

    held, more = each(0, 2), each(0, 2)
    recompute = draw(st.booleans())
    saved = each(1, 2) if recompute else (0, 0)
    times: dict[str, Any] = {"forward": each(1, 3), "backward_input": each(1, 3), "backward_weight": each(1, 3)}
    if draw(st.booleans()):
        times["backward"] = each(2, 5)
    memory = Memory(
        activation=[h + s for h, s in zip(held, saved, strict=True)],
        retained=[h + m for h, m in zip(held, more, strict=True)],
        recompute_saved=saved if recompute else None,
        limit=[max(1, h) + draw(st.integers(0, 4)) for h in held],
    )
    try:
        return Pipeline(
            2,
            microbatches,
            costs=Costs(**times, recompute=each(0, 2) if recompute else None),
            memory=memory,
            links=Links(draw(st.sampled_from([0, 1]))),
            recompute="all" if recompute else "none",
        )
    except PipelineError:
        reject()


def agree(pipeline: Pipeline, expected: int, count: Counter[str]) -> None:
    result = solve(pipeline, workers=1, seconds=60)
    assert (result.reason, result.ticks.value) == ("optimal", expected)
    assert result.schedule is not None
    assert violations(pipeline, result.schedule) == []
    cut = (*free_choices(pipeline), *cuts_of(pipeline))
    for solver, words in ((cpsat, cut), (cpsat, ()), (ilp, cut))[: 3 if pipeline.microbatches == 2 else 2]:
        outcome = solved(solver, pipeline, "makespan", words)
        assert outcome.schedule is not None
        assert outcome.lower_bound == outcome.schedule.makespan == expected
    kinds = {text[1] for row in result.schedule.order.texts() for text in row}
    count["whole"] += "B" in kinds
    count["split"] += "W" in kinds
    count["both"] += {"B", "W"} <= kinds
    free = pipeline.changed(memory=Memory(), recompute=pipeline.recompute) if pipeline.recompute == "none" else None
    count["memory costs time"] += free is not None and least(free) != expected


@SHARE
def test_two_microbatches_in_any_order(share: int) -> None:
    count: Counter[str] = Counter()

    @settings(max_examples=5 if share == 1 else 6 * share)
    @given(two_devices(2))
    def on(pipeline: Pipeline) -> None:
        agree(pipeline, best(pipeline, in_order=False), count)

    on()
    assert min(count["whole"], count["split"], count["memory costs time"]) >= share, count
    assert count["both"] >= share - 1, count


@pytest.mark.thorough
@SHARE
def test_three_microbatches_in_order(share: int) -> None:
    count: Counter[str] = Counter()

    @settings(max_examples=6 * share)
    @given(two_devices(3))
    def on(pipeline: Pipeline) -> None:
        agree(pipeline, best(pipeline, in_order=True), count)

    on()
    assert min(count["whole"], count["split"]) >= share, count
