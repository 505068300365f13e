"""Lower bounds: what no schedule of a pipeline can undercut, each with the argument that proves it.

Every function takes a pipeline and gives a :class:`Bound` in ticks, or ``None`` where its argument does not apply. The
bounds hold for every way of running the backward; with ``pairs`` also for schedules that run overlapped pairs, whatever these
save against their halves (:mod:`ppopt.constraints.graphs`).
:func:`best` runs them all, the cheap ones first.
"""

from ppopt.bounds.bound import Bound
from ppopt.bounds.closed_form import machine, memory
from ppopt.bounds.device_work import work
from ppopt.bounds.escalation import best
from ppopt.bounds.tuning import BoundsTuning
from ppopt.bounds.windows import window
from ppopt.schedule import Objective

__all__ = ["Bound", "BoundsTuning", "Objective", "best", "machine", "memory", "window", "work"]
