"""Solve: a strategy is a table of steps, each a bound, an improvement or a decision; taken while the gap is open.

A :class:`~ppopt.search.problem.Problem` says what is asked, the :class:`~ppopt.clock.Clock` how long, the
:class:`~ppopt.search.incumbent.Incumbent` what is known; a :class:`~ppopt.search.run.Run` follows a table of
:mod:`ppopt.search.strategies`. Numbers that steer are in :mod:`ppopt.search.tuning`.
"""

from ppopt.search.answer import solve
from ppopt.search.binding import Binding
from ppopt.search.closed import solve_closed
from ppopt.search.horizons import horizon, span_horizon
from ppopt.search.result import Limit, Progress, Reason, Result, Scope, Ticks
from ppopt.search.settings import SOLVERS, Settings
from ppopt.search.step import Taken
from ppopt.search.verifying import model_text, verify
from ppopt.search.whereabouts import Trail, at, told

__all__ = [
    "SOLVERS",
    "Binding",
    "Limit",
    "Progress",
    "Reason",
    "Result",
    "Scope",
    "Settings",
    "Taken",
    "Ticks",
    "Trail",
    "at",
    "horizon",
    "model_text",
    "solve",
    "solve_closed",
    "span_horizon",
    "told",
    "verify",
]
