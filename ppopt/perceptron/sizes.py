"""The sizes of a perceptron, and into how many parts its training is cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ppopt.transformer.checked import EstimateError, whole


@dataclass(frozen=True)
class Perceptron:
    """A perceptron of ``layers`` square matrices of ``width``, a ReLU behind each, and ``batch`` samples of a step.

    Raises:
        EstimateError: a size is out of range.
    """

    layers: int
    width: int
    batch: int

    def __post_init__(self) -> None:
        for name in ("layers", "width", "batch"):
            whole(f"perceptron.{name}", getattr(self, name))

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.layers * self.width**2


@dataclass(frozen=True)
class Grid:
    """``data`` replicas, each of ``tensor`` parts of every matrix and ``pipeline`` stages, in so many ``microbatches``.

    Raises:
        EstimateError: a size is out of range.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    microbatches: int = 1

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "microbatches"):
            whole(f"grid.{name}", getattr(self, name))

    @property
    def devices(self) -> int:
        """All devices."""
        return self.data * self.tensor * self.pipeline

    @property
    def kind(self) -> str:
        """Which kinds of parallelism there are: ``data``, ``tensor + pipeline``, …; ``one device`` without any."""
        kinds = [name for name in ("data", "tensor", "pipeline") if getattr(self, name) > 1]
        return " + ".join(kinds) or "one device"

    def check(self, perceptron: Perceptron) -> None:
        """Raise where a perceptron cannot be cut like that.

        Raises:
            EstimateError: it cannot; the message says what does not divide what.
        """

        def divides(name: str, parts: int, of: int, what: str) -> None:
            if of % parts:
                raise EstimateError(f"grid.{name}", f"{parts} does not divide {what} {of}")

        divides("pipeline", self.pipeline, perceptron.layers, "perceptron.layers =")
        divides("tensor", self.tensor, perceptron.width, "perceptron.width =")
        divides("data", self.data, perceptron.batch, "perceptron.batch =")
        divides("microbatches", self.microbatches, perceptron.batch // self.data, "the samples of a replica,")
        if self.tensor > 1 and perceptron.layers % 2:
            problem = (
                f"matrices are cut in pairs, by columns and by rows: perceptron.layers has to be even, got {perceptron.layers}"
            )
            raise EstimateError("grid.tensor", problem)


def grids(perceptron: Perceptron, devices: int, microbatches: Iterable[int] | None = None) -> Iterator[Grid]:
    """Every grid of so many devices that a perceptron can be cut into, in a fixed order; all divisors, not only powers of two.

    ``microbatches`` are those to choose from on several stages; by default powers of two, from 2 to half the square root of the
    samples of a replica, as the original's grid has them. On one stage there is one.

    Raises:
        EstimateError: ``devices`` is no whole number above 0.
    """
    listed = None if microbatches is None else tuple(microbatches)
    parts = [size for size in range(1, whole("devices", devices) + 1) if devices % size == 0]
    for data in parts:
        for tensor in (size for size in parts if devices // data % size == 0):
            pipeline = devices // data // tensor
            samples = perceptron.batch // data
            doubled = [2**k for k in range(1, samples.bit_length()) if 4 ** (k + 1) <= samples]
            for count in [1] if pipeline == 1 else doubled if listed is None else listed:
                grid = Grid(data, tensor, pipeline, count)
                try:
                    grid.check(perceptron)
                except EstimateError:
                    continue
                yield grid
