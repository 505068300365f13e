"""The engines that solve an integer program, each through PuLP's own interface to it.

An engine is asked for a proof to the end: several stop at a relative gap of 1e-4 by default, which is no optimum.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import ortools.sat.python.cp_model  # noqa: F401 - PuLP loads HiGHS where it is installed, which has to come after OR-Tools
import pulp

from ppopt.clock import Limits
from ppopt.solvers.engines import ENGINES, NoEngine


@dataclass(frozen=True)
class _Engine:
    """How PuLP calls an engine: the ``solver``, the Python package that it needs, and its own words for threads, seed and gap."""

    solver: str
    package: str
    threads: str | None = None
    seed: str | None = None
    gap: str = "gapRel"
    start: bool = True
    """Whether it takes a start."""

    def arguments(self, limits: Limits, seconds: float, start: bool) -> dict[str, Any]:
        """What PuLP's interface is given."""
        given: dict[str, Any] = {"msg": False, "timeLimit": seconds, self.gap: limits.gap}
        named = ((self.threads, limits.threads), (self.seed, limits.seed), ("warmStart" if self.start else None, start))
        return given | {name: value for name, value in named if name is not None}


_ENGINES = {
    "highs": _Engine("HiGHS", "highspy", "threads", "random_seed", start=False),
    "scip": _Engine("SCIP_PY", "pyscipopt"),
    "gurobi": _Engine("GUROBI", "gurobipy", "Threads", "Seed", "MIPGap"),
    "cplex": _Engine("CPLEX_PY", "cplex", "threads"),
    "copt": _Engine("COPT", "coptpy", "Threads", gap="RelGap"),
    "xpress": _Engine("XPRESS_PY", "xpress"),
}


def engine(name: str, limits: Limits, seconds: float, start: bool, *, prepared: bool = True) -> pulp.LpSolver:
    """An engine of :data:`~ppopt.solvers.engines.ENGINES`; ``start``: it is given a start. ``prepared``: whether CBC may prepare
    a program before it solves it.

    Raises:
        NoEngine: it is not known, or not installed.
    """
    check(name)
    if name == "cbc":
        return _cbc(limits, seconds, start, prepared)
    of = _ENGINES[name]
    made: pulp.LpSolver = _made(of.solver, **of.arguments(limits, seconds, start))
    return made


def check(name: str) -> None:
    """Nothing, where an engine is there.

    Raises:
        NoEngine: it is not known, or not installed.
    """
    if name not in ENGINES:
        raise NoEngine(f"engine: expected one of {', '.join(ENGINES)}, got {name!r}")
    if not _there(name):
        package, there = _ENGINES[name].package, ", ".join(installed())
        raise NoEngine(f"engine: {name} is not installed; it needs the Python package {package}. Installed: {there}")


def installed() -> tuple[str, ...]:
    """The engines that are there. One that cannot be loaded beside OR-Tools is not."""
    return tuple(filter(_there, ENGINES))


@functools.cache
def _there(name: str) -> bool:
    return name == "cbc" or bool(_made(_ENGINES[name].solver, msg=False).available())


def version_of(name: str) -> str:
    """The version of an engine's package."""
    try:
        return version("pulp" if name == "cbc" else _ENGINES[name].package)
    except PackageNotFoundError:
        return "unknown"


def _made(solver: str, **arguments: Any) -> Any:
    of: Callable[..., Any] = getattr(pulp, solver)
    return of(**arguments)


def _cbc(limits: Limits, seconds: float, start: bool, prepared: bool) -> pulp.LpSolver:
    seed = str(limits.seed % (2**31 - 1) + 1)  # 0 would be the time of day
    options = [f"randomSeed {seed}", f"randomCbcSeed {seed}", *(() if prepared else ("preprocess off",))]
    with warnings.catch_warnings():  # the CBC that comes with PuLP 3, the version that this package asks for
        warnings.simplefilter("ignore", DeprecationWarning)
        return pulp.PULP_CBC_CMD(
            msg=False, timeLimit=seconds, threads=limits.threads, warmStart=start, options=options, gapRel=limits.gap
        )
