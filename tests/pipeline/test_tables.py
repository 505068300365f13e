"""Exact tables: rows that depend on the same are worked out once."""

from fractions import Fraction

from ppopt.op import Kind
from ppopt.pipeline import Costs, Mix, Pipeline
from ppopt.pipeline.scaling import scaled_amounts, sizes_of
from ppopt.pipeline.tables import by_stage, once_each

LENGTHS = Mix(lengths=[2, 4, [1, 1], 4], length=2)
PIPELINE = Pipeline(2, 4, costs=Costs(per="stage", forward=[2, 3], forward_quadratic=1, backward=[4, 6]), mix=LENGTHS)


def test_rows_are_worked_out_once_for_each_size() -> None:
    """Four microbatches on four routes, in the given order; two sequences of 1 have the tokens of one of 2, and fewer squares."""
    assert len(PIPELINE.routes) == 4
    sizes = sizes_of(PIPELINE)
    assert sizes.of == (0, 1, 2, 1)
    assert [scales[0] for scales in sizes.scales] == [(1, 1, 1), (2, 4, 2), (1, Fraction(1, 2), 1)]
    assert PIPELINE.ticks.per_unit == 2
    assert PIPELINE.ticks.duration[:, Kind.F].tolist() == [[4, 6], [12, 16], [3, 5], [12, 16]]
    rows = scaled_amounts(PIPELINE, by_stage(PIPELINE, Fraction(3)))
    assert rows == [[3, 3], [6, 6], [3, 3], [6, 6]]
    assert rows[1] is rows[3]


def test_sizes_are_told_apart_by_stages_too() -> None:
    mix = Mix(microbatch_costs=[[1, 2, 1], [1, 2, 3]], microbatch_order="choose")
    assert mix.sizes(3, 2).of == (0, 1, 2)
    assert Mix(microbatch_costs=[1, 2, 1]).sizes(3, 2).of == (0, 1, 0)


def test_each_row_looks_at_all_tables() -> None:
    one, other, seen = [1], [2], list[tuple[list[int], list[int]]]()

    def added(a: list[int], b: list[int]) -> list[int]:
        seen.append((a, b))
        return [x + y for x, y in zip(a, b, strict=True)]

    assert once_each(added, [one, one, other, one], [one, other, other, one]) == [[2], [3], [4], [2]]
    assert len(seen) == 3
