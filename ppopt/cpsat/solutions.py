"""Schedules into a model of words, as hints, and out of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ortools.sat.python import cp_model

from ppopt.constraints import Backward, equal_weights, graph_of, in_order, joined, operations, weights_in_order, weights_of
from ppopt.cpsat.memory import Memory
from ppopt.cpsat.objective import Spans
from ppopt.cpsat.operations import Operations
from ppopt.cpsat.running import Solution
from ppopt.op import Kind
from ppopt.pipeline import IntArray
from ppopt.schedule import Schedule, durations, halves


def hint(ops: Operations, memory: Memory, spans: Spans | None, objective: cp_model.IntVar | None, schedule: Schedule) -> None:
    """Suggest ``schedule``: a value for every variable. A ``B`` that the words split is taken as ``I``, then ``W``."""
    times = _Times(ops, schedule)
    add, begin, end = ops.model.add_hint, times.begin, times.end
    _hint_operations(ops, times)

    def over(some: Sequence[int], by: int) -> bool:
        """Whether whichever of these is run has ended by then."""
        return max((end[op] for op in some if op in end), default=by) <= by

    for size, claim, releases in memory.lasting:
        if claim in begin:
            add(size, max(end[op] for op in releases if op in end) - begin[claim])
    for until, releases in memory.untils:
        add(until, max((end[op] for op in releases if op in end), default=0))
    for (some, now), literal in memory.befores.items():
        add(literal, over(some, begin.get(now, 0)))
    for literal, claim, releases, now in memory.meanwhile:
        at = begin.get(now, 0)
        add(literal, claim in begin and over([claim], at) and not over(releases, at))
    through = {op: time + ops.margins(op)[1] for op, time in end.items()}
    largest = max(through.values()) if spans is None or not spans.bounds else 0
    for first_start, last_end, of_device in [] if spans is None else spans.bounds:
        since = min(begin[op] - ops.margins(op)[0] for op in of_device.tolist() if op in begin)
        latest = max(through[op] for op in of_device.tolist() if op in through)
        add(first_start, since)
        add(last_end, latest)
        largest = max(largest, latest - since)
    if objective is not None:
        add(objective, largest)


class _Times:
    """The operations of a schedule in the steps of a model: begins, ends, and which run in pairs that are free."""

    def __init__(self, ops: Operations, schedule: Schedule) -> None:
        index, grid = ops.pipeline.index, ops.grid
        begin: dict[int, int] = {}
        self.pairs: set[tuple[int, int]] = set()
        transfers, copies = schedule.transfers, schedule.copies
        rows = (*schedule.order.rows, *transfers.rows, *copies.rows)
        for row, starts in zip(rows, (*schedule.start, *transfers.start, *copies.start), strict=True):
            first, second = halves(index, row)
            self.pairs |= ops.couple.keys() & set(zip(first.tolist(), second.tolist(), strict=True))
            for half in (first, second):
                chosen = half >= 0
                begin |= zip(half[chosen].tolist(), (starts[chosen] // grid).tolist(), strict=True)
        earliest = schedule.begin // grid
        self.begin = {op: time - earliest for op, time in begin.items()}
        self.together = {op for pair in self.pairs for op in pair}
        self._split(ops)
        self.size = {op: modes[0].size for op, modes in ops.modes.items()}
        for forward, backward in self.pairs:
            overlap = int(durations(ops.pipeline, np.array([index.pair(forward, backward)]))[0])
            self.size[forward] = self.size[backward] = ops.size(overlap // grid)
        self.end = {op: time + self.size[op] for op, time in self.begin.items()}
        self._exchange_weights(ops)

    def _exchange_weights(self, ops: Operations) -> None:
        """Where the model wants that, weight gradients of equal cost take the order of their input gradients, at the same times
        (:mod:`ppopt.constraints.weight_order`); pieces those of their stage (:func:`ppopt.constraints.in_order`)."""
        pipeline = ops.pipeline
        cuts = weights_in_order(pipeline)
        between = bool(cuts) and set(cuts) <= set(ops.words)
        if not between and (pipeline.index.pieces == 1 or not set(in_order(pipeline)) <= set(ops.words)):
            return
        graph = joined(graph_of(pipeline))
        alike = equal_weights(graph) if between else []
        if pipeline.index.pieces > 1:
            known = {stage.weight for stages in alike for stage in stages}
            number = {family: o for o, family in enumerate(graph.families)}
            alike += [
                [Backward(number[graph.families[o]._replace(kind=Kind.I)], o)] for o in graph.of_kind(Kind.W) if o not in known
            ]
        for stages in alike:
            rows = []
            for input_, weight in stages:
                family = graph.families[weight]
                pieces = weights_of(pipeline, family.stage, family.route)
                each = (operations(pipeline, of).tolist() for of in (graph.families[input_], *pieces))
                rows += [row for row in zip(*each, strict=True) if self.begin.keys() >= set(row)]
            rows.sort(key=lambda row: self.end[row[0]])
            weights = [weight for row in rows for weight in row[1:]]
            slots = sorted((self.begin[weight], self.end[weight]) for weight in weights)
            for weight, (begin, end) in zip(weights, slots, strict=True):
                self.begin[weight], self.end[weight] = begin, end

    def _split(self, ops: Operations) -> None:
        """What the model does not run as a whole is run in two."""
        begin, index = self.begin, ops.pipeline.index
        slots = index.stages * index.microbatches
        for op in [op for op in begin if op not in ops.present or (op in ops.never_alone and op not in self.together)]:
            time = begin.pop(op)
            for part in (op + (row - Kind.B) * slots for row in (Kind.I, *index.weights)):
                begin[part] = time
                time += ops.modes[part][0].size


def _hint_operations(ops: Operations, times: _Times) -> None:
    """Starts, what is run, and how."""
    add, begin = ops.model.add_hint, times.begin
    for couple, literal in ops.couple.items():
        add(literal, couple in times.pairs)
    for op, literal in ops.alone.items():
        add(literal, op in begin and op not in times.together)
    for (op, way), literal in ops.one_of_pairs.items():
        add(literal, op in times.together and times.size[op] == way)
    seconds = set(ops.partner.values())
    for op, variable in ops.start.items():
        if op not in seconds:
            add(variable, min(begin.get(op, 0), ops.horizon))
        if (present := ops.present[op]) is not None:
            add(present, op in begin)


def found_in(ops: Operations, solution: Solution) -> tuple[IntArray, IntArray]:
    """A found schedule: the numbers of the operations that are run (pairs as one), and their starts in parts of steps."""
    index, partner = ops.pipeline.index, dict(ops.partner)
    partner |= dict(couple for couple, literal in ops.couple.items() if solution.boolean_value(literal))
    seconds = set(partner.values())
    numbers, starts = [], []
    for op, variable in ops.start.items():
        literal = ops.present[op]
        if op in seconds or (literal is not None and not solution.boolean_value(literal)):
            continue
        numbers.append(index.pair(op, partner[op]) if op in partner else op)
        starts.append(solution.value(variable))
    return np.array(numbers, dtype=np.int64), np.array(starts, dtype=np.int64)
