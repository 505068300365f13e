"""The cuts of layers into stages as a model: which cut has the least bound, of all that are left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

from ortools.sat.python import cp_model

from ppopt.bounds.certificates import Certificate
from ppopt.bounds.filling import Count, Filling, Phase
from ppopt.bounds.savings import Savings
from ppopt.bounds.ways import Once, Part, Way
from ppopt.clock import Limits
from ppopt.cpsat.engine import CUTS, CUTS_OF_SIZES, CUTS_RELAXED, race
from ppopt.cpsat.running import Answer, Known
from ppopt.op import Kind

End: TypeAlias = cp_model.LinearExpr
"""What lies before the end of a stage."""


@dataclass(frozen=True)
class LeastCut:
    """No cut that is left has a bound below ``bound`` ticks; ``counts`` is one whose bound is ``value``, if one was found.

    ``none``: no cut is left. ``settled``: it is shown that there is none of less than ``value``.
    """

    bound: int
    value: int | None = None
    counts: tuple[int, ...] | None = None
    none: bool = False
    settled: bool = False


class CutModel:
    """All cuts of layers into stages, and what certificates say about them.

    ``times``: per kind of operation the ticks of each layer; ``first``: those in the first stage, if they are others; ``more``:
    ticks that an operation of a stage takes beside what its layers do. Where microbatches differ, ``sizes`` has two factors for
    each of their sizes: of ``times``, and of ``squares`` (``first_squares`` in the first stage where there is ``first``), which
    come on top of these. ``once``: the ticks that each layer takes once per step.

    ``below[s][l]`` is whether layer ``l`` is before the end of stage ``s``; what lies before an end is a sum over these, and what
    a certificate says is linear in such sums.
    """

    def __init__(
        self,
        times: Mapping[Kind, Sequence[int]],
        stages: int,
        *,
        first: Mapping[Kind, Sequence[int]] | None = None,
        more: Mapping[Part, End | int] | None = None,
        squares: Mapping[Kind, Sequence[int]] | None = None,
        first_squares: Mapping[Kind, Sequence[int]] | None = None,
        sizes: Sequence[tuple[int, int]] = ((1, 0),),
        once: Mapping[Once, Sequence[int]] | None = None,
    ) -> None:
        self.layers, self.stages = len(times[Kind.F]), stages
        self.model = cp_model.CpModel()
        self.below = [[self.model.new_bool_var("") for _ in range(self.layers)] for _ in range(stages - 1)]
        for s, row in enumerate(self.below):
            self._order(s, row)
        self._ends: dict[tuple[int, ...], list[End]] = {}
        self.before = {kind: self.ends(of) for kind, of in times.items()}
        self.first = self.before if first is None else {kind: self.ends(of) for kind, of in first.items()}
        self.squares = {kind: self.ends(of) for kind, of in (squares or {}).items()}
        first_squares = squares if first is None else first_squares
        self.first_squares = {kind: self.ends(of) for kind, of in (first_squares or {}).items()}
        self.once = {once: self.ends(of) for once, of in (once or {}).items()}
        self.sizes = sizes
        self.more: dict[Part, End | int] = dict(more or {})
        self._most = 2**50
        self.bound = self.model.new_int_var(0, self._most, "")
        self.model.minimize(self.bound)
        self.learned = 0
        """The number of certificates."""

    def _order(self, s: int, row: Sequence[cp_model.IntVar]) -> None:
        """Ends follow each other, and every stage has a layer."""
        for layer, literal in enumerate(row):
            if layer:
                self.model.add_implication(literal, row[layer - 1])
                if s:
                    self.model.add_implication(self.below[s - 1][layer - 1], literal)
            if layer <= s:
                self.model.add(literal == 1)
            elif layer > self.layers - self.stages + s:
                self.model.add(literal == 0)

    def ends(self, of_layer: Sequence[int]) -> list[End]:
        """``[s]``: what the layers before stage ``s`` have together of something; ``[stages]``: what all have.

        Amounts in proportion, as forwards and backwards of twice their times, are told by the same variables.
        """
        unit = math.gcd(*of_layer) or 1
        alike = tuple(value // unit for value in of_layer)
        if alike not in self._ends:
            self._ends[alike] = self._sums(alike)
        return [unit * end for end in self._ends[alike]]

    def _sums(self, of_layer: Sequence[int]) -> list[End]:
        sums = list(accumulate(of_layer, initial=0))
        found: list[End] = [self.model.new_constant(0)]
        for row in self.below:
            end = self.model.new_int_var(0, sums[-1], "")
            self.model.add(end == sum(value * literal for value, literal in zip(of_layer, row, strict=True) if value))
            found.append(end)
        return [*found, self.model.new_constant(sums[-1])]

    def hold(self, amounts: Sequence[tuple[list[End], Sequence[int]]], most: int) -> None:
        """Keep what some stages have together at ``most``: of each amount its :meth:`ends`, and the stages that count."""
        self.model.add(sum(_within(ends, stages) for ends, stages in amounts) <= most)

    def fill(self, filling: Filling, held: list[End], kept: list[End], own: list[End], limit: int, scale: int = 1) -> None:
        """No cut is better than what a limit of memory says of a device (:mod:`ppopt.bounds.filling`).

        ``held``, ``kept``, ``own``: the :meth:`ends` of what a microbatch holds, of what is left of that between ``I`` and ``W``,
        and of what is always held; ``limit``: of what all these have together; ``scale``: ticks here in one of the filling.
        """
        always = _within(own, filling.stages)
        begin = [self._idle(phase, held, limit - always, filling.microbatches, scale) for phase in filling.first]
        end = [self._idle(phase, kept, limit - always, filling.microbatches, scale) for phase in filling.last]
        work = self._time(filling.work, scale)
        for idle in begin:
            self.model.add(self.bound >= work + idle + self._time(filling.tail, scale))
        for idle in end:
            self.model.add(self.bound >= self._time(filling.head, scale) + work + idle)
        for j in range(len(filling.stages)):
            some = filling.stages[: j + 1]
            all_ = always + filling.microbatches * _within(held, some)
            full = self.model.new_bool_var("")
            self.model.add(all_ <= limit).only_enforce_if(~full)
            for i, one in enumerate(begin):
                for k, other in enumerate(end):
                    if min(i, k) == j:
                        self.model.add(self.bound >= work + one + other).only_enforce_if(full)

    def _idle(self, phase: Phase, held: list[End], room: End, most: int, scale: int) -> End:
        """The idle time of a phase, for numbers of microbatches that fit."""
        counts: list[cp_model.IntVar] = []
        claimed, gained = [], []
        until = self._time(phase.way, scale)
        for of in phase.counts:
            count = self.model.new_int_var(of.least, most, "")
            for place in of.within:
                self.model.add(count <= counts[place])
            counts.append(count)
            if of.holds:
                claimed.append(of.holds * self._times(count, most, held[of.stage + 1] - held[of.stage]))
            gained.append(self._done(of, count, most, until, scale))
        self.model.add(cp_model.LinearExpr.sum(claimed) <= room)
        return until - cp_model.LinearExpr.sum(gained)

    def _done(self, of: Count, count: cp_model.IntVar, most: int, until: End, scale: int) -> cp_model.IntVar:
        """How much of so many operations can be run by a time, at most."""
        gain = self._time(of.gain, scale)
        whole = self._times(count, most, gain)
        if of.since is None:
            return whole
        every = self._time(of.every, scale)
        left = until - self._time(of.since, scale) - (self._times(count, most, every) - every)  # since the last one may begin
        any_, done = self.model.new_bool_var(""), self.model.new_int_var(0, self._most, "")
        self.model.add(count == 0).only_enforce_if(~any_)
        self.model.add(left >= 1).only_enforce_if(any_)
        self.model.add(done <= whole - gain + left).only_enforce_if(any_)
        self.model.add(done <= whole)
        return done

    def _times(self, count: cp_model.IntVar, most: int, value: End) -> cp_model.IntVar:
        """A number times a value."""
        of, product = self.model.new_int_var(0, self._most // most, ""), self.model.new_int_var(0, self._most, "")
        self.model.add(of == value)
        self.model.add_multiplication_equality(product, [count, of])
        return product

    def recompute(self, savings: Savings, held: list[End], kept: list[End]) -> tuple[list[End], list[End]]:
        """It is open what recomputes: what is held of a microbatch then, and what is left of that between ``I`` and ``W``.

        ``held``, ``kept``: the :meth:`ends` of these where nothing recomputes. Certificates that are learned from now on, and
        limits of memory, count what stages take longer (:mod:`ppopt.bounds.savings`).
        """
        most, unkept = self.ends(savings.most), self.ends(savings.unkept)
        surplus = [(price, self.ends(savings.surplus(price))) for price in savings.prices]
        fewer: list[End] = [self.model.new_constant(0)]
        less: list[End] = [self.model.new_constant(0)]
        for stage, kind in enumerate(savings.kinds):
            saved = self.model.new_int_var(0, sum(savings.most), "")
            longer = self.model.new_int_var(0, sum(savings.longest), "")  # no layer need take longer to save as much
            given_up = self.model.new_int_var(0, sum(savings.unkept), "")
            self.model.add(saved <= most[stage + 1] - most[stage])
            self.model.add(given_up <= saved)
            self.model.add(given_up <= unkept[stage + 1] - unkept[stage])
            for price, ends in surplus:
                self.model.add(price.amount * longer >= price.ticks * saved - (ends[stage + 1] - ends[stage]))
            part = Part(kind, stage)
            self.more[part] = longer + self.more.get(part, 0)
            fewer.append(fewer[-1] + saved)
            less.append(less[-1] + given_up)
        return [a - b for a, b in zip(held, fewer, strict=True)], [a - b for a, b in zip(kept, less, strict=True)]

    def have(self, ends: list[End], stage: int, least: int) -> None:
        """A stage has at least that much of something; ``ends``: its :meth:`ends`."""
        self.model.add(ends[stage + 1] - ends[stage] >= least)

    def learn(self, certificate: Certificate) -> None:
        """No cut is better than the certificate says."""
        bound = self.bound if certificate.spans == 1 else self.bound * certificate.spans
        self.model.add(bound >= self._least(certificate.heads) + self._time(certificate.work) + self._least(certificate.tails))
        self.learned += 1

    def _time(self, way: Way, scale: int = 1) -> End:
        return cp_model.LinearExpr.sum([n * self._of(part) for part, n in way.times]) + int(way.constant * scale)

    def _of(self, part: Part) -> End:
        kind, stage, size = part
        if isinstance(kind, Once):
            return self.once[kind][stage + 1] - self.once[kind][stage]
        ends = (self.before if stage else self.first)[kind]
        factor, square = self.sizes[size]
        found = factor * (ends[stage + 1] - ends[stage]) + self.more.get(part, 0)
        squares = (self.squares if stage else self.first_squares).get(kind)
        if squares is not None and square:
            found += square * (squares[stage + 1] - squares[stage])
        return found

    def _least(self, ways: Sequence[Way], scale: int = 1) -> End:
        if len(ways) == 1:
            return self._time(ways[0], scale)
        least = self.model.new_int_var(0, self._most, "")
        self.model.add_min_equality(least, [self._time(way, scale) for way in ways])
        return least

    def leave_out(self, counts: Sequence[int]) -> None:
        """This cut is not asked for again."""
        ends = tuple(accumulate(counts))[:-1]
        self.leave_out_box(ends, ends)

    def leave_out_box(self, low: Sequence[int], high: Sequence[int]) -> None:
        """No cut is asked for again in which each stage ``s`` ends behind ``low[s]`` to ``high[s]`` layers."""
        others = []
        for row, least, most in zip(self.below, low, high, strict=True):
            others.append(~row[least - 1])
            if most < self.layers:
                others.append(row[most])
        self.model.add_bool_or(others)

    def least(self, limits: Limits, lower: int, upper: int, hint: Sequence[int] | None = None) -> LeastCut:
        """The cut with the least bound in ``lower..upper``; ``hint``: a cut that may be near.

        Raises:
            KeyboardInterrupt: a signal came before the search.
        """
        if lower > upper:
            return LeastCut(upper + 1, none=True, settled=True)
        self._between(lower, upper)
        self.model.clear_hints()  # type: ignore[no-untyped-call]
        if hint is not None:
            for row, end in zip(self.below, accumulate(hint), strict=False):
                for layer, literal in enumerate(row):
                    self.model.add_hint(literal, layer < end)
        answer = race(self.model, limits, (CUTS, CUTS_RELAXED) if len(self.sizes) == 1 else CUTS_OF_SIZES)
        if answer.known is Known.NONE:
            return LeastCut(upper + 1, none=True, settled=True)
        bound = max(lower, answer.bound)
        if not answer.found:
            return LeastCut(bound)
        return LeastCut(bound, answer.objective, self._counts(answer), settled=answer.known is Known.BEST)

    def _between(self, lower: int, upper: int) -> None:
        """Ask for bounds in ``lower..upper``; of this question alone, where a constraint would bind later ones."""
        domain = self.model.proto.variables[self.bound.index].domain
        domain[0], domain[1] = lower, upper

    def _counts(self, answer: Answer) -> tuple[int, ...]:
        """The number of layers of each stage in a solution."""
        ends = [0, *(sum(map(answer.boolean_value, row)) for row in self.below), self.layers]
        return tuple(b - a for a, b in pairwise(ends))


def _within(ends: Sequence[End], stages: Sequence[int]) -> End:
    """What some stages have together."""
    return cp_model.LinearExpr.sum([ends[s + 1] - ends[s] for s in stages])
