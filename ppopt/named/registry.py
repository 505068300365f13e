"""The named schedules by their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ppopt.named import automatic, bidirectional, blocks, dualpipe, flush, hanayo, interleaved, zero_bubble, zero_bubble_v
from ppopt.named.definition import Definition, UnknownSchedule
from ppopt.pipeline import Pipeline

NAMED: Mapping[str, Definition] = MappingProxyType(
    {
        definition.name: definition
        for family in (flush, interleaved, hanayo, zero_bubble, automatic, zero_bubble_v, blocks, bidirectional, dualpipe)
        for definition in family.DEFINITIONS
    }
)
"""Every named schedule, by its name."""


def shown_chunks(pipeline: Pipeline) -> tuple[int, ...]:
    """The numbers of chunks for which named schedules are shown beside a pipeline: its own above 1."""
    own: int | tuple[int, ...] = pipeline.chunks
    return tuple(count for count in (own if isinstance(own, tuple) else (own,)) if count > 1)


def each(chunks: Sequence[int]) -> Iterator[tuple[Definition, int | None]]:
    """Every named schedule, those that take several numbers of chunks with each of ``chunks``; ``None``: its own number."""
    for definition in NAMED.values():
        for v in (chunks or (None,)) if definition.any_chunks else (None,):
            yield definition, v


_MEANT = MappingProxyType(
    {
        "zb1p": "zb1p is read as zb-h1, as PP-Emulation has it; the automatic scheduler with room for D activations is zb-1p",
        "zb2p": "zb2p is read as zb-h2; the automatic scheduler with room for 2D activations is zb-2p",
        "zb-1p": "zb-1p is the automatic scheduler with room for D activations; PP-Emulation's zb1p is zb-h1",
        "zb-2p": "zb-2p is the automatic scheduler with room for 2D activations; zb2p is zb-h2",
    }
)


def find(name: str) -> Definition:
    """The schedule of this name or alias; case does not matter, and an underscore is a hyphen.

    Raises:
        UnknownSchedule: nobody has this name; the nearest ones are given.
    """
    key = _key(name)
    for definition in NAMED.values():
        if key in map(_key, (definition.name, *definition.aliases)):
            return definition
    raise UnknownSchedule(name, [known for d in NAMED.values() for known in (d.name, *d.aliases)])


def reading(name: str) -> str | None:
    """What ``name`` is read as, in words, where it is an alias or easily taken for another schedule; ``None``: it is plain.

    Raises:
        UnknownSchedule: nobody has this name.
    """
    definition, key = find(name), _key(name)
    return _MEANT.get(key, None if key == definition.name else f"{name} is read as {definition.name}")


def _key(name: str) -> str:
    return name.lower().replace("_", "-")
