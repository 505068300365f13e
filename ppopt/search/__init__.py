"""Solve: baselines, then bounds, then a solver from the best of them; each step only where the gap is still open."""

from ppopt.search.answer import solve
from ppopt.search.binding import Binding
from ppopt.search.closed import solve_closed
from ppopt.search.horizons import horizon, span_horizon
from ppopt.search.result import Limit, Progress, Reason, Result, Scope, Step, Ticks
from ppopt.search.settings import SOLVERS, Settings
from ppopt.search.verifying import model_text, verify

__all__ = [
    "SOLVERS",
    "Binding",
    "Limit",
    "Progress",
    "Reason",
    "Result",
    "Scope",
    "Settings",
    "Step",
    "Ticks",
    "horizon",
    "model_text",
    "solve",
    "solve_closed",
    "span_horizon",
    "verify",
]
