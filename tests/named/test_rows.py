"""What a row of a schedule says beside the model: its figures, and whether it assumes that the work is the same elsewhere."""

from fractions import Fraction
from pathlib import Path

import pytest

from ppopt.files import Model, document, json_text, write_text
from ppopt.files.exported import row_in
from ppopt.files.result import row_dict
from ppopt.named import compare, find, of_order
from ppopt.pipeline import Costs, Memory, Pipeline, in_words, plain


def test_figures_are_in_the_units_of_the_model() -> None:
    pipeline = Pipeline(
        2,
        4,
        costs=Costs(forward=(Fraction("0.5"), 1)),
        memory=Memory(activation=Fraction(1, 4), static=1, limit=Fraction("1.25")),
    )
    rows = compare(pipeline)
    for row in rows:
        schedule, tree = row.schedule, row_dict(row)
        if schedule is None:
            assert row.excluded
            assert {tree[key] for key in ("makespan", "device_span", "bubble_ratio", "work", "peak_memory", "within_memory")} == {
                None
            }
            assert not tree["assumes_equal_work"]
            continue
        per_time, per_amount = schedule.pipeline.ticks.per_unit, schedule.pipeline.amounts.per_unit
        assert row.makespan == tree["makespan"] == plain(Fraction(schedule.makespan, per_time))
        assert row.device_span == tree["device_span"] == plain(Fraction(schedule.device_span, per_time))
        assert row.bubble_ratio == tree["bubble_ratio"] == pytest.approx(1 - 22 / (2 * row.makespan))
        assert row.work == tuple(tree["work"]) == (10, 12)
        assert (
            row.peak_memory == tuple(tree["peak_memory"]) == tuple(plain(Fraction(x, per_amount)) for x in schedule.peak_memory)
        )
        assert row.within_memory is tree["within_memory"] is (max(row.peak_memory) <= 1.25)
    assert {row.within_memory for row in rows} >= {True, False}
    one = next(row for row in rows if row.name == "1f1b")
    assert (one.makespan, one.device_span, one.peak_memory) == (14.5, 14.5, (1.5, 1.25))


@pytest.mark.parametrize(
    ("stages", "words"), [((), ""), ((3,), "3"), ((0, 1), "0,1"), ((0, 1, 2), "0-2"), ((0, 2, 3, 5, 6, 7, 9), "0,2,3,5-7,9")]
)
def test_stages_in_words(stages: tuple[int, ...], words: str) -> None:
    assert in_words(stages) == words


EVEN: list[Pipeline] = [
    Pipeline(4, 8),
    Pipeline(4, 8, costs=Costs(forward=(2, 2, 2, 2)), memory=Memory(static=(1, 2, 3, 4), limit=(8, 9, 10, 11))),
    Pipeline(4, 8, routes=[[0, 1], [2, 3]]),
    Pipeline(2, 4, routes=[[0, 1, 0]]),
    Pipeline(4, 8, "loop", 2, costs=Costs("stage", forward=3)),
    Pipeline(4, 8, costs=Costs(recompute=1), memory=Memory(recompute_saved=1), recompute=[0]),
]

UNEVEN: list[Pipeline] = [
    Pipeline(4, 8, costs=Costs(forward=(1, 1, 1, 2))),
    Pipeline(4, 8, costs=Costs(recompute=(1, 1, 2, 1)), memory=Memory(recompute_saved=1)),
    Pipeline(4, 8, memory=Memory(activation=(2, 1, 1, 1))),
    Pipeline(4, 8, memory=Memory(activation=2, retained=(2, 1, 1, 1))),
    Pipeline(2, 4, "loop", 2, costs=Costs("stage", backward=(1, 2, 2, 1))),
    Pipeline(2, 4, "bidirectional", costs=Costs("stage", forward=(1, 2))),
    Pipeline(2, 4, routes=[[0, 1, 0]], costs=Costs("stage")),
    Pipeline(4, 5, routes=[[0, 1], [2, 3]]),
]


@pytest.mark.parametrize("pipeline", EVEN)
def test_with_even_costs_nothing_is_assumed(pipeline: Pipeline) -> None:
    assert not pipeline.uneven
    assert not any(row.assumes_equal_work for row in compare(pipeline, (2, 4)))


@pytest.mark.parametrize("pipeline", UNEVEN)
def test_with_uneven_costs_rows_of_other_placements_assume_equal_work(pipeline: Pipeline) -> None:
    assert pipeline.uneven
    seen = set()
    for row in compare(pipeline, (2, 4)):
        elsewhere = row.schedule is not None and row.schedule.pipeline.routes != pipeline.routes
        assert row.assumes_equal_work is elsewhere
        seen.add(elsewhere)
    assert True in seen


def test_an_order_of_ones_own_assumes_nothing_and_that_of_a_file_may(tmp_path: Path) -> None:
    pipeline = UNEVEN[0]
    assert not of_order(pipeline, find("1f1b").schedule(pipeline).order, "mine").assumes_equal_work
    for name, assumes in (("1f1b", False), ("zb-v", True)):
        path = str(tmp_path / f"{name}.json")
        schedule = find(name).schedule(pipeline)
        write_text(path, json_text(document(Model(schedule.pipeline), schedule=schedule)))
        assert row_in(path, pipeline).assumes_equal_work is assumes
