"""The table of plans: every model file is a question that can be asked, and a row says what was found."""

import plan_table
import pytest

from ppopt.files.estimates import read_source
from ppopt.study.planning.question import question_of
from ppopt.transformer.parameters import counts
from tests.support.places import MODELS, ROOT
from tests.support.tiers import thorough

BILLIONS = {
    "gpt-2": 0.1244, "gpt-2-medium": 0.355, "gpt-2-large": 0.774, "gpt-2-xl": 1.558, "gpt-3-125m": 0.125, "gpt-3-350m": 0.356,
    "gpt-3-760m": 0.760, "gpt-3-1.3b": 1.316, "gpt-3-2.7b": 2.652, "gpt-3-6.7b": 6.659, "gpt-3-13b": 12.85, "gpt-3-175b": 174.6,
    "llama-3-8b": 8.030, "llama-3-70b": 70.55, "llama-3.1-405b": 405.9, "qwen3-235b-a22b": 235.1, "deepseek-v3": 671.0,
    "mixtral-8x7b": 46.70, "gpt-oss-20b": 20.91, "gpt-oss-120b": 116.8,
}  # fmt: skip
"""Parameters that the models are known by."""


def test_every_question_is_about_the_model_of_its_name() -> None:
    for path in sorted(plan_table.PLANS.glob("*.toml")):
        source = read_source(str(path))
        question = question_of(source.tables, source.name)
        assert question.name == path.stem
        total = counts(question.sizes).total / 1e9
        assert total == pytest.approx(BILLIONS.get(path.stem, total), rel=2e-3), path.stem
        assert question.training.global_batch
    assert set(BILLIONS) - {"deepseek-v3"} <= {path.stem for path in plan_table.PLANS.glob("*.toml")}


def test_every_config_has_a_plan_or_is_another_size() -> None:
    configs = {path.stem for path in (MODELS / "configs").glob("*.json")}
    planned = {path.stem for path in plan_table.PLANS.glob("*.toml")}
    assert configs - planned <= {"qwen3-30b-a3b", "deepseek-v3"}


@thorough
def test_the_row_of_a_perceptron() -> None:
    row = plan_table.row_of_perceptron(plan_table.PERCEPTRONS / "mlp-xs.toml")
    cells = row.split(" | ")
    assert cells[:4] == ["`mlp-xs`", "2.1M", "16", "data 16"]
    assert len(cells) == len(plan_table.HEADS[plan_table.PERCEPTRONS])


@thorough
def test_the_row_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a question that is settled in seconds."""
    plan_table.main([str(plan_table.PLANS / "gpt-2.toml"), "--time-limit", "300", "--workers", "1"])
    row = capsys.readouterr().out.splitlines()[-1].strip("| ").split(" | ")
    assert len(row) == len(plan_table.HEADS[plan_table.PLANS])
    assert row[:5] == ["`gpt-2`", "124M", "8", "524k", "data 8, microbatch 16, zero 1"]
    assert row[7] == "0.0 %"


def test_the_page_has_a_row_for_every_file() -> None:
    text = (ROOT / "docs" / "plans.md").read_text()
    for folder, marks in plan_table.MARKS.items():
        table = text.partition(marks[0])[2].partition(marks[1])[0].strip().splitlines()
        assert table[0] == f"| {' | '.join(plan_table.HEADS[folder])} |"
        assert [line.split("`")[1] for line in table[2:]] == sorted(path.stem for path in folder.glob("*.toml"))


def test_a_row_takes_the_place_of_the_one_of_its_name() -> None:
    folder = plan_table.PERCEPTRONS
    start, end = plan_table.MARKS[folder]
    page = f"before\n{start}\n{end}\nafter\n"
    for name, row in (
        ("mlp-small", "old"),
        ("mlp-xs", "first"),
        ("gone", "left out"),
        ("mlp-small", "new"),
        ("mlp-large", "last"),
    ):
        page = plan_table.with_row(page, folder, name, f"| `{name}` | {row} |")
    lines = page.splitlines()
    assert lines[:2] == ["before", start]
    assert lines[2].startswith("| model | parameters |")
    assert lines[4:] == ["| `mlp-large` | last |", "| `mlp-small` | new |", "| `mlp-xs` | first |", end, "after"]
    with pytest.raises(ValueError, match="expected the lines <!-- perceptrons -->"):
        plan_table.with_row("no marks", folder, "mlp-xs", "| `mlp-xs` |")


def test_counts_are_short() -> None:
    assert [plan_table.shortened(n) for n in (12, 1234, 5.24e5, 1.558e9, 6.71e11)] == ["12", "1.23k", "524k", "1.56B", "671B"]
