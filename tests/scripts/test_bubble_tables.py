"""The zero-bubble papers' tables, by the script that prints them."""

import bubble_tables
import pytest

from ppopt.named import find
from ppopt.pipeline import Memory
from tests.support.peers import entries
from tests.support.tiers import thorough


def test_it_has_every_row_that_was_published() -> None:
    published = [e for e in entries("zero_bubble") if e["kind"].startswith("published")]
    assert len(published) == len(bubble_tables.ROWS) == 12
    for row, entry in zip(bubble_tables.ROWS, published, strict=True):
        assert (row.devices, row.microbatches) == (entry["devices"], entry["microbatches"])
        assert tuple(map(float, row.times)) == (entry["forward"], entry["backward_input"], entry["backward_weight"])
        assert float(row.latency) == entry["comm"]
        assert row.printed == entry["span_bubble_ratio"]


@thorough
def test_all_figures_are_as_printed_or_better(capsys: pytest.CaptureFixture[str]) -> None:
    assert bubble_tables.main([]) == 0
    text = capsys.readouterr().out
    assert "closed form" in text
    assert "All figures as printed or better" in text
    assert sum(line.split()[0] in ("1.5B", "6.2B", "14.6B", "28.3B") for line in text.splitlines() if line.strip()) == 7


def test_a_wrong_figure_is_a_miss() -> None:
    row = bubble_tables.ROWS[0]
    found = bubble_tables.rates(row)
    assert bubble_tables.misses(row, found) == []
    assert len(bubble_tables.misses(row, {**found, "zb-h1": found["zb-h1"] + 2e-4, "zb-2p": found["zb-2p"] + 2e-4})) == 2
    assert len(bubble_tables.misses(row, {**found, "zb-h1": found["zb-h1"] - 2e-4, "zb-2p": found["zb-2p"] - 2e-4})) == 1


def test_the_automatic_scheduler_stays_within_its_limit_there() -> None:
    for row in bubble_tables.ROWS[:4]:
        schedule = find("zb-2p").schedule(row.pipeline())
        assert schedule.pipeline.amount(max(schedule.peak_memory)) <= 2 * row.devices
        whole = find("zb-2p").schedule(row.pipeline().changed(memory=Memory()))
        assert whole.pipeline.amount(max(whole.peak_memory)) <= 2 * row.devices
        assert whole.device_span >= schedule.device_span
