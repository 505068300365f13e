"""What a backward takes while it runs: every order of two devices, and the limits that say the same."""

import dataclasses
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import Phase, given, reject, settings
from hypothesis import strategies as st

from ppopt import bounds, cpsat, ilp
from ppopt.checker import violations
from ppopt.constraints import cuts_of, free_choices
from ppopt.files import Model, model_dict
from ppopt.pipeline import Costs, Memory, Mix, Pipeline, PipelineError, TooLittleMemory
from ppopt.schedule import Order
from ppopt.search import solve
from ppopt.timing import time_order
from tests.support.strategies import each
from tests.support.unaided import optimum

SHARE = pytest.mark.parametrize("share", [1, pytest.param(3, marks=pytest.mark.thorough)], ids=["few", "more"])
PHASES = [Phase.explicit, Phase.generate]


def rows(stages: tuple[int, ...], activation: Any, working: int, limit: int) -> set[tuple[str, ...]]:
    """Every order of a device that keeps to its memory: two microbatches, every backward whole."""
    chain = [*((s, "F") for s in stages), *((s, "B") for s in reversed(stages))]
    found = set()
    for turns in set(permutations([0, 1] * len(chain))):
        row = [(*chain[turns[:i].count(m)], m) for i, m in enumerate(turns)]
        held = [activation[s] if kind == "F" else -activation[s] for s, kind, _ in row]
        most = [sum(held[:i]) + (held[i] if kind == "F" else working) for i, (_, kind, _) in enumerate(row)]
        if max(most) <= limit:
            found.add(tuple(f"{s}{kind}{m}" for s, kind, m in row))
    return found


def least(pipeline: Pipeline, orders: list[set[tuple[str, ...]]]) -> int | None:
    """The least makespan of all orders whose devices do not wait for each other."""
    found = []
    for order in product(*map(sorted, orders)):
        try:
            found.append(time_order(pipeline, Order.of(pipeline, order)).makespan)
        except ValueError:
            continue
    return min(found, default=None)


@SHARE
def test_every_order(share: int) -> None:
    lists = each(1, 3, 2), each(1, 2, 2), each(0, 2, 2), each(2, 5, 2)

    @settings(max_examples=4 * share, phases=PHASES)
    @given(*lists)
    def on(forward: Any, activation: Any, working: Any, limit: Any) -> None:
        memory = Memory(activation, working=working, limit=limit)
        try:
            pipeline = Pipeline(2, 2, costs=Costs(forward=forward, backward=2), memory=memory)
        except TooLittleMemory:
            reject()
        best = least(pipeline, [rows((d,), activation, working[d], limit[d]) for d in (0, 1)])
        words = (*free_choices(pipeline), *cuts_of(pipeline))
        assert optimum(cpsat, pipeline, "makespan", words) == optimum(ilp, pipeline, "makespan", words) == best
        assert solve(pipeline, workers=1, seconds=20).ticks.value == best
        for bound in bounds.machine(pipeline), bounds.memory(pipeline):
            assert bound is None or bound.value <= (best or 0)

    on()


@pytest.mark.thorough
def test_every_order_of_two_chunks() -> None:
    for activation, working, limit in product(((1, 1, 2, 1),), (0, 1, 2), (3, 4, 5)):
        costs, memory = Costs("stage", forward=(1, 2, 1, 1), backward=2), Memory(activation, working=working, limit=limit)
        try:
            pipeline = Pipeline(2, 2, "wave", 2, costs=costs, memory=memory)
        except TooLittleMemory:
            assert limit < 3 + working
            continue
        best = least(pipeline, [rows(stages, activation, working, limit) for stages in ((0, 3), (1, 2))])
        assert solve(pipeline, workers=1, seconds=20).ticks.value == best


@SHARE
def test_it_is_a_lower_limit(share: int) -> None:
    @settings(max_examples=2 * share, phases=PHASES)
    @given(st.integers(1, 2), st.integers(0, 4), st.integers(2, 4), st.sampled_from(("linear", "wave", "bidirectional")))
    def on(devices: int, working: int, limit: int, placement: str) -> None:
        def of(**memory: Any) -> Pipeline:
            return Pipeline(devices, 3, placement, costs=Costs(backward_input=2), memory=Memory(4, **memory))

        try:
            lower = of(limit=4 * limit - working)
        except PipelineError:
            reject()
        results = [solve(pipeline, workers=1, seconds=4) for pipeline in (lower, of(working=working, limit=4 * limit))]
        assert results[0].value == results[1].value
        assert results[1].schedule is not None
        assert max(results[1].schedule.peak_memory) <= 4 * limit

    on()


def test_none_is_nothing() -> None:
    """A working set of zero changes nothing, and one that is not given is not written."""
    pipeline = Pipeline(2, 4, memory=Memory(limit=2))
    zero = pipeline.changed(memory=dataclasses.replace(pipeline.memory, working=0))
    one, other = (solve(each, workers=1, seconds=5) for each in (pipeline, zero))
    assert (one.value, one.proved_by, one.schedule and one.schedule.order) == (
        other.value,
        other.proved_by,
        other.schedule and other.schedule.order,
    )
    assert [model_dict(Model(each))["memory"].get("working") for each in (pipeline, zero)] == [None, 0]


def test_a_working_set_over_the_limit_is_found_out() -> None:
    pipeline = Pipeline(2, 3, costs=Costs(backward=2), memory=Memory(working=1, limit=3))
    order = [["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"], ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"]]
    good = time_order(pipeline, Order.of(pipeline, order))
    assert violations(pipeline, good) == []
    assert tuple(good.peak_memory) == (3, 2)
    more = pipeline.changed(memory=dataclasses.replace(pipeline.memory, working=(Fraction(3, 2), 1)))
    found = violations(more, dataclasses.replace(good, pipeline=more))
    assert {(each.rule, str(each.op)) for each in found} == {("memory", "0B0"), ("memory", "0B1")}


def test_each_backward_takes_it_and_gives_it_back() -> None:
    pipeline = Pipeline(1, 2, memory=Memory(3, retained=1, working=2))
    schedule = time_order(pipeline, Order.of(pipeline, [["0F0", "0I0", "0F1", "0W0", "0I1", "0W1"]]))
    assert tuple(schedule.peak_memory) == (6,)
    assert not violations(pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=6)), schedule)
    assert violations(pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=Fraction(11, 2))), schedule)


def test_it_grows_with_the_microbatch() -> None:
    """Of one that is twice as long it is twice as much; of a table per stage the largest on a device counts."""
    mix = Mix(lengths=[2, 1], length=1, microbatch_order="choose")
    pipeline = Pipeline(2, 2, costs=Costs(backward=2), memory=Memory(1, working=(1, 3), limit=(4, 8)), mix=mix)
    route = list(pipeline.route_of_microbatch)
    assert pipeline.amounts.working[route].tolist() == [[2, 6], [1, 3]]
    assert pipeline.amounts.room.tolist() == [3, 5], "beside the short one's"
    with pytest.raises(TooLittleMemory, match=r"device 1 needs at least 8 .* got 7"):
        pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=(4, 7)))
    held = Mix(microbatch_costs=[1, 1], microbatch_activations=[[1, 1], [1, 1], [3, 1], [1, 1]])
    loop = Pipeline(2, 2, "loop", 2, memory=Memory(2, working=2), mix=held)
    assert loop.amounts.working[list(loop.route_of_microbatch)].tolist() == [[6, 2], [2, 2]]


def test_the_long_backward_beside_the_short_microbatch() -> None:
    """Both activations are held, 2 and 1: with the long one's working set of 2 that is 5, with the short one's 4."""
    mix = Mix(lengths=[2, 1], length=1, microbatch_order="choose")
    pipeline = Pipeline(1, 2, costs=Costs(backward=2), memory=Memory(working=1), mix=mix)
    long_first, short_first = (
        time_order(pipeline, Order.of(pipeline, [row])) for row in (["0F0", "0F1", "0B0", "0B1"], ["0F0", "0F1", "0B1", "0B0"])
    )
    assert [tuple(of.peak_memory) for of in (long_first, short_first)] == [(5,), (4,)]
    tight = pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=4))
    assert violations(tight, dataclasses.replace(short_first, pipeline=tight)) == []
    found = violations(tight, dataclasses.replace(long_first, pipeline=tight))
    assert [(each.rule, each.op) for each in found] == [("memory", "0B0")]
    assert "it holds up to 5" in found[0].message


def test_bad_values() -> None:
    for given_, message in (
        ((1, 2, 3), "memory.working: expected one number or a list of 2 (one per device), got a list of 3"),
        (-1, "memory.working: expected a number >= 0, got -1"),
        ("2 GiB", "memory.working: expected a number >= 0, got '2 GiB'; write 2 (units.memory is a label)"),
    ):
        with pytest.raises(PipelineError) as error:
            Pipeline(2, 3, memory=Memory(working=given_))  # type: ignore[arg-type]
        assert str(error.value) == message
    with pytest.raises(TooLittleMemory, match=r"needs at least 3 \(.* what a backward takes while it runs\), got 2"):
        Pipeline(2, 3, memory=Memory(working=2, limit=2))


@pytest.mark.parametrize(
    ("placement", "costs", "limit", "factors"),
    [
        ("loop", Costs(forward=3, backward_input=[2, 1], backward_weight=[0, 1]), 7, [3, 3, 1]),
        ("wave", Costs(forward=[2, 1], backward_input=[0, 2], backward_weight=[1, 0]), 7, [2, 2, 2, 1]),
    ],
)
def test_a_backward_that_takes_no_time_takes_it_too(placement: str, costs: Costs, limit: int, factors: list[int]) -> None:
    """CP-SAT has intervals, and one without length takes nothing: what it finds is looked at."""
    mix = Mix(microbatch_costs=factors)
    pipeline = Pipeline(2, len(factors), placement, 2, costs=costs, memory=Memory(limit=limit, working=1), mix=mix)
    result = solve(pipeline, seconds=2, deterministic=True)
    assert result.schedule is not None
    assert violations(pipeline, result.schedule) == []
