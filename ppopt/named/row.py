"""A named or user-written schedule beside others: what tables and results show of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ppopt.pipeline import Pipeline, in_words
from ppopt.schedule import Figures, Schedule


@dataclass(frozen=True)
class Row(Figures):
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
        """The same row beside those of ``pipeline``, the model: what it assumes depends on the model's placements."""
        places = pipeline.placements()
        elsewhere = self.schedule is not None and self.schedule.pipeline.routes not in {place.routes for place in places}
        return replace(self, assumes_equal_work=elsewhere and places[0].uneven)

    @property
    def label(self) -> str:
        """Its name in tables."""
        if self.recompute in ("", "none"):
            return self.name
        return f"{self.name} + recompute" + (f" {in_words(self.recompute)}" if isinstance(self.recompute, tuple) else "")
