"""All named schedules on one pipeline."""

from dataclasses import replace
from fractions import Fraction

import pytest

from ppopt.named import compare, compare_freely, find, of_order, of_order_freely
from ppopt.named.verified import excess, verified
from ppopt.pipeline import Costs, Layers, Links, Memory, Mix, Offload, Pipeline
from ppopt.schedule import Order
from tests.support.shown import SHOWN


def test_compare_on_four_devices() -> None:
    rows = {(row.name, row.chunks): row for row in compare(Pipeline(4, 8))}
    expected = {
        ("gpipe", 1): (33, 8),
        ("1f1b", 1): (33, 4),
        ("interleaved-1f1b", 2): (28.5, 5.5),
        ("hanayo", 2): (32.5, 4),
        ("zb-h1", 1): (27, 4),
    }
    for key, (makespan, peak) in expected.items():
        schedule = rows[key].schedule
        assert schedule is not None
        assert schedule.pipeline.time(schedule.makespan) == makespan
        assert schedule.pipeline.amount(max(schedule.peak_memory)) == peak
    assert {name for name, _ in rows} == set(SHOWN)


def test_compare_shows_each_number_of_chunks_and_excludes_with_the_reason() -> None:
    rows = compare(Pipeline(3, 7), (2, 3))
    assert [row.chunks for row in rows if row.name == "looped-bfs"] == [2, 3]
    assert [row.chunks for row in rows if row.name == "zb-v"] == [2]
    excluded = {(row.name, row.chunks): row.excluded for row in rows if row.schedule is None}
    assert excluded["dualpipe", 1] == "dualpipe: devices must be even, got 3"
    assert excluded["hanayo", 2] == "hanayo: microbatches must be a multiple of devices (3), got 7"
    assert excluded["hanayo", 3] == "hanayo: chunks must be even (2 per wave), got 3"
    assert all(row.excluded is None for row in rows if row.schedule is not None)


def test_compare_with_a_fused_backward_excludes_split_schedules() -> None:
    for row in compare(Pipeline(4, 8, costs=Costs(backward=2))):
        assert (row.excluded is not None) == find(row.name).split


def test_the_automatic_scheduler_keeps_the_limit_of_the_pipeline() -> None:
    pipeline = Pipeline(4, 8, costs=Costs(forward=185, backward_input=181, backward_weight=93), links=Links(6))
    tight = find("zb-1p").schedule(pipeline.changed(memory=Memory(limit=3, retained=0.366)))
    assert tight.within_memory
    assert max(tight.peak_memory) > 2 * tight.pipeline.amounts.per_unit
    assert find("zb-1p").schedule(pipeline).makespan < tight.makespan


@pytest.mark.parametrize(("limit", "least"), [("0.5", 0.366), ("0.75", 0.66), ("1", 0.9), ("1.5", 1.4), ("2", 1.9), ("3", 2.9)])
def test_the_automatic_scheduler_keeps_room_for_what_is_made_again(limit: str, least: float) -> None:
    """A stage holds 0.1, and I takes 0.266 more."""
    costs = Costs(forward=185, backward_input=181, backward_weight=93, recompute=185)
    memory = Memory(retained=Fraction("0.366"), recompute_saved=Fraction("0.9"), limit=Fraction(limit))
    for devices in (4, 6):
        pipeline = Pipeline(devices, 12, costs=costs, links=Links(6), memory=memory, recompute="all")
        schedule = find("zb-2p").schedule(pipeline)
        assert schedule.within_memory
        assert pipeline.amount(max(schedule.peak_memory)) >= least


def test_the_automatic_scheduler_is_over_a_limit_that_no_split_backward_keeps() -> None:
    memory = Memory(activation=1, retained=3, limit=2)
    (row,) = [row for row in compare(Pipeline(3, 6, memory=memory)) if row.name == "zb-1p"]
    assert row.within_memory is False
    assert row.peak_memory == (3, 3, 3)


def test_what_a_v_makes_again_keeps_the_limit_of_its_heuristic() -> None:
    pipeline = Pipeline(4, 12, "wave", 2, costs=Costs(forward=5, backward_input=6, backward_weight=3), memory=Memory(retained=2))
    for limit in (4, 6):
        schedule = find("zb-v").schedule(pipeline, variant="adapted", limit=limit)
        assert pipeline.amount(max(schedule.peak_memory)) <= 2 * limit


def test_a_users_order_is_a_row_as_any_other() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(backward=2))
    order = Order.of(pipeline, [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])
    row = of_order(pipeline, order, "mine")
    one = find("1f1b").schedule(pipeline)
    assert row.schedule is not None
    assert (row.name, row.placement, row.chunks, row.excluded) == ("mine", "linear", 1, None)
    assert (row.schedule.makespan, row.schedule.peak_memory) == (one.makespan, one.peak_memory)


def test_a_users_order_that_deadlocks_is_excluded_with_the_reason() -> None:
    pipeline = Pipeline(2, 2, costs=Costs(backward=2))
    order = Order.of(pipeline, [["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]])
    row = of_order(pipeline, order, "mine")
    assert row.schedule is None
    assert row.excluded is not None
    assert row.excluded.startswith("mine: the order deadlocks: ")


def test_a_users_order_that_lacks_an_operation_is_excluded_with_the_reason() -> None:
    pipeline = Pipeline(1, 2, costs=Costs(backward=2))
    assert of_order(pipeline, Order.of(pipeline, [["0F0", "0B0", "0F1"]]), "mine").excluded == "mine: 0B1 is missing"


def test_only_those_that_are_wanted() -> None:
    rows = compare(Pipeline(4, 6), only=("zb-h1", "dualpipe"))
    assert [row.name for row in rows] == [row.name for row in compare(Pipeline(4, 6)) if row.name in ("zb-h1", "dualpipe")]
    assert rows["dualpipe"].excluded is not None
    assert rows["zb-h1"].makespan == 21


def test_a_row_that_pytorch_has_no_routes_for_is_excluded_where_microbatches_differ() -> None:
    """On one device both routes of a bidirectional schedule are the same."""
    layers = Layers([{"name": "a", "count": 3, "forward": 2, "forward_quadratic": 1, "backward": 3}])
    mix = Mix(lengths=[[16], [8, 8], [16]], length=[16])
    rows = compare(Pipeline(1, 3, layers=layers, partition="even", runtime="torch", mix=mix))
    (row,) = [row for row in rows if row.name == "chimera"]
    assert row.excluded is not None
    assert "PyTorch has one rank for each stage" in row.excluded


def test_given_copies_beyond_the_host_are_over_the_limit() -> None:
    """Each activation of 1 is copied to a host with room for half of one."""
    pipeline = Pipeline(2, 4, costs=Costs(backward=2), offload=Offload(time=0.5, host_limit=0.5, stages="all"))
    table = compare(pipeline, only=("gpipe", "1f1b"))
    (gpipe,) = table.rows_of("gpipe")
    assert gpipe.schedule is not None
    assert gpipe.within_memory is False
    assert excess(gpipe.schedule) == f"the host holds {pipeline.amount(gpipe.schedule.host_peak)} of 0.5"
    assert "! over the memory limit" in table.text()
    assert any(line.startswith("gpipe") and line.rstrip().endswith("!") for line in table.text().splitlines())
    with pytest.raises(RuntimeError, match="is not to be copied"):
        verified(replace(gpipe.schedule, pipeline=pipeline.changed(offload=Offload(time=0.5, stages=0.5))), "gpipe")


def test_a_users_order_of_microbatches_out_of_turn_is_excluded_with_the_reason() -> None:
    for mix in (Mix(microbatch_costs=[1, 2]), Mix(pieces=2)):
        pipeline = Pipeline(1, 2, costs=Costs(backward=2, recompute=1), memory=Memory(recompute_saved=0.5), mix=mix)
        back = ["0B1", "0B0"] if mix.pieces else ["0B0", "0B1"]
        right, wrong = (Order.of(pipeline, [["0F0", "0F1", *row]]) for row in (back, back[::-1]))
        free = pipeline.resolved("choose")
        for row in (of_order(pipeline, right, "mine"), of_order_freely(free, right, "mine")):
            assert row.excluded is None
        for row in (of_order(pipeline, wrong, "mine"), of_order_freely(free, wrong, "mine")):
            assert row.excluded is not None
            assert row.excluded.startswith("mine: its microbatches run in another order than is given")


def test_a_row_whose_own_limit_has_too_many_digits_is_excluded_with_the_reason() -> None:
    """zb-2p has room for 4 activations of almost 2^58 units, in each of 8 operations; all else takes one."""
    fine = Memory(activation=Fraction(2**58 - 1, 2**58), recompute_saved=0)
    pipeline = Pipeline(2, 4, costs=Costs(recompute=1), memory=fine)
    for rows in (compare(pipeline), compare_freely(pipeline.resolved("choose"))):
        by_name = {row.name: row for row in rows}
        assert by_name["1f1b"].excluded is None
        assert str(by_name["zb-2p"].excluded).startswith("zb-2p: memory: the amounts have no common unit")


def test_where_nothing_is_held_nothing_is_copied() -> None:
    """A block that is tried out with equal costs holds nothing there either."""
    pipeline = Pipeline(
        2,
        8,
        costs=Costs(forward=2, backward_input=1, backward_weight=3),
        memory=Memory(activation=0, limit=1),
        offload=Offload(time=3),
    )
    without = {row.name: row.makespan for row in compare(pipeline.changed(offload=None))}
    assert {row.name: row.makespan for row in compare(pipeline)} == without
    assert without["v-half"] is not None
