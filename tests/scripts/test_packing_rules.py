"""The table of packing rules, and how it is put into a page."""

from pathlib import Path

import packing_rules
import pytest

from ppopt.checker import violations
from ppopt.named import find
from ppopt.sequences import PACKERS, lengths_of, packed
from ppopt.timing import time_order
from tests.support.tiers import thorough


def test_arrived_sequences_fill_the_bags_and_no_more() -> None:
    for shape in packing_rules.SHAPES:
        lengths = packing_rules.arrived(shape, 3)
        assert sum(lengths[:-1]) < 3 * packing_rules.MOST <= sum(lengths)
        assert max(lengths) <= packing_rules.MOST


def test_the_best_order_is_between_the_bound_and_the_order_of_the_rule() -> None:
    lengths = packing_rules.arrived("uniform", 3)
    pipeline = packing_rules.pipeline_of(lengths_of(packed("megatron-pack", lengths, packing_rules.MOST), lengths))
    own = time_order(pipeline, find("1f1b").order(pipeline))
    best = packing_rules.best_order(pipeline, 20)
    assert best.schedule is not None
    assert not violations(pipeline, best.schedule)
    assert best.reason == "optimal"
    assert best.value is not None
    assert best.value < pipeline.time(own.makespan)
    assert packing_rules.imbalance(pipeline) > 1


@thorough
def test_the_table_goes_between_its_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- packing rules -->\nold\n<!-- end of packing rules -->\nafter\n")
    packing_rules.main(["--bags", "2", "--time-limit", "1", "--into", str(page)])
    lines = capsys.readouterr().out.splitlines()
    assert page.read_text().splitlines() == ["before", "<!-- packing rules -->", *lines, "<!-- end of packing rules -->", "after"]
    rows = [line.split(" | ") for line in lines[2:]]
    assert [row[2] for row in rows] == [*PACKERS] * len(packing_rules.SHAPES)
    for row in rows:
        own, best, bound = float(row[5]), float(row[7]), float(row[8])
        assert bound <= best <= own
