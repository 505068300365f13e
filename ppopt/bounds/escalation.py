"""All bounds in turn, the cheap ones first, then windows of growing length."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from ppopt.bounds.bound import Bound
from ppopt.bounds.closed_form import machine, memory
from ppopt.bounds.copies import relaxed
from ppopt.bounds.device_work import work
from ppopt.bounds.latest_starts import latest_first_starts
from ppopt.bounds.tuning import BoundsTuning
from ppopt.bounds.windows import of_graph, window
from ppopt.clock import Limits
from ppopt.constraints import FamilyGraph, relaxed_graphs
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Objective


class Lengths(NamedTuple):
    """Of the start and of the end window, and the grain, in ticks."""

    first: int
    last: int
    grain: int


class Attempt(NamedTuple):
    """What two windows were asked: for how many seconds, without end where they have said all they can; and up to what target."""

    seconds: float
    target: int | None


def best(
    pipeline: Pipeline,
    objective: Objective = "makespan",
    *,
    limits: Limits,
    tuning: BoundsTuning,
    target: int | None = None,
    pairs: bool = False,
    shortest: int = 0,
    tried: dict[Lengths, Attempt] | None = None,
) -> Iterator[Bound]:
    """Better and better bounds: work, one machine, memory, then windows of growing length.

    Ends when a bound reaches ``target`` (a value known to be possible), after the longest window, or when the time of the
    ``limits`` is over; every search gets half of what is left, and all of it where such windows were asked before. The first
    three bounds take milliseconds. Of a window first all that it says is asked; then whether that is a little more than what is
    known, then whether it is much more. Such questions are often decided where the first one is not.

    ``shortest``: eighths of the filling time; shorter windows are left out. ``tried``: windows (of this pipeline and objective)
    that were asked before. They are left out too unless they get more time now, or less is asked. It is brought up to date.

    Raises:
        ValueError: an unknown objective.
        KeyboardInterrupt: Ctrl-C ended the search of a window.
    """
    if pipeline.engines:  # windows are of the relaxation without copies
        without, factor = relaxed(pipeline)
        target = target and -(-target // factor)
        options: dict[str, Any] = {"target": target, "pairs": pairs, "shortest": shortest, "tried": tried}
        for found in best(without, objective, limits=limits, tuning=tuning, **options):
            yield replace(found, value=found.value * factor, schedule=None)
        return
    known = -1
    for of in (work, machine, memory):
        bound = of(pipeline, objective, pairs=pairs)
        if bound is not None and bound.value > known:
            known = bound.value
            yield bound
        if target is not None and known >= target:
            return
    if known >= 0 and not limits.clock.over:
        escalation = _Escalation(pipeline, objective, target, pairs, limits, tuning, {} if tried is None else tried)
        yield from escalation.bounds(known, shortest)


class _Escalation:
    """Windows, the next ones longer than the last, with a proved bound of the makespan that both together do not exceed."""

    def __init__(
        self,
        pipeline: Pipeline,
        objective: Objective,
        target: int | None,
        pairs: bool,
        limits: Limits,
        tuning: BoundsTuning,
        tried: dict[Lengths, Attempt],
    ) -> None:
        self.pipeline, self.objective, self.target, self.pairs = pipeline, objective, target, pairs
        self.limits, self.tuning, self.tried = limits, tuning, tried
        self.graph = relaxed_graphs(pipeline, pairs, links=objective == "makespan")[0]
        proved = max(bound.value for of in (machine, memory) if (bound := of(pipeline, pairs=pairs)) is not None)
        self.makespan = of_graph(proved, self.graph, pipeline, objective, pairs)
        self.known = -1

    def bounds(self, known: int, shortest: int) -> Iterator[Bound]:
        """Those that are more than what is ``known``."""
        self.known, begun = known, self.makespan  # longer windows are as long the next time, so that they are known then
        exact = self.pipeline.ticks.common if self.objective == "makespan" else 1
        for (first, last, grain), longer in _windows(self.graph, self.objective, self.tuning, shortest, self.makespan, exact):
            most = begun if longer else self.makespan
            first = min(first, max(most // 2, most - last))
            lengths = Lengths(first, min(last, most - first), grain)
            share = 1.0 if lengths in self.tried else 0.5
            if self._asked(lengths, share):
                continue
            self.tried[lengths] = Attempt(share * self.limits.clock.left, self.target)
            yield from self._raised(lengths, longer, share)
            if self._reached or self.limits.clock.over:
                return

    @property
    def _reached(self) -> bool:
        return self.target is not None and self.known >= self.target

    def _asked(self, lengths: Lengths, share: float) -> bool:
        """Whether windows were asked before, for as long as they may be asked now, and for no more than now."""
        seconds, before = self.tried.get(lengths, Attempt(0.0, None))
        if seconds < share * self.limits.clock.left:
            return False
        return seconds == math.inf or self.target is None or (before is not None and before <= self.target)

    def _raised(self, lengths: Lengths, little: bool, share: float) -> Iterator[Bound]:
        """All that two windows say; where that stays open, whether it is more than what is known, by larger and larger steps.

        ``little``: the latter at once, where a target is known. ``share`` of what is left: what each question may take.
        """
        asked, rise, raising = self.target, 0, False
        if little and self.target is not None:
            rise, raising = max(1, (self.target - self.known) // self.tuning.first_part), True
            asked = min(self.target, self.known + rise)
        while not self.limits.clock.over:
            bound = window(
                self.pipeline,
                lengths.first,
                lengths.last,
                self.objective,
                makespan=self.makespan,
                known=self.known,
                target=asked,
                grain=lengths.grain,
                pairs=self.pairs,
                limits=self.limits.slice(share * self.limits.clock.left),
            )
            better = bound is not None and bound.value > self.known
            if bound is not None and better:
                self.known = bound.value
                self.makespan = max(self.makespan, self.known)
                yield bound
            if self._reached:
                return
            if bound is not None and bound.exact:
                self.tried[lengths] = Attempt(math.inf, self.target)
                return
            if bound is None or self.target is None or (raising and not better):
                return
            rise = 2 * rise if raising else max(1, (self.target - self.known) // self.tuning.first_part)
            asked, raising = min(self.target, self.known + rise), True


SHORT = (8, 10, 4, 12, 14, 16)
"""Eighths of the filling time of the first windows."""
LONGER = Fraction(3, 2)
"""Factor from one length to the next one beyond these. Measured on 3 devices of 4 stages: a bound is refuted with 3.6 times
the filling time in a third of the time that it takes with 3 times."""


def _windows(
    graph: FamilyGraph, objective: Objective, tuning: BoundsTuning, shortest: int, makespan: int, exact: int
) -> Iterator[tuple[Lengths, bool]]:
    """Lengths of the start and of the end window, and grain: the time in which a pipeline fills, half of it, then up to twice;
    then longer and longer ones (``True``), until both together are as long as the ``makespan``, a bound of it.

    That time is the way of one microbatch forward and back, or about three rounds of the devices where a microbatch visits them
    twice each way, four where four times. Slightly longer windows may prove much more. Much longer ones take far longer, and
    prove more where memory costs throughput, so that there is idle time between beginning and end: measured, with 3 devices,
    4 stages each and 12 microbatches, half of what 1F1B needs, a gap of 2.7 % with twice the time becomes 2.2 % with three times
    and 0.9 % with five times. Half of it seldom proves anything, but does so where the whole takes too long.
    For the device span, the time by which the last device has begun comes on top. ``exact``: the least grain.
    """
    lags = sum(precedence.lag for precedence in graph.precedences)
    rounds = 4 * graph.devices + len(graph.of_kind(Kind.F))
    rounds = rounds * (sum(graph.duration) + lags) // (2 * len(graph.of_kind(*Kind)))
    way = max(graph.path(0, last) or 0 for last in range(len(graph.families)))
    fill = max(1, min(rounds, way))
    begun = [0, 0]
    if objective == "span":
        begun = [max(time or 0 for time in latest_first_starts(of)) for of in (graph, graph.reversed())]
    longest = max(graph.duration)
    grains = [-(-longest // tuning.coarse), exact] if longest > tuning.fine * exact else [exact]
    longer = [Fraction(max(SHORT))]
    while 2 * fill * longer[-1] // 8 + sum(begun) < makespan:
        longer.append(longer[-1] * LONGER)
    for group in (SHORT, longer[1:]):
        for grain in grains:
            for eighths in (eighths for eighths in group if eighths >= shortest):
                first, last = (max(grain, time + int(fill * eighths) // 8) for time in begun)
                yield Lengths(first, last, grain), group is not SHORT
