"""What a device holds while it runs its records."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise

from ppopt.checker.quick import change
from ppopt.checker.records import Entry, Run
from ppopt.op import Kind


def in_time(run: Run, device: int) -> list[Entry]:
    """The records of a device as they ran: in their own order, where ties count, or by start where that contradicts it."""
    row = run.rows[device]
    if all(b.start >= a.start - run.tolerance for a, b in pairwise(row)):
        return row
    return sorted(row, key=lambda entry: entry.start)


def levels(run: Run, device: int) -> Iterator[tuple[Entry, int]]:
    """Each record of a device with what is held from its start on.

    What has ended by then was given back before; among records without duration at one time, the order of the list decides.
    """
    if run.pipeline.backward_routes:
        yield from _levels_between(run, device)
        return
    facts, microbatches, stages = run.facts, run.pipeline.microbatches, run.pipeline.stages
    route_of = run.pipeline.route_of_microbatch
    held, pending, tolerance = facts.static[device], list[tuple[int, int]](), run.tolerance
    for entry in in_time(run, device):
        while pending and pending[0][0] <= entry.start + tolerance:
            held -= heapq.heappop(pending)[1]
        for key in entry.keys:
            family, microbatch = divmod(key, microbatches)
            kind, stage = divmod(family, stages)
            activation = facts.activation[route_of[microbatch]][stage]
            retained = facts.retained[route_of[microbatch]][stage]
            if kind == Kind.F:
                held += activation
                continue
            held += facts.working[device]
            heapq.heappush(pending, (entry.end, facts.working[device]))
            if kind == Kind.I:
                while_it_runs = max(activation, retained)
                held += while_it_runs - activation
                heapq.heappush(pending, (entry.end, while_it_runs - retained))
            else:
                heapq.heappush(pending, (entry.end, activation if kind == Kind.B else retained))
        yield entry, held


def _levels_between(run: Run, device: int) -> Iterator[tuple[Entry, int]]:
    """The same of a device that may run the backwards of other devices' forwards: what counts is who runs the backward, and when.

    What is given back at a time is free for what is claimed at that time, whatever the lists say.
    """
    facts, microbatches, stages = run.facts, run.pipeline.microbatches, run.pipeline.stages
    changes: list[tuple[int, int, int, Entry]] = []
    for entry in (entry for row in run.rows for entry in row):
        for key in entry.keys:
            family, microbatch = divmod(key, microbatches)
            kind, stage = divmod(family, stages)
            route = run.pipeline.route_of_microbatch[microbatch]
            if facts.place[route][Kind.B * stages + stage] == device:
                more, back = change(kind, facts.activation[route][stage], facts.retained[route][stage], facts.working[device])
                changes += [(entry.start, more, key, entry)] if more else []
                changes += [(entry.end - run.tolerance, -back, key, entry)] if back else []
    held = facts.static[device]
    for _, by, _, entry in sorted(changes):
        held += by
        if by > 0:
            yield entry, held


def room_elsewhere(run: Run) -> bool:
    """Whether operations may have to wait until another device has room for what they leave behind: then no order says how early
    they can be."""
    return run.facts.limit is not None and bool(run.pipeline.backward_routes)
