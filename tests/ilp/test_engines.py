"""The engines that solve the integer program."""

from importlib.util import find_spec
from types import SimpleNamespace

import pulp
import pytest
from click.testing import CliRunner

from ppopt import ilp
from ppopt.cli import main
from ppopt.clock import Limits
from ppopt.constraints import always_split, cuts_of, rules_of
from ppopt.ilp.engines import _ENGINES, engine
from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.schedule import Order
from ppopt.search import Settings, solve
from ppopt.solvers.engines import ENGINES, NoEngine
from ppopt.solvers.outcome import Outcome
from ppopt.timing import time_order

THERE = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(of.package) is None, reason=f"{of.package} is not installed"))
    for name, of in _ENGINES.items()
]
"""The engines beside CBC; tests of those that are not installed are skipped."""


@pytest.mark.parametrize("name", ["cbc", *THERE])
def test_an_engine_finds_the_optimum(name: str) -> None:
    """Times of some thousand ticks: an engine that stops at a relative gap of 1e-4 would stop above it."""
    costs = Costs(forward=(9001, 9007), backward_input=(9013, 9011), backward_weight=(5003, 5009))
    pipeline = Pipeline(2, 3, costs=costs, memory=Memory(limit=2))
    words = (*rules_of(pipeline), *always_split(pipeline), *cuts_of(pipeline))
    best = solve(pipeline, workers=1).ticks.value
    assert best is not None
    limits = Limits.of(60, workers=1)
    found = ilp.solve(pipeline, words, objective="makespan", lower=0, upper=200_000, horizon=200_000, limits=limits, engine=name)
    assert found.schedule is not None
    assert found.schedule.makespan == found.lower_bound == best


@pytest.mark.parametrize("name", ["cbc", *THERE])
def test_an_engine_finds_that_there_is_none(name: str) -> None:
    pipeline = Pipeline(2, 4, memory=Memory(limit=2))
    words = (*rules_of(pipeline), *always_split(pipeline), *cuts_of(pipeline))
    best = solve(pipeline, workers=1).ticks.value or 0
    limits = Limits.of(60, workers=1)
    none = ilp.solve(pipeline, words, objective="makespan", lower=0, upper=best - 1, horizon=best - 1, limits=limits, engine=name)
    assert (none.schedule, none.lower_bound) == (None, best)


def test_an_engine_that_is_named_solves() -> None:
    """Where no bound in closed form ends the search before."""
    settings = Settings(engine="cbc", workers=1)
    assert settings.solver == "ilp"
    costs = Costs(per="stage", forward=(8, 8, 9, 4), backward_input=(6, 4, 4, 8), backward_weight=(5, 1, 7, 9))
    result = solve(Pipeline(2, 2, "loop", 2, costs=costs, memory=Memory(limit=2)), settings)
    assert result.reason == "optimal"
    assert "ILP: minimise" in [step.name for step in result.steps]
    assert "CP-SAT" not in " ".join(step.name for step in result.steps)


def test_every_engine_is_known_by_its_name() -> None:
    assert ("cbc", *_ENGINES) == ENGINES
    assert ilp.installed()[0] == "cbc"
    with pytest.raises(ValueError, match="engine: expected one of cbc, highs"):
        Settings(engine="cpu")
    with pytest.raises(ValueError, match="CP-SAT has none"):
        Settings(solver="cp-sat", engine="cbc")


def test_one_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppopt.ilp.engines._there", lambda name: name in ("cbc", "scip"))
    with pytest.raises(NoEngine, match=r"highs is not installed; it needs the Python package highspy\. Installed: cbc, scip"):
        engine("highs", Limits.of(1), 1.0, False)
    run = CliRunner().invoke(main, ["solve", "-d", "2", "-m", "2", "--engine", "gurobi"])
    assert run.exit_code == 2
    assert "gurobi is not installed" in run.output


def test_what_an_engine_says_is_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def actualSolve(self, problem: object, **others: object) -> int:  # noqa: N802 - PuLP's name
            raise RuntimeError("model too large for the licence")

    monkeypatch.setattr("ppopt.ilp.engines.engine", lambda *_, **__: Refuses())
    pipeline, limits = Pipeline(2, 2), Limits.of(5)
    with pytest.raises(NoEngine, match="engine: cbc gives up: model too large for the licence"):
        ilp.solve(pipeline, rules_of(pipeline), objective="makespan", lower=0, upper=20, horizon=20, limits=limits)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("says", ["infeasible", "optimal", "nothing, it crashes"])
def test_what_an_engine_says_once_its_time_is_over_proves_nothing(says: str, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """CBC calls programs infeasible whose time ends while it prepares them, and crashes there where it was given a start."""
    now = [0.0]

    class Hasty:
        def actualSolve(self, problem: pulp.LpProblem, **others: object) -> int:  # noqa: N802 - PuLP's name
            now[0] += 10 if late else 1
            if says == "nothing, it crashes":
                raise RuntimeError("segmentation fault")
            status = pulp.LpStatusInfeasible if says == "infeasible" else pulp.LpStatusOptimal
            solution = pulp.LpSolutionInfeasible if says == "infeasible" else pulp.LpSolutionOptimal
            problem.assignStatus(status, solution)
            return status

    pipeline = Pipeline(1, 2)
    best = time_order(pipeline, Order.of(pipeline, [["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"]]))
    monkeypatch.setattr("ppopt.ilp.engines.engine", lambda *_, **__: Hasty())
    monkeypatch.setattr("ppopt.ilp.engine.time", SimpleNamespace(monotonic=lambda: now[0]))

    def outcome() -> Outcome:
        limits = Limits.of(5, deterministic=True)
        words = rules_of(pipeline)
        hint = None if says == "infeasible" else best
        return ilp.solve(pipeline, words, objective="makespan", lower=1, upper=20, horizon=20, limits=limits, hint=hint)

    if says == "nothing, it crashes" and not late:
        with pytest.raises(NoEngine, match="segmentation fault"):
            outcome()
        return
    found = outcome()
    assert (found.schedule is not None) == (says == "optimal")
    assert found.lower_bound == (1 if late else 21 if says == "infeasible" else best.makespan)
