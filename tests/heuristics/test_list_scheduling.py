"""Greedy list scheduling: valid, within memory, never stuck under the rules alone, and close to known optima."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st

from ppopt.checker import violations
from ppopt.constraints import (
    Capacity,
    Exclusive,
    Family,
    Hold,
    Listed,
    Precede,
    Together,
    always_split,
    chain,
    rules_of,
    run,
)
from ppopt.heuristics import PRIORITIES, Jobs, Stuck, baselines, list_schedule, listable, run_jobs
from ppopt.heuristics.claims import tightest
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, Links, Memory, Mix, Pipeline
from ppopt.timing import time_order
from tests.support.strategies import each, pipelines, rebuilding
from tests.support.tiers import drawn

GPT = Costs(forward=185, backward_input=181, backward_weight=93)


def gpt(devices: int, microbatches: int, limit: int) -> Pipeline:
    memory = Memory(retained=Fraction("0.366"), limit=limit)
    return Pipeline(devices, microbatches, costs=GPT, links=Links(latency=6), memory=memory)


@pytest.mark.parametrize(("devices", "microbatches", "limit", "makespan"), [(4, 8, 3, 5400), (4, 8, 2, 6993), (8, 16, 6, 11502)])
def test_matches_the_list_scheduler_of_the_literature_under_tight_memory(devices, microbatches, limit, makespan):
    schedules = baselines(gpt(devices, microbatches, limit))
    assert all(schedule.within_memory for _, schedule in schedules)
    assert min(schedule.makespan for _, schedule in schedules) <= makespan


def test_one_device_has_no_idle_time():
    for _, schedule in baselines(Pipeline(1, 3)):
        assert schedule.makespan == 9


def test_backward_first_is_1f1b_with_weights_filling_gaps():
    # Two devices, one microbatch: 0F 1F 1I 0I in a row; 1W runs beside 0I, 0W after it.
    schedule = list_schedule(Pipeline(2, 1), rules_of(Pipeline(2, 1)))
    assert schedule.order.texts() == [["0F0", "0I0", "0W0"], ["1F0", "1I0", "1W0"]]
    assert schedule.makespan == 5


def test_a_patient_device_waits_for_what_is_about_to_come():
    # Device 0 runs 0F0 and 0F1 in 0..3 and 3..6. Device 1 runs 1F0 and 1I0 in 3..5; 1W0 would keep it until 15, 1F1
    # comes at 6.
    pipeline = Pipeline(2, 2, costs=Costs(forward=(3, 1), backward_input=1, backward_weight=10))
    eager, patient = (list_schedule(pipeline, rules_of(pipeline), patient=p) for p in (False, True))
    assert eager.order.texts()[1][:3] == ["1F0", "1I0", "1W0"]
    assert patient.order.texts()[1][:3] == ["1F0", "1I0", "1F1"]


def test_fills_what_a_named_order_leaves_open_and_keeps_the_rest():
    pipeline = Pipeline(2, 4)
    fixed = [chain(Family(s, kind)) for s in range(2) for kind in (Kind.F, Kind.I)]
    all_forwards_first = [Precede(Family(s, Kind.F), Family(s, Kind.I), shift=-3) for s in range(2)]
    schedule = list_schedule(pipeline, (*rules_of(pipeline), *fixed, *all_forwards_first), reserve=False)
    for device, texts in enumerate(schedule.order.texts()):
        assert texts[:4] == [f"{device}F{m}" for m in range(4)]


def test_runs_a_pair_as_one_operation_with_its_own_duration():
    pipeline = Pipeline(1, 2, costs=Costs(forward=2, backward=3, overlap=4))
    words = (*rules_of(pipeline), Together(Listed((Op(0, Kind.F, 1),)), Listed((Op(0, Kind.B, 0),))))
    schedule = list_schedule(pipeline, words)
    assert schedule.order.texts() == [["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"]]
    assert schedule.makespan == 2 + 4 + 3


def test_takes_the_cheaper_backward_stage_by_stage():
    pipeline = Pipeline(2, 1, costs=Costs(backward_input=1, backward_weight=1, backward=(1, 2)))
    texts = list_schedule(pipeline, rules_of(pipeline)).order.texts()
    assert texts == [["0F0", "0B0"], ["1F0", "1I0", "1W0"]]
    assert any("split" in name for name, _ in baselines(pipeline))


def test_keeps_to_operations_that_words_require():
    pipeline = Pipeline(2, 2)
    words = (*rules_of(pipeline), *run(Family(s, Kind.B) for s in range(2)))
    assert {text[1] for row in list_schedule(pipeline, words).order.texts() for text in row} == {"F", "B"}


def test_without_reservation_a_wave_can_fill_up_and_says_where():
    pipeline = Pipeline(2, 4, placement="wave", chunks=2, memory=Memory(limit=1))
    with pytest.raises(
        Stuck, match=r"stuck at time .*device 0 waits for memory for 3F0 \(holds 1, needs 0.5 more, has 1\)"
    ) as stuck:
        list_schedule(pipeline, rules_of(pipeline), "forward-first", reserve=False)
    assert stuck.value.time == 3  # in half units: 0F0 and 0F1 end at 1 and 2, then 1F1 has no room at 3
    assert 0 in stuck.value.waiting
    assert list_schedule(pipeline, rules_of(pipeline), "forward-first").within_memory


def test_one_stage_needs_no_reservation_where_microbatches_differ():
    """Each holds on a device what it needs there, so that nothing is looked at but the room there is."""
    pipeline = Pipeline(3, 12, memory=Memory(limit=5), mix=Mix(microbatch_costs=(1, 3, 2) * 4))
    for rule in PRIORITIES:
        with_, without = (list_schedule(pipeline, rules_of(pipeline), rule, reserve=reserve) for reserve in (True, False))
        assert with_.within_memory
        assert with_.order == without.order


def test_forwards_leave_room_for_what_input_gradients_take():
    """Three activations of 1 fit, but then no I has room for the 1 that it takes more."""
    pipeline = Pipeline(1, 3, memory=Memory(retained=2, limit=3))
    split = (*rules_of(pipeline), *always_split(pipeline))
    with pytest.raises(Stuck, match=r"device 0 waits for memory for 0I0 \(holds 3, needs 1 more, has 3\)"):
        list_schedule(pipeline, split, "forward-first", reserve=False)
    schedule = list_schedule(pipeline, split, "forward-first")
    assert schedule.peak_memory == (3,)
    assert schedule.order.texts()[0][:3] == ["0F0", "0F1", "0I0"]


def test_a_wave_leaves_room_for_what_either_of_its_stages_takes():
    """Stage 3 takes 3 more, so that of the 5 there is room for stages 0 and 3 of one microbatch only."""
    memory = Memory(activation=1, retained=(1, 1, 1, 4), limit=5)
    costs = Costs("stage", forward=1, backward_input=1, backward_weight=1)
    for microbatches in (2, 6):
        pipeline = Pipeline(2, microbatches, placement="wave", chunks=2, costs=costs, memory=memory)
        split = (*rules_of(pipeline), *always_split(pipeline))
        with pytest.raises(Stuck, match=r"3I0 \(holds 4, needs 3 more, has 5\)" if microbatches == 2 else "memory"):
            list_schedule(pipeline, split, "forward-first", reserve=False)
        for rule in PRIORITIES:
            for patient in (False, True):
                assert list_schedule(pipeline, split, rule, patient=patient).within_memory


def test_where_splitting_takes_memory_backwards_are_whole_and_tried_split_where_there_is_room():
    pipeline = Pipeline(2, 4, memory=Memory(retained=(2, 4), limit=3))
    by_name = dict(baselines(pipeline))
    whole, split = (by_name[name].order.texts() for name in ("greedy backward-first", "greedy backward-first, split"))
    assert {text[1] for row in whole for text in row} == {"F", "B"}
    assert [{text[1] for text in row} for row in split] == [{"F", "I", "W"}, {"F", "B"}]
    unlimited = dict(baselines(pipeline.changed(memory=Memory(retained=(2, 4)))))
    assert "0W0" in unlimited["greedy backward-first"].order.texts()[0]


def test_a_cycle_in_the_words_is_stuck_too():
    pipeline = Pipeline(1, 1)
    words = (*rules_of(pipeline), Precede(Family(0, Kind.W), Family(0, Kind.F)))
    with pytest.raises(Stuck, match="device 0 waits for 0W0, to run 0F0"):
        list_schedule(pipeline, words)


def test_an_unknown_word_raises():
    @dataclass(frozen=True)
    class Unknown:
        pass

    with pytest.raises(TypeError, match="Unknown"):
        list_schedule(Pipeline(1, 1), (*rules_of(Pipeline(1, 1)), Unknown()))  # type: ignore[arg-type]


def test_an_operation_on_two_devices_raises():
    pipeline = Pipeline(1, 1)
    with pytest.raises(ValueError, match="in two Exclusive words"):
        Jobs(pipeline, (*rules_of(pipeline), Exclusive((Family(0, Kind.F),))))


def test_a_rule_that_is_a_word_too_counts_once():
    pipeline = Pipeline(2, 2, costs=Costs(backward=1))
    again = Exclusive((Family(0, Kind.F), Family(0, Kind.B)))
    rules = rules_of(pipeline)
    assert again in rules
    assert listable(pipeline, (*rules, again)) == listable(pipeline, rules)
    assert Jobs(pipeline, listable(pipeline, (*rules, again, again)))


def test_release_times_are_kept():
    pipeline = Pipeline(1, 2)
    jobs = Jobs(pipeline, rules_of(pipeline))
    late = np.where(jobs.numbers == pipeline.index.number(Op(0, Kind.F, 0)), 50, 0)
    assert run_jobs(jobs, PRIORITIES["backward-first"](jobs), release=late).texts()[0][0] == "0F1"


@drawn(16, 100, pipelines(120))
def test_never_stuck_and_always_valid_under_the_rules_alone(pipeline: Pipeline):
    least = max(pipeline.work)
    for _, schedule in baselines(pipeline):
        assert schedule.within_memory
        assert schedule.makespan >= least
        again = time_order(pipeline, schedule.order)
        assert all(np.array_equal(a, b) for a, b in zip(again.start, schedule.start, strict=True))


@drawn(16, 150, rebuilding(160))
def test_never_stuck_where_input_gradients_take_memory(pipeline: Pipeline):
    jobs = Jobs(pipeline, (*rules_of(pipeline), *always_split(pipeline)), links=True)
    for rule in PRIORITIES.values():
        for patient in (False, True):
            schedule = time_order(pipeline, run_jobs(jobs, rule(jobs), patient=patient))
            assert violations(pipeline, schedule) == []


@st.composite
def of_several_sizes(draw: st.DrawFn) -> Pipeline:
    """Microbatches that hold different amounts and run in any order; some stages hold nothing; the largest has just room."""
    placement, devices, chunks = draw(st.sampled_from([("linear", 3, 1), ("loop", 2, 2), ("loop", 2, 3), ("wave", 3, 2)]))
    stages = devices * chunks
    sizes = draw(st.lists(st.integers(1, 4), min_size=3, max_size=6))
    held = [draw(st.sampled_from([0, 0, 1, 2, 3])) for _ in range(stages)]
    kept = [draw(st.sampled_from([of, of, of + 1])) for of in held]
    forward, backward = (draw(each(1, 9, stages)) for _ in range(2))
    costs = Costs("stage", forward=forward, backward_input=backward, backward_weight=1)
    mix = Mix(microbatch_activations=sizes, microbatch_order="choose")
    free = Pipeline(devices, len(sizes), placement=placement, chunks=chunks, costs=costs, mix=mix)
    most = [0] * devices
    for device, *of in zip(free.routes[0], held, kept, strict=True):
        most[device] += max(of) * max(sizes)
    memory = Memory(held, retained=kept, limit=[max(of, 1) for of in most])
    return Pipeline(devices, len(sizes), placement=placement, chunks=chunks, costs=costs, mix=mix, memory=memory)


@drawn(40, 400, of_several_sizes())
def test_never_stuck_where_microbatches_of_several_sizes_pass_each_other(pipeline: Pipeline):
    """A device with one stage that holds anything must not let one pass another that another device keeps room for."""
    for words in ((), always_split(pipeline)):
        jobs = Jobs(pipeline, (*rules_of(pipeline), *words), links=True)
        for rule in PRIORITIES.values():
            for patient in (False, True):
                schedule = time_order(pipeline, run_jobs(jobs, rule(jobs), patient=patient))
                assert violations(pipeline, schedule) == []


def test_a_smaller_microbatch_waits_where_another_device_keeps_room_for_a_larger_one():
    """On device 0 there is room for microbatch 3 beside 1, not for 2; on device 1 both stages of 2 take all there is."""
    mix = Mix(microbatch_activations=(6, 4, 12, 4), microbatch_order="choose")
    costs = Costs("stage", forward=(5, 3, 1, 1), backward=(9, 6, 2, 3))
    memory = Memory(activation=(5, 1, 0, 4), limit=60)
    pipeline = Pipeline(2, 4, placement="loop", chunks=2, costs=costs, memory=memory, mix=mix)
    for _, schedule in baselines(pipeline):
        assert violations(pipeline, schedule) == []


def test_of_two_memories_that_hold_the_same_the_smaller_counts():
    pipeline, half = (Pipeline(3, 6, memory=Memory(limit=limit)) for limit in (3, Fraction(5, 2)))  # 5/2: amounts in halves
    tighter = [word for word in rules_of(half) if isinstance(word, Capacity)]
    words = rules_of(pipeline)
    for both in ((*words, *tighter), (*tighter, *words)):
        assert list_schedule(pipeline, both).order == list_schedule(half, rules_of(half)).order
        assert max(list_schedule(pipeline, both).peak_memory) == 2


def test_two_memories_of_one_device_that_hold_different_things_are_refused():
    pipeline = Pipeline(1, 3, memory=Memory(limit=2))
    other = Capacity((Hold(Family(0, Kind.F), (Family(0, Kind.I), Family(0, Kind.B)), 1),), 1)
    with pytest.raises(ValueError, match="a device has one memory"):
        list_schedule(pipeline, (*rules_of(pipeline), other))


def test_numbers_in_flight_that_change_nothing_are_left_out():
    """Two microbatches fit a device of three chunks, so up to six first chunks do; what that leads to is seen with fewer."""
    pipeline = Pipeline(2, 12, placement="wave", chunks=3, memory=Memory(limit=2))
    schedules = baselines(pipeline)
    names = [name for name, _ in schedules]
    assert len(set(names)) == len(names)
    assert names[0] == "greedy backward-first"
    most = {int(name.split(", ")[-1].split()[0]) for name in names if name.endswith("in flight")}
    assert 0 < max(most) < 6
    for name, schedule in schedules:
        if name.endswith("in flight"):
            plain = ", ".join(name.split(", ")[:-1])
            assert schedule.order.texts() != dict(schedules)[plain].order.texts()


def test_of_one_memory_that_is_said_twice_the_smallest_room_counts() -> None:
    """Also where it is the same word twice, and in another unit; other memories stay."""
    own = [Capacity((Hold(Family(stage, Kind.F), (Family(stage, Kind.B),), 2),), 6) for stage in (0, 1)]
    less = Capacity((Hold(Family(0, Kind.F), (Family(0, Kind.B),), 1),), 2)
    assert tightest((own[0], chain(Family(0, Kind.F)), own[1], own[0])) == (own[0], chain(Family(0, Kind.F)), own[1])
    assert tightest((own[0], own[1], less)) == (less, own[1])
