"""Modulo scheduling: a kernel that is repeated, a prologue before it and an epilogue behind it, for any number of microbatches.

The terms are those of compilers, which schedule loops so (Rau, "Iterative modulo scheduling", 1994, doi 10.1145/192724.192731):

- *kernel*: the operations that are repeated, ``unroll`` microbatches of each family (:mod:`~ppopt.periodic.kernel`).
- *period*: ticks from one kernel to the next, the initiation interval of the unrolled loop.
- *prologue* and *epilogue*: what comes before the first kernel and after the last.
- *iteration distance*: how many microbatches a precedence reaches back (``shift``), or how many kernels (``distance``).

:func:`solve` looks for the best schedule. :func:`repeated` and :func:`repeated_value` work on kernels of ordinary schedules,
:func:`stretched` makes schedules for many devices from one for few.
"""

from ppopt.periodic.graph_search import Asked, Found
from ppopt.periodic.kernel_in_schedule import repeated, repeated_value
from ppopt.periodic.periodic_schedule import PeriodicSchedule
from ppopt.periodic.search import PeriodicOutcome, solve
from ppopt.periodic.stretching import stretched

__all__ = [
    "Asked",
    "Found",
    "PeriodicOutcome",
    "PeriodicSchedule",
    "repeated",
    "repeated_value",
    "solve",
    "stretched",
]
