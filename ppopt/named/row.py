"""A named or user-written schedule beside others: what tables and results show of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ppopt.pipeline import Pipeline, in_words
from ppopt.schedule import Schedule


@dataclass(frozen=True)
class Row:
    """A named or user-written schedule on given hardware: its schedule on its own placement, or why it cannot be.

    Its figures are in the user's units, integers where whole, else the nearest doubles; ``None`` where it is excluded.
    """

    name: str
    placement: str
    chunks: int
    schedule: Schedule | None
    excluded: str | None
    recompute: Literal["", "none", "all"] | tuple[int, ...] = ""
    """Which stages of its own placement recompute, where the pipeline that it is for leaves it open; else empty."""
    assumes_equal_work: bool = False
    """Whether it is on another placement than the model, whose costs or activations are uneven: that a device has the same work
    there as on the model's placement is then an assumption, since a network would be cut into other stages there."""

    @classmethod
    def beside(cls, pipeline: Pipeline, name: str, placement: str, schedule: Schedule) -> Row:
        """The row of a schedule, on any placement, beside those of ``pipeline``."""
        return cls(name, placement, schedule.pipeline.chunks, schedule, None).seen_from(pipeline)

    def seen_from(self, pipeline: Pipeline) -> Row:
        """The same row beside those of ``pipeline``, the model: what it assumes depends on the model's placement."""
        elsewhere = self.schedule is not None and self.schedule.pipeline.routes != pipeline.routes
        return replace(self, assumes_equal_work=elsewhere and pipeline.uneven)

    @property
    def label(self) -> str:
        """Its name in tables."""
        if self.recompute in ("", "none"):
            return self.name
        return f"{self.name} + recompute" + (f" {in_words(self.recompute)}" if isinstance(self.recompute, tuple) else "")

    @property
    def makespan(self) -> int | float | None:
        """From the first start to the last end, in the user's unit."""
        return None if self.schedule is None else self.schedule.pipeline.time(self.schedule.makespan)

    @property
    def device_span(self) -> int | float | None:
        """The largest over the devices of own last end minus own first start, in the user's unit."""
        return None if self.schedule is None else self.schedule.pipeline.time(self.schedule.device_span)

    @property
    def bubble_ratio(self) -> float | None:
        """``1 - sum(work) / (D * makespan)``."""
        return None if self.schedule is None else self.schedule.bubble_ratio

    @property
    def work(self) -> tuple[int | float, ...] | None:
        """Per device, the sum of its operations' durations, in the user's unit."""
        return None if self.schedule is None else tuple(map(self.schedule.pipeline.time, self.schedule.work))

    @property
    def peak_memory(self) -> tuple[int | float, ...] | None:
        """Per device, the most that it holds, static memory included, in the user's unit of memory."""
        return None if self.schedule is None else tuple(map(self.schedule.pipeline.amount, self.schedule.peak_memory))

    @property
    def within_memory(self) -> bool | None:
        """Whether no device exceeds its limit."""
        return None if self.schedule is None else self.schedule.within_memory
