"""``ppopt check`` on files with communication."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ppopt.cli import main
from ppopt.files.torch_csv import lines_of
from ppopt.pipeline import Pipeline
from tests.support.torch_files import lowered


@pytest.mark.parametrize(
    ("remove", "message"),
    [("0REDUCE_GRAD,", "gradients of stage 0 stay M times too large"), ("1RECV_F1,", "1RECV_F1 is missing"), ("", "")],
)
def test_check_looks_at_the_communication_of_a_file(remove: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    text = "".join(lines_of(lowered("zb-v", Pipeline(2, 4))))
    assert remove in text
    path.write_text(text.replace(remove, ""))
    done = CliRunner().invoke(main, ["check", str(path)])
    assert done.exit_code == (1 if remove else 0), done.output
    assert message in done.stdout
