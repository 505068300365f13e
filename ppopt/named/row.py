"""A named or user-written schedule beside others: what tables and results show of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ppopt.clock import OutOfTime
from ppopt.pipeline import Pipeline, in_words
from ppopt.schedule import Number, Objective, Schedule
from ppopt.text import number, percent, place
from ppopt.timing.figures import Figures

NO_TIME = "left out, no time was left to make and check it"
"""Why a schedule is not shown that took too long."""


@dataclass(frozen=True, repr=False)
class Row(Figures):
    """A named or user-written schedule on given hardware: its schedule on its own placement, or why it cannot be.

    Its figures are in the user's units, integers where whole, else the nearest doubles; ``None`` where it is excluded.
    """

    name: str
    placement: str
    chunks: int
    schedule: Schedule | None
    excluded: str | None
    recompute: Literal["", "none", "all"] | tuple[Any, ...] = ""
    """Which stages of its own placement recompute, or with layers how many at which level stage by stage, where the pipeline that
    it is for leaves it open; else empty."""
    turns: str = ""
    """The rule that orders its microbatches, where these differ and it is not the given order."""
    assumes_equal_work: bool = False
    """Whether it is on another placement than the model, whose costs or activations are uneven: that a device has the same work
    there as on the model's placement is then an assumption, since a network would be cut into other stages there."""

    @classmethod
    def beside(cls, pipeline: Pipeline, name: str, placement: str, schedule: Schedule) -> Row:
        """The row of a schedule, on any placement, beside those of ``pipeline``."""
        return cls(name, placement, schedule.pipeline.chunks, schedule, None).seen_from((pipeline,))

    @classmethod
    def left_out(cls, name: str, placement: str, chunks: int, why: Exception) -> Row:
        """The row of a schedule that cannot be, with the reason, or for which no time was left."""
        return cls(name, placement, chunks, None, f"{name}: {NO_TIME}" if isinstance(why, OutOfTime) else str(why))

    def seen_from(self, places: Sequence[Pipeline]) -> Row:
        """The same row beside those of a model that has, or leaves open, these placements: what it assumes depends on them."""
        elsewhere = self.schedule is not None and self.schedule.pipeline.places not in {place.places for place in places}
        return replace(self, assumes_equal_work=elsewhere and places[0].uneven)

    @property
    def late(self) -> bool:
        """Whether it is left out because no time was left for it."""
        return self.schedule is None and self.excluded is not None and self.excluded.endswith(NO_TIME)

    @property
    def partition(self) -> tuple[int, ...] | None:
        """The number of layers of each stage; ``None`` where there are no layers, or it is excluded."""
        return None if self.schedule is None or self.schedule.pipeline.layers is None else self.schedule.pipeline.counts

    @property
    def label(self) -> str:
        """Its name in tables."""
        name = f"{self.name} + {self.turns}" if self.turns else self.name
        if self.recompute in ("", "none"):
            return name
        if not isinstance(self.recompute, tuple):
            return f"{name} + recompute"
        if self.partition is not None:
            return f"{name} + recompute {_levels(self.recompute)}"
        return f"{name} + recompute {in_words(self.recompute)}"

    def objective(self, name: Objective) -> Number:
        """``makespan`` or ``span`` (the device span), in the user's unit; 0 where it is excluded."""
        return (self.makespan if name == "makespan" else self.device_span) or 0

    def __str__(self) -> str:
        schedule = self.schedule
        if schedule is None:
            return str(self.excluded)
        shown, units = figures(schedule), schedule.pipeline.units
        times = f"makespan {shown[0]} {units.time}".rstrip() + f", device span {shown[1]} {units.time}".rstrip()
        over = "" if schedule.within_memory else ", over the limit"
        memory = f"peak memory {shown[4]} {units.memory}".rstrip()
        return f"{self.label} on {place(self)}: {times}, bubble ratio {shown[2]}, {memory}{over}"

    def __repr__(self) -> str:
        return f"<Row: {self}>"


def _levels(stages: Sequence[Sequence[tuple[str, str, int]]]) -> str:
    """How many layers recompute at each level."""
    counts: Counter[str] = Counter()
    for stage in stages:
        for _, level, n in stage:
            counts[level] += n
    return ", ".join(f"{n} {level}" for level, n in counts.items())


def figures(schedule: Schedule) -> list[str]:
    """Makespan, device span, bubble ratio, span bubble ratio, largest peak memory, as sentences have them."""
    pipeline = schedule.pipeline
    return [
        number(pipeline.time(schedule.makespan)),
        number(pipeline.time(schedule.device_span)),
        percent(schedule.bubble_ratio),
        percent(schedule.span_bubble_ratio),
        number(pipeline.amount(max(schedule.peak_memory))),
    ]
