"""Lower bounds: what no schedule of a pipeline can undercut, each with the argument that proves it.

Every function takes a pipeline and gives a :class:`Bound` in ticks, or ``None`` where its argument does not apply. The
bounds hold for every way of running the backward, and for schedules with overlapped pairs where these
save no time against their halves (``pairs=True`` checks that; solves without pairs need not ask).
:func:`best` runs them all, the cheap ones first.
"""

from ppopt.bounds.bound import Bound, Objective, pairs_save_time
from ppopt.bounds.closed_form import machine, memory, work
from ppopt.bounds.ladder import best
from ppopt.bounds.windows import window

__all__ = ["Bound", "Objective", "best", "machine", "memory", "pairs_save_time", "window", "work"]
