"""Rows for the links that transfers hold, below those of the devices."""

from __future__ import annotations

from ppopt.pipeline import Pipeline

LONGEST = 14
"""Most characters of a link's name."""


def names_of(pipeline: Pipeline) -> list[str]:
    """Per link that transfers hold, from which devices to which: ``0→1``, ``0,1→2,3``, ``0↔2``."""
    return [_name(line) for line in pipeline.lines]


def _name(line: tuple[tuple[int, int], ...]) -> str:
    sources, targets = (sorted({pair[end] for pair in line}) for end in (0, 1))
    both_ways = {frozenset(pair) for pair in line}
    if len(line) == len(sources) * len(targets):
        name = "→".join(",".join(map(str, ends)) for ends in (sources, targets))
    elif len(line) == 2 * len(both_ways):
        name = ", ".join("↔".join(map(str, sorted(pair))) for pair in sorted(both_ways, key=sorted))
    else:
        name = ", ".join(f"{a}→{b}" for a, b in line)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
