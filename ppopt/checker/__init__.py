"""The independent checker: which rules does a schedule violate, and what do its records amount to?

A second reading of the rules, on purpose. Everything is derived from the pipeline's own fields (routes, costs, latency,
memory), on exact integers made here; neither the constraints nor the timing, the solvers or the integers that these
share are used. A mistake has to be made twice to pass.
"""

from ppopt.checker.metrics import Metrics, metrics, metrics_of, mismatches
from ppopt.checker.records import Record
from ppopt.checker.rules import violations, violations_of
from ppopt.checker.violation import Rule, Violation

__all__ = ["Metrics", "Record", "Rule", "Violation", "metrics", "metrics_of", "mismatches", "violations", "violations_of"]
