"""What an order alone says of its pipeline, and times for orders with mistakes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppopt.checker import violations_of
from ppopt.files import FileError
from ppopt.files.inferred import infer_pipeline
from ppopt.files.loose import loose_times
from ppopt.named import NAMED
from ppopt.op import Kind, Op, Pair, parse
from ppopt.pipeline import Pipeline


def rows_of(text: str) -> list[list[Op | Pair]]:
    return [[parse(cell) for cell in row.split()] for row in text.split("/")]


@pytest.mark.parametrize("name", NAMED)
def test_the_pipeline_of_a_named_order_is_inferred(name: str) -> None:
    schedule = NAMED[name].schedule(Pipeline(4, 8))
    rows = [schedule.order.ops(device) for device in range(4)]
    inferred = infer_pipeline(rows)
    if inferred.routes != schedule.pipeline.routes:  # the first microbatch's route is the first
        assert inferred.routes == schedule.pipeline.routes[::-1]
    for m in range(8):
        expected = schedule.pipeline.routes[schedule.pipeline.route_of_microbatch[m]]
        assert inferred.routes[inferred.route_of_microbatch[m]] == expected
    ran = [[(op, start, end) for op, start, end in row] for row in loose_times(schedule.pipeline, rows)]
    assert violations_of(schedule.pipeline, ran, earliest=True) == []
    assert max(end for row in ran for _, _, end in row) == schedule.makespan / schedule.pipeline.ticks.per_unit


def test_a_placement_is_named_where_it_has_a_name() -> None:
    assert infer_pipeline(rows_of("0F0 0B0/1F0 1B0")).placement == "linear"
    assert infer_pipeline(rows_of("0F0 2F0 2B0 0B0/1F0 3F0 3B0 1B0")).placement == "loop"
    assert infer_pipeline(rows_of("0F0 3F0 3B0 0B0/1F0 2F0 2B0 1B0")).placement == "wave"
    assert infer_pipeline(rows_of("0F0 1F1 1B1 0B0/1F0 0F1 0B1 1B0")).placement == "bidirectional"
    assert infer_pipeline(rows_of("0F0 1F0 1B0 0B0/2F0 2B0")).routes == ((0, 0, 1),)


def test_one_operation_elsewhere_makes_no_route() -> None:
    rows = rows_of("0F0 0F1 0F2 0B0 0B1/1F0 1F1 1F2 1B0 1B1 1B2 0B2")
    assert infer_pipeline(rows).routes == ((0, 1),)


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(FileError, match=r"pipeline\.microbatches: at most 262144 are supported, got 1000001"):
        infer_pipeline([[Op(0, Kind.F, 10**6)]])
    with pytest.raises(FileError, match=r"pipeline\.routes\[0\]: at most 4096 stages are supported, got 5001"):
        infer_pipeline([[Op(5000, Kind.F, 0)]])


ops = st.builds(Op, st.integers(0, 4), st.sampled_from(Kind), st.integers(0, 3))


pairs = st.builds(lambda f, b: Pair(f._replace(kind=Kind.F), b._replace(kind=Kind.B)), ops, ops)


@given(st.lists(st.lists(st.one_of(ops, pairs), max_size=12), min_size=1, max_size=4))
def test_any_order_gets_times_without_overlap(rows: list[list[Op | Pair]]) -> None:
    timed = loose_times(Pipeline(3, 3), rows)
    assert [[op for op, _, _ in row] for row in timed] == rows
    for row in timed:
        assert all(start <= end for _, start, end in row)
        assert all(end <= start for (_, _, end), (_, start, _) in itertools.pairwise(row))
    if any(rows):
        violations_of(Pipeline(3, 3), timed)
