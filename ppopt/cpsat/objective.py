"""What a model of words minimises, or keeps to: the makespan, or the largest device span."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from ppopt.constraints import Exclusive, spread
from ppopt.cpsat.operations import Operations
from ppopt.cpsat.posting import Literal, interval, machine, start_earlier
from ppopt.pipeline import IntArray
from ppopt.schedule import devices_of
from ppopt.solvers.device_times import DeviceTimes


class Bounds(NamedTuple):
    """The begin and the end of a device, and its operations."""

    begin: cp_model.IntVar
    end: cp_model.IntVar
    ops: IntArray


def post_makespan(ops: Operations, lower: int, upper: int, followed: set[int]) -> cp_model.IntVar:
    """Minimise the makespan, which is in ``lower..upper``; what is ``followed`` by something else is not the last."""
    model = ops.model
    makespan = model.new_int_var(lower, upper, "makespan")
    for op, start in ops.start.items():
        if op not in followed:
            for way, literal in ops.modes[op]:
                end_by = model.add(makespan * ops.parts + ops.slack >= start + (way + ops.margins(op)[1]))
                if literal is not None:
                    end_by.only_enforce_if(literal)
    model.minimize(makespan)
    return makespan


class Since(NamedTuple):
    """How long after its device's first start an operation starts, where all literals hold."""

    time: cp_model.IntVar
    given: list[Literal]


class Spans:
    """The largest device span: it is in ``lower..upper``, and minimised where these differ.

    ``known``: what is proved of the times of devices, in steps.
    """

    def __init__(self, ops: Operations, lower: int, upper: int, known: DeviceTimes) -> None:
        self.ops, self.model, self.decision, self.known = ops, ops.model, lower == upper, known
        self.value = self.model.new_int_var(lower, upper, "span")
        self.span = upper * ops.parts + ops.slack
        """The most, in parts."""
        self.bounds: list[Bounds] = []
        self._lengths: list[int] = []
        """Of a decision, the constraints that say how long each device's span is."""
        self._since: list[Since] = []
        for word in ops.words:
            if isinstance(word, Exclusive) and word.computes and not spread(ops.pipeline, word):
                own = np.array(list(dict.fromkeys(op for stream in word.streams for op in ops.of(stream))), dtype=np.int64)
                if len(own):
                    self.bounds.append(self._device(own))
        if self.decision:
            begins = [of.begin for of in self.bounds]
            self.model.add_decision_strategy(begins, cp_model.CHOOSE_FIRST, cp_model.SELECT_LOWER_HALF)
        else:
            self.model.minimize(self.value)

    def _device(self, own: IntArray) -> Bounds:
        """The begin and the end of the device with these operations."""
        ops, model = self.ops, self.model
        traffic = {op: ops.margins(op) for op in own.tolist()}
        by = self.known.begun[int(devices_of(ops.pipeline, own[:1])[0])] if self.known.begun else None
        first = model.new_int_var(0, ops.horizon if by is None else min(ops.horizon, by * ops.parts + ops.slack), "begin")
        longest = max((after for _, after in traffic.values()), default=0)
        last = model.new_int_var(0, ops.horizon + max(self.span, longest), "end")
        for op, (before, after) in traffic.items():
            run = ops.present[op]
            model.add(first <= ops.start[op] - before).only_enforce_if([] if run is None else [run])
            for way, literal in ops.modes[op]:
                model.add(last >= ops.start[op] + (way + after)).only_enforce_if([] if literal is None else [literal])
        if ops.parts > 1:
            model.add_modulo_equality(0, first, ops.parts)
        model.add(self.value * ops.parts + ops.slack >= last - first)
        if self.decision:
            self._lengths.append(model.add_linear_constraint(last - first, self.span, self.span).index)
            if not ops.couple and not ops.partner:
                self._within(first, own.tolist())
        return Bounds(first, last, own)

    def _within(self, first: cp_model.IntVar, own: Sequence[int]) -> None:
        """No two operations of a device at once, said again of their times since its ``first`` start, a variable: in a span
        that is given these times are known far better than those since the schedule's begin, as long as devices may begin
        early or late. Measured on 8 that stay open after 8 s: with what is known of these times five are refuted in a quarter to
        three quarters of the time, one in as long as before, one in 1.3 times as long, and one stays open."""
        intervals = []
        for op in own:
            ((way, literal),) = self.ops.modes[op]
            least, rest = (of.get(op, 0) * self.ops.parts for of in (self.known.head, self.known.tail))
            most = self.span - way - rest
            given: list[Literal] = [] if literal is None else [literal]
            if most < least:  # it is not run, or there is no schedule
                self.model.add_bool_or([~one for one in given])
                continue
            since = self.model.new_int_var(least, most, "")
            self._since.append(Since(since, given))
            self.model.add(self.ops.start[op] == first + since).only_enforce_if(given)
            intervals.append(interval(self.model, since, way, literal))
        machine(self.model, intervals)

    def shorten(self, model: cp_model.CpModel, less: int) -> None:
        """Let a copy of a decision ask for a span that is so many steps shorter."""
        parts, domain = less * self.ops.parts, model.proto.variables[self.value.index].domain
        domain[0], domain[1] = domain[0] - less, domain[1] - less
        for length in self._lengths:
            domain = model.proto.constraints[length].linear.domain
            domain[0], domain[1] = domain[0] - parts, domain[1] - parts
        for time, given in self._since:
            start_earlier(model, time, parts, given)
