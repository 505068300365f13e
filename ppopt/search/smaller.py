"""Steps that begin with a smaller pipeline: with few microbatches, or with few devices as well."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import chain

from ppopt.constraints import graphs_of
from ppopt.heuristics import each_baseline, each_paced
from ppopt.interrupt import uninterrupted
from ppopt.pipeline import Pipeline, PipelineError, fewer_devices
from ppopt.schedule import Schedule
from ppopt.search.result import Step
from ppopt.search.searches import repeat
from ppopt.search.state import LARGE, Search
from ppopt.search.steps import LISTED, closed_forms

ROUNDS = 4
"""Microbatches per device that the beginning and the end of a list schedule take, more or less."""
PERIODS = 12
"""Few microbatches are fewer by a multiple of so many, so that periods of 1, 2, 3, 4 and 6 fit."""
TURNS = 3
"""So many of these in the middle."""
DEVICES = 4
"""As few devices tell how the beginning and the end of many go."""
MANY_DEVICES = 12
"""From so many on that takes less time than to find it with all of them."""


def from_few(search: Search, seconds: float) -> None:
    """List schedules of few microbatches; repetition from the one whose middle, repeated, gives the best schedule."""
    small = _with(search.pipeline, ROUNDS * search.pipeline.devices + TURNS * PERIODS)
    schedules = chain(each_baseline(small), each_paced(small, search.objective, search.whole.seed))
    like = _best(search, f"the middle of schedules of {small.microbatches} microbatches", small, schedules, seconds / 3)
    if search.goes_on:
        repeat(search, 2 * seconds / 3, like)


def from_fewer_devices(search: Search, seconds: float) -> None:
    """Solve a like pipeline of few devices; repetition from what follows for all of them, with few microbatches.

    Nothing is done where the devices are few, where microbatches take two routes or such that are written out, and where the
    order on links or traffic counts.
    """
    pipeline = search.pipeline
    if pipeline.devices < MANY_DEVICES or len(pipeline.routes) > 1 or pipeline.lines or pipeline.ticks.traffic:
        return
    with uninterrupted():
        from ppopt.periodic import stretched

    try:
        like = fewer_devices(pipeline, DEVICES)
        like = like.changed(microbatches=max(like.microbatches, LARGE // like.stages))
    except PipelineError:
        return  # it has no such placement, or would hold less than a microbatch
    inner = Search(
        like,
        "makespan",
        (),
        search.limits(seconds / 4),
        progress=None,
    )
    try:
        closed_forms(inner)
        repeat(inner, inner.left)
    finally:
        search.versions |= inner.versions
        search.steps += [Step(f"{DEVICES} devices: {step.name}", step.seconds, step.outcome) for step in inner.steps]
    found = inner.periodic
    if found is None:
        return
    most = pipeline.microbatches * like.devices // pipeline.devices
    copies = min(ROUNDS * DEVICES, most) - found.microbatches[0]
    found = found.longer(max(0, -(-copies // found.step)))
    small = _with(pipeline, -(-found.microbatches[0] * pipeline.devices // like.devices))
    if found.microbatches[0] <= most:
        after = _best(search, f"after {inner.best_text()} of {DEVICES} devices", small, stretched(found, small), seconds / 4)
        if after is not None and search.goes_on:
            repeat(search, seconds / 2, after)


def _with(pipeline: Pipeline, most: int) -> Pipeline:
    """The pipeline with few microbatches: so many more or less, and a multiple of ``PERIODS`` fewer than there are."""
    return pipeline.changed(microbatches=pipeline.microbatches - max(0, pipeline.microbatches - most) // PERIODS * PERIODS)


def _best(
    search: Search, step: str, small: Pipeline, schedules: Iterable[tuple[str, Schedule]], seconds: float
) -> Schedule | None:
    """Of ``schedules`` of few microbatches, for so many ``seconds``, the one that is best with its middle repeated."""
    with uninterrupted():
        from ppopt.periodic import repeated, repeated_value

    pipeline, graphs = search.pipeline, graphs_of(search.pipeline)
    with search.step(step) as done:
        best: tuple[Fraction, str, Schedule] | None = None
        until = search.left - seconds
        for name, schedule in schedules:
            if small.microbatches == pipeline.microbatches:
                search.found(schedule, name)
            value = repeated_value(schedule, graphs, pipeline.microbatches)
            if value is not None and (best is None or value < best[0]):
                best = value, name, schedule
                done(f"about {pipeline.time(round(value))} ({name})")
            search.clock.charge(LISTED * small.index.size)
            if search.left <= until:
                break
        if best is None:
            done("none repeats")
        elif pipeline.ticks.traffic:  # repetition does not count it, and what it finds may have more of it
            whole = repeated(best[2], graphs, pipeline)
            if whole is not None and whole.within_memory:
                search.found(whole, f"{best[1]}, repeated")
                done(search.best_text())
    return None if best is None else best[2]
