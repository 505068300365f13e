"""The solvers' models as text: read back and solved by the solvers themselves, they have the optimum that was found."""

import subprocess
import warnings
from pathlib import Path

import pulp
import pytest
from click.testing import CliRunner
from ortools.sat.python import cp_model

from ppopt.cli import main
from ppopt.constraints import rules_of
from ppopt.pipeline import Costs, Links, Memory, Pipeline
from ppopt.search import Result, model_text, solve
from ppopt.search.export import model_text as text_of

PIPELINES = {
    "plain": Pipeline(2, 3, costs=Costs(forward=(2, 1), backward_input=1, backward_weight=(1, 3))),
    "fractions": Pipeline(2, 2, costs=Costs(forward=1.5, backward_input=0.5, backward_weight=1), links=Links(latency=0.25)),
    "memory": Pipeline(2, 4, memory=Memory(limit=1)),
    "fused or split": Pipeline(2, 3, "wave", 2, costs=Costs(backward=1)),
    "one": Pipeline(1, 1),
}


def optimum_of_cpsat(text: str) -> int:
    model = cp_model.CpModel()
    assert model.proto.parse_text_format(text)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def optimum_of_cbc(text: str, folder: Path) -> int:
    model, answer = folder / "model.lp", folder / "answer.txt"
    model.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        cbc = pulp.PULP_CBC_CMD(msg=False).path
    subprocess.run([cbc, str(model), "solve", "solution", str(answer)], check=True, capture_output=True)
    head = answer.read_text().splitlines()[0]
    assert head.startswith("Optimal - objective value ")
    return round(float(head.rpartition(" ")[2]))


def solved(pipeline: Pipeline, **how: str) -> Result:
    result = solve(pipeline, workers=1, **how)  # type: ignore[arg-type]
    assert result.reason == "optimal"
    return result


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("name", PIPELINES)
def test_the_exported_model_has_the_same_optimum(name: str, objective: str, tmp_path: Path) -> None:
    result = solved(PIPELINES[name], objective=objective)
    assert optimum_of_cpsat(model_text(result)) == result.ticks.value
    text = model_text(result, "ilp")
    assert f"minimise the {objective}; {result.pipeline.ticks.per_unit} ticks are a unit of time" in text.splitlines()[0]
    assert optimum_of_cbc(text, tmp_path) == result.ticks.value


def test_binding_constraints_are_in_the_model() -> None:
    pipeline = Pipeline(3, 4)
    bound, best = solved(pipeline, order="gpipe"), solved(pipeline)
    assert bound.value is not None
    assert best.value is not None
    assert bound.value > best.value
    assert optimum_of_cpsat(model_text(bound)) == bound.value


def test_an_unknown_solver_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected one of cp-sat, ilp, got 'x'"):
        text_of(Pipeline(1, 1), rules_of(Pipeline(1, 1)), solver="x", objective="makespan", lower=0, upper=3, horizon=3)


@pytest.mark.parametrize(("solver", "begin"), [("auto", "# minimise the makespan"), ("ilp", "\\ minimise the makespan")])
def test_on_the_command_line(solver: str, begin: str, tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    args = ["solve", "-d", "2", "-m", "2", "--workers", "1", "--solver", solver, "--export-model", str(path)]
    assert CliRunner().invoke(main, args).exit_code == 0
    assert path.read_text().startswith(begin)
    missing = CliRunner().invoke(main, ["solve", "-d", "2", "-m", "2", "--export-model", str(tmp_path / "no" / "model.txt")])
    assert missing.exit_code == 2
    assert "there is no folder" in missing.stderr
