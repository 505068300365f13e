"""The numbers that steer the search, but for the shares of the time (:mod:`ppopt.search.strategies`).

Each has a line that says which measurement set it, or what it is.
"""

LARGE = 5000
"""Operations beyond which schedules are sought by modulo scheduling alone: a CP-SAT model of more takes seconds to build."""
MANY = 1000
"""Operations beyond which schedules are improved before decisions are asked for: these take longer than a thirtieth of 60 s."""
SEVERAL = 20_000
"""Operations up to which a list schedule takes less than 0.5 s, so that there is time for many."""
WIDE = 0.05
"""Gap above which better schedules are looked for first; below, the first decision often ends the search."""
FINE, COARSE = 1000, 200
"""With operations of more than 1000 ticks, schedules are sought on a grid of 200 steps to the longest one: CP-SAT loses proofs on
microseconds that it finds at once on tenths of milliseconds."""
SMALL_GRAPH, LARGE_GRAPH = 30_000, 4_000_000
"""States up to which the state graph is built before any search (less than a second), and after one (a minute, a gigabyte)."""
LEAST_PART, LAST_PART = 100, 20
"""A placement gets a hundredth of the time at least, whatever others took; nothing more once less than a twentieth is left."""
ROOT, SLICE = 6, 30
"""The parts of the time that the root of the choice of recomputing stages, and at first every other node, may take."""
LISTING = 1.0
"""Seconds of list schedules however short the time limit is: all rules on the small pipelines whose proofs take a moment."""
LISTED = 2e-5
"""Deterministic seconds for an operation of a list schedule: what it takes."""
LEAST = 1e-3
"""Deterministic seconds that every step takes at least, so that nothing goes on for ever: what a bound in closed form takes."""
PATIENCE = 150
"""List schedules that are tried after the last one that was the best."""
ROUNDS = 4
"""Microbatches per device that the beginning and the end of a list schedule take, more or less."""
PERIODS = 12
"""Few microbatches are fewer by a multiple of 12, so that periods of 1, 2, 3, 4 and 6 fit."""
TURNS = 3
"""Twelves of microbatches in the middle of such a schedule."""
DEVICES, MANY_DEVICES = 4, 12
"""From 12 devices on it takes less time to solve a like pipeline of 4 and to stretch its schedule than to begin with all."""
