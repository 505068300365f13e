"""The zero-bubble papers' automatic scheduler: a greedy heuristic under a memory limit, the best of its eight settings.

Rebuilt from its description. Microbatch by microbatch, every device runs at most one forward and exactly one input
gradient; a weight gradient fills a gap before either, or makes room in memory. It decides by the true durations and
latencies of each device (the original takes the median over the devices).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import product

from ppopt.constraints import Family, Word, chain, memory_of
from ppopt.named.definition import Definition, Parameter, Parameters, limited, split
from ppopt.op import Kind, Op
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order


def most_held(pipeline: Pipeline, params: Parameters, times: int) -> Pipeline:
    """The pipeline with room for ``times`` D activations per device, or as many as the parameter ``limit`` says."""
    return limited(pipeline, Fraction(params.get("limit", times * pipeline.devices)))


def automatic(pipeline: Pipeline, params: Parameters, times: int) -> Iterable[Word]:
    """Each kind in order, and at most so many activations; everything else is the heuristic's."""
    for d in range(pipeline.devices):
        yield from split([d])
        yield from (chain(Family(d, kind)) for kind in (Kind.F, Kind.I, Kind.W))
    yield from memory_of(most_held(pipeline, params, times))


def best_of_eight(pipeline: Pipeline, params: Parameters, times: int) -> Schedule:
    """The schedule with the smallest device span (then makespan) over all settings."""
    limits = _limits(pipeline, most_held(pipeline, params, times))
    settings = product((False, True), repeat=3)
    schedules = (time_order(pipeline, Greedy(pipeline, limits, *setting).order()) for setting in settings)
    return min(schedules, key=lambda schedule: (schedule.device_span, schedule.makespan))


def _limits(pipeline: Pipeline, most: Pipeline) -> list[Fraction]:
    """Per device the smaller of its own limit and that of ``most``, in integer amounts of ``pipeline``."""
    own, given = pipeline.amounts, most.amounts
    assert given.limit is not None
    limits = [Fraction(int(limit) * own.per_unit, given.per_unit) for limit in given.limit]
    if own.limit is not None:
        limits = [min(limit, Fraction(int(room))) for limit, room in zip(limits, own.limit - own.static, strict=True)]
    return limits


class Greedy:
    """One run of the heuristic; ``done[kind][d]`` counts what device d has run.

    Settings: ``delay_first`` - forwards before the first input gradient may delay it; ``prefer_input`` - a forward that would
    delay the next input gradient is left for later; ``fill`` - a weight gradient also goes into a gap too short for it.
    """

    def __init__(self, pipeline: Pipeline, limits: list[Fraction], delay_first: bool, prefer_input: bool, fill: bool) -> None:
        self.pipeline, self.limits = pipeline, limits
        self.delay_first, self.prefer_input, self.fill = delay_first, prefer_input, fill
        devices, self.microbatches = range(pipeline.devices), pipeline.microbatches
        ticks, amounts = pipeline.ticks, pipeline.amounts
        self.cost = {kind: ticks.duration[0, kind].tolist() for kind in (Kind.F, Kind.I, Kind.W)}
        self.latency = ticks.latency.tolist()
        activation, retained = amounts.activation[0].tolist(), amounts.retained[0].tolist()
        self.activation, self.retained = activation, retained
        self.change = {Kind.F: activation, Kind.I: [r - a for a, r in zip(activation, retained, strict=True)]}
        self.change[Kind.W] = [-r for r in retained]
        self.done = {kind: [0 for _ in devices] for kind in self.cost}
        self.end: dict[Kind, list[list[int]]] = {kind: [[] for _ in devices] for kind in self.cost}
        self.now, self.held, self.idle = [0 for _ in devices], [0 for _ in devices], [0 for _ in devices]
        self.rows: list[list[Op]] = [[] for _ in devices]

    def order(self) -> Order:
        """Run it."""
        devices = range(self.pipeline.devices)
        self._first()
        for microbatch in range(1, self.microbatches):
            wanted = [self._wants_forward(d, microbatch) for d in devices]
            for d in reversed(devices[:-1]):
                wanted[d] = wanted[d] and wanted[d + 1]
            for d in devices:
                if wanted[d]:
                    while self.held[d] + self.activation[d] > self.limits[d]:
                        self._run(d, Kind.W)
                    self._fill_gap(d, Kind.F)
                    self._run(d, Kind.F)
            for d in reversed(devices):
                self._fill_gap(d, Kind.I)
                self._run(d, Kind.I)
        for d in devices:
            while self.done[Kind.W][d] < self.microbatches:
                self._run(d, Kind.W)
        return Order.of(self.pipeline, self.rows)

    def _first(self) -> None:
        """Forwards up to the first input gradient, and that."""
        devices = range(self.pipeline.devices)
        for d in devices:
            self._run(d, Kind.F)
        more = [0 for _ in devices]
        handed = 0  # when the first gradient leaves the device after d
        for d in reversed(devices):
            arrival = handed + self.latency[d + 1][d] if d + 1 < len(devices) else self.now[d]
            time = self.now[d]
            while (
                d + 1 < len(devices)
                and 1 + more[d] < self.microbatches
                and (2 + more[d]) * self.activation[d] <= self.limits[d]
                and (time < arrival if self.delay_first else time + self.cost[Kind.F][d] <= arrival)
            ):
                time += self.cost[Kind.F][d]
                more[d] += 1
            handed = max(time, arrival) + self.cost[Kind.I][d]
        for d in devices[1:]:  # a device cannot be ahead of the one before it
            if 1 + more[d] < self.microbatches:
                more[d] = max(0, min(more[d], more[d - 1] - 1))
            else:
                more[d] = min(more[d], more[d - 1])
        for d in devices:
            for _ in range(more[d]):
                self._run(d, Kind.F)
        for d in reversed(devices):
            self._run(d, Kind.I)

    def _wants_forward(self, d: int, microbatch: int) -> bool:
        """Whether device d runs a forward before its input gradient of this microbatch."""
        forwards, weights = self.done[Kind.F], self.done[Kind.I][d] - self.done[Kind.W][d]
        if forwards[d] >= self.microbatches:
            return False
        if forwards[d] <= microbatch:  # its own input gradient needs it
            return True
        if self.held[d] + self.activation[d] - weights * self.retained[d] > self.limits[d]:
            return False
        last = d + 1 == self.pipeline.devices
        if not self.prefer_input or last or forwards[d] < forwards[d + 1] + 2:
            return True
        due = self.now[d + 1] + self.cost[Kind.F][d + 1] + self.cost[Kind.I][d + 1] + self.latency[d + 1][d]
        if self.now[d] >= due:
            return False
        excess = self.held[d] + self.activation[d] - self.limits[d]
        first = max(0, -(-excess // self.retained[d])) if self.retained[d] else 0  # weight gradients that make room
        if self.now[d] + self.cost[Kind.F][d] + first * self.cost[Kind.W][d] <= due:
            return True
        return bool(due - self.now[d] > max(self.idle) - self.idle[d])

    def _fill_gap(self, d: int, kind: Kind) -> None:
        """Weight gradients until the next operation of this kind can start."""
        if kind is Kind.I and d == 0 and self.done[Kind.F][0] == self.microbatches:
            while self._pending(0):  # nobody waits for the gradients of the first device
                self._run(0, Kind.W)
            return
        arrival = self._arrival(d, kind)
        while self._pending(d) and self.now[d] + self.cost[Kind.W][d] <= arrival and self.now[d] < arrival:
            self._run(d, Kind.W)
        gap = arrival - self.now[d]
        if self._pending(d) and gap > 0 and (self.fill or gap > max(self.idle) - self.idle[d]):
            self._run(d, Kind.W)

    def _pending(self, d: int) -> bool:
        return self.done[Kind.W][d] < self.done[Kind.I][d]

    def _arrival(self, d: int, kind: Kind) -> int:
        """When the input of the next operation of this kind is there."""
        source = {Kind.F: d - 1, Kind.I: d + 1}.get(kind, -1)
        if not 0 <= source < self.pipeline.devices:
            return 0
        return int(self.end[kind][source][self.done[kind][d]] + self.latency[source][d])

    def _run(self, d: int, kind: Kind) -> None:
        start = max(self.now[d], self._arrival(d, kind))
        if self.rows[d]:
            self.idle[d] += start - self.now[d]
        self.now[d] = start + self.cost[kind][d]
        self.held[d] += self.change[kind][d]
        self.end[kind][d].append(self.now[d])
        self.rows[d].append(Op(d, kind, self.done[kind][d]))
        self.done[kind][d] += 1


def _definition(name: str, times: int, beside: str) -> Definition:
    most = "D" if times == 1 else "2D"
    return Definition(
        name=name,
        summary=f"automatic scheduler under a limit of {most} activations, best of eight settings by device span; not {beside}",
        source="Qi et al. 2023, arXiv 2401.10241; sail-sg/zero-bubble-pipeline-parallelism zerobubble/scheduler/zb.py",
        placement="linear",
        constrain=lambda pipeline, params: automatic(pipeline, params, times),
        split=True,
        parameters=(Parameter("limit", "activations of a microbatch that a device may hold", most),),
        peak=f"at most {most}",
        open_rule="all but the order of each kind: a greedy heuristic with three yes/no settings; it keeps the given limits too",
        fill=lambda pipeline, words, params: best_of_eight(pipeline, params, times),
    )


DEFINITIONS = (_definition("zb-1p", 1, "zb-h1's alias zb1p"), _definition("zb-2p", 2, "zb-h2's alias zb2p"))
