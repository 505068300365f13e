"""When the operations of a program run, and what the devices hold meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from ppopt.perceptron.cost_models import CostModel
from ppopt.perceptron.program import Name, Program, program
from ppopt.perceptron.sizes import Grid, Perceptron


@dataclass(frozen=True)
class Simulation:
    """What came of a program; times in seconds, memory in bytes, one entry per device.

    ``end`` is when a device's last operation has ended, ``busy`` what it spends with all its operations, ``compute`` with those
    that are no transfer. ``operations`` are those of all devices together, a collective counted once.
    """

    grid: Grid
    samples: int
    end: tuple[float, ...]
    busy: tuple[float, ...]
    compute: tuple[float, ...]
    peak_memory: tuple[float, ...]
    operations: int

    @property
    def seconds(self) -> float:
        """Of a step."""
        return max(self.end)

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.samples / self.seconds

    @property
    def transfer_share(self) -> float:
        """Part of the time of all operations that is spent on transfers, on every device that takes part."""
        busy = sum(self.busy)
        return 1 - sum(self.compute) / busy if busy else 0.0


def simulated(written: Program, samples: int, *, blocking: bool = False) -> Simulation:
    """Run a program of a batch of so many ``samples``.

    A device runs its operations in their order, each as soon as its values are there; a collective is an operation of all its
    devices. A send runs beside them: it begins when its value is there and its link is free, which carries one at a time. With
    ``blocking`` it is an operation of both devices: it begins when both have ended what is before it in the program.
    """
    free: dict[int | tuple[int, ...], float] = defaultdict(float)
    ready: dict[tuple[Name, int], float] = {}
    end, busy, compute = ([0.0] * written.grid.devices for _ in range(3))
    for operation in written.operations:
        devices, seconds = operation.devices, operation.seconds
        held: tuple[int | tuple[int, ...], ...] = (devices,) if operation.kind == "send" and not blocking else devices
        begin = max(*(free[one] for one in held), *(ready.get(value, 0.0) for value in operation.reads), 0.0)
        for one in held:
            free[one] = begin + seconds
        for value in operation.writes:
            ready[value.name, value.device] = begin + seconds
        for device in devices:
            end[device] = max(end[device], begin + seconds)
            busy[device] += seconds
            if not operation.is_transfer:
                compute[device] += seconds
    peak = peak_memory(written)
    return Simulation(written.grid, samples, tuple(end), tuple(busy), tuple(compute), peak, len(written.operations))


def peak_memory(written: Program) -> tuple[float, ...]:
    """The most bytes that each device holds at once: its inputs throughout, every other value from the operation that makes it to
    the end of the last one that reads it; to the end of the step where none does. Operations are taken in the order of the
    program, which is that of each device but for transfers."""
    held: list[float] = [0] * written.grid.devices
    for value in written.inputs:
        held[value.device] += value.size
    readers = Counter(value for operation in written.operations for value in operation.reads)
    sizes: dict[tuple[Name, int], float] = {}
    peak = list(held)
    for operation in written.operations:
        for value in operation.writes:
            held[value.device] += value.size
            peak[value.device] = max(peak[value.device], held[value.device])
            sizes[value.name, value.device] = value.size
        for place in operation.reads:
            readers[place] -= 1
            if not readers[place]:
                held[place[1]] -= sizes.get(place, 0)
    return tuple(peak)


def simulate(perceptron: Perceptron, grid: Grid, model: CostModel, schedule: str = "pipedream") -> Simulation:
    """The step of a perceptron on a grid, by a cost model with its quirks: :func:`~ppopt.perceptron.program.program`, run.

    Raises:
        EstimateError: the perceptron cannot be cut like that, or there is no such schedule.
        Restriction: the schedule is not defined for these sizes.
    """
    return simulated(program(perceptron, grid, model, schedule), perceptron.batch, blocking="blocking" in model.quirks)
