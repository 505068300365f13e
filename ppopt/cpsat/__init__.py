"""CP-SAT (OR-Tools): one engine, one place where constraints are posted, and what is built from these.

:mod:`~ppopt.cpsat.engine` makes solvers and runs them; :mod:`~ppopt.cpsat.posting` posts families, machines and reservoirs.
:func:`solve` and :class:`Decisions` ask for schedules of a whole pipeline, :func:`improved` searches around one. OR-Tools is
imported with the first of these that is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppopt.cpsat.tuning import NeighbourhoodTuning
from ppopt.interrupt import lazily

if TYPE_CHECKING:
    from ppopt.cpsat.neighbourhood import Grown, improved
    from ppopt.cpsat.question import NAME, VERSION, Decisions, solve

__all__ = ["NAME", "VERSION", "Decisions", "Grown", "NeighbourhoodTuning", "improved", "solve"]


__getattr__ = lazily(
    __name__,
    {
        "NAME": "question",
        "VERSION": "question",
        "Decisions": "question",
        "Grown": "neighbourhood",
        "improved": "neighbourhood",
        "solve": "question",
    },
)
