"""What steers the search of neighbourhoods."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NeighbourhoodTuning:
    """How large windows are, and how long each is searched."""

    first_size: int
    """Operations in a window at first."""
    first_size_where_begins_move: int
    """Operations in a window at first where the devices' begins may move, for spans alone: such windows are harder."""
    begins_move: float
    """Share of the rounds for spans in which begins may move."""
    growth: float
    """Factor by which windows grow once one was searched through, else shrink; and by which patience shrinks or grows."""
    patience: float
    """Seconds for one window at first."""
    most_patience: float
    """Seconds for one window at most."""

    def patience_after(self, patience: float, better: bool) -> float:
        """Seconds for the next window, once one with this patience has found something ``better`` or not."""
        longer = patience / self.growth if better else patience * self.growth
        return min(max(longer, self.patience), self.most_patience)
