"""The table of times to proof, and how it is put into a page."""

import subprocess
import sys
from pathlib import Path

import proof_times
import pytest

from tests.support.places import SCRIPTS
from tests.support.tiers import thorough


@thorough
def test_proof_times_prints_a_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- proof times -->\nold\n<!-- end -->\nafter\n")
    command = [
        sys.executable,
        str(SCRIPTS / "proof_times.py"),
        "--quick",
        "--time-limit",
        "3",
        "--workers",
        "1",
        "--into",
        str(page),
    ]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0] == "| instance | optimum | ppopt | plain CP-SAT | ILP |"
    assert lines[2].startswith("| linear, D=4 M=8, unit, limit 4 | 27 | ")
    assert page.read_text().splitlines() == ["before", "<!-- proof times -->", *lines, "<!-- end -->", "after"]
    assert len(list(proof_times.instances())) == 10


def test_a_page_without_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="proof times"):
        proof_times.replaced("text", "table")


def test_answers_in_the_table() -> None:
    assert proof_times.Answer(10, 10, 0.123).shown(60) == "0.12 s"
    assert proof_times.Answer(10, 9, 60.2).shown(60) == "> 60 s (10.0 %)"
    assert proof_times.Answer(None, 0, 60).shown(60) == "> 60 s (none)"
