"""Zero-bubble schedules on a V: device d holds stages d and 2D-1-d, and the backward is split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product

from ppopt.constraints import Family, Listed, Word, chain, memory_of
from ppopt.named.definition import Definition, Parameter, Parameters, Restriction, limited, room_of, split
from ppopt.named.progress import Progress
from ppopt.op import Kind, Op
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order


def zb_v(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """The seven steps on every device, made for equal costs; or, adapted to the costs, only each kind in order and the peak."""
    if params.get("variant") != "adapted":
        if "limit" in params:
            raise Restriction("zb-v: limit needs variant = adapted")
        yield from split(range(pipeline.stages))
        for d in range(pipeline.devices):
            yield chain(Listed(tuple(seven_steps(pipeline, d, params.get("tail", "chunk0-first")))))
        return
    if "tail" in params:
        raise Restriction("zb-v: tail is for the pinned order; variant = adapted has its own")
    yield from in_order(pipeline)
    yield from memory_of(_room(pipeline, params))


def in_order(pipeline: Pipeline) -> Iterable[Word]:
    """The backward is split, and each kind of a stage runs in order."""
    yield from split(range(pipeline.stages))
    for stage in range(pipeline.stages):
        yield from (chain(Family(stage, kind)) for kind in (Kind.F, Kind.I, Kind.W))


def _room(pipeline: Pipeline, params: Parameters) -> Pipeline:
    """The pipeline with the memory that the adapted variant may use: by default D activations, which are 2D of a chunk."""
    limit = params.get("limit", pipeline.devices)
    if limit < pipeline.devices:
        raise Restriction(f"zb-v: limit must be >= devices ({pipeline.devices}), got {limit}")
    return limited(pipeline, Fraction(limit))


def adapted(pipeline: Pipeline, words: tuple[Word, ...], params: Parameters) -> Schedule:
    """The schedule with the smallest device span (then makespan) of all settings of the heuristic and the pinned order."""
    room = _room(pipeline, params)
    orders = [Order.of(pipeline, [seven_steps(pipeline, d, "chunk0-first") for d in range(pipeline.devices)])]
    for settings in product((False, True), (False, True)):
        allowance = [0] * pipeline.devices
        best: int | None = None
        while True:  # again with what each device idled, as long as that helps
            attempt = GreedyV(pipeline, room, settings, allowance)
            order = attempt.order()
            if order is None or (best is not None and max(attempt.idle) >= best):
                break
            orders.append(order)
            best, allowance = max(attempt.idle), [max(attempt.idle) - idle for idle in attempt.idle]
    schedules = [time_order(pipeline, order) for order in orders]
    return min(schedules, key=lambda schedule: (schedule.device_span, schedule.makespan))


class GreedyV(Progress):
    """One run of a greedy heuristic that adapts to the costs, after that of the zero-bubble authors' repository.

    A microbatch has four legs: forward out, forward back, backward out, backward back. Round by round every device runs
    an input gradient and then a forward, each of the leg whose input is there, coming back before going out; a weight
    gradient fills the gap before it. ``fill`` says before which legs (forward; backward out) a weight gradient also goes into
    a gap too short for it; ``allowance`` is how much longer than the others each device may idle.
    """

    def __init__(self, pipeline: Pipeline, room: Pipeline, fill: tuple[bool, bool], allowance: list[int]) -> None:
        super().__init__(pipeline)
        self.limits = room_of(room, pipeline)
        self.fill_forward, self.fill_out = fill
        self.allowance = allowance

    def order(self) -> Order | None:
        """Run it; ``None`` where it gets stuck."""
        devices = range(self.pipeline.devices)
        if not self._warm_up():
            return None
        for _ in range(2 * self.microbatches):
            back = [self._comes_back(d) for d in devices]
            for d in (*(d for d in reversed(devices) if back[d]), *(d for d in devices if not back[d])):
                if not self._fit(Kind.I, d, back[d], fill=back[d] or self.fill_out):
                    return None
            for d in devices:
                leg = self._next_forward(d)
                if leg is not None and not self._fit(Kind.F, d, leg, fill=self.fill_forward):
                    return None
        return self.finish()

    def _stage(self, kind: Kind, d: int, back: bool) -> int:
        """The device's stage of a leg."""
        return d if back == (kind is Kind.I) else 2 * self.pipeline.devices - 1 - d

    def _count(self, kind: Kind, d: int, back: bool) -> int:
        return self.done(kind, self._stage(kind, d, back))

    def _has_input(self, kind: Kind, d: int, back: bool) -> bool:
        stage = self._stage(kind, d, back)
        return self.done(kind, stage) < self.microbatches and self.arrival(kind, stage) is not None

    def _warm_up(self) -> bool:
        """The forwards before the first backward; whether it does not get stuck."""
        devices, microbatches = self.pipeline.devices, self.microbatches
        for d in range(devices):
            self.run(Kind.F, d)
        self.run(Kind.F, devices)
        for d in reversed(range(devices - 1)):  # more forwards go out until the first comes back
            arrival = self.arrival(Kind.F, 2 * devices - 1 - d)
            assert arrival is not None
            while (
                self.held[d] + (2 + 2 * d) * self.activation[d] <= self.limits[d]
                and self.now[d] + self.cost[Kind.F][d] <= arrival
                and self.done(Kind.F, d) < microbatches
            ):
                for before in range(d + 1):
                    self.run(Kind.F, before)
            self.run(Kind.F, 2 * devices - 1 - d)
        back = False
        for d in range(1, devices):  # no device has begun less than the one before it
            idle_legs = 0
            while self._behind(d):
                idle_legs += 1
                for other in reversed(range(d, devices)):
                    if self._has_input(Kind.F, other, back):
                        self.run(Kind.F, self._stage(Kind.F, other, back))
                        idle_legs = 0
                if idle_legs == 2:  # neither leg has anything to run
                    return False
                back = not back
        return True

    def _behind(self, d: int) -> bool:
        here, before = ([self._count(Kind.F, of, back) for back in (False, True)] for of in (d, d - 1))
        return sum(here) < sum(before) or here[1] <= before[1] < self.microbatches

    def _comes_back(self, d: int) -> bool:
        """Whether the device's next input gradient is of the leg back."""
        if self._count(Kind.I, d, True) >= self._count(Kind.I, d, False):
            return False
        out_is_over = self._count(Kind.I, d, False) == self.microbatches
        return out_is_over or d == self.pipeline.devices - 1 or self._has_input(Kind.I, d, True)

    def _next_forward(self, d: int) -> bool | None:
        """The leg of the device's next forward: back (``True``), out, or none."""
        if self._count(Kind.F, d, True) == self.microbatches:
            return None
        if self._has_input(Kind.F, d, True):
            return True
        return False if self._has_input(Kind.F, d, False) else None

    def _fit(self, kind: Kind, d: int, back: bool, *, fill: bool) -> bool:
        stage = self._stage(kind, d, back)
        if not self._has_input(kind, d, back):
            return False
        while kind is Kind.F and self.held[d] + self.activation[stage] > self.limits[d]:
            if not self.pending[d]:
                return False
            self.run_weight(d)
        slack = max(*self.idle, self.allowance[d]) - self.idle[d]
        self.fill(kind, stage, slack=slack if fill else None)
        self.run(kind, stage)
        return True


def seven_steps(pipeline: Pipeline, device: int, tail: str) -> Iterator[Op]:
    """The order of one device: written for at least 2D - 1 microbatches, those that do not exist left out."""
    devices, microbatches = pipeline.devices, pipeline.microbatches
    written = max(microbatches, 2 * devices - 1)
    stages = (device, 2 * devices - 1 - device)
    count = {(kind, chunk): 0 for kind in Kind for chunk in (0, 1)}

    def run(text: str) -> Iterator[Op]:
        """The next of ``F0``, ``I1``, …: kind and chunk."""
        for turn in text.split():
            key = (Kind[turn[0]], int(turn[1]))
            if count[key] < microbatches:
                yield Op(stages[key[1]], key[0], count[key])
            count[key] += 1

    yield from run("F0 " * (2 * (devices - device) - 1))
    yield from run("F1 F0 " * device)
    yield from run("F1 I1 W1 " * (devices - device))
    while count[Kind.F, 1] < count[Kind.F, 0] or count[Kind.F, 0] < written:
        if count[Kind.F, 0] < written:
            yield from run("F0")
        yield from run("I0 W0 F1 I1 W1")
    yield from run("I0 I1 " * device)
    yield from run("I0 W0 " * (devices - device))
    for chunk in (0, 1) if tail == "chunk0-first" else (1, 0):
        yield from run(f"W{chunk} " * (written - count[Kind.W, chunk]))


DEFINITIONS = (
    Definition(
        name="zb-v",
        summary="a V whose devices never idle between their first and last operation at equal costs, memory as 1F1B",
        source="Qi et al. 2023, arXiv 2401.10241, section 6; PyTorch ScheduleZBVZeroBubble (tail chunk1-first)",
        placement="wave",
        constrain=zb_v,
        aliases=("zbv", "zbvzerobubble"),
        split=True,
        least_chunks=2,
        parameters=(
            Parameter("variant", "adapted: a heuristic that adapts to the costs, best of five", "none", choices=("adapted",)),
            Parameter("limit", "activations of a microbatch that a device may hold (adapted)", "D"),
            Parameter(
                "tail",
                "which chunk's leftover weight gradients come first",
                "chunk0-first",
                choices=("chunk0-first", "chunk1-first"),
            ),
        ),
        needs="- (closed forms: M >= 2D-1)",
        peak="2D",
        idle="(D-1)T_F, of the device span 0, at T_F = T_I = T_W",
        open_rule="variant = adapted: a greedy heuristic with two yes/no settings, or the pinned order where that is better",
        fill=adapted,
    ),
)
