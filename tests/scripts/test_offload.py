"""The table of copies to the host, and how it is put into a page."""

from pathlib import Path

import offload
import pytest

from tests.support.tiers import thorough


@thorough
def test_the_table_goes_between_its_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- copies -->\nold\n<!-- end of copies -->\nafter\n")
    sizes = ["-d", "2", "3", "-m", "3", "4", "--limits", "1", "--times", "1"]
    offload.main([*sizes, "--seconds", "10", "--at", "--workers", "1", "--into", str(page)])
    lines = capsys.readouterr().out.splitlines()
    assert page.read_text().splitlines() == ["before", "<!-- copies -->", *lines, "<!-- end of copies -->", "after"]
    assert [line.split(" | ")[:5] for line in lines[2:]] == [
        ["| 2, 3", "1", "none", "15", "15"],
        ["| 2, 3", "1", "1", "15", "15"],
        ["| 3, 4", "1", "none", "28", "28"],
        ["| 3, 4", "1", "1", "22", "22"],
    ]


def test_sizes_come_in_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        offload.main(["-d", "2", "3", "-m", "3"])
    assert "expected as many --microbatches as --devices (2), got 1" in capsys.readouterr().err
