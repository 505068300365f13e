"""Links of a cluster of several sites, said by site: ``links.sites``, ``links.intra`` and ``links.inter`` of the model file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from ppopt.pipeline import PipelineError

Tree: TypeAlias = dict[str, Any]
KEYS = ("sites", "intra", "inter")
WITHIN = ("latency", "occupancy")
BETWEEN = (*WITHIN, "shared")


def links_by_site(links: Mapping[str, Any], devices: Any) -> Tree:
    """The table ``links`` with tables by device in the place of ``sites``, ``intra`` and ``inter``.

    ``sites`` lists the devices of each site. ``latency`` and ``occupancy`` are those of ``intra`` between devices of one site,
    those of ``inter`` between sites. With ``inter.shared`` all transfers from one site to another share a line.

    Raises:
        PipelineError: the sites do not have every device once, or something else says the same.
    """
    table = dict(links)
    given = {key: table.pop(key) for key in KEYS if key in table}
    if not given:
        return table
    for key in ("sites", "inter"):
        if key not in given:
            raise PipelineError(f"links.{key}", f"missing; links.{next(iter(given))} is one of three that belong together")
    for key in BETWEEN:
        if key in table:
            raise PipelineError(f"links.{key}", "give either this or links.sites, not both")
    site_of = _site_of(given["sites"], devices)
    parts = {"intra": _part("intra", given.get("intra", {}), WITHIN), "inter": _part("inter", given["inter"], BETWEEN)}

    def value(key: str, a: int, b: int) -> Any:
        return 0 if a == b else parts["intra" if site_of[a] == site_of[b] else "inter"].get(key, 0)

    everyone = range(len(site_of))
    for key in WITHIN:
        table[key] = [[value(key, a, b) for b in everyone] for a in everyone]
    if parts["inter"].get("shared", False):
        lines: dict[tuple[int, int], list[list[int]]] = {}
        for a in everyone:
            for b in everyone:
                if site_of[a] != site_of[b]:
                    lines.setdefault((site_of[a], site_of[b]), []).append([a, b])
        table["shared"] = list(lines.values())
    return table


def _site_of(sites: Any, devices: Any) -> list[int]:
    """By device its site."""
    key = "links.sites"
    if not isinstance(sites, list) or not all(isinstance(site, list) for site in sites):
        raise PipelineError(key, f"expected a list of sites, each a list of devices, got {sites!r}")
    found: dict[int, int] = {}
    for s, site in enumerate(sites):
        for i, device in enumerate(site):
            if isinstance(device, bool) or not isinstance(device, int) or not 0 <= device < devices:
                raise PipelineError(f"{key}[{s}][{i}]", f"expected a device 0..{devices - 1}, got {device!r}")
            if device in found:
                raise PipelineError(f"{key}[{s}][{i}]", f"device {device} is at site {found[device]} already")
            found[device] = s
    missing = [device for device in range(devices) if device not in found]
    if missing:
        raise PipelineError(key, f"device {missing[0]} is at no site")
    return [found[device] for device in range(devices)]


def _part(name: str, part: Any, keys: tuple[str, ...]) -> Tree:
    if not isinstance(part, dict):
        raise PipelineError(f"links.{name}", f"expected a table such as {{ latency = 1 }}, got {part!r}")
    for key, value in part.items():
        dotted = f"links.{name}.{key}"
        if key not in keys:
            raise PipelineError(dotted, f"unknown key; expected one of {', '.join(keys)}")
        if key == "shared" and not isinstance(value, bool):
            raise PipelineError(dotted, f"expected true or false, got {value!r}")
        if key != "shared" and isinstance(value, list | dict):
            raise PipelineError(dotted, f"expected a number >= 0, got {value!r}")
    return part
