"""Numbers, units and pipelines in words."""

import math

import pytest

from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.text import Table, figure, heading, new_table, number, percent, place, rendered, sizes, unit, wrapped


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


def wide() -> Table:
    table = new_table("t", ["a long name"], ["first one [ms]", "second"], ["notes"], ranks={"first one": 1, "second": 2})
    table.add_row("abcdefghijklmnop", "12345.67", "1", "some words that may go on")
    table.add_row("q", "7", "987", "", style="dim")
    return table


def test_a_table_that_fits_is_as_wide_as_it_needs_to_be() -> None:
    assert rendered(wide()) == rendered(wide(), 200) == rendered(wide(), 78)
    assert "notes" in rendered(wide(), 78)


@pytest.mark.parametrize("width", range(16, 80))
def test_a_narrow_table_leaves_out_columns_and_breaks_nothing(width: int) -> None:
    lines = rendered(wide(), width).splitlines()
    text = " ".join(" ".join(lines).split())
    assert "abcdefghijklmnop" in text
    assert max(map(len, lines)) <= max(width, 16 + 2 + 5)  # the name and one word of the notes are never left out
    for figure_, name in (("12345.67", "first one"), ("987", "second")):
        shown = any(figure_ in line.split() for line in lines)
        assert shown != (name in text.partition("not shown in")[2])
    if any("987" in line.split() for line in lines):
        assert any("12345.67" in line.split() for line in lines)  # the rank says which goes first
    assert [word for word in text.split() if word in ("some", "words", "that", "may", "go", "on")] != []


def test_rows_are_styled_where_that_is_wanted() -> None:
    assert "\x1b" not in rendered(wide())
    assert [line[:4] for line in rendered(wide(), styled=True).splitlines() if "\x1b" in line] == ["\x1b[2m"]


def test_heads_take_several_lines_before_columns_are_left_out() -> None:
    table = new_table(None, ["name"], ["span bubble ratio"])
    table.add_row("1f1b", "11.1 %")
    assert rendered(table, 13).splitlines()[:3] == ["         span", "       bubble", "name    ratio"]
    assert rendered(table, 12).splitlines()[:3] == ["        span", "      bubble", "name   ratio"]
    assert "not shown" not in rendered(table, 5)  # nothing may be left out


def test_wide_letters_take_two_columns() -> None:
    table = new_table(None, ["name"], ["n"])
    table.add_row("\u6a21\u578b", "1")
    table.add_row("abcd", "2")
    first, second = rendered(table).splitlines()[-2:]
    assert (first, second) == ("\u6a21\u578b   1", "abcd   2")


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="2 cells in a table of 1 columns"):
        new_table(None, ["name"], []).add_row("a", "b")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *[(27, "27"), (12345678, "12345678"), (25.5, "25.5"), (1 / 3, "0.33333"), (123456.78, "123457"), (1185.15, "1185.2")],
        *[(9999.97, "10000"), (0.00012345678, "0.00012346"), (1.5e-7, "1.5e-07"), (-12.3456789, "-12.346"), (math.inf, "inf")],
        (0.0, "0"),
    ],
)
def test_figures_of_tables_have_five_digits(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_sentences_are_wrapped_between_words() -> None:
    assert wrapped("a short one", None) == wrapped("a short one", 20) == "a short one"
    assert wrapped("a longer one", 8) == "a longer\n  one"
    assert wrapped("indivisible", 4) == "indivisible"
