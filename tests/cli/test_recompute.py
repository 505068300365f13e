"""``--recompute`` on the command line."""

import pytest

from ppopt.named import compare
from ppopt.pipeline import Pipeline
from tests.support.command import read, refused, run
from tests.support.places import MODELS
from tests.support.recompute import COSTS, MEMORY

MODEL = str(MODELS / "gpt-1.5b-recompute.toml")


def test_compare_shows_both_ends() -> None:
    pipeline = Pipeline(4, 8, costs=COSTS, memory=MEMORY, recompute="choose")
    rows = compare(pipeline)
    assert [row.recompute for row in rows] == ["none"] * (len(rows) // 2) + ["all"] * (len(rows) // 2)
    for row in rows:
        if row.schedule is not None:
            assert row.schedule.pipeline.recompute == row.recompute
    smaller = ["compare", MODEL, "-d", "4", "-m", "8", "--set", "pipeline.recompute=choose"]
    assert {row["recompute"] for row in read(*smaller)["named"]} == {"none", "all"}
    stdout = run(*smaller).stdout
    assert "1f1b + recompute *" in stdout
    assert "1f1b *" in stdout


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--order", "zb-1p"], "zb-1p: its constraints depend on which stages recompute"),
    ],
)
def test_flags_that_need_to_know(flags: list[str], problem: str) -> None:
    assert problem in refused("solve", MODEL, "--recompute", "choose", *flags)
