"""Settings of a search."""

from typing import Any

import pytest

import ppopt as pp


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seconds": float("inf")}, "seconds: expected a finite number > 0, got inf"),
        ({"seconds": -1}, "seconds: expected a finite number > 0, got -1"),
        ({"gap": 1.5}, "gap: expected a fraction"),
        ({"workers": 0}, "workers: expected a whole number"),
        ({"seed": -1}, "seed: expected a whole number"),
        ({"solver": "gurobi"}, "solver: expected one of auto, cp-sat, ilp, got 'gurobi'"),
        ({"deterministic": True, "workers": 2}, "a deterministic search has one worker"),
    ],
)
def test_wrong_settings_say_what_is_wrong(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pp.solve(pp.Pipeline(1, 1), **settings)
    with pytest.raises(ValueError, match=message):
        pp.Settings(**settings)


def test_settings_are_an_object_and_keywords_change_it() -> None:
    found = pp.solve(pp.Pipeline(2, 2), pp.Settings(seconds=5, workers=1, seed=3), seed=4)
    assert found.seed == 4
