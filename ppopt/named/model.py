"""What is asked about: a pipeline, and the schedule that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ppopt.named.own import rows_of_order
from ppopt.named.recomputing import of_order_freely
from ppopt.named.row import Row
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order

OWN_ORDER = "own order"
"""What an order is called that is written out in a model file."""


@dataclass(frozen=True)
class Model:
    """A pipeline, and the named schedule with its parameters, or the user's own order, that it stands for.

    A model file gives one. An order beside a named schedule is shown with it.
    """

    pipeline: Pipeline
    schedule: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    order: Order | None = None
    order_name: str = field(default=OWN_ORDER, compare=False)
    written: str | None = field(default=None, compare=False)
    """The name of the schedule as the file has it, which may be an alias."""
    placed: Pipeline | None = field(default=None, compare=False)
    """Where the placement is left open, the one of the possible placements that ``order`` is for."""

    @property
    def stands_for(self) -> str | None:
        """The name of the row that it stands for: the named schedule, else the user's own order."""
        return self.schedule if self.schedule is not None or self.order is None else self.order_name

    @property
    def named_params(self) -> Mapping[str, Mapping[str, Any]]:
        """The parameters of the named schedule under its name, as :func:`ppopt.named.compare` takes them."""
        return {} if self.schedule is None else {self.schedule: self.params}

    @property
    def own_rows(self) -> tuple[Row, ...]:
        """The user's own order as a row beside the named schedules, or as two where it is left open which stages recompute;
        none where there is no order."""
        return () if self.order is None else rows_of_order(self.placed or self.pipeline, self.order, self.order_name)

    def own_rows_freely(self, objective: Literal["makespan", "span"]) -> tuple[Row, ...]:
        """The user's own order as one row, with the stages recomputing that suit it best
        (:func:`ppopt.named.of_order_freely`); none where there is no order.

        Raises:
            ValueError: the pipeline does not leave it open which stages recompute.
        """
        if self.order is None:
            return ()
        return (of_order_freely(self.placed or self.pipeline, self.order, self.order_name, objective),)
