"""Heuristics: from a pipeline to orders, made by a rule or pinned down by words; :mod:`ppopt.timing` gives them their times.

None of this proves anything. List scheduling (:mod:`~ppopt.heuristics.list_scheduling`) makes
:mod:`~ppopt.heuristics.jobs` of words, and a :mod:`~ppopt.heuristics.simulation` of the devices and links
(:mod:`~ppopt.heuristics.loops`) runs them in the order of one of the :mod:`~ppopt.heuristics.priorities`.
"""

from ppopt.heuristics.baselines import baselines, each_baseline
from ppopt.heuristics.frontier import FILLINGS, by_frontier, in_flight
from ppopt.heuristics.jobs import Jobs
from ppopt.heuristics.list_scheduling import filled, list_schedule, listable, run_jobs
from ppopt.heuristics.pacing import each_paced
from ppopt.heuristics.pinned import covers, order_of
from ppopt.heuristics.priorities import PRIORITIES
from ppopt.heuristics.simulation import Stuck

__all__ = [
    "FILLINGS",
    "PRIORITIES",
    "Jobs",
    "Stuck",
    "baselines",
    "by_frontier",
    "covers",
    "each_baseline",
    "each_paced",
    "filled",
    "in_flight",
    "list_schedule",
    "listable",
    "order_of",
    "run_jobs",
]
