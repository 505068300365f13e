"""Bad model files: one line that names the place.

Every file of the folder ``bad`` says in its first line what the message must contain.
"""

from pathlib import Path

import pytest

from ppopt.files import ModelError, read_model
from tests.support.command import refused
from tests.support.places import ROOT

BAD = sorted((ROOT / "tests" / "files" / "bad").glob("*.toml"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_file_is_named_with_the_place(path: Path) -> None:
    expected = path.read_text().splitlines()[0].removeprefix("# error: ")
    with pytest.raises(ModelError) as caught:
        read_model(str(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert expected in message
    assert "\n" not in message.removeprefix(f"{path}: not a TOML file")
    assert len(message) < 1000
    stderr = refused("compare", str(path))
    assert stderr == f"Error: {message}\n"


def test_the_corpus_is_large() -> None:
    assert len(BAD) >= 60
