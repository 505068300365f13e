"""Imports run downwards only: each room may import those above it in this list."""

import ast
from pathlib import Path

import pytest
from calls import ROOMS

from tests.support.fresh import heavy_after
from tests.support.many import each
from tests.support.places import PACKAGE

MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def room(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("ppopt.")} & set(ROOMS)


@pytest.mark.parametrize("mine", ROOMS)
def test_imports_run_downwards(mine: str) -> None:
    def check(module: Path) -> None:
        higher = {other for other in imported_rooms(PACKAGE / module) if ROOMS.index(other) > ROOMS.index(mine)}
        assert not higher, f"imports {higher}"

    each({str(module): module for module in MODULES if room(module) == mine}, check)


def test_the_checker_shares_nothing_with_the_rest() -> None:
    def check(module: Path) -> None:
        assert imported_rooms(PACKAGE / module) <= {"op", "compiled", "pipeline", "schedule", "checker"}

    each({str(module): module for module in MODULES if room(module) == "checker"}, check)


@pytest.mark.parametrize(
    ("call", "module"),
    [("CpSolver(", "cpsat/engine.py"), ("add_no_overlap(", "cpsat/posting.py"), ("add_cumulative(", "cpsat/posting.py")],
)
def test_one_place_makes_solvers_and_one_posts_machines_and_reservoirs(call: str, module: str) -> None:
    assert [path.as_posix() for path in MODULES if call in (PACKAGE / path).read_text()] == [module]


def test_modules_and_functions_are_short() -> None:
    """A module has at most 400 lines, a function at most 60."""
    long = []
    for path in MODULES:
        text = (PACKAGE / path).read_text()
        long += [str(path)] * (text.count("\n") > 400)
        functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        long += [f"{path}: {node.name}" for node in functions if (node.end_lineno or 0) - node.lineno >= 60]
    assert not long


def test_every_module_has_a_room() -> None:
    assert {room(module) for module in MODULES} <= {*ROOMS, "__init__", "__main__"}


def test_help_needs_no_solver_and_no_plotting() -> None:
    assert heavy_after("from ppopt.cli import main; main(['--help'])") == set()


def test_rooms_that_use_solvers_are_imported_without_them() -> None:
    assert not {"ortools", "pulp"} & heavy_after("import ppopt.bounds, ppopt.cpsat, ppopt.ilp, ppopt.search")
