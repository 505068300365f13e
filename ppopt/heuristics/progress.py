"""What a heuristic that places one operation after the other keeps account of."""

from __future__ import annotations

from collections import deque

import numpy as np

from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order


class Progress:
    """The devices of a pipeline with one route and a split backward. Operations are run one by one, each as early as it can.

    Tables by kind and stage, or by device; times are in ticks, memory is in integer amounts.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        ticks, amounts = pipeline.ticks, pipeline.amounts
        self.microbatches, self.device = pipeline.microbatches, pipeline.routes[0]
        self.cost: dict[Kind, list[int]] = {kind: ticks.duration[0, kind].tolist() for kind in (Kind.F, Kind.I, Kind.W)}
        """Of one operation, by kind and stage."""
        self.latency: list[list[int]] = ticks.lag.tolist()
        """From device to device."""
        self.activation: list[int] = amounts.activation[0].tolist()
        self.retained: list[int] = amounts.retained[0].tolist()
        """By stage: what the weight gradient of a microbatch still needs."""
        self.rebuilt: list[int] = amounts.rebuilt[0].tolist()
        """By stage: what an input gradient takes for that, more than the forward has taken."""
        stages, devices = range(pipeline.stages), range(pipeline.devices)
        self.end: dict[Kind, list[list[int]]] = {kind: [[] for _ in stages] for kind in self.cost}
        """By kind and stage, when each of the operations that were run ends."""
        self.now = [0 for _ in devices]
        """When each device is free."""
        self.held = [0 for _ in devices]
        """What each device holds of its memory."""
        self.idle = [0 for _ in devices]
        """How long each device has been idle since its first operation."""
        self.pending: list[deque[int]] = [deque() for _ in devices]
        """Per device, the stages whose weight gradients have yet to run, the oldest first."""
        self.rows: list[list[int]] = [[] for _ in devices]
        """Per device, the numbers (:class:`~ppopt.op.OpIndex`) of its operations in their order."""

    def done(self, kind: Kind, stage: int) -> int:
        """How many operations of this kind the stage has run."""
        return len(self.end[kind][stage])

    def arrival(self, kind: Kind, stage: int) -> int | None:
        """The tick at which the input of the stage's next operation of this kind is there; ``None``: it has not been made."""
        microbatch = self.done(kind, stage)
        source = stage - 1 if kind is Kind.F else stage + 1
        if source < 0:
            return 0
        if source == len(self.device):
            kind, source = Kind.F, stage
        made = self.end[kind][source]
        return made[microbatch] + self.latency[self.device[source]][self.device[stage]] if microbatch < len(made) else None

    def run(self, kind: Kind, stage: int) -> None:
        """Run the stage's next forward or input gradient, whose input has been made."""
        d = self.device[stage]
        arrival = self.arrival(kind, stage)
        assert arrival is not None, f"{stage}{kind.name}{self.done(kind, stage)} has no input"
        if self.rows[d]:
            self.idle[d] += max(0, arrival - self.now[d])
        self.now[d] = max(self.now[d], arrival)
        self._put(kind, stage)
        if kind is Kind.F:
            self.held[d] += self.activation[stage]
        else:
            self.held[d] += self.retained[stage] - self.activation[stage]
            self.pending[d].append(stage)

    def run_weight(self, d: int) -> None:
        """Run the device's oldest pending weight gradient."""
        stage = self.pending[d].popleft()
        self._put(Kind.W, stage)
        self.held[d] -= self.retained[stage]

    def make_room(self, d: int, amount: int, limit: int) -> bool:
        """Run weight gradients until the device can hold this much more; whether it can."""
        while self.held[d] + amount > limit and self.pending[d]:
            self.run_weight(d)
        return self.held[d] + amount <= limit

    def fill(self, kind: Kind, stage: int, *, slack: int | None) -> None:
        """Run weight gradients while the device waits for the input of the stage's next operation of this kind.

        As many as fit, and one more where what is left of the gap is longer than ``slack`` ticks (``None``: no further one).
        """
        d = self.device[stage]
        arrival = self.arrival(kind, stage)
        assert arrival is not None
        while self.pending[d] and self.now[d] < arrival and self.now[d] + self.cost[Kind.W][self.pending[d][0]] <= arrival:
            self.run_weight(d)
        if self.pending[d] and slack is not None and arrival - self.now[d] > slack:
            self.run_weight(d)

    def finish(self) -> Order:
        """Run the remaining weight gradients; this is the order of all devices."""
        for d, pending in enumerate(self.pending):
            while pending:
                self.run_weight(d)
        return Order(self.pipeline.index, tuple(np.array(row, dtype=np.int64) for row in self.rows))

    def _put(self, kind: Kind, stage: int) -> None:
        d, end = self.device[stage], self.end[kind][stage]
        self.rows[d].append((kind * self.pipeline.stages + stage) * self.microbatches + len(end))
        self.now[d] += self.cost[kind][stage]
        end.append(self.now[d])
