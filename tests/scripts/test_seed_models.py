"""The configurations of the systems that this one grew from: their figures, and the optima of models/seeds."""

import importlib

import pytest

from tests.support.many import each
from tests.support.places import MODELS
from tests.support.tiers import thorough

seed_models = importlib.import_module("seed_models")
CASES = list(seed_models.cases())
LONG = ("crosspipe-405b", "crosspipe-two-sites-wave", "distir-grid-search", "distir-mlp")
"""Models whose searches take tens of seconds."""


def tier(case: "seed_models.Case") -> list[pytest.MarkDecorator]:
    if case.path.stem in LONG or "bound" in case.optimum:
        return [pytest.mark.slow]
    return [] if case.path.stem in ("parallelsim-ddp", "tutorial") else [thorough]


def test_every_model_is_in_the_table_and_says_where_it_is_from() -> None:
    models = {path for path in (MODELS / "seeds").glob("*.toml") if path.name != "expected.toml"}
    assert {case.path for case in CASES} == models
    assert len({case.name for case in CASES}) == len(CASES)
    for path in models:
        assert f'\nname = "{path.stem}"\n' in path.read_text()
    systems = {"crosspipe": "CrossPipe", "distir": "DistIR", "parallelsim": "parallelsim", "tutorial": "tutorial"}
    systems["emulation"] = "PP-Emulation"
    for case in CASES:
        assert systems[case.path.stem.split("-")[0]] in case.path.read_text().splitlines()[0]


def test_what_the_original_systems_show() -> None:
    """Every figure, to the digits that are known."""

    def check(case: "seed_models.Case") -> None:
        for shown in case.shows:
            schedule = case.schedule(shown)
            assert "makespan" in shown.figures
            for name, value in shown.figures.items():
                assert seed_models.measured(schedule, name) == pytest.approx(value, rel=1e-9, abs=2e-9), (shown.schedule, name)

    each({case.name: case for case in CASES}, check)
    assert sum(len(case.shows) for case in CASES) > 35


@pytest.mark.parametrize("case", [pytest.param(case, marks=tier(case), id=case.name) for case in CASES if case.optimum])
def test_the_optimum(case: "seed_models.Case") -> None:
    """What is said to be proved is; what is open has its value and its bound on either side of what is found."""
    value, bound = case.best, case.optimum.get("bound")
    result = case.solved(120.0 if bound is None else 3.0)
    if bound is None:
        assert (result.reason, result.value) == ("optimal", pytest.approx(value, rel=1e-9))
    else:
        assert result.lower_bound <= value * (1 + 1e-9)
        assert result.value is not None
        assert result.value >= bound * (1 - 1e-9)


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    seed_models.main(["--only", "tutorial"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[-4:] for row in rows if "proved" in row] == [["proved", "22", "22", "22"], ["proved", "19", "19", "19"]]
    assert [row[-3:] for row in rows if "gpipe" in row] == [["gpipe", "22", "22"]]
