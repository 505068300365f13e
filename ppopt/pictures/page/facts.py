"""What a page has to know of a schedule besides its bars: names, colours, amounts of memory, bounds. All of it is JSON."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ppopt.op import Kind, Send
from ppopt.pictures.layout import figures_of, shade_of
from ppopt.pictures.links import names_of
from ppopt.pictures.page.payload import Columns
from ppopt.pictures.palette import CARRIED, IDLE, KINDS, LIMIT, MARGIN, MEANING, SENDS, hexadecimal, shades
from ppopt.pictures.shown import Shown
from ppopt.pipeline import IntArray, Pipeline, way_of_microbatch
from ppopt.schedule import Schedule, memory_levels
from ppopt.text import number
from ppopt.timing import Waited

Tree: TypeAlias = dict[str, Any]

ALWAYS, MOST = "#7d8590", "#d64a41"
"""What is always held, and the memory limit: in colours that can be seen on light and on dark."""
RAMP = (
    *("#00224e", "#003170", "#2a3f6d", "#434e6c", "#575d6d", "#6a6c71", "#7d7c78"),
    *("#918b78", "#a59c74", "#bcae6c", "#d2c060", "#e9d34e", "#fee838"),
)
"""The colours of the first to the last stage or microbatch, those between are mixed: thirteen colours of the map cividis, which
colour-blind readers see alike (Nunez, Anderton, Renslow 2018)."""


def colours() -> Tree:
    """The colours that do not depend on a schedule, as pictures have them."""
    return {
        "kinds": {kind.name: KINDS[kind] for kind in Kind},
        "meaning": {**{kind.name: MEANING[kind] for kind in Kind}, **{send.name: CARRIED[send] for send in Send}},
        "sends": [SENDS[send] for send in Send],
        "idle": IDLE,
        "margin": MARGIN,
        "limit": LIMIT,
        "always": ALWAYS,
        "most": MOST,
        "ramp": RAMP,
    }


def facts_of(each: Shown, columns: Columns, doubles: bool) -> Tree:
    """What a page has to know of one schedule. Times are in ticks, amounts of memory in whole units, but for texts."""
    schedule, pipeline = each.schedule, each.schedule.pipeline
    rank, count = shade_of(pipeline)
    spans = [span for span in schedule.spans if span]
    return {
        "title": each.title,
        "figures": figures_of(schedule),
        "summary": sentence(each),
        "devices": pipeline.devices,
        "stages": pipeline.stages,
        "microbatches": pipeline.microbatches,
        "pieces": pipeline.index.pieces,
        "links": names_of(pipeline),
        "rows": columns.rows,
        "doubles": doubles,
        "per": pipeline.ticks.per_unit,
        "unit": pipeline.units.time,
        "begin": schedule.begin,
        "end": max(span[1] for span in spans),
        "bound": _bound(each),
        "device_of": pipeline.device_of.tolist(),
        "route_of": list(way_of_microbatch(pipeline)) if len(pipeline.ways) > 1 else None,
        "rank": rank.tolist(),
        "shades": [[hexadecimal(colour) for colour in shades(kind, count)] for kind in Kind],
        "latency": _latency(pipeline),
        "margins": [list(margin) for margin in schedule.margins],
        "memory": _memory(schedule),
        "path": f"{each.title}: {path_in_words(schedule)}",
    }


def sentence(each: Shown) -> str:
    """A chart in words, for those who cannot see it."""
    schedule, pipeline = each.schedule, each.schedule.pipeline
    unit = f" {pipeline.units.time}" if pipeline.units.time else ""
    busy = 1 - schedule.bubble_ratio
    text = (
        f"Chart of {each.title}: {pipeline.devices} devices and {pipeline.microbatches} microbatches on the placement "
        f"{pipeline.placement}; it takes {pipeline.time(schedule.makespan):.6g}{unit}, devices compute {busy:.1%} of that."
    )
    if each.proof is not None:
        text += f" Lower bound of the {each.proof.objective}: {each.proof.lower_bound:.6g}{unit}."
    return text


def path_in_words(schedule: Schedule) -> str:
    """How many operations are on the critical path, and how long it is."""
    path, pipeline = Waited(schedule).path, schedule.pipeline
    computing = sum(step.end - step.start for step in path if step.machine < pipeline.devices)
    unit = f" {pipeline.units.time}" if pipeline.units.time else ""
    length = f"{number(pipeline.time(schedule.makespan))}{unit}, {number(pipeline.time(computing))} of that on devices"
    return f"{len(path)} operations on the critical path; it takes {length}."


def _bound(each: Shown) -> int | float | None:
    """The lower bound of the makespan in ticks; ``None`` where there is none, or it is of another objective."""
    if each.proof is None or each.proof.objective != "makespan":
        return None
    return each.proof.lower_bound * each.schedule.pipeline.ticks.per_unit


def _latency(pipeline: Pipeline) -> Tree:
    """``[route][stage]``: ticks from the end of the forward of the stage before, or of the backward of the stage after, or of
    the transfer that carries its result, to when the stage has it; ``over``: from its own forward to its backward."""
    latency = pipeline.ticks.latency
    device, back = (pipeline.device_by_kind[:, kind] for kind in (Kind.F, Kind.B))

    def between(source: IntArray, target: IntArray) -> list[list[int]]:
        found: list[list[int]] = latency[source, target].tolist()
        return found

    forward = [[0, *row] for row in between(device[:, :-1], device[:, 1:])]
    backward = [[*row, 0] for row in between(back[:, 1:], back[:, :-1])]
    return {"forward": forward, "backward": backward, "over": between(device, back)}


def _memory(schedule: Schedule) -> Tree:
    """What operations claim when they start and give back when they end, by kind and ``[route][stage]``; what is always there,
    the limit and the peak of each device. ``curves``: times and amounts from then on of each, where copies to the host change
    them; else the others say it all."""
    pipeline, amounts, curves = schedule.pipeline, schedule.pipeline.amounts, None
    working = np.take_along_axis(amounts.working, pipeline.device_of, axis=1)
    claims = {"F": amounts.activation, "B": working, "I": amounts.rebuilt + working, "W": working}
    if any(map(len, schedule.copies.rows)):  # what operations claim is not all
        curves = [[of.tolist() for of in memory_levels(schedule, device)] for device in range(pipeline.devices)]
    return {
        "per": amounts.per_unit,
        "unit": pipeline.units.memory,
        "claims": {kind: amount.tolist() for kind, amount in claims.items()},
        "releases": {
            "B": (amounts.activation + working).tolist(),
            "I": (amounts.activation - amounts.kept + working).tolist(),
            "W": (amounts.retained + working).tolist(),
        },
        "static": amounts.static.tolist(),
        "limit": None if amounts.limit is None else amounts.limit.tolist(),
        "peak": list(schedule.peak_memory),
        "curves": curves,
    }
