"""CP-SAT (OR-Tools): one engine, one place where constraints are posted, and what is built from these.

:mod:`~ppopt.cpsat.engine` makes solvers and runs them; :mod:`~ppopt.cpsat.posting` posts families, machines and reservoirs.
:func:`solve` and :func:`decide` ask for schedules of a whole pipeline, :func:`improved` searches around one. OR-Tools is imported
with the first of these that is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ppopt.cpsat.tuning import NeighbourhoodTuning
from ppopt.interrupt import uninterrupted

if TYPE_CHECKING:
    from ppopt.cpsat.neighbourhood import improved
    from ppopt.cpsat.question import NAME, VERSION, decide, solve

__all__ = ["NAME", "VERSION", "NeighbourhoodTuning", "decide", "improved", "solve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with uninterrupted():
        module = import_module(f"{__name__}.{'neighbourhood' if name == 'improved' else 'question'}")
    return getattr(module, name)
