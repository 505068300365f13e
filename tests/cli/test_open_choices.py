"""Commands that need everything settled say so."""

from pathlib import Path

import pytest

from tests.support.command import refused, run
from tests.support.open_choices import path_of


@pytest.mark.parametrize("flags", [["--placement", "any"], ["--placement", "loop", "-v", "2,3"], ["-m", "4,8"]])
def test_other_commands_refuse_what_is_open(flags: list[str], tmp_path: Path) -> None:
    order = tmp_path / "order.csv"
    order.write_text(run("order", "1f1b", "-d", "2", "-m", "4").stdout)
    model = path_of(tmp_path, "[pipeline]\ndevices = 2\nmicrobatches = 4\n")
    for command in (
        ["order", "1f1b", model],
        ["check", str(order), model],
        ["export", str(order), model, "--to", "torch-csv"],
        ["plot", str(order), "--model", model, "-o", str(tmp_path / "x.svg")],
    ):
        error = refused(*command, *flags)
        assert "is left open, which only solve settles" in error or "expected a single number of chunks" in error
