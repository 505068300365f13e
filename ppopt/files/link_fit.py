"""Latency and occupancy of links, from messages of several sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median

from ppopt.files.recorded.record import Messages


@dataclass(frozen=True)
class LinkFit:
    """What a message takes: ``latency + bytes * per_byte`` seconds, through the medians of its sizes."""

    latency: float
    per_byte: float
    sizes: tuple[int, ...]
    residual: float
    """The largest difference of a median from the line, as a part of that median."""


def fit(messages: Messages) -> LinkFit:
    """The line through the medians of each size, by least squares; neither its begin nor its slope is negative.

    With one size all of the time is latency.
    """
    medians = {size: median(samples) for size, samples in sorted(messages.items()) if samples}
    sizes, times = list(medians), list(medians.values())
    latency, slope = fmean(times), 0.0
    if len(sizes) > 1:
        x, y = fmean(sizes), fmean(times)
        slope = math.fsum((a - x) * (b - y) for a, b in zip(sizes, times, strict=True)) / math.fsum((a - x) ** 2 for a in sizes)
        latency = y - slope * x
        if slope < 0:
            latency, slope = y, 0.0
        elif latency < 0:  # the best line from 0 on
            latency = 0.0
            slope = math.fsum(a * b for a, b in zip(sizes, times, strict=True)) / math.fsum(a * a for a in sizes)
    off = [abs(time - latency - slope * size) / time if time else 0.0 for size, time in medians.items()]
    return LinkFit(latency, slope, tuple(sizes), max(off, default=0.0))


def fits(links: Mapping[tuple[int, int], Messages]) -> dict[tuple[int, int], LinkFit]:
    """The fit of every pair that was measured."""
    return {pair: fit(messages) for pair, messages in links.items() if any(messages.values())}


def said_of(found: Mapping[tuple[int, int], LinkFit]) -> str:
    """How good the lines are, in words."""
    sizes = sorted({size for one in found.values() for size in one.sizes})
    number = min(len(one.sizes) for one in found.values())
    line = f"a line through messages of {number} sizes ({sizes[0]} to {sizes[-1]} bytes)"
    if number == 2:
        return f"{line}, which goes through both"
    return f"{line}, off by at most {100 * max(one.residual for one in found.values()):.1f} %"
