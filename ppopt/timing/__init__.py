"""The list scheduler: an order becomes times; constraints, or a priority rule, become an order."""

from ppopt.timing.greedy import Stuck, baselines, each_baseline, list_schedule
from ppopt.timing.links import begun, in_turn, left_shifted
from ppopt.timing.merge import covers, order_of
from ppopt.timing.obeys import broken
from ppopt.timing.timed import CyclicOrder, OrderError, exposed_traffic, time_order

__all__ = [
    "CyclicOrder",
    "OrderError",
    "Stuck",
    "baselines",
    "begun",
    "broken",
    "covers",
    "each_baseline",
    "exposed_traffic",
    "in_turn",
    "left_shifted",
    "list_schedule",
    "order_of",
    "time_order",
]
