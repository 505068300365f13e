"""CP-SAT: every word, alone and together, on instances whose optimum is worked out in a comment."""

from dataclasses import dataclass

import pytest

from ppopt import cpsat
from ppopt.checker import violations
from ppopt.clock import Limits
from ppopt.constraints import (
    Capacity,
    Dealt,
    Exclusive,
    Family,
    Hold,
    Listed,
    OneOf,
    Precede,
    Together,
    always_split,
    chain,
    cuts_of,
    in_order,
    rules_of,
    run,
)
from ppopt.constraints.shifts import NEVER, Shifts
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from tests.support.asked import best, value

F, B, I, W = Kind  # noqa: E741


def test_rules_alone():
    # Work 3 each; device 1 starts after 0F0 and its F, I, W fill 1..4; device 0: F, then I at 3 at the earliest, W: 5.
    assert value(Pipeline(2, 1)) == 5
    assert value(Pipeline(2, 1, links=Links(latency=2))) == 9  # two hops more
    assert value(Pipeline(1, 3)) == 9


def test_precede_with_shift_and_lag():
    pipeline = Pipeline(1, 3)
    # F of the next microbatch at least 4 after W of the one before ends: F I W . . . . F I W . . . . F I W
    assert best(pipeline, *always_split(pipeline), Precede(Family(0, W), Family(0, F), shift=1, lag=4)).lower_bound == 17
    # All three forwards first, by a negative shift: F(k + 2) before I(k).
    forwards_first = (Precede(Family(0, F), Family(0, I), shift=-2), chain(Family(0, F)), chain(Family(0, I)))
    outcome = best(pipeline, *always_split(pipeline), *forwards_first)
    assert outcome.schedule is not None
    assert outcome.schedule.order.texts()[0][:4] == ["0F0", "0F1", "0F2", "0I0"]


def test_streams_dealt_and_listed():
    pipeline = Pipeline(1, 2, placement="loop", chunks=2, costs=Costs(forward=2, backward=2))
    table = Dealt((Family(0, F), Family(1, F)), 1)
    backwards = Listed((Op(1, B, 1), Op(0, B, 1), Op(1, B, 0), Op(0, B, 0)))
    outcome = best(pipeline, chain(table), chain(backwards), Precede(Listed((Op(1, F, 1),)), Listed((Op(1, B, 1),))))
    assert outcome.schedule is not None
    assert outcome.schedule.order.texts() == [["0F0", "1F0", "0F1", "1F1", "1B1", "0B1", "1B0", "0B0"]]


def test_exclusive():
    # Two devices, one microbatch: 5 ticks; if the two could only run one operation at a time in all, 6.
    pipeline = Pipeline(2, 1)
    streams = tuple(Family(s, kind) for s in range(2) for kind in (F, I, W))
    assert best(pipeline, *always_split(pipeline), lower=5, upper=5).schedule is not None
    refuted = best(pipeline, *always_split(pipeline), Exclusive(streams), lower=5, upper=5)
    assert (refuted.schedule, refuted.lower_bound) == (None, 6)


@pytest.mark.parametrize("cuts", [True, False], ids=["counted", "cumulated"])
def test_capacity(cuts):
    # One activation at a time on device 0 of 2: F0 .. W0 takes 1 + 2 (device 1) + 2 = 5, then the same again.
    pipeline = Pipeline(2, 2, memory=Memory(limit=(1, 2)))
    assert value(pipeline, cuts=cuts) == 10
    # Half is given back with I: with room for one and a half, the next F may start with W0: 0F0 . . 0I0 0F1 0W0 . 0I1 0W1.
    assert value(pipeline.changed(memory=Memory(retained=0.5, limit=(1.5, 2))), cuts=cuts) == 9


def test_capacity_said_by_the_user():
    pipeline = Pipeline(2, 2)
    one_at_a_time = Capacity((Hold(Family(0, F), (Family(0, B), Family(0, W)), 3),), 5)
    assert value(pipeline, one_at_a_time) == 10


def test_together_runs_a_pair_for_its_own_time():
    pipeline = Pipeline(1, 2, costs=Costs(forward=2, backward=3, overlap=4))
    pair = Together(Family(0, F), Family(0, B), shift=1)  # F(1) with B(0)
    outcome = best(pipeline, pair)
    assert outcome.schedule is not None
    assert outcome.schedule.order.texts() == [["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"]]
    assert outcome.schedule.makespan == outcome.lower_bound == 2 + 4 + 3
    assert violations(pipeline, outcome.schedule) == []


def test_a_pair_needs_both_halves_inputs():
    # A pair of a microbatch's own forward and backward can never start.
    pipeline = Pipeline(1, 1, costs=Costs(backward=2))
    outcome = best(pipeline, Together(Family(0, F), Family(0, B)))
    assert (outcome.schedule, outcome.lower_bound) == (None, 1001)


def test_one_of_chooses_op_by_op():
    # Fused takes 2, split 1 + 2. Device 1 gains by I first (the gradient goes on after 1 instead of 2) and pays 1 of work:
    # 0F0 1F0 1I0 0B0 = 1 + 1 + 1 + 2 = 5, with 1W0 done at 5; with 1B0: 1 + 1 + 2 + 2 = 6.
    pipeline = Pipeline(2, 1, costs=Costs(backward_input=1, backward_weight=2, backward=2))
    outcome = best(pipeline)
    assert outcome.schedule is not None
    assert outcome.schedule.order.texts() == [["0F0", "0B0"], ["1F0", "1I0", "1W0"]]
    assert outcome.lower_bound == outcome.schedule.makespan == 5
    assert value(pipeline, *always_split(pipeline)) == 6  # 0F0 1F0 1I0 0I0 0W0
    assert value(pipeline, *run(Family(s, B) for s in range(2))) == 6


def test_memory_with_a_free_choice_of_the_backward():
    # Fused 2, split 1 + 2, one device: fused throughout, whatever the memory.
    costs = Costs(backward_input=1, backward_weight=2, backward=2)
    pipeline = Pipeline(1, 3, costs=costs, memory=Memory(limit=1, retained=0.5))
    assert value(pipeline) == value(pipeline, cuts=False) == 9


def test_an_input_gradient_takes_more_from_its_start_on():
    # All three forwards first hold 3, then I makes it 4 and its W leaves 2: split throughout it takes 9. With a limit of 3 the
    # first backward is whole, which takes 5 instead of 2; a microbatch less leaves the others room.
    costs = Costs(backward_input=1, backward_weight=1, backward=5)
    first = [Precede(Listed((Op(0, F, 2),)), Listed((Op(0, kind, 0),))) for kind in (B, I)]
    for limit, least in ((4, 9), (3, 12)):
        pipeline = Pipeline(1, 3, costs=costs, memory=Memory(retained=2, limit=limit))
        assert value(pipeline, *first, *in_order(pipeline)) == least


@pytest.mark.parametrize(("retained", "limit"), [(2, 1), (2, 2), (3, 2), (2, 3)])
def test_an_input_gradient_that_is_not_run_takes_nothing_at_no_time(retained, limit):
    """One device is busy all the time, so that there is no place for what is left out; nor room for it, with a limit of 1."""
    pipeline = Pipeline(1, 3, memory=Memory(retained=retained, limit=limit))
    for whole in ((), tuple(run([Family(0, B)])), (OneOf(((Listed((Op(0, B, 1),)),),)),)):
        found = cpsat.solve(
            pipeline,
            (*rules_of(pipeline), *whole, *in_order(pipeline)),
            objective="makespan",
            lower=9,
            upper=9,
            horizon=9,
            limits=Limits.of(20, workers=1),
        )
        assert found.schedule is not None
        assert violations(pipeline, found.schedule) == []


def test_two_routes():
    # Each route's microbatch: F F B B with the other's in the gaps; device 0: 0F0 . . 0B0 and 1F1, 1B1 in between.
    pipeline = Pipeline(2, 2, placement="bidirectional", costs=Costs(backward=1))
    assert value(pipeline) == 4


def test_span_counts_each_device_from_its_own_start():
    # Device 1 is busy for 3 ticks in a row; device 0 has F, a gap of 2, I, W.
    pipeline = Pipeline(2, 1)
    assert value(pipeline, objective="span") == 5
    # With four microbatches of the zero-bubble kind the span equals the work: 12 = 4 * 3; the makespan has to wait for one F.
    pipeline = Pipeline(2, 4)
    assert value(pipeline, objective="span") == 12
    assert value(pipeline) == 13


def test_operations_that_take_no_time():
    # The first stage needs no input gradient: its I takes nothing, and still comes between F and W.
    pipeline = Pipeline(2, 3, costs=Costs(forward=1, backward_input=(0, 1), backward_weight=1), memory=Memory(limit=1))
    outcome = best(pipeline)
    assert outcome.schedule is not None
    assert violations(pipeline, outcome.schedule) == []
    assert outcome.lower_bound == outcome.schedule.makespan
    nothing = Pipeline(2, 2, costs=Costs(forward=0, backward_input=0, backward_weight=0), memory=Memory(limit=1))
    assert value(nothing) == 0


def test_operations_that_take_no_time_do_not_pass_each_other():
    # Forwards take nothing: without an order among those at one time the memory and both directions seem to fit in 2.
    costs = Costs(per="stage", forward=0, backward_input=(0, 1), backward_weight=2, backward=1)
    memory = Memory(activation=(3, 2), static=1, limit=(5, 8))
    pipeline = Pipeline(2, 2, placement="bidirectional", costs=costs, memory=memory)
    outcome = best(pipeline, objective="span")
    assert (outcome.schedule.device_span, outcome.lower_bound) == (3, 3)
    assert violations(pipeline, outcome.schedule) == []
    assert best(pipeline, objective="span", lower=2, upper=2).lower_bound == 3
    words = (*rules_of(pipeline), *cuts_of(pipeline))
    for objective in ("makespan", "span"):
        strict = cpsat.solve(
            pipeline, words, objective=objective, lower=0, upper=99, horizon=99, limits=Limits.of(20, workers=1), strict=True
        )
        assert (strict.schedule.objective(objective), strict.lower_bound) == (3, 3)


def test_contradicting_words_are_refuted():
    pipeline = Pipeline(1, 1)
    outcome = best(pipeline, *always_split(pipeline), Precede(Family(0, W), Family(0, F)))
    assert (outcome.schedule, outcome.lower_bound) == (None, 1001)


def test_an_unknown_word_raises():
    @dataclass(frozen=True)
    class Unknown:
        pass

    pipeline = Pipeline(1, 1)
    with pytest.raises(TypeError, match="Unknown"):
        cpsat.solve(
            pipeline, (*rules_of(pipeline), Unknown()), objective="makespan", lower=0, upper=9, horizon=9, limits=Limits.of(1)
        )  # type: ignore[arg-type]


def test_cuts_need_microbatches_that_are_alike():
    pipeline = Pipeline(2, 2, memory=Memory(limit=2))
    assert cuts_of(pipeline)
    assert cuts_of(pipeline, always_split(pipeline)) == cuts_of(pipeline)
    last_first = Precede(Listed((Op(0, F, 1),)), Listed((Op(0, F, 0),)))
    assert cuts_of(pipeline, (last_first,)) == ()
    assert cuts_of(pipeline, (OneOf(((Listed((Op(0, B, 0),)),),)),)) == ()
    assert value(pipeline, last_first) == value(pipeline)  # renumbered, nothing is lost


def test_shifts_add_up_through_families_that_are_run():
    a, b, c = (Family(s, F) for s in range(3))
    words = (Precede(a, b, shift=1), Precede(b, c, shift=2), Precede(a, c, shift=7))
    assert Shifts(words, [a, b, c])(a, c) == 3
    assert Shifts(words, [a, c])(a, c) == 7
    assert Shifts(words, [a, b, c])(c, a) >= NEVER
    assert in_order(Pipeline(1, 2))[0] == chain(Family(0, F))
