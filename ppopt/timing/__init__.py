"""Orders become times; and from times it is read which words they break."""

from ppopt.timing.links import begun, in_turn, left_shifted
from ppopt.timing.many import Lengths, time_settings
from ppopt.timing.obeys import broken
from ppopt.timing.timed import CyclicOrder, OrderError, exposed_traffic, time_order

__all__ = [
    "CyclicOrder",
    "Lengths",
    "OrderError",
    "begun",
    "broken",
    "exposed_traffic",
    "in_turn",
    "left_shifted",
    "time_order",
    "time_settings",
]
