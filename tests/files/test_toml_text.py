"""Trees of tables as TOML: read back they are the same."""

import tomllib

import pytest

from ppopt.files.toml_text import toml_text
from tests.support.planned import tables


@pytest.mark.parametrize(
    "tree",
    [
        {},
        tables(),
        {"a": 1, "t": {"x y": [1, 2.5, True], "z": {"deep": ['a"b', 4.1e-06]}}, "rows": [{"n": 1}, {"n": 2, "m": [{"k": 0.1}]}]},
        {"small": 1e-300, "large": 1e20, "text": "ü\n\t"},
    ],
)
def test_what_is_written_is_read_back(tree: dict[str, object]) -> None:
    assert tomllib.loads(toml_text(tree)) == tree


def test_what_is_left_out() -> None:
    assert toml_text({"a": None, "t": {}, "u": {"b": None, "c": 1}}) == "[u]\nc = 1\n"
