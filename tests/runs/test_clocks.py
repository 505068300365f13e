"""Clocks of ranks: offsets are recovered as far as messages tell them, and are possible wherever any are."""

import itertools
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st

from ppopt.files.recorded import Clock, Ran
from ppopt.op import Kind, Op
from ppopt.runs.clocks import Clocks, How, aligned, moved
from tests.support.runs import SPLIT, planned, run_of
from tests.support.tiers import drawn, thorough

Limits = dict[tuple[int, int], float]


def rows_of(limits: Limits, devices: int) -> list[list[Ran]]:
    """Operations between which there are just these limits: a forward that ends at 0, and its use at the limit."""
    rows: list[list[Ran]] = [[] for _ in range(devices)]
    for number, ((a, b), limit) in enumerate(limits.items()):
        rows[a].append(Ran(Op(0, Kind.F, number), -1.0, 0.0))
        rows[b].append(Ran(Op(1, Kind.F, number), limit, limit + 1.0))
    return rows


def possible(limits: Limits, devices: int, within: float, slack: float = 0.0) -> bool:
    """Whether there are offsets of at most ``within``: Bellman and Ford, with one more node that is no device."""
    edges = [(a, b, limit + slack) for (a, b), limit in limits.items()]
    edges += [edge for d in range(devices) for edge in ((d, devices, within), (devices, d, within))]
    far = [0.0] * (devices + 1)
    for _ in range(devices + 1):
        changed = False
        for a, b, limit in edges:
            if far[a] > far[b] + limit + 1e-9:
                far[a], changed = far[b] + limit, True
        if not changed:
            return True
    return False


def least_mean(limits: Limits, devices: int) -> float:
    """The least mean of a cycle, by all of them."""
    found = [np.inf]
    for size in range(2, devices + 1):
        for cycle in itertools.permutations(range(devices), size):
            steps = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
            if all(step in limits for step in steps):
                found.append(sum(limits[step] for step in steps) / size)
    return min(found)


def keeps(found: Clocks, limits: Limits) -> bool:
    return all(found.offsets[a] - found.offsets[b] <= limit + found.early + 1e-9 for (a, b), limit in limits.items())


@st.composite
def networks(draw: st.DrawFn) -> tuple[Limits, int]:
    devices = draw(st.integers(1, 5))
    pairs = [(a, b) for a in range(devices) for b in range(devices) if a != b]
    limits = {pair: float(draw(st.integers(-4, 8))) for pair in pairs if draw(st.booleans())}
    return limits, devices


@drawn(20, 500, networks())
def test_offsets_are_possible_wherever_any_are_and_the_least(network: tuple[Limits, int]) -> None:
    limits, devices = network
    early = max(0.0, -least_mean(limits, devices))
    rows = rows_of(limits, devices)
    for how, basis in (("auto", Clock.OWN), ("auto", Clock.HOST), ("fitted", Clock.BARRIER)):
        found = aligned(rows, 2, basis, how)  # type: ignore[arg-type]
        assert found.early == pytest.approx(early)
        assert keeps(found, limits)
    least = aligned(rows, 2, Clock.HOST)
    furthest = max(map(abs, least.offsets))
    assert keeps(least, limits)
    assert possible(limits, devices, furthest, early)
    assert furthest < 1e-9 or not possible(limits, devices, 0.99 * furthest - 1e-6, early)


@pytest.mark.parametrize(
    "name", ["zb-h1", *(pytest.param(name, marks=thorough) for name in ("1f1b", "zb-v", "interleaved-1f1b"))]
)
def test_clocks_that_are_off_are_put_right_within_what_is_said(name: str) -> None:
    run = run_of(planned(name, costs=SPLIT))
    chance = random.Random(name)
    off = [0.0, *(chance.uniform(-1, 1) for _ in range(3))]
    found = aligned(moved(run.rows, off), run.stages, Clock.OWN)
    assert found.fitted
    assert found.uncertain is not None
    assert found.uncertain < 0.02
    for offset, was in zip(found.offsets, off, strict=True):
        assert offset + was == pytest.approx(0, abs=found.uncertain + 1e-9)


def test_equal_ways_there_and_back_are_recovered_exactly() -> None:
    """Device 1 is 5 ms ahead; a forward and a backward take 1 ms between the devices at the least."""
    rows = [
        [Ran(Op(0, Kind.F, 0), 0.0, 0.002), Ran(Op(0, Kind.B, 0), 0.010, 0.014)],
        [Ran(Op(1, Kind.F, 0), -0.002, 0.000), Ran(Op(1, Kind.B, 0), 0.000, 0.004)],
    ]
    found = aligned(rows, 2, Clock.OWN)
    assert found.offsets == pytest.approx((0, 0.005))
    assert found.uncertain == pytest.approx(0.001)
    assert aligned(rows, 2, Clock.HOST).offsets == pytest.approx((-0.002, 0.002))
    recorded = aligned(rows, 2, Clock.HOST, "recorded")
    assert recorded.offsets == (0, 0)
    assert recorded.early == pytest.approx(0.004)


@pytest.mark.parametrize("how", ["auto", "fitted"])
def test_one_device_and_devices_without_messages(how: How) -> None:
    rows: Sequence[Sequence[Ran]] = [[Ran(Op(0, Kind.F, 0), 1.0, 2.0)], []]
    assert aligned(rows[:1], 1, Clock.OWN, how).offsets == (0,)
    assert aligned(rows, 2, Clock.OWN, how).offsets == (0, 0)
    assert Fraction(aligned(rows, 2, Clock.BARRIER, how).early) == 0
