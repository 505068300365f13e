"""The named schedules by their names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ppopt.named import automatic, bidirectional, blocks, dualpipe, flush, hanayo, interleaved, zero_bubble, zero_bubble_v
from ppopt.named.definition import Definition, UnknownSchedule

NAMED: Mapping[str, Definition] = MappingProxyType(
    {
        definition.name: definition
        for family in (flush, interleaved, hanayo, zero_bubble, automatic, zero_bubble_v, blocks, bidirectional, dualpipe)
        for definition in family.DEFINITIONS
    }
)
"""Every named schedule, by its name."""

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
