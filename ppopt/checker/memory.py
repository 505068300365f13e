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


def _levels_with_copies(run: Run, device: int) -> Iterator[tuple[Entry, int]]:
    """:func:`levels` where copies give back and claim. A copy back counts as a record of the device.

    Of one time, what is given back comes first, whoever gives it back.
    """
    facts, microbatches, stages = run.facts, run.pipeline.microbatches, run.pipeline.stages
    changes: list[tuple[int, int, Entry]] = []
    for entry in run.rows[device]:
        for key in entry.keys:
            family, microbatch = divmod(key, microbatches)
            kind, stage = divmod(family, stages)
            route = run.pipeline.route_of_microbatch[microbatch]
            first, then = facts.activation[route][stage], facts.retained[route][stage]
            most = max(first, then)
            given_back = then if kind == run.last_kind else 0
            claim, release = {0: (first, 0), 1: (0, first), 2: (most - first, most - then)}.get(int(kind), (0, given_back))
            working = facts.working[route][device] * (kind != Kind.F)
            changes += [(entry.start, claim + working, entry), (entry.end, -release - working, entry)]
    for copy in run.copied:
        route = run.pipeline.route_of_microbatch[copy.microbatch]
        if run.pipeline.routes[route][copy.stage] == device:
            away = facts.away[route][copy.stage]
            entry = Entry(-1, -1, copy.start, copy.end, str(copy))
            changes.append((copy.start, away, entry) if copy.back else (copy.end, -away, entry))
    held, tolerance = facts.static[device], run.tolerance
    pending = sorted((time, amount) for time, amount, _ in changes if amount < 0)
    for time, amount, entry in sorted((c for c in changes if c[1] >= 0), key=lambda c: c[0]):
        while pending and pending[0][0] <= time + tolerance:
            held += pending.pop(0)[1]
        held += amount
        yield entry, held


def levels(run: Run, device: int) -> Iterator[tuple[Entry, int]]:
    """Each record of a device with what is held from its start on.

    What has ended by then was given back before; among records without duration at one time, the order of the list decides.
    """
    if run.copied:
        yield from _levels_with_copies(run, device)
        return
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
            working = facts.working[route_of[microbatch]][device]
            held += working
            heapq.heappush(pending, (entry.end, working))
            if kind == Kind.I:
                while_it_runs = max(activation, retained)
                held += while_it_runs - activation
                heapq.heappush(pending, (entry.end, while_it_runs - retained))
            elif kind in (Kind.B, run.last_kind):
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
                retained = facts.retained[route][stage] if kind in (Kind.I, run.last_kind) else 0
                more, back = change(kind, facts.activation[route][stage], retained, facts.working[route][device])
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
