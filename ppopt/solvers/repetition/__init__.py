"""Repetition: a small schedule with a period that repeats is a schedule for every number of microbatches."""

from ppopt.solvers.repetition.middle import repeated, repeated_value
from ppopt.solvers.repetition.pattern import patterns_of
from ppopt.solvers.repetition.periodic import Periodic
from ppopt.solvers.repetition.search import Repeated, solve
from ppopt.solvers.repetition.state import Step
from ppopt.solvers.repetition.stretching import stretched

__all__ = ["Periodic", "Repeated", "Step", "patterns_of", "repeated", "repeated_value", "solve", "stretched"]
