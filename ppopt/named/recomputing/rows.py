"""Named schedules and a user's own order as rows, where it is open which stages recompute."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from ppopt.checker.quick import seconds_to_read
from ppopt.clock import OutOfTime, check_room
from ppopt.named.definition import Definition, Restriction
from ppopt.named.own import of_order
from ppopt.named.recomputing.levels import least_levels
from ppopt.named.recomputing.local import MADE, MADE_LIMITED, RETIMED, LocalSearch
from ppopt.named.recomputing.stages import Objective, ends
from ppopt.named.recomputing.tree import best_stages
from ppopt.named.registry import NAMED, each, none_applies, shown_chunks
from ppopt.named.row import Row
from ppopt.named.turned import turned_rows
from ppopt.named.verified import verified
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order


def compare_freely(
    pipeline: Pipeline,
    chunks: Sequence[int] = (),
    params: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    objective: Objective = "makespan",
) -> list[Row]:
    """The rows of :func:`ppopt.named.compare` for a pipeline that leaves open which stages recompute.

    There is one row for each schedule and number of chunks, and where the order of microbatches is open, another one with the
    rule that suits it best and with the same recomputing. In it those stages recompute that make the objective smallest and fit
    the memory limit; of equally good sets, the one that adds the least work. Stages are those of the schedule's own placement.

    Where its constraints pin the order, that is exact, as long as the timings last (:mod:`~ppopt.named.recomputing.tree`); beyond
    them, it is the best set found, and the most promising ones were tried first. Where the order is made from the costs,
    transfers hold links, or activations are copied to the host, it is the best that a local search finds
    (:mod:`~ppopt.named.recomputing.local`), and no worse than without recomputing or with it everywhere. If no set that was
    looked at fits, every stage recomputes, over the limit.

    Raises:
        ValueError: the pipeline does not leave it open.
        Restriction: a parameter is unknown or out of range.
    """
    _check_open(pipeline)
    chunks = chunks or shown_chunks(pipeline)
    try:
        pipeline = pipeline.placements()[0].cut()
    except PipelineError as error:
        return none_applies(str(error))
    read = {name: NAMED[name].read(given) for name, given in params.items()}
    settled = pipeline.changed(memory=dataclasses.replace(pipeline.memory, limit=None)).resolved("none")
    seconds = 2 * seconds_to_read(settled)  # to time it takes about as long
    rows = []
    for definition, v in each(chunks):
        try:
            check_room(seconds)
            schedule = best_of(definition, pipeline, v, read.get(definition.name, {}), objective)
            rows.append(_row(pipeline, definition.name, definition.placement, verified(schedule, definition.name)))
            rows += turned_rows(definition, rows[-1], every=definition.name in (read or ("1f1b",)))
        except (Restriction, OutOfTime) as problem:
            rows.append(Row.left_out(definition.name, definition.placement, v or definition.least_chunks, problem))
    return rows


def placed_freely(pipeline: Pipeline, objective: Objective = "makespan") -> Iterator[Schedule]:
    """The named schedules that have the placement of ``pipeline``, as far as they apply, each with what it had best recompute."""
    _check_open(pipeline)
    for definition, v in each((pipeline.chunks,)):
        if definition.placement == pipeline.placement and definition.routes is None:
            with suppress(Restriction):
                schedule = best_of(definition, pipeline, v, {}, objective)
                if schedule.pipeline.places == pipeline.places:
                    yield schedule


def of_order_freely(pipeline: Pipeline, order: Order, name: str, objective: Objective = "makespan") -> Row:
    """A user's own order as a row beside those of :func:`compare_freely`, with the stages that suit it best likewise.

    An order that cannot be timed is excluded, with the reason, as by :func:`ppopt.named.of_order`.

    Raises:
        ValueError: the pipeline does not leave it open which stages recompute.
    """
    _check_open(pipeline)
    try:
        whole = of_order(pipeline.resolved("all"), order, name)
        if whole.schedule is None:
            return whole
        return _row(pipeline, name, pipeline.placement, _with_order(pipeline, order, objective))
    except PipelineError as error:
        return Row(name, pipeline.placement, pipeline.chunks, None, f"{name}: {error}")


def _check_open(pipeline: Pipeline) -> None:
    if pipeline.recompute != CHOOSE:
        raise ValueError(f'pipeline.recompute: expected "choose", got {pipeline.recompute!r}')


def _row(pipeline: Pipeline, name: str, placement: str, schedule: Schedule) -> Row:
    chosen = schedule.pipeline.recompute
    assert chosen != CHOOSE
    return dataclasses.replace(Row.beside(pipeline, name, placement, schedule), recompute=chosen)


def best_of(
    definition: Definition, pipeline: Pipeline, chunks: int | None, params: Mapping[str, Any], objective: Objective
) -> Schedule:
    """A named schedule with the stages that suit it best.

    Raises:
        Restriction: as :meth:`~ppopt.named.definition.Definition.schedule`.
    """

    def made(pipeline: Pipeline) -> Schedule:
        return definition.schedule(pipeline, pipeline.chunks, **params)

    placed = definition.place(pipeline, chunks, **params)
    try:
        if placed.layers is not None:
            return least_levels(placed, made)
        order = definition.pinned(list(ends(placed)), **params)
        if order is not None:
            return _with_order(placed, order, objective)
        orders = MADE_LIMITED if definition.keeps_limit else MADE
        return LocalSearch(placed, made, objective, orders, both_ways=definition.keeps_limit).best()
    except PipelineError as error:
        raise Restriction(f"{definition.name}: {error}") from error


def _with_order(pipeline: Pipeline, order: Order, objective: Objective) -> Schedule:
    """An order that can run, with the stages that suit it best."""

    def retimed(pipeline: Pipeline) -> Schedule:
        return time_order(pipeline, order)

    if pipeline.layers is not None:
        return least_levels(pipeline, retimed)

    none, every = ends(pipeline)
    if none.lines or every.engines:
        return LocalSearch(pipeline, retimed, objective, RETIMED, both_ways=True).best()
    stages = best_stages(none, every, order, objective)
    return retimed(every if stages is None else pipeline.resolved(stages))
