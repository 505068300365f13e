"""A named schedule, and words of the user's own, that bind beside the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ppopt.constraints import Word, in_pieces
from ppopt.constraints.binding import binding
from ppopt.named import Definition, Restriction, find
from ppopt.named.model import Model
from ppopt.op import Kind
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.pipeline.rewriting import undivided
from ppopt.schedule import Schedule
from ppopt.timing import time_order


@dataclass(frozen=True)
class Binding:
    """A named ``schedule`` whose constraints bind, with the parameters that fix them.

    Operations of the kinds in ``free`` are set free again (:func:`ppopt.constraints.binding.binding`).
    """

    schedule: str
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    free: tuple[Kind, ...] = ()

    @property
    def definition(self) -> Definition:
        """The schedule.

        Raises:
            UnknownSchedule: nobody has this name.
        """
        return find(self.schedule)

    def read(self, model: Model) -> Binding:
        """This binding under the schedule's own name, with the parameters that ``model`` gives it, where it stands for it.

        Raises:
            UnknownSchedule: nobody has this name.
            Restriction: a parameter is unknown or out of range.
        """
        definition = self.definition
        own = model.params if model.schedule == definition.name else {}
        return Binding(definition.name, definition.read({**own, **self.params}), tuple(dict.fromkeys(self.free)))

    def places(self, pipeline: Pipeline) -> tuple[Pipeline, ...]:
        """The pipeline on the schedule's own placement; with each number of chunks, where these are left open.

        Raises:
            Restriction: it has no such placement on these devices.
        """
        definition = self.definition
        settled = pipeline.placements()
        here = [each for each in settled if definition.place(each, **self.params).places == each.places]
        if here:
            return tuple(here)
        counts = pipeline.chunks if isinstance(pipeline.chunks, tuple) and definition.any_chunks else (None,)
        return tuple(definition.place(settled[0], count, **self.params) for count in counts)

    def moved(self, pipeline: Pipeline) -> Pipeline | None:
        """The pipeline on the schedule's own placement, where that is none that ``pipeline`` has or leaves open.

        Raises:
            Restriction: as :meth:`places`.
        """
        first = self.places(pipeline)[0]
        return None if first.places in [each.places for each in pipeline.placements()] else first

    def words(self, pipeline: Pipeline) -> tuple[Word, ...]:
        """The words that bind on a pipeline that has the schedule's placement.

        Raises:
            Restriction: it is not defined for this pipeline; or which stages recompute is open, and its words depend on it.
        """
        if pipeline.recompute != CHOOSE:
            whole = undivided(pipeline)
            return in_pieces(pipeline, binding(whole, self.definition.words(whole, **self.params), self.free))
        found = []
        for choice in ("none", "all"):
            try:
                found.append(self.words(pipeline.resolved(choice)))
            except PipelineError:  # the memory limit is too low without recomputing
                continue
        if len(set(found)) != 1:
            raise Restriction(
                f"{self.schedule}: its constraints depend on which stages recompute; expected that settled, "
                'got pipeline.recompute = "choose"'
            )
        return found[0]

    def start(self, pipeline: Pipeline) -> Schedule | None:
        """The schedule itself, where nothing of it is free."""
        if self.free or pipeline.recompute == CHOOSE:
            return None
        return time_order(pipeline, self.definition.order(pipeline, **self.params))
