"""A named schedule with its microbatches in the orders of several rules, where their order is open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from ppopt.named.definition import Definition, Restriction
from ppopt.named.microbatch_orders import ORDERS, orders_of
from ppopt.named.row import Row
from ppopt.named.verified import verified
from ppopt.pipeline import OPEN
from ppopt.schedule import Schedule


def turned_rows(definition: Definition, row: Row, *, every: bool) -> list[Row]:
    """The rows of a schedule beside its ``row`` in the given order: with each rule's order, or (not ``every``) with the best.

    Nothing where microbatches do not differ, or their order is given.
    """
    schedule = row.schedule
    if schedule is None or not schedule.pipeline.mix.differs or schedule.pipeline.mix.microbatch_order != OPEN:
        return []
    found = []
    for name, rule in ORDERS.items():
        if rule.simulates and not every:
            continue
        each = list(_each(definition, schedule, name))
        if each:
            found.append(replace(row, schedule=min(each, key=_rank), turns=name))
    if not every:
        found = sorted(found, key=lambda one: _rank(one.schedule))[:1]
        found = [one for one in found if _rank(one.schedule) < _rank(schedule)]
    for one in found:
        assert one.schedule is not None
        verified(one.schedule, one.label)
    return found


def _each(definition: Definition, schedule: Schedule, name: str) -> Iterator[Schedule]:
    for turns in orders_of(schedule.pipeline, name):
        with suppress(Restriction):
            yield definition.turned(schedule, turns)


def _rank(schedule: Schedule | None) -> tuple[bool, int, int]:
    """What fits comes first; then the shortest."""
    assert schedule is not None
    return not schedule.within_memory, schedule.makespan, schedule.device_span
