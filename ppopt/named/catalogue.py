"""Every named schedule, by its name."""

from __future__ import annotations

from collections.abc import Mapping
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
