"""The searches of the lower rooms with the numbers of the search, and with some limits where a test does not care."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from ppopt import bounds
from ppopt.bounds import Bound, least_times, state_graph
from ppopt.bounds.throughput import throughput as bound_of_states
from ppopt.clock import Clock, Limits
from ppopt.cpsat import neighbourhood
from ppopt.periodic import kernel_in_schedule, kernel_placing, search
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective
from ppopt.search.tuning import BOUNDS, MODULO, NEIGHBOURHOODS

state_graph_of = partial(state_graph.state_graph_of, tuning=BOUNDS)
least_time = partial(least_times.least_time, tuning=BOUNDS)
improved = partial(neighbourhood.improved, tuning=NEIGHBOURHOODS)
periodic_schedule = partial(search.solve, tuning=MODULO)
placed_kernels = partial(kernel_placing.placed_kernels, clock=Clock(60), tuning=MODULO)
kernel_in = partial(kernel_in_schedule.kernel_in, tuning=MODULO)
repeated = partial(kernel_in_schedule.repeated, tuning=MODULO)
repeated_value = partial(kernel_in_schedule.repeated_value, tuning=MODULO)


def best(
    pipeline: Pipeline, objective: Objective = "makespan", *, limits: Limits | None = None, **options: Any
) -> Iterator[Bound]:
    """All bounds."""
    return bounds.best(pipeline, objective, limits=limits or Limits.of(10, workers=1), tuning=BOUNDS, **options)


def window(
    pipeline: Pipeline, first: int, last: int, objective: Objective = "makespan", *, limits: Limits | None = None, **options: Any
) -> Bound | None:
    """The bound of two windows."""
    return bounds.window(pipeline, first, last, objective, limits=limits or Limits.of(10, workers=1), **options)


def throughput(
    pipeline: Pipeline, objective: Objective = "makespan", *, most: int = 200_000, limits: Limits | None = None, **options: Any
) -> Bound | None:
    """The bound of the state graph."""
    return bound_of_states(pipeline, objective, most=most, limits=limits or Limits.of(20), tuning=BOUNDS, **options)
