"""What a device holds while it runs its records."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise

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
