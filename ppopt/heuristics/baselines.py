"""A list schedule of every priority rule: none of the rules is best everywhere, and a list schedule takes little time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ppopt.constraints import always_split, rules_of, splitting_is_free
from ppopt.heuristics.in_flight import at_most_in_flight, crowds
from ppopt.heuristics.jobs import Jobs
from ppopt.heuristics.list_scheduling import run_jobs
from ppopt.heuristics.priorities import PRIORITIES
from ppopt.heuristics.simulation import Stuck
from ppopt.pipeline import Pipeline
from ppopt.pipeline.rewriting import kept_here
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order

_CROWDED = ("backward-first", "oldest-backward-first")
"""The rules that are tried with several numbers of microbatches in flight."""


def baselines(pipeline: Pipeline) -> list[tuple[str, Schedule]]:
    """All schedules of :func:`each_baseline`."""
    return list(each_baseline(pipeline))


def each_baseline(pipeline: Pipeline) -> Iterator[tuple[str, Schedule]]:
    """A name and a schedule of every rule, patient and not, within the memory limit; those first that tend to be the best.

    Where ``B`` or ``I``, ``W`` is a free choice, also with every backward split. Where microbatches in flight may crowd a memory
    (:mod:`~ppopt.heuristics.in_flight`), also with several limits to their number. Once a limit changes nothing, larger ones are
    left out.

    Where activations may be copied to the host they are those of :func:`with_room`, which need not be within the limit.
    """
    if pipeline.engines:
        yield from with_room(pipeline)
        return
    with suppress(*may_get_stuck(pipeline)):
        yield from _each_baseline(pipeline)


def with_room(pipeline: Pipeline) -> Iterator[tuple[str, Schedule]]:
    """List schedules that hold more than there is room for, such as fit once activations are copied to the host.

    They are made with the limit of memory, then with more and more, and without one; each is timed with its copies.
    """
    plain, seen = kept_here(pipeline), set[Order]()
    limit = plain.memory.limit
    each = [plain]
    if limit is not None:
        more = [Fraction(3, 2), Fraction(2), Fraction(3), None]
        for factor in more:
            value = None if factor is None else tuple(of * factor for of in (limit if isinstance(limit, tuple) else (limit,)))
            room = value[0] if value is not None and len(value) == 1 else value
            memory = replace(plain.memory, limit=room)
            each.append(plain.changed(memory=memory, route_of_microbatch=plain.route_of_microbatch))
    for donor in each:
        for name, schedule in each_baseline(donor):
            if schedule.order not in seen:
                seen.add(schedule.order)
                yield name, time_order(pipeline, schedule.order)


def may_get_stuck(pipeline: Pipeline) -> tuple[type[Stuck], ...]:
    """What list schedules of nothing but the rules may raise, with reserves: nothing, but of two kinds of pipelines.

    The pieces of a sequence go back in another order than is reserved for; and room is left for the largest working set.
    """
    return (Stuck,) if pipeline.mix.pieces or pipeline.amounts.more_working.any() else ()


def _each_baseline(pipeline: Pipeline) -> Iterator[tuple[str, Schedule]]:
    rules = rules_of(pipeline)
    plain = Jobs(pipeline, rules, links=True)
    unlimited: dict[_Variant, Order] = {}
    for variant in _variants(_CROWDED):
        unlimited[variant] = order = variant.order(plain)
        yield variant.name(), time_order(pipeline, order)
    for most in crowds(pipeline):
        jobs = Jobs(pipeline, (*rules, *at_most_in_flight(pipeline, most)), links=True)
        for variant in list(unlimited):
            order = variant.order(jobs)
            if all(map(np.array_equal, order.rows, unlimited[variant].rows)):
                del unlimited[variant]
            else:
                yield variant.name(f"{most} in flight"), time_order(pipeline, order)
    for variant in _variants(name for name in PRIORITIES if name not in _CROWDED):
        yield variant.name(), time_order(pipeline, variant.order(plain))
    if pipeline.costs.split and not splitting_is_free(pipeline):
        jobs = Jobs(pipeline, (*rules, *always_split(pipeline)), links=True)
        for variant in _variants(PRIORITIES):
            yield variant.name("split"), time_order(pipeline, variant.order(jobs))


class _Variant(NamedTuple):
    """A priority rule, and whether devices are patient."""

    rule: str
    patient: bool

    def order(self, jobs: Jobs) -> Order:
        return run_jobs(jobs, PRIORITIES[self.rule](jobs), patient=self.patient)

    def name(self, further: str = "") -> str:
        return ", ".join(part for part in (f"greedy {self.rule}", "patient" if self.patient else "", further) if part)


def _variants(rules: Iterable[str]) -> Iterator[_Variant]:
    return (_Variant(rule, patient) for rule in rules for patient in (False, True))
