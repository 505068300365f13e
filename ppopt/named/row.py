"""One named or user-written schedule on given hardware."""

from __future__ import annotations

from dataclasses import dataclass

from ppopt.schedule import Figures, Schedule


@dataclass(frozen=True)
class Row(Figures):
    """A named or user-written schedule on given hardware: its schedule on its own placement, or why it cannot be.

    Its figures are in the user's units, and ``None`` where it is excluded.
    """

    name: str
    placement: str
    chunks: int
    schedule: Schedule | None
    excluded: str | None
    recompute: str = ""
    """``"none"`` or ``"all"``: which stages recompute, where the pipeline leaves it open."""

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{self.name} + recompute" if self.recompute == "all" else self.name
