"""What steers modulo scheduling."""

from __future__ import annotations

from dataclasses import dataclass

from ppopt.cpsat.tuning import NeighbourhoodTuning


@dataclass(frozen=True)
class ModuloTuning:
    """Which kernels are looked for and how, and how large the models of small schedules are."""

    most_unroll: int
    """Largest unroll factor of kernels that are sought."""
    most_doubled: int
    """Largest unroll factor up to which kernels are doubled, once no better time per microbatch is found."""
    most_in_schedule: int
    """Largest unroll factor of kernels that are found in schedules."""
    repeats: int
    """How often a kernel comes at least in a schedule in which it is found."""
    period_share: float
    """Share of the time for the period; the rest is for prologue and epilogue."""
    near: int
    """Part of a period by which its bound is near: then the bound itself is asked for first."""
    reach: int
    """Periods by which operations may come nearer or go away from each other, around a known kernel."""
    variations: int
    """How many are tried of what is drawn: seeds of placing kernels, and ends by which kernels of one period are compared."""
    placements: int
    """Operations that are placed in all trials for one period."""
    most_passed: int
    """Most free places that an operation passes over."""
    coarse_steps: int
    """Most steps of a coarse grid in the longest operation; kernels are placed on each grid from one step on."""
    most_stretch: float
    """Kernels are placed with up to this many times the shortest period."""
    decided: int
    """Operations up to which kernels and epilogues are modelled."""
    modelled: int
    """Operations up to which a small schedule is modelled as a whole."""
    more_kernels: int
    """Kernels more in a schedule whose neighbourhoods are searched."""
    operation_seconds: float
    """What it takes to schedule an operation once."""
    neighbourhoods: NeighbourhoodTuning
