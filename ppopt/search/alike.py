"""What recomputes left open with the cut: at first all layers are treated alike, so that none recomputes, or each at one level.

Then times and amounts are sums over layers, and every search over cuts and orders applies; where each stage has its own choice
that on single cuts alone does. What is found is a schedule of the whole problem, from which the search goes on that leaves all
open. Bounds are not taken over: they hold for one level.

Measured on Llama-3-70B, 8 devices, 32 microbatches, five placements, 60 s: where all is open from the beginning 9184.3 ms within
80 GB and 10,420 ms within 60 GB; where nothing recomputes 9106.9 and 9574.4 ms in half of that time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import NamedTuple, Protocol

from ppopt.clock import Clock
from ppopt.constraints import Word
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.schedule import Objective, Schedule
from ppopt.search.choices import Report, Time
from ppopt.search.cuts import CutPipelines
from ppopt.search.cuts_of_others import dealt
from ppopt.search.near_cuts import bounds_on, value_of
from ppopt.search.result import Result
from ppopt.search.step import Taken
from ppopt.search.whereabouts import at

SHARE = 3 / 4
"""What it may take of the time that is left, whenever the search goes on. Measured on Llama-3-70B, 60 s, with named schedules
before it: within 60 GB with a half 9926 ms, as no placement has time for a first look, and 9369.2 ms so; within 80 GB 9103.8 and
9121.6 ms."""


class OverCutsOf(Protocol):
    """The search over all cuts of a pipeline in which it is settled what recomputes."""

    best: Schedule | None
    words: tuple[Word, ...]

    def go_on(self, clock: Clock, enough: Time, progress: Report | None) -> Result:
        """Search until the clock is over; only values below ``enough`` matter."""


class _Level(NamedTuple):
    """All layers at one level. ``promise``: the bound of the even or the balanced cut in the user's unit, the lesser of them;
    infinite where neither has room for a microbatch."""

    name: str
    pipeline: Pipeline
    promise: Time


class AlikeLayers:
    """The search over all cuts of a pipeline that leaves open what recomputes, where all layers are treated alike.

    The level comes first that promises most. One that is settled is left for the next, and so is one that finds nothing better
    than what is known in ``least`` seconds: what a first look at a cut takes. ``searching``: makes the search of a pipeline, for
    about so many seconds. Measured on DeepSeek-V3 in a line of 8 devices, 30 s: with an equal part of the time each, two levels
    at which hardly a microbatch fits took 12 s.
    """

    def __init__(
        self, pipeline: Pipeline, objective: Objective, least: float, searching: Callable[[Pipeline, float], OverCutsOf]
    ) -> None:
        self._pipeline, self._objective = pipeline, objective
        self._least, self._searching = least, searching
        self._levels: list[_Level] | None = None if pipeline.recompute == CHOOSE else []
        """Those that are left; ``None``: not known yet."""
        self._search: OverCutsOf | None = None
        """That of the first level that is left; ``None``: it has not begun."""
        self._gains = False
        """Whether it has found something better than what was known."""
        self._steps: dict[str, tuple[Taken, ...]] = {}

    @property
    def steps(self) -> list[Taken]:
        """What the searches of all levels did."""
        return [step._replace(name=f"recompute {level}: {step.name}") for level, steps in self._steps.items() for step in steps]

    def improved(
        self, below: Time, clock: Clock, progress: Callable[[Fraction], None]
    ) -> tuple[Schedule, tuple[Word, ...]] | None:
        """A schedule that takes less than ``below`` (the user's unit), and what binds on its cut; ``None``: none was found.

        ``progress`` is told the value of every one on the way.
        """

        def report(value: Fraction | None, _: Fraction) -> None:
            if value is not None and value < below:
                progress(value)

        own, found = clock.slice(SHARE * clock.left), None
        if self._levels is None:
            self._levels = sorted(self._promising(own), key=lambda level: level.promise)
        while self._levels and not own.over:
            level = self._levels[0]
            search = self._search = self._search or self._searching(level.pipeline, own.left)
            part = own if self._gains else own.slice(self._least)
            with at(f"recompute {level.name}"):
                result = search.go_on(part, below, report)
            self._steps[level.name] = result.steps
            if search.best is not None and (value := value_of(search.best, self._objective)) < below:
                below, found, self._gains = value, (search.best, search.words), True
            if result.limit is None or not (self._gains or own.over):
                del self._levels[0]
                self._search, self._gains = None, False
        return found

    def _promising(self, clock: Clock) -> list[_Level]:
        """The levels, with what they promise."""
        layers, found = self._pipeline.layers, []
        assert layers is not None
        for name in ("none", *layers.levels):
            with suppress(PipelineError):
                own = self._pipeline.changed(recompute=name, route_of_microbatch=self._pipeline.route_of_microbatch)
                made = [dealt(own, cut).counts for cut in ("even", "balanced")]
                known = [bounds_on(counts, self._objective, CutPipelines(own), clock) for counts in made]
                found.append(_Level(name, own, min((of[0] for of in known if of is not None), default=math.inf)))
        return found
