"""Ticks by which some best schedule has ended: what a model of all schedules has to reach."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from ppopt.bounds.latest_starts import beside_span
from ppopt.constraints import Precede, Word, select
from ppopt.op import Kind
from ppopt.pipeline import Pipeline
from ppopt.pipeline.ticks import copies_of


def horizon(pipeline: Pipeline, words: Iterable[Word] = ()) -> int:
    """Ticks by which some best schedule has ended: at any time something runs or is on its way.

    ``words`` that bind beside the rules: or what has run is waited after, which happens before every operation at most once.
    """
    duration, stages = np.maximum(pipeline.ticks.duration, 0), pipeline.stages
    pairs = int(np.maximum(pipeline.ticks.overlap, 0).sum(axis=1).max())
    per_microbatch = int(duration.sum(axis=(1, 2)).max()) + pairs + 2 * stages * int(pipeline.ticks.lag.max())
    per_microbatch += int((2 * pipeline.ticks.gather + pipeline.ticks.scatter).sum(axis=1).max())
    waits = (2 + pipeline.costs.weight_pieces) * stages * longest_lag(words)
    per_microbatch += copies_of(pipeline)
    return pipeline.microbatches * (per_microbatch + waits) + int(pipeline.ticks.lead.max() + pipeline.ticks.tail.max())


def longest_lag(words: Iterable[Word]) -> int:
    """The longest wait that some of these words ask for, in ticks."""
    return max((word.lag for word in select(words, Precede)), default=0)


def span_horizon(pipeline: Pipeline, span: int, *, free: bool, words: Iterable[Word] = ()) -> int:
    """Ticks by which some schedule whose device spans are at most ``span`` has ended, if there is one at all.

    Where nothing happens for longer than the largest latency (or wait that ``words`` ask for, which bind beside the rules), what
    follows can start earlier. So between the devices' spans there are at most D - 1 gaps of that length, besides transfers that
    hold a link.

    With nothing but the rules (``free``) it is much less where :func:`~ppopt.bounds.latest_starts.beside_span` says so, and with
    one stage per device on one route. There all devices upstream run forwards only before a device's first operation, no more
    than their memory holds, and these can be shifted right against it: device d starts at most ``sum over s < d of
    (T_F + latency) + (C - 1) * max T_F`` after the first.
    """
    latency = max(int(pipeline.ticks.latency.max()), longest_lag(words))
    devices = pipeline.devices
    counts = [len(microbatches) for microbatches in pipeline.microbatches_of]
    copying = pipeline.microbatches * copies_of(pipeline)
    sending = copying + int(pipeline.ticks.sending.sum(axis=(1, 2)) @ np.array(counts))
    gather = int(pipeline.ticks.lead.max())
    general = gather + devices * span + (devices - 1) * latency + sending
    one_way = len(pipeline.routes) == 1 and not pipeline.backward_routes
    if not free or pipeline.engines or sending or gather or pipeline.ticks.pauses or not one_way:
        return general
    beside = beside_span(pipeline)
    general = general if beside is None else min(general, span + beside)
    if len(set(pipeline.routes[0])) < pipeline.stages:
        return general
    route, amounts = pipeline.routes[0], pipeline.amounts
    forward = pipeline.ticks.duration[0, Kind.F].tolist()
    most = pipeline.microbatches
    if amounts.limit is not None:
        room = [
            int(amounts.room[d]) // int(amounts.activation[0, s]) for s, d in enumerate(route[:-1]) if amounts.activation[0, s]
        ]
        most = min(most, max(room, default=most)) if len(room) == len(route) - 1 else most
    hops: int = sum(int(pipeline.ticks.latency[a, b]) for a, b in pairwise(route))
    offset: int = sum(forward[:-1]) + hops + max(0, most - 1) * max(forward[:-1], default=0)
    return min(general, offset + span)


def ended_by(pipeline: Pipeline, objective: str, upper: int, words: tuple[Word, ...]) -> int:
    """Ticks by which some schedule with an objective of at most ``upper`` has ended, if there is one; ``words`` bind."""
    return upper if objective == "makespan" else span_horizon(pipeline, upper, free=not words, words=words)
