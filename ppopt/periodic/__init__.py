"""Repetition: a small schedule with a period that repeats is a schedule for every number of microbatches."""

from ppopt.periodic.middle import repeated, repeated_value
from ppopt.periodic.periodic import Periodic
from ppopt.periodic.search import Repeated, solve
from ppopt.periodic.state import Step
from ppopt.periodic.stretching import stretched

__all__ = ["Periodic", "Repeated", "Step", "repeated", "repeated_value", "solve", "stretched"]
