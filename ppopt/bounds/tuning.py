"""What steers the bounds that take a while."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BoundsTuning:
    """Grids of windows and of state graphs, when they are given up, and what is asked first."""

    fine: int
    """With operations of more ticks than this, windows are tried on a coarser grain first."""
    coarse: int
    """Units of that grain in the longest operation."""
    first_part: int
    """Part of what is open that a window is asked for first, where all of it is not decided."""
    coarse_steps: int
    """Most steps of a state graph's coarse grid in an operation."""
    finest_steps: int
    """Most steps in an operation of the grid between that and the exact one."""
    less_lost: int
    """By which factor rounding down to that grid has to lose less."""
    as_slow: float
    """Devices are as slow as the slowest where they need this part of its time for what they hold."""
    hopeless_after: int
    """Part of the largest number of states after which a graph is given up where many states wait."""
    longest: int
    """Most microbatches over which the cost of more of them is compared."""
