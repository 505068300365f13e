"""Modulo scheduling: a kernel that is repeated, a prologue before it and an epilogue behind it, for any number of microbatches.

The terms are those of compilers, which schedule loops so (Rau, "Iterative modulo scheduling", 1994, doi 10.1145/192724.192731):

- *kernel*: the operations that are repeated, ``unroll`` microbatches of each family (:mod:`~ppopt.periodic.kernel`).
- *period*: ticks from one kernel to the next, the initiation interval of the unrolled loop.
- *prologue* and *epilogue*: what comes before the first kernel and after the last.
- *iteration distance*: how many microbatches a precedence reaches back (``shift``), or how many kernels (``distance``).

:func:`solve` looks for the best schedule. :func:`repeated` and :func:`repeated_value` work on kernels of ordinary schedules,
:func:`stretched` makes schedules for many devices from one for few.

OR-Tools is imported with the first of these that is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppopt.interrupt import lazily
from ppopt.periodic.tuning import ModuloTuning

if TYPE_CHECKING:
    from ppopt.periodic.graph_search import Asked, Found, Grown
    from ppopt.periodic.kernel_in_schedule import repeated, repeated_value
    from ppopt.periodic.periodic_schedule import PeriodicSchedule
    from ppopt.periodic.search import PeriodicOutcome, solve
    from ppopt.periodic.stretching import stretched

__all__ = [
    "Asked",
    "Found",
    "Grown",
    "ModuloTuning",
    "PeriodicOutcome",
    "PeriodicSchedule",
    "repeated",
    "repeated_value",
    "solve",
    "stretched",
]


__getattr__ = lazily(
    __name__,
    {
        "Asked": "graph_search",
        "Found": "graph_search",
        "Grown": "graph_search",
        "PeriodicOutcome": "search",
        "PeriodicSchedule": "periodic_schedule",
        "repeated": "kernel_in_schedule",
        "repeated_value": "kernel_in_schedule",
        "solve": "search",
        "stretched": "stretching",
    },
)
