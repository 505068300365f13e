"""The named schedules: those that people use today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ppopt.named import automatic, bidirectional, blocks, dualpipe, flush, hanayo, interleaved, zero_bubble, zero_bubble_v
from ppopt.named.definition import Definition, Parameter, Restriction, UnknownSchedule
from ppopt.pipeline import Pipeline
from ppopt.schedule import Schedule

NAMED: Mapping[str, Definition] = MappingProxyType(
    {
        definition.name: definition
        for family in (flush, interleaved, hanayo, zero_bubble, automatic, zero_bubble_v, blocks, bidirectional, dualpipe)
        for definition in family.DEFINITIONS
    }
)
"""Every named schedule, by its name."""

__all__ = ["NAMED", "Definition", "Parameter", "Restriction", "Row", "UnknownSchedule", "compare", "find"]


def find(name: str) -> Definition:
    """The schedule of this name or alias.

    Raises:
        UnknownSchedule: nobody has this name; the nearest ones are given.
    """
    key = name.lower()
    for definition in NAMED.values():
        if key == definition.name or key in definition.aliases:
            return definition
    raise UnknownSchedule(name, [known for d in NAMED.values() for known in (d.name, *d.aliases)])


@dataclass(frozen=True)
class Row:
    """A named or user-written schedule on given hardware: its schedule on its own placement, or why it cannot be."""

    name: str
    placement: str
    chunks: int
    schedule: Schedule | None
    excluded: str | None


def compare(pipeline: Pipeline, chunks: Sequence[int] = ()) -> list[Row]:
    """All named schedules on the same devices and the same costs per device, each on its own placement.

    Those that need chunks are shown for each number in ``chunks``; without, for the pipeline's own number where it has
    their placement, else for their smallest.
    """
    rows = []
    for definition in NAMED.values():
        for v in (chunks or (None,)) if definition.any_chunks else (None,):
            try:
                schedule = definition.schedule(pipeline, v)
            except Restriction as restriction:
                rows.append(Row(definition.name, definition.placement, v or definition.least_chunks, None, str(restriction)))
            else:
                rows.append(Row(definition.name, definition.placement, schedule.pipeline.chunks, schedule, None))
    return rows
