"""The numbers that steer the search, but for the shares of the time (:mod:`ppopt.search.strategies`).

The rooms below take theirs from here, as one small object each. With every number stands what set it: a measurement, or that
there is none. How long something takes was measured on a machine of two cores.
"""

from __future__ import annotations

from ppopt.bounds.tuning import BoundsTuning
from ppopt.cpsat.tuning import NeighbourhoodTuning
from ppopt.periodic.tuning import ModuloTuning

# --- sizes, in operations of a pipeline ---

LARGE = 5000
"""Beyond, schedules are sought by modulo scheduling alone. Measured: a CP-SAT model of more takes seconds to build."""
SEVERAL = 20_000
"""Up to here a fifth of the time may go to list schedules at the beginning of a large problem, beyond a twentieth. Measured:
with a twentieth, schedules of 6000 to 12,000 operations get up to 10 % longer in 4 s; the number itself is not measured."""
MANY = 1000
"""Beyond, schedules are improved before decisions are asked for, and kernels and epilogues are not modelled. Measured:
decisions on more take longer than a thirtieth of 60 s."""
ANSWERING = 3000
"""Up to here decisions on many operations may be answered, given time. Measured, in seconds: of 12 spans with 1152 to 2592
operations six say in 3 whether there is one in the middle between bound and best, and of 10 with more none in 5; of 13 makespans
with 1008 to 2592 operations the four with the fewest say that, or whether the best can be beaten, in 2."""

# --- grids ---

FINE, COARSE = 1000, 200
"""With operations of more than 1000 ticks, schedules are sought on a grid of 200 steps to the longest one. Measured: CP-SAT loses
proofs on microseconds that it finds at once on tenths of milliseconds; where between the two is not measured."""
STEPS = 4
"""Most steps of a coarse grid in an operation, for kernels that are placed and for state graphs. Not measured."""

# --- what is enough ---

WIDE = 0.05
"""Gap above which better schedules are looked for first. Measured: below, the first decision often ends the search; the number
itself is not measured."""
PATIENCE = 150
"""List schedules that are tried after the last one that was the best. Not measured."""

# --- deterministic seconds ---

SCHEDULED = 1.5e-5
"""For an operation of a list schedule. Measured: 0.9e-5 in a whole schedule, 1.3e-5 to 1.7e-5 in an epilogue."""
LEAST = 1e-3
"""For every step at least, so that nothing goes on for ever. Measured: what a bound in closed form takes."""

# --- smaller pipelines ---

DEVICES, MANY_DEVICES = 4, 12
"""From 12 devices on a like pipeline of 4 is solved first and its schedule stretched. Measured: that takes less time then than to
begin with all."""
ROUNDS = 4
"""Microbatches per device that the prologue and the epilogue of a list schedule take, more or less. Not measured."""
KERNELS = 3
"""How often a kernel comes at least in a schedule in which it is found: it repeats itself twice. Not measured."""
UNROLL, LONG_UNROLL = 4, 12
"""Largest unroll factor of kernels that are sought, and of those that come from doubling. Few microbatches are fewer by a
multiple of 12, so that unroll factors of 1, 2, 3, 4 and 6 fit. Not measured."""
LONGEST = 24
"""Most microbatches of a period that is found in a schedule or in a state graph. Measured, for schedules: 32 finds
nothing better, with 12 kernels are missed, with 32 devices most."""

# --- parameters of the rooms below ---

NEIGHBOURHOODS = NeighbourhoodTuning(
    first_size=120,  # not measured
    first_size_where_begins_move=30,  # measured: windows may be several times as large where begins stay
    begins_move=0.15,  # not measured
    growth=1.2,  # not measured
    patience=0.25,  # measured on 5 spans, 3.5 s each: 1 s gives spans up to 1.2 % longer, and shorter ones never
    most_patience=2.0,  # not measured
)
LEAF = 250
"""Operations of a cut of layers for every second of the first look at it, a second at least. Measured: with a second for each, 8
devices and 32 microbatches stay open after a minute that are closed in 10 to 25 s so."""
POLISH = 0.25
"""Part of the gap by which the bound of a cut may be above the least one, where its devices have more slack. Measured on a
prototype: the order then reaches its bound more often."""
STATE_GRAPH, LARGE_STATE_GRAPH = 30_000, 10_000_000
"""States up to which the state graph is built before any search, and after one. Measured: less than a tenth of a second; 8 s and
two gigabytes, which 4 devices of two stages within half of 1F1B's memory need for a bound with the weight gradients of one."""
BOUNDS = BoundsTuning(
    fine=FINE,
    coarse=COARSE,
    first_part=8,  # not measured
    coarse_steps=STEPS,
    finest_steps=64,  # not measured
    less_lost=4,  # not measured
    as_slow=0.95,  # measured on 16 uneven pipelines: 1.0 loses a bound, 0 is rarely better and takes three times as long
    hopeless_after=16,  # measured: see ppopt.bounds.state_graph
    longest=LONGEST,
)
MODULO = ModuloTuning(
    most_unroll=UNROLL,
    most_doubled=LONG_UNROLL,
    most_in_schedule=LONGEST,
    repeats=KERNELS,
    period_share=0.7,  # not measured
    near=50,  # not measured
    reach=2,  # measured: a kernel with operations a period or two nearer or further is found in a tenth of the time
    variations=8,  # not measured
    placements=40_000,  # they take up to 0.2 s; not measured
    most_passed=STEPS,
    coarse_steps=STEPS,
    most_stretch=1.7,  # not measured
    decided=MANY,
    modelled=LARGE,
    more_kernels=5,  # not measured
    operation_seconds=SCHEDULED,
    neighbourhoods=NEIGHBOURHOODS,
)
