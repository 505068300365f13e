"""Orders become times; from times it is read which words they break, what operations wait for, and why devices are idle."""

from ppopt.timing.links import begun, in_turn, left_shifted
from ppopt.timing.many import Lengths, OrderAtCosts, time_settings
from ppopt.timing.obeys import broken, obeys_all
from ppopt.timing.timed import CyclicOrder, OrderError, exposed_traffic, time_order
from ppopt.timing.usage import PHASES, DeviceUse, LinkUse, devices_of, links_of
from ppopt.timing.waits import CAUSES, Cause, Idle, Step, Wait, Waited

__all__ = [
    "CAUSES",
    "PHASES",
    "Cause",
    "CyclicOrder",
    "DeviceUse",
    "Idle",
    "Lengths",
    "LinkUse",
    "OrderAtCosts",
    "OrderError",
    "Step",
    "Wait",
    "Waited",
    "begun",
    "broken",
    "devices_of",
    "exposed_traffic",
    "in_turn",
    "left_shifted",
    "links_of",
    "obeys_all",
    "time_order",
    "time_settings",
]
