"""Lower bounds: what no schedule of a pipeline can undercut, each with the argument that proves it.

Every function takes a pipeline and gives a :class:`Bound` in ticks, or ``None`` where its argument does not apply. The
bounds hold for every way of running the backward, and for schedules with overlapped pairs where these
save no time against their halves (``pairs=True`` checks that; solves without pairs need not ask).
"""

from ppopt.bounds.bound import Bound, Objective, pairs_save_time
from ppopt.bounds.machine import machine, memory, work

__all__ = ["Bound", "Objective", "machine", "memory", "pairs_save_time", "work"]
