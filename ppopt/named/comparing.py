"""All named schedules on given hardware."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from ppopt.checker.quick import keeps_all_rules, seconds_to_read
from ppopt.clock import OutOfTime, check_room
from ppopt.compiled import expect
from ppopt.heuristics.room import activations_of_one
from ppopt.named.definition import Restriction
from ppopt.named.model import Model
from ppopt.named.registry import BUILT_IN, NAMED, each, none_applies, shown_chunks, shows_maps
from ppopt.named.row import Row, figures
from ppopt.named.table import Table
from ppopt.named.turned import turned_rows
from ppopt.named.verified import verified, verified_rows
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.schedule import Schedule
from ppopt.timing import time_order
from ppopt.timing.loops import enter, sweep


def compare(
    asked: Pipeline | Model,
    chunks: Sequence[int] = (),
    params: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    own: Sequence[Row] = (),
    only: Collection[str] = (),
    maps: bool = False,
) -> Table:
    """All named schedules on the same devices and the same costs per device, each on its own placement; timed and checked.

    ``asked`` is a pipeline, or what a model file says: then its own order is shown too, and its schedule has the parameters that
    it gives. Where it is left open which stages recompute, each schedule is shown without recomputing and with it everywhere.
    Those that need chunks are shown for each number in ``chunks``; without, for the pipeline's own numbers above 1, else for
    their smallest. ``params`` gives parameters by the name of a schedule; the others have none. ``own`` are rows of your own,
    shown first. ``only``: the names of those that are wanted; empty: all. ``maps``: also schedules that are maps of work and
    weights; else only where the model says something of weights, or stands for one.

    Raises:
        Restriction: a parameter is unknown or out of range.
        PipelineError: the pipeline asks for several numbers of microbatches.
        Exception: whatever a definition of your own raises, with a note that names the schedule.
    """
    model = asked if isinstance(asked, Model) else Model(asked)
    pipeline = model.pipeline
    if isinstance(pipeline.microbatches, tuple):
        pipeline.settled()
    found = [*own, *model.own_rows, *rows_of(pipeline, chunks, {**model.named_params, **params}, only, maps)]
    verified_rows(found)
    return Table(found, pipeline, model.stands_for)


def rows_of(
    pipeline: Pipeline,
    chunks: Sequence[int] = (),
    params: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    only: Collection[str] = (),
    maps: bool = False,
) -> list[Row]:
    """The rows of the named schedules as :func:`compare` has them.

    Where a clock bounds this (:func:`ppopt.clock.bounded`), those that are not made and checked in time are left out, with that
    as the reason.

    Raises:
        Restriction: a parameter is unknown or out of range.
    """
    chunks = chunks or shown_chunks(pipeline)
    try:
        pipeline = pipeline.placements()[0].cut()
    except PipelineError as error:
        return none_applies(str(error))
    read = {name: NAMED[name].read(given) for name, given in params.items()}
    if pipeline.recompute == CHOOSE:
        return [
            dataclasses.replace(row, recompute=choice)
            for choice in ("none", "all")
            for row in _resolved(pipeline, choice, chunks, params, only, maps)
        ]
    rows = []
    shown = [
        (definition, v)
        for definition, v in each(chunks, maps or shows_maps(pipeline, (*params, *only)))
        if not only or definition.name in only
    ]
    expect(2 * pipeline.devices * pipeline.microbatches * len(shown), enter, sweep, keeps_all_rules)  # F and B at least
    for definition, v in shown:
        try:
            check_room(2 * seconds_to_read(pipeline))  # to time it takes about as long
            schedule = definition.schedule(pipeline, v, **read.get(definition.name, {}))
            figures(verified(schedule, definition.name))  # they are kept, and asked for when no time may be left
            rows.append(Row.beside(pipeline, definition.name, definition.placement, schedule))
            rows += turned_rows(definition, rows[-1], every=definition.name in (read or ("1f1b",)))
        except (Restriction, OutOfTime) as problem:
            rows.append(Row.left_out(definition.name, definition.placement, v or definition.least_chunks, problem))
    return rows


def _resolved(
    pipeline: Pipeline,
    choice: Literal["none", "all"],
    chunks: Sequence[int],
    params: Mapping[str, Mapping[str, Any]],
    only: Collection[str],
    maps: bool,
) -> list[Row]:
    """The rows where no stage or every stage recomputes."""
    try:
        return rows_of(pipeline.resolved(choice), chunks, params, only, maps)
    except PipelineError as error:
        return none_applies(f"recompute = {choice}: {error}")


def placed_here(pipeline: Pipeline) -> Iterator[Schedule]:
    """The named schedules that have the placement of ``pipeline``, as far as they apply."""
    for definition, v in each((pipeline.chunks,)):
        if definition.placement == pipeline.placement and definition.routes is None:
            try:
                schedule = definition.schedule(pipeline, v)
            except Restriction:
                continue
            if schedule.pipeline == pipeline:
                yield schedule


def adapted(pipeline: Pipeline) -> Iterator[tuple[str, Schedule]]:
    """The named schedules that are heuristics under a memory limit, on this placement, at one limit after the other.

    They count memory more coarsely than a pipeline does: what they make at a higher limit may fit, and what they make at a lower
    one may not. Limits are D to 2D activations of a microbatch, those nearest to the pipeline's first.
    """
    amounts, devices = pipeline.amounts, pipeline.devices
    room = 2.0 * devices
    if amounts.limit is not None:
        held = activations_of_one(pipeline)
        room = max((float(limit) / one for limit, one in zip(amounts.limit, held, strict=True) if one), default=room)
    for limit in sorted(range(devices, 2 * devices + 1), key=lambda limit: abs(limit - room)):
        for definition in BUILT_IN.values():  # elsewhere a limit may mean something else
            takes = {parameter.name: parameter.choices for parameter in definition.parameters}
            if "limit" not in takes or definition.placement != pipeline.placement:
                continue
            params: dict[str, Any] = {"limit": limit} | ({"variant": "adapted"} if "variant" in takes else {})
            try:
                schedule = definition.schedule(pipeline, **params)
            except Restriction:
                continue
            if schedule.pipeline.places == pipeline.places:
                yield f"{definition.name}, limit {limit}", time_order(pipeline, schedule.order)
