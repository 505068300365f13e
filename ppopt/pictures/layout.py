"""What charts have in common, whoever draws them: rows, shades of stages, and a line of figures. Nothing here draws."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Schedule

PICTURES = (".png", ".svg", ".pdf")
"""Suffixes of pictures."""
PAGE = ".html"
"""The suffix of pages."""
BAR = 0.86
"""Height of a bar; the rows are 1 apart."""
APART = 0.5
"""Room between the devices and the links."""
HELD = 0.8
"""Height of the largest amount of memory; the rows are 1 apart."""


def height_of(pipeline: Pipeline) -> float:
    """Of a chart, in rows."""
    return pipeline.devices + (APART + len(pipeline.lines) if pipeline.lines else 0)


def shade_of(pipeline: Pipeline) -> tuple[IntArray, int]:
    """``[route, stage]`` -> the how-manieth stage of its device it is (over all ways); and how many there are at most."""
    rank = np.zeros((len(pipeline.ways), pipeline.stages), dtype=np.int64)
    held: dict[int, int] = {}
    for way, devices in enumerate(pipeline.ways):
        for stage, device in enumerate(devices):
            rank[way, stage] = held.setdefault(device, 0)
            held[device] += 1
    return rank[[pipeline.ways.index(devices) for devices in pipeline.routes]], max(held.values())


def figures_of(schedule: Schedule) -> str:
    """Sizes and metrics of a schedule in one line."""
    pipeline = schedule.pipeline
    time, unit = suffix_of(pipeline.units.time), suffix_of(pipeline.units.memory)
    limit = pipeline.amounts.limit
    limits = [] if limit is None else sorted({pipeline.amount(int(most)) for most in limit})
    bound = f" (limit {' to '.join(f'{most:.4g}' for most in dict.fromkeys((limits[0], limits[-1])))})" if limits else ""
    chunks = f", {_count(pipeline.chunks, 'chunk')}" if pipeline.chunks > 1 else ""
    return " · ".join(
        (
            f"{_count(pipeline.devices, 'device')}, {_count(pipeline.microbatches, 'microbatch')}, {pipeline.placement}{chunks}",
            f"makespan {pipeline.time(schedule.makespan):.6g}{time}",
            f"device span {pipeline.time(schedule.device_span):.6g}{time}",
            f"bubble ratio {schedule.bubble_ratio:.1%}",
            f"span bubble ratio {schedule.span_bubble_ratio:.1%}",
            f"peak memory {pipeline.amount(max(schedule.peak_memory)):.4g}{unit}{bound}",
        )
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'e' if noun.endswith('ch') else ''}s"


def suffix_of(unit: str) -> str:
    """What follows a number in this unit: `` ms``, `` × 0.1 ms``, or nothing."""
    return f" × {unit}" if unit[:1].isdigit() else f" {unit}" if unit else ""


def check_suffix(path: str, suffixes: Sequence[str] = PICTURES) -> str:
    """The suffix of ``path``, which is one of ``suffixes``, whatever its case.

    Raises:
        ValueError: it is not.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in suffixes:
        raise ValueError(f"{path}: expected a name that ends in {', '.join(suffixes)}, got {suffix or 'no suffix'}")
    return suffix
