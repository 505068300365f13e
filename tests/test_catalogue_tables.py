"""The zero-bubble papers' tables, by the script that prints them."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from peers import entries

from ppopt.named import find
from ppopt.pipeline import Memory

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    sys.path.insert(0, str(SCRIPTS))
    try:
        return importlib.import_module("bubble_tables")
    finally:
        sys.path.remove(str(SCRIPTS))


def test_it_has_every_row_that_was_published(tables: ModuleType) -> None:
    published = [e for e in entries("zero_bubble") if e["kind"].startswith("published")]
    assert len(published) == len(tables.ROWS) == 12
    for row, entry in zip(tables.ROWS, published, strict=True):
        assert (row.devices, row.microbatches) == (entry["devices"], entry["microbatches"])
        assert tuple(map(float, row.times)) == (entry["forward"], entry["backward_input"], entry["backward_weight"])
        assert float(row.latency) == entry["comm"]
        assert row.printed == entry["span_bubble_ratio"]


def test_all_figures_are_as_printed_or_better(tables: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.main([]) == 0
    text = capsys.readouterr().out
    assert "closed form" in text
    assert "All figures as printed or better" in text
    assert sum(line.split()[0] in ("1.5B", "6.2B", "14.6B", "28.3B") for line in text.splitlines() if line.strip()) == 7


def test_a_wrong_figure_is_a_miss(tables: ModuleType) -> None:
    row = tables.ROWS[0]
    found = tables.rates(row)
    assert tables.misses(row, found) == []
    assert len(tables.misses(row, {**found, "zb-h1": found["zb-h1"] + 2e-4, "zb-2p": found["zb-2p"] + 2e-4})) == 2
    assert len(tables.misses(row, {**found, "zb-h1": found["zb-h1"] - 2e-4, "zb-2p": found["zb-2p"] - 2e-4})) == 1


def test_the_automatic_scheduler_stays_within_its_limit_there(tables: ModuleType) -> None:
    for row in tables.ROWS[:4]:
        schedule = find("zb-2p").schedule(row.pipeline())
        assert schedule.pipeline.amount(max(schedule.peak_memory)) <= 2 * row.devices
        whole = find("zb-2p").schedule(row.pipeline().changed(memory=Memory()))
        assert whole.pipeline.amount(max(whole.peak_memory)) <= 2 * row.devices
        assert whole.device_span >= schedule.device_span
