"""Every named schedule, by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ppopt.named import automatic, bidirectional, blocks, dualpipe, flush, hanayo, interleaved, zero_bubble, zero_bubble_v
from ppopt.named.definition import Definition

NAMED: Mapping[str, Definition] = MappingProxyType(
    {
        definition.name: definition
        for family in (flush, interleaved, hanayo, zero_bubble, automatic, zero_bubble_v, blocks, bidirectional, dualpipe)
        for definition in family.DEFINITIONS
    }
)
"""Every named schedule, by its name."""


def each(chunks: Sequence[int]) -> Iterator[tuple[Definition, int | None]]:
    """Every named schedule, those that take several numbers of chunks with each of ``chunks``; ``None``: its own number."""
    for definition in NAMED.values():
        for v in (chunks or (None,)) if definition.any_chunks else (None,):
            yield definition, v
