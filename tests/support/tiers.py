"""What a quick run checks, and what is left to a thorough one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

thorough = pytest.mark.thorough

SOME = pytest.mark.parametrize("every", [4, pytest.param(1, marks=thorough)], ids=["some", "all"])
"""Of many cases every fourth in a quick run, all in a thorough one."""


def drawn(few: int, all_: int, *strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., object]], Callable[[int], None]]:
    """The test on ``few`` random examples in a quick run, and on ``all_`` in a thorough one."""

    def of(test: Callable[..., object]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [few, pytest.param(all_, marks=thorough)], ids=["few", "all"])
        def on(examples: int) -> None:
            settings(max_examples=examples)(given(*strategies)(test))()

        on.__name__, on.__qualname__, on.__doc__, on.__module__ = test.__name__, test.__qualname__, test.__doc__, test.__module__
        return on

    return of
