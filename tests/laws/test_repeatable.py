"""A random test draws the same examples whatever else runs in its process."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[int]:
    found = []

    @settings(max_examples=300)
    @given(st.integers(0, 10**6))
    def on(number: int) -> None:
        found.append(number)

    on()
    return found


def test_a_module_that_is_loaded_changes_no_example(tmp_path: Path) -> None:
    before = drawn()
    path = tmp_path / "full_of_constants.py"
    path.write_text("".join(f"A{n} = {n}\n" for n in range(271828, 271928)))
    spec = spec_from_file_location("full_of_constants", path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["full_of_constants"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        assert drawn() == before
    finally:
        del sys.modules["full_of_constants"]
