"""Rows for the links that transfers hold, and for the engines that copy to the host, below those of the devices."""

from __future__ import annotations

from ppopt.op import Send
from ppopt.pipeline import Engine, Pipeline

LONGEST = 14
"""Most characters of a link's name."""


def names_of(pipeline: Pipeline) -> list[str]:
    """Per link that transfers hold, from which devices to which: ``0→1``, ``0,1→2,3``, ``0↔2``; then per engine of which devices,
    and whether it copies to the host or from it: ``0→host``, ``0,1←host``, ``0↔host``."""
    return [_name(line) for line in pipeline.lines] + [_name_of_engine(engine) for engine in pipeline.engines]


def _name_of_engine(engine: Engine) -> str:
    way = "↔" if len(engine.sends) > 1 else "→" if Send.OFFLOAD in engine.sends else "←"
    name = f"{','.join(map(str, engine.devices))}{way}host"
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 5]}…{way}host"


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
