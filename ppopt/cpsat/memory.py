"""What is held at a time, compiled to CP-SAT: counted where microbatches run in order, else as intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from ortools.sat.python import cp_model

from ppopt.constraints import Capacity, Family, operations, spread
from ppopt.constraints.shifts import Shifts
from ppopt.cpsat.operations import Operations
from ppopt.cpsat.posting import Hold, Literal, Start, reservoir
from ppopt.op import Kind, Send


class Until(NamedTuple):
    """The end of whichever of these operations is run."""

    end: cp_model.IntVar
    releases: Sequence[int]


class Lasting(NamedTuple):
    """How long something is held: from the start of ``claim`` to the end of whichever of ``releases`` is run."""

    size: cp_model.IntVar
    claim: int
    releases: Sequence[int]


class Memory:
    """The ``Capacity`` words of a model, and the variables that they need. ``check`` raises where there is no time left."""

    def __init__(self, ops: Operations, check: Callable[[], None]) -> None:
        self.ops, self.model, self._check = ops, ops.model, check
        self.lasting: list[Lasting] = []
        self.untils: list[Until] = []
        self.befores: dict[tuple[tuple[int, ...], int], Literal] = {}
        """The literals that whichever of some operations is run ends before another one starts."""
        self._later: dict[int, int] = {}
        self._earlier: dict[tuple[int, ...], tuple[int, ...]] = {}
        """The next or the one before of families that run in order."""

    def post(self, word: Capacity) -> None:
        """What is held fits."""
        in_order = all(self._shift(hold.claim, hold.claim) == 1 for hold in word.holds)
        if in_order and not spread(self.ops.pipeline, word):
            self._counted(word)
        else:
            self._cumulated(word)

    def post_order(self) -> None:
        """Families run in order: what is before a claim is before the next one of its family, and all earlier ones of its own
        family are before that claim. Propagation knows it only once the starts are nearly known."""
        for (ops, now), literal in self.befores.items():
            for key in ((ops, self._later.get(now, -1)), (self._earlier.get(ops, ()), now)):
                if (implied := self.befores.get(key)) is not None:
                    self.model.add_implication(literal, implied)

    @cached_property
    def _shift(self) -> Shifts:
        pipeline, present = self.ops.pipeline, self.ops.present
        stages, routes = range(pipeline.stages), range(len(pipeline.routes))
        families = (Family(stage, kind, route) for stage in stages for kind in (*Kind, *Send) for route in routes)
        run = [f for f in families if all(present.get(op, 0) is None for op in operations(pipeline, f).tolist())]
        return Shifts(self.ops.words, run)

    # --- counted ---

    def _counted(self, word: Capacity) -> None:
        """Memory grows only when something is claimed: what is held then fits, said with a literal for each claim and
        release that may or may not have come before. Far stronger than intervals of unknown length where microbatches run
        in order, since most of these literals are then known."""
        pipeline, present, start = self.ops.pipeline, self.ops.present, self.ops.start
        columns = [
            (
                hold,
                operations(pipeline, hold.claim).tolist(),
                list(zip(*(operations(pipeline, family).tolist() for family in hold.release), strict=True)),
            )
            for hold in word.holds
        ]
        at: dict[int, tuple[Family, int]] = {op: (hold.claim, j) for hold, claims, _ in columns for j, op in enumerate(claims)}
        for now, (family, j) in at.items():
            self._check()
            held, terms, counts = 0, [], []
            for hold, claims, releases in columns:
                first, last = self._decided(hold.claim, family, j, len(claims))
                held += hold.amount * first
                if hold.claim == family:
                    held += hold.amount
                    last = first
                for t in range(first, last):
                    terms.append(self._before([claims[t]], now))
                    counts.append(hold.amount)
                bounds = [self._decided(release, family, j, len(claims)) for release in hold.release]
                first, last = min(a for a, _ in bounds), max(b for _, b in bounds)
                held -= hold.amount * first
                for t in range(first, last):
                    run = [op for op in releases[t] if op in present]
                    if all(start[op] is not start[now] for op in run):
                        terms.append(self._before(run, now))
                        counts.append(-hold.amount)
            if held + sum(count for count in counts if count > 0) > word.limit:
                self.model.add(cp_model.LinearExpr.weighted_sum(terms, counts) <= word.limit - held)
        for hold, claims, releases in columns:
            self._later |= pairwise(claims)
            self._earlier |= {(second,): (first,) for first, second in pairwise(claims)}
            if all(self._shift(a, b) <= 1 for a in hold.release for b in hold.release):
                runs = [tuple(op for op in ops if op in present) for ops in releases]
                self._earlier |= {second: first for first, second in pairwise(runs)}

    def _decided(self, before: Family, after: Family, j: int, count: int) -> tuple[int, int]:
        """Of ``before``, operations 0..a-1 surely precede ``after(j)``, and those from b on surely do not."""
        first = min(max(j - self._shift(before, after) + 1, 0), count)
        return first, max(first, min(j + self._shift(after, before), count))

    def _before(self, some: Sequence[int], now: int) -> Literal:
        """That whichever of ``some`` is run ends before ``now`` starts; if not, it starts after ``now`` ends."""
        key, ops = (tuple(some), now), self.ops
        if key not in self.befores:
            name = " or ".join(str(ops.pipeline.index.op(op)) for op in some)
            literal = self.befores[key] = self.model.new_bool_var(f"{name} before {ops.pipeline.index.op(now)}")
            for op in some:
                ops.ends_before(op, now, 0, [literal])
                couple, run = ops.couple.get((now, op)), ops.present[op]
                apart = [] if couple is None else [~couple]
                ops.ends_before(now, op, 0, [~literal, *apart, *([] if run is None else [run])])
                if couple is not None:
                    self.model.add_implication(couple, ~literal)
        return self.befores[key]

    # --- intervals ---

    def _cumulated(self, word: Capacity) -> None:
        holds, of = [], []
        for hold in word.holds:
            claims = operations(self.ops.pipeline, hold.claim).tolist()
            releases = [operations(self.ops.pipeline, family).tolist() for family in hold.release]
            for claim, *alternatives in zip(claims, *releases, strict=True):
                run = [op for op in alternatives if op in self.ops.present]
                name = f"hold {self.ops.pipeline.index.op(claim)}"
                end = self._end(run, name)
                holds.append(Hold(self.ops.start[claim], end, hold.amount, self.ops.horizon, name=name))
                of.append((claim, run))
        sizes = reservoir(self.model, holds, word.limit)
        self.lasting += [Lasting(size, *ops) for size, ops in zip(sizes, of, strict=False)]

    def _end(self, releases: Sequence[int], name: str) -> Start:
        """The end of whichever of ``releases`` is run."""
        modes = [(op, mode) for op in releases for mode in self.ops.modes[op]]
        if len(modes) == 1:
            ((op, (size, _)),) = modes
            return self.ops.start[op] + size
        end = self.model.new_int_var(0, self.ops.horizon, name)
        for op, (way, literal) in modes:
            same = self.model.add(end == self.ops.start[op] + way)
            if literal is not None:
                same.only_enforce_if(literal)
        self.untils.append(Until(end, releases))
        return end
