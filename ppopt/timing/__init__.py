"""Orders become times; from times it is read which words they break, what operations wait for, and why devices are idle."""

from ppopt.timing.links import begun, in_turn, left_shifted
from ppopt.timing.obeys import broken
from ppopt.timing.timed import CyclicOrder, OrderError, exposed_traffic, time_order
from ppopt.timing.waits import Cause, Idle, Step, Wait, Waited

__all__ = [
    "Cause",
    "CyclicOrder",
    "Idle",
    "OrderError",
    "Step",
    "Wait",
    "Waited",
    "begun",
    "broken",
    "exposed_traffic",
    "in_turn",
    "left_shifted",
    "time_order",
]
