"""The list scheduler: an order becomes times, constraints become an order."""

from ppopt.timing.merge import order_of
from ppopt.timing.timed import CyclicOrder, OrderError, time_order

__all__ = ["CyclicOrder", "OrderError", "order_of", "time_order"]
