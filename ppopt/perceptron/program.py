"""The training step of a perceptron on a grid, operation by operation, in the order in which the original runs it.

A layer is a product of matrices and a ReLU. Tensor parallelism cuts the matrices in pairs, the first by columns, the second by
rows, so that sums are needed behind every second product. The devices of a stage run the operations of a named schedule of the
linear placement; gradients of microbatches are added as they come. Source: microsoft/dist-ir, ``examples/mlp.py``,
``dist_ir/transforms/mlp_dhp_transform.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ppopt.named import NAMED, find
from ppopt.op import Kind, Op
from ppopt.perceptron.cost_models import CostModel
from ppopt.perceptron.sizes import Grid, Perceptron
from ppopt.pipeline import Costs, Pipeline
from ppopt.transformer.checked import EstimateError

Name: TypeAlias = Hashable
"""What a value is called, whatever device it is on."""
COUNT = ("samples of the batch",)
"""The number by which the loss divides."""
SENT = ("send", "all-reduce", "all-gather")
"""The operations that are transfers."""


class Value(NamedTuple):
    """What an operation makes: a name, the device that it is on, and its bytes."""

    name: Name
    device: int
    size: float


class Operation(NamedTuple):
    """One operation: ``seconds`` on each of ``devices``; it reads values by name and device, and makes ``writes``."""

    kind: str
    devices: tuple[int, ...]
    seconds: float
    reads: tuple[tuple[Name, int], ...]
    writes: tuple[Value, ...]

    @property
    def is_transfer(self) -> bool:
        """Whether it moves data between devices."""
        return self.kind in SENT


@dataclass(frozen=True)
class Program:
    """The operations of a step in their order, and what the devices hold from the start: ``inputs``."""

    grid: Grid
    operations: tuple[Operation, ...]
    inputs: tuple[Value, ...]


def steps_of(grid: Grid, schedule: str) -> list[list[Op]]:
    """The operations of the stages of one replica in unit steps: per step those that run, by stage.

    Raises:
        EstimateError: there is no such schedule, or it is not one of one stage per device.
        Restriction: it is not defined for these sizes.
    """
    if schedule not in NAMED or find(schedule).placement != "linear":
        known = ", ".join(name for name, one in NAMED.items() if one.placement == "linear")
        raise EstimateError("schedule", f"expected a schedule of the linear placement ({known}), got {schedule!r}")
    unit = Pipeline(grid.pipeline, grid.microbatches, costs=Costs(forward=1, backward_input=1, backward_weight=1, backward=1))
    timed = find(schedule).schedule(unit)
    if timed.order.paired:
        raise EstimateError("schedule", f"{schedule} runs pairs of a forward and a backward as one operation")
    steps: dict[int, list[Op]] = defaultdict(list)
    for device, starts in enumerate(timed.start):
        for op, start in zip(timed.order.ops(device), starts.tolist(), strict=True):
            assert isinstance(op, Op)
            steps[start].append(op)
    return [steps[start] for start in sorted(steps)]


class _Replica:
    """What one replica runs; its devices are numbered tensor part by tensor part, stage by stage."""

    def __init__(self, writing: _Writing, number: int) -> None:
        self.writing, self.number = writing, number
        grid = writing.grid
        self.first = number * grid.tensor * grid.pipeline
        self.results: dict[tuple[Name, int], tuple[Name, int]] = {}
        self.sent: set[tuple[Name, int]] = set()

    def device(self, part: int, stage: int) -> int:
        """The device of a part of a stage."""
        return self.first + part * self.writing.grid.pipeline + stage

    def parts(self, stage: int) -> list[int]:
        """The devices of a stage."""
        return [self.device(part, stage) for part in range(self.writing.grid.tensor)]


@dataclass
class _Writing:
    """The writing of a program: sizes, costs, and what is written so far."""

    sizes: Perceptron
    grid: Grid
    model: CostModel
    schedule: str

    def __post_init__(self) -> None:
        self.grid.check(self.sizes)
        self.operations: list[Operation] = []
        self.samples = self.sizes.batch // self.grid.data // self.grid.microbatches
        self.each = self.sizes.layers // self.grid.pipeline

    # --- sizes ---

    def inner(self, layer: int) -> int:
        """Width of what goes into a layer on one device: cut behind a product by columns."""
        return self.sizes.width // (self.grid.tensor if layer % 2 else 1)

    def outer(self, layer: int) -> int:
        """Width of what comes out of it."""
        return self.sizes.width // (1 if layer % 2 else self.grid.tensor)

    def size(self, numbers: int) -> int:
        """Bytes."""
        return self.model.number_bytes * numbers

    # --- operations ---

    def on(self, device: int, kind: str, seconds: float, reads: tuple[Name, ...], *writes: tuple[Name, int]) -> None:
        """One operation of a device."""
        made = tuple(Value(name, device, self.size(numbers)) for name, numbers in writes)
        self.operations.append(Operation(kind, (device,), seconds, tuple((name, device) for name in reads), made))

    def together(self, kind: str, devices: list[int], name: Name, numbers: int, result: Name, growth: int = 1) -> None:
        """A collective of the values of that name on some devices."""
        size = self.size(numbers)
        seconds = (self.model.all_reduce if kind == "all-reduce" else self.model.all_gather)(size, len(devices))
        made = tuple(Value(result, device, growth * size) for device in devices)
        self.operations.append(Operation(kind, tuple(devices), seconds, tuple((name, device) for device in devices), made))

    def send(self, replica: _Replica, name: Name, numbers: int, source: int, target: int) -> None:
        """A value from each part of a stage to that of another, once."""
        size = self.size(numbers)
        for a, b in zip(replica.parts(source), replica.parts(target), strict=True):
            if (name, b) not in replica.sent:
                replica.sent.add((name, b))
                self.operations.append(Operation("send", (a, b), self.model.send(size), ((name, a),), (Value(name, b, size),)))

    # --- the step ---

    def written(self) -> Program:
        """The whole step."""
        steps = steps_of(self.grid, self.schedule)
        replicas = [_Replica(self, number) for number in range(self.grid.data)]
        for replica in replicas:
            if self.inputs_in_step:
                self.begin(replica)
            for step in steps:
                for op in step:
                    self.stage(replica, op)
                for op in step:
                    self.forward_on(replica, op)
        self.over_replicas(replicas)
        if self.model.optimizer:
            for replica in replicas:
                for stage in range(self.grid.pipeline):
                    self.update(replica, stage)
        return Program(self.grid, tuple(self.operations), tuple(value for replica in replicas for value in self.held(replica)))

    @property
    def inputs_in_step(self) -> bool:
        """Whether inputs are sent within the step."""
        return "inputs-in-step" in self.model.quirks

    def begin(self, replica: _Replica) -> None:
        """Samples, labels and weights come from the host, where there is one replica; scattering them over several takes no time
        in the original. Samples and labels are cut into microbatches."""
        devices, width = replica.parts(0), self.sizes.width
        if self.grid.data == 1:
            values = list(self.inputs(replica))
            parts = [("a", -1), ("labels",), *(("w", layer) for layer in range(self.sizes.layers))]
            for part in parts:
                made = tuple(v for v in values if v.name[: len(part)] == part)  # type: ignore[index]
                seconds = self.model.send(self.size(width * (width if part[0] == "w" else self.sizes.batch)))
                self.operations.append(Operation("send", tuple(devices), seconds, (), made))
        for device in devices if self.grid.pipeline > 1 else ():
            for _ in range(2):
                self.on(device, "split", self.model.split, ())

    def held(self, replica: _Replica) -> Iterator[Value]:
        """What a replica holds from the start."""
        for value in self.inputs(replica):
            if not self.inputs_in_step or self.grid.data > 1 or value.name == COUNT:
                yield value

    def inputs(self, replica: _Replica) -> Iterator[Value]:
        """Samples and labels where they are needed, weights; all on the first stage where they are sent within the step."""
        width, last = self.sizes.width, self.grid.pipeline - 1
        for part in range(self.grid.tensor):

            def at(stage: int, part: int = part) -> int:
                return replica.device(part, 0 if self.inputs_in_step else stage)

            for microbatch in range(self.grid.microbatches):
                yield Value(("a", -1, microbatch), at(0), self.size(self.samples * width))
                yield Value(("labels", microbatch), at(last), self.size(self.samples * width))
            yield Value(COUNT, replica.device(part, last), self.size(1))
            for layer in range(self.sizes.layers):
                yield Value(("w", layer), at(layer // self.each), self.size(width * width // self.grid.tensor))

    def stage(self, replica: _Replica, op: Op) -> None:
        """The operations of a stage on one microbatch, on all its devices."""
        layers = range(op.stage * self.each, (op.stage + 1) * self.each)
        last = op.stage == self.grid.pipeline - 1
        if op.kind == Kind.F:
            for layer in layers:
                self.layer(replica, layer, op)
            if last:
                self.loss(replica, op, layers[-1])
            return
        for layer in reversed(layers):
            self.layer_back(replica, layer, op)

    def forward_on(self, replica: _Replica, op: Op) -> None:
        """What a stage sends once it has ended: activations to the next one, the gradient of its input to the one before."""
        first, last = op.stage * self.each, (op.stage + 1) * self.each - 1
        if op.kind == Kind.F and op.stage < self.grid.pipeline - 1:
            self.send(replica, ("a", last, op.microbatch), self.samples * self.outer(last), op.stage, op.stage + 1)
        if op.kind in (Kind.B, Kind.I) and op.stage:
            self.send(replica, ("dy", first, op.microbatch), self.samples * self.inner(first), op.stage, op.stage - 1)

    def layer(self, replica: _Replica, layer: int, op: Op) -> None:
        """A product and its ReLU."""
        m, n = op.microbatch, self.samples
        inner, outer, parts = self.inner(layer), self.outer(layer), replica.parts(op.stage)
        if self.inputs_in_step and op.stage:
            self.send(replica, ("w", layer), inner * outer, 0, op.stage)
        made = ("partial y", layer, m) if self.grid.tensor > 1 and layer % 2 else ("y", layer, m)
        for device in parts:
            seconds = self.model.product(n, inner, outer)
            self.on(device, "product", seconds, (("a", layer - 1, m), ("w", layer)), (made, n * outer))
        if made[0] != "y":
            self.together("all-reduce", parts, made, n * outer, ("y", layer, m))
        for device in parts:
            self.on(device, "relu", self.model.elementwise(n * outer), (("y", layer, m),), (("a", layer, m), n * outer))

    def loss(self, replica: _Replica, op: Op, layer: int) -> None:
        """The loss and its gradient."""
        m, numbers = op.microbatch, self.samples * self.outer(layer)
        if self.inputs_in_step and op.stage:
            self.send(replica, ("labels", m), numbers, 0, op.stage)
        parts, reads = replica.parts(op.stage), (("a", layer, m), ("labels", m))
        for device in parts:
            self.on(device, "loss", self.model.elementwise(numbers), (*reads, COUNT), (("loss", m), numbers))
        self.gather_up(replica, op, ("loss",), numbers)
        for device in parts:
            made = (("dy", layer + 1, m), numbers)
            self.on(device, "loss gradient", self.model.elementwise(numbers), (*reads, COUNT), made)

    def layer_back(self, replica: _Replica, layer: int, op: Op) -> None:
        """The gradients through a ReLU and a product: of its input (B and I), of its weights (B and W)."""
        m, n = op.microbatch, self.samples
        inner, outer, parts = self.inner(layer), self.outer(layer), replica.parts(op.stage)
        through, weights = op.kind != Kind.W, op.kind != Kind.I
        made: Name = ("dy", layer, m)
        if through:
            for device in parts:
                reads = (("y", layer, m), ("dy", layer + 1, m))
                self.on(device, "relu gradient", self.model.elementwise(n * outer, 2), reads, (("da", layer, m), n * outer))
            if self.grid.tensor > 1 and layer % 2 == 0:
                made = ("partial dy", layer, m)
        back, grad = self.model.product(n, outer, inner), self.model.product(inner, n, outer)
        gradient = (("dw", layer, m), inner * outer)
        for device in parts:
            operands: tuple[Name, ...] = (("a", layer - 1, m), ("w", layer), ("da", layer, m))
            if through and weights:
                self.on(device, "product gradients", back + grad, operands, (made, n * inner), gradient)
            elif through:
                self.on(device, "input gradient", back, operands[1:], (made, n * inner))
            else:
                self.on(device, "weight gradient", grad, operands[::2], gradient)
        if through and made[0] != "dy":  # type: ignore[index]
            self.together("all-reduce", parts, made, n * inner, ("dy", layer, m))
        if through and layer == 0:
            self.gather_up(replica, op, ("dy", 0), n * inner)
        if weights:
            self.gather_up(replica, op, ("dw", layer), inner * outer, added=True)

    def gather_up(self, replica: _Replica, op: Op, name: tuple[Hashable, ...], numbers: int, *, added: bool = False) -> None:
        """A result of a microbatch, added to those before it, or put behind them."""
        for device in replica.parts(op.stage):
            before, held = replica.results.get((name, device), (None, 0))
            mine, size = (*name, op.microbatch), numbers if added else held + numbers
            made: Name = ("all", name, op.microbatch)
            if self.grid.microbatches == 1:
                made = mine
            elif before is None:
                self.on(device, "identity", 0.0, (mine,), (made, size))
            elif added:
                self.on(device, "add", self.model.elementwise(numbers, 2), (before, mine), (made, size))
            else:
                self.on(device, "concat", self.model.concat(), (before, mine), (made, size))
            replica.results[name, device] = (made, size)

    def over_replicas(self, replicas: list[_Replica]) -> None:
        """What replicas exchange once a step: sums of the gradients of weights; the loss and the gradient of the input."""
        if self.grid.data == 1:
            return
        last = self.grid.pipeline - 1
        for layer in reversed(range(self.sizes.layers)):
            self.exchange(replicas, ("dw", layer), layer // self.each, "all-reduce")
        if self.model.gathers:
            self.exchange(replicas, ("loss",), last, "all-gather")
            self.exchange(replicas, ("dy", 0), 0, "all-gather")

    def exchange(self, replicas: list[_Replica], name: tuple[Hashable, ...], stage: int, kind: str) -> None:
        """One result over the replicas of each part; of gradients, with the quirk, over the parts of each replica."""
        groups = [[(replica, replica.device(part, stage)) for replica in replicas] for part in range(self.grid.tensor)]
        if kind == "all-reduce" and self.grid.tensor > 1 and "gradients-in-tensor-group" in self.model.quirks:
            groups = [[(replica, device) for device in replica.parts(stage)] for replica in replicas]
        for group in groups:
            replica, device = group[0]
            held, numbers = replica.results[name, device]
            made = ("of all", name)
            self.together(kind, [one for _, one in group], held, numbers, made, len(group) if kind == "all-gather" else 1)
            for replica, device in group:
                replica.results[name, device] = (made, numbers)

    def update(self, replica: _Replica, stage: int) -> None:
        """The optimizer on the weights of a stage, in place; the original counts the time of one of them."""
        layers = range(stage * self.each, (stage + 1) * self.each)
        seconds = self.model.elementwise(self.sizes.width**2 // self.grid.tensor, 2)
        for device in replica.parts(stage):
            reads = tuple(("w", layer) for layer in layers)
            gradients = tuple(replica.results[("dw", layer), device][0] for layer in layers)
            self.on(device, "optimizer", seconds, (*reads, *gradients))


def program(perceptron: Perceptron, grid: Grid, model: CostModel, schedule: str = "pipedream") -> Program:
    """The step of a perceptron on a grid, with the times of a cost model, in the order of a named schedule of the linear
    placement (by default the original's own).

    Raises:
        EstimateError: the perceptron cannot be cut like that, or there is no such schedule.
        Restriction: the schedule is not defined for these sizes.
    """
    return _Writing(perceptron, grid, model, schedule).written()
