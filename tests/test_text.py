"""Numbers, units and pipelines in words."""

import pytest

from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.text import heading, new_table, number, percent, place, rendered, sizes, unit


@pytest.mark.parametrize(
    ("value", "shown"),
    [(27, "27"), (12345678, "12345678"), (25.5, "25.5"), (1 / 3, "0.333333"), (123456.78, "123457"), (1234567.89, "1234567.9")],
)
def test_numbers_have_six_digits_or_one_after_the_point(value: float, shown: str) -> None:
    assert number(value) == shown


def test_ratios_and_units() -> None:
    assert percent(0.2727) == "27.3 %"
    assert unit("makespan", "ms") == "makespan [ms]"
    assert unit("makespan", "") == "makespan"


def test_one_is_singular() -> None:
    assert sizes(Pipeline(1, 1)) == "1 device, 1 microbatch"
    assert sizes(Pipeline(2, 3)) == "2 devices, 3 microbatches"
    assert sizes(Pipeline(2, [4, 8])) == "2 devices, 4, 8 microbatches"


def test_chunks_are_told_where_there_are_several() -> None:
    assert place(Pipeline(2, 3)) == "linear"
    assert place(Pipeline(2, 3, "wave", 2)) == "wave with 2 chunks"
    assert heading(Pipeline(2, 3)) == "2 devices, 3 microbatches, linear"
    assert heading(Pipeline(2, 3, "loop", 4)) == "2 devices, 3 microbatches, loop, 4 chunks"
    assert heading(Pipeline(2, 3, "any", [2, 4])) == "2 devices, 3 microbatches, any, 2 or 4 chunks"


@pytest.mark.parametrize(
    ("recompute", "shown"),
    [
        ("none", ""),
        ("all", ", recompute all"),
        ("choose", ", recompute choose"),
        ([1], ", recompute in stage 1"),
        ([0, 2], ", recompute in stages 0,2"),
    ],
)
def test_a_heading_has_the_name_and_what_recomputes(recompute: object, shown: str) -> None:
    pipeline = Pipeline(
        3,
        2,
        costs=Costs(recompute=1),
        memory=Memory(recompute_saved=0.5),
        recompute=recompute,  # type: ignore[arg-type]
        name="mine",
    )
    assert heading(pipeline) == f"mine: 3 devices, 2 microbatches, linear{shown}"


def test_a_table_has_text_figures_and_text_again() -> None:
    table = new_table("a title", ["schedule"], ["time [ms]"], ["notes"])
    table.add_row("1f1b", "27", "x")
    table.add_row("zb-h1", "3", "")
    title, head, _, first, second = rendered(table).splitlines()
    assert title == "a title"
    assert [name.strip() for name in head.split("  ") if name] == ["schedule", "time [ms]", "notes"]  # brackets are no markup
    assert first.index("27") + 2 == second.index("3", 6) + 1 == head.index("]") + 1  # figures end below each other
    assert (first.index("1f1b"), first.index("x")) == (head.index("schedule"), head.index("notes"))
    assert second.endswith("3")


def test_a_table_is_no_wider_than_asked_for_and_loses_no_text() -> None:
    table = new_table(None, ["name"], [])
    table.add_row("abcdefghijklmnop" * 2)
    assert "abcdefghijklmnop" * 2 in rendered(table).splitlines()[-1]
    lines = rendered(table, 12).splitlines()
    assert max(map(len, lines)) <= 12
    assert "".join(line.strip() for line in lines[2:]) == "abcdefghijklmnop" * 2
