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
from ppopt.named.definition import Definition, Parameter, Parameters, limited, room_of, split
from ppopt.named.progress import Progress
from ppopt.op import Kind
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
    settings = product((False, True), (False, True), (False, True))
    schedules = (time_order(pipeline, Greedy(pipeline, limits, setting).order()) for setting in settings)
    return min(schedules, key=lambda schedule: (schedule.device_span, schedule.makespan))


def _limits(pipeline: Pipeline, most: Pipeline) -> list[int]:
    """Per device the smaller of its own limit and that of ``most``, in integer amounts of ``pipeline``."""
    limits = room_of(most, pipeline)
    if pipeline.amounts.limit is None:
        return limits
    own = (pipeline.amounts.limit - pipeline.amounts.static).tolist()
    return [min(limit, room) for limit, room in zip(limits, own, strict=True)]


class Greedy(Progress):
    """One run of the heuristic.

    Settings: ``delay_first`` - forwards before the first input gradient may delay it; ``prefer_input`` - a forward that would
    delay the next input gradient is left for later; ``fill_all`` - a weight gradient also goes into a gap that is too short
    for it where the device could afford to idle, the device with the most idle time being later anyway.
    """

    def __init__(self, pipeline: Pipeline, limits: list[int], settings: tuple[bool, bool, bool]) -> None:
        super().__init__(pipeline)
        self.limits = limits
        self.delay_first, self.prefer_input, self.fill_all = settings

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
                        self.run_weight(d)
                    self._fill_and_run(Kind.F, d)
            for d in reversed(devices):
                if d == 0 and self.done(Kind.F, 0) == self.microbatches:
                    while self.pending[0]:  # nobody waits for the gradients of the first device
                        self.run_weight(0)
                self._fill_and_run(Kind.I, d)
        return self.finish()

    def _first(self) -> None:
        """Forwards up to the first input gradient, and that."""
        devices = range(self.pipeline.devices)
        for d in devices:
            self.run(Kind.F, d)
        more = [0 for _ in devices]
        handed = self.now[-1] + self.cost[Kind.I][-1]  # when the first gradient leaves the device after d
        for d in reversed(devices[:-1]):
            time, arrival = self.now[d], handed + self.latency[d + 1][d]
            while (
                1 + more[d] < self.microbatches
                and (2 + more[d]) * self.activation[d] <= self.limits[d]
                and (time < arrival if self.delay_first else time + self.cost[Kind.F][d] <= arrival)
            ):
                time += self.cost[Kind.F][d]
                more[d] += 1
            handed = max(time, arrival) + self.cost[Kind.I][d]
        for d in devices[1:]:  # a device keeps behind the one before it
            behind = more[d - 1] - 1 if 1 + more[d] < self.microbatches else more[d - 1]
            more[d] = max(0, min(more[d], behind))
        for d in devices:
            for _ in range(more[d]):
                self.run(Kind.F, d)
        for d in reversed(devices):
            self.run(Kind.I, d)

    def _wants_forward(self, d: int, microbatch: int) -> bool:
        """Whether device d runs a forward before its input gradient of this microbatch."""
        forwards = self.done(Kind.F, d)
        if forwards >= self.microbatches:
            return False
        if forwards <= microbatch:  # its own input gradient needs it
            return True
        excess = self.held[d] + self.activation[d] - self.limits[d]
        if excess > len(self.pending[d]) * self.retained[d]:
            return False
        if not self.prefer_input or d + 1 == self.pipeline.devices or forwards < self.done(Kind.F, d + 1) + 2:
            return True
        due = self.now[d + 1] + self.cost[Kind.F][d + 1] + self.cost[Kind.I][d + 1] + self.latency[d + 1][d]
        if self.now[d] >= due:
            return False
        first = max(0, -(-excess // self.retained[d])) if self.retained[d] else 0  # weight gradients that make room
        if self.now[d] + self.cost[Kind.F][d] + first * self.cost[Kind.W][d] <= due:
            return True
        return due - self.now[d] > max(self.idle) - self.idle[d]

    def _fill_and_run(self, kind: Kind, d: int) -> None:
        self.fill(kind, d, slack=0 if self.fill_all else max(self.idle) - self.idle[d])
        self.run(kind, d)


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
        keeps_limit=True,
    )


DEFINITIONS = (_definition("zb-1p", 1, "zb-h1's alias zb1p"), _definition("zb-2p", 2, "zb-h2's alias zb2p"))
