"""The named schedules: restrictions, orders that pass the checker, words that orders keep."""

import random
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from ppopt.checker import violations
from ppopt.constraints import expand
from ppopt.heuristics import order_of
from ppopt.named import NAMED, Definition, Restriction, compare, find
from ppopt.op import Op
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.schedule import Schedule
from tests.support.tiers import SOME


@pytest.mark.parametrize(
    ("name", "chunks", "params", "message"),
    [
        ("1f1b", 2, {}, r"1f1b: chunks must be 1 \(placement linear\), got 2"),
        ("zb-v", 4, {}, r"zb-v: chunks must be 2 \(placement wave\), got 4"),
        ("dualpipe-v", 1, {}, r"dualpipe-v: chunks must be 2"),
        ("bitpipe", 1, {}, r"bitpipe: chunks must be 2 \(placement bidirectional\), got 1"),
        ("hanayo", 3, {}, r"hanayo: chunks must be even \(2 per wave\), got 3"),
        ("hanayo", 2, {"waves": 2}, r"hanayo: waves = 2 means 4 chunks, got chunks = 2"),
        ("interleaved-1f1b", None, {"group": 4}, r"interleaved-1f1b: unknown parameter 'group'; its parameters are group_size"),
        ("gpipe", None, {"group_size": 4}, r"gpipe: unknown parameter 'group_size'; it has no parameters"),
        ("interleaved-1f1b", None, {"group_size": 0}, r"interleaved-1f1b: group_size must be a whole number >= 1, got 0"),
        ("interleaved-1f1b", None, {"group_size": 2.5}, r"group_size must be a whole number >= 1, got 2.5"),
        ("zb-v", None, {"tail": "both"}, r"zb-v: tail must be one of chunk0-first, chunk1-first, got 'both'"),
        ("zb-v", None, {"limit": 8}, r"zb-v: limit needs variant = adapted"),
        ("zb-v", None, {"variant": "adapted", "limit": 3}, r"zb-v: limit must be >= devices \(4\), got 3"),
        ("zb-v", None, {"variant": "adapted", "tail": "chunk1-first"}, r"zb-v: tail is for the pinned order"),
        ("looped-bfs", None, {"rounds": 3}, r"looped-bfs: microbatches must be a multiple of rounds \(3\), got 8"),
        ("looped-bfs", None, {"rounds": 2, "backward_microbatches": "descending"}, r"rounds \(2\) needs .* ascending"),
        ("seq1f1b", None, {"pieces": 3}, r"seq1f1b: microbatches .* must be a multiple of pieces \(3\), got 8"),
        ("hanayo", None, {"variant": "rule"}, r"hanayo: the variant rule needs microbatches = devices \(4\), got 8"),
    ],
)
def test_what_a_definition_does_not_allow(name: str, chunks: int | None, params: dict[str, Any], message: str) -> None:
    with pytest.raises(Restriction, match=message):
        find(name).schedule(Pipeline(4, 8), chunks, **params)


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "message"),
    [
        ("zb-h1", 4, 3, r"zb-h1: microbatches must be >= devices \(4\), got 3"),
        ("zb-h2", 4, 6, r"zb-h2: microbatches must be >= 2\*devices - 1 \(7\), got 6"),
        ("dualpipe", 3, 12, r"dualpipe: devices must be even, got 3"),
        ("dualpipe", 4, 9, r"dualpipe: microbatches must be even, got 9"),
        ("dualpipe", 8, 12, r"dualpipe: microbatches must be >= 2\*devices \(16\), got 12"),
        ("dualpipe-v", 4, 7, r"dualpipe-v: microbatches must be >= 2\*devices \(8\), got 7"),
        ("chimera", 3, 6, r"chimera: devices must be even, got 3"),
        ("chimera", 4, 6, r"chimera: microbatches must be a multiple of devices \(4\), got 6"),
        ("bitpipe", 4, 6, r"bitpipe: microbatches must be a multiple of devices \(4\), got 6"),
        ("interleaved-zb", 4, 6, r"interleaved-zb: microbatches must be a multiple of devices \(4\), got 6"),
        ("hanayo", 4, 6, r"hanayo: microbatches must be a multiple of devices \(4\), got 6"),
        (
            *("interleaved-1f1b", 8, 19),
            r"interleaved-1f1b: devices = 8, microbatches = 19, chunks = 2: "
            r"microbatches must be a multiple of group_size \(8\), got 19; the order deadlocks: ",
        ),
    ],
)
def test_sizes_that_a_definition_does_not_allow(name: str, devices: int, microbatches: int, message: str) -> None:
    with pytest.raises(Restriction, match=message):
        find(name).schedule(Pipeline(devices, microbatches))


@pytest.mark.parametrize("name", [d.name for d in NAMED.values() if d.split])
def test_a_split_schedule_needs_split_costs(name: str) -> None:
    with pytest.raises(Restriction, match=f"{name}: needs backward_input and backward_weight"):
        find(name).schedule(Pipeline(4, 8, costs=Costs(backward=2)))


def test_two_routes_need_half_of_the_microbatches_each() -> None:
    uneven = Pipeline(4, 8, placement="bidirectional", route_of_microbatch=(0, 0, 0, 1, 1, 1, 1, 1))
    for name in ("chimera", "dualpipe"):
        with pytest.raises(Restriction, match=f"{name}: each route needs half of the microbatches, got 3 and 5"):
            find(name).schedule(uneven)


def test_words_need_the_placement() -> None:
    with pytest.raises(Restriction, match="zb-v: the placement must be wave, got loop"):
        find("zb-v").words(Pipeline(4, 8, placement="loop", chunks=2))


def test_costs_per_device_are_the_same_on_every_placement() -> None:
    pipeline = Pipeline(4, 8, costs=Costs(forward=[1, 2, 3, 4]), memory=Memory(activation=[4, 3, 2, 1]))
    for row in compare(pipeline, (2, 4)):
        if row.schedule is not None and row.name not in ("chimera", "bitpipe", "dualpipe"):
            assert [row.schedule.pipeline.time(work) for work in row.schedule.work] == [8 * (f + 2) for f in (1, 2, 3, 4)]


def test_written_out_routes_of_the_placement_keep_costs_per_stage() -> None:
    costs = Costs(per="stage", forward=[1, 2, 3, 4])
    pipeline = Pipeline(2, 4, routes=[[0, 1, 0, 1]], costs=costs)
    assert find("interleaved-1f1b").place(pipeline) is pipeline
    assert find("interleaved-1f1b").schedule(pipeline) is not None
    assert find("zb-v").schedule(pipeline).work == (4 * (4 + 4), 4 * (6 + 4))  # device totals, spread evenly


OPEN: set[tuple[str, str | None]] = {
    ("zb-1p", None),
    ("zb-2p", None),
    ("v-half", None),
    ("v-min", None),
    ("zb-h2", "heuristic"),
    ("zb-v", "adapted"),
    ("chimera", "greedy"),
    ("bitpipe", "greedy"),
    ("looped-pp", None),
    ("fslpp", None),
    ("cuckoo", None),
}
"""Definitions that leave operations open, all of them or with a choice of a parameter."""


def variants(definition: Definition) -> list[dict[str, Any]]:
    """Without parameters, and with each value of each choice."""
    choices = [{p.name: choice} for p in definition.parameters for choice in p.choices]
    numbers = [{p.name: 4} for p in definition.parameters if not p.choices]
    return [{}, *choices, *numbers]


def schedules(pipeline: Pipeline, definition: Definition) -> list[Schedule]:
    found = []
    for params in variants(definition):
        try:
            found.append(definition.schedule(pipeline, **params))
        except Restriction as restriction:
            assert str(restriction).startswith(f"{definition.name}: ")  # noqa: PT017 - not every size must be refused
    return found


@SOME
@pytest.mark.parametrize("name", NAMED)
def test_every_order_passes_the_checker(name: str, every: int) -> None:
    definition, rng, found = find(name), random.Random(name), 0
    for devices, microbatches in product((1, 2, 3, 4), (1, 2, 4, 6, 8, 9, 10, 12)[:: min(every, 2)]):
        costs = Costs(
            forward=[rng.randint(0, 4) for _ in range(devices)],
            backward_input=[rng.randint(0, 4) for _ in range(devices)],
            backward_weight=rng.choice([0, 1, Fraction(3, 7)]),
        )
        latency = [[0 if a == b else rng.randint(0, 5) for b in range(devices)] for a in range(devices)]
        pipeline = Pipeline(
            devices, microbatches, costs=costs, links=Links(latency), memory=Memory(retained=rng.choice([None, 0.4]))
        )
        for schedule in schedules(pipeline, definition):
            found += 1
            assert not violations(schedule.pipeline, schedule)
    assert found >= (8 if every == 1 else 3)


@pytest.mark.parametrize("name", NAMED)
def test_an_order_keeps_the_words_that_it_comes_from(name: str) -> None:
    definition = find(name)
    for params in variants(definition):
        pipeline = definition.place(Pipeline(4, 8, costs=Costs(forward=2, backward_input=3, backward_weight=1)), **params)
        try:
            words = definition.words(pipeline, **params)
        except Restriction:
            continue
        schedule = definition.schedule(pipeline, **params)
        position = {}
        for device, row in enumerate(schedule.order.rows):
            for place, number in enumerate(row.tolist()):
                op = schedule.order.index.op(number)
                for half in (op,) if isinstance(op, Op) else op:
                    position[schedule.order.index.number(half)] = (device, place)
        before, after, _ = expand(pipeline, words)
        pairs = 0
        for a, b in zip(before.tolist(), after.tolist(), strict=True):
            if a != b and position[a] != position[b]:
                pairs += 1
                assert position[a] < position[b]
        assert pairs > 20
        assert (order_of(pipeline, words) is None) == any((name, choice) in OPEN for choice in (None, *params.values()))


def test_what_is_left_open_is_filled_by_a_rule_that_is_said() -> None:
    for definition in NAMED.values():
        assert bool(definition.open_rule) == (definition.fill is not None) == (definition.name in {name for name, _ in OPEN})
