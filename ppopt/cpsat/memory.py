"""What is held at a time, compiled to CP-SAT: counted where microbatches run in order, else as intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from ortools.sat.python import cp_model

from ppopt.constraints import Capacity, Family, Hold, Stream, computing, lives, operations, relaxed_graphs, spread
from ppopt.constraints.lives import Life
from ppopt.constraints.shifts import Earlier, Shifts
from ppopt.cpsat import posting
from ppopt.cpsat.operations import Operations
from ppopt.cpsat.posting import Literal, Start, reservoir
from ppopt.op import Kind, Send
from ppopt.pipeline.rewriting import unlimited


class Until(NamedTuple):
    """The end of whichever of these operations is run."""

    end: cp_model.IntVar
    releases: Sequence[int]


class Lasting(NamedTuple):
    """How long something is held: from the start of ``claim`` to the end of whichever of ``releases`` is run."""

    size: cp_model.IntVar
    claim: int
    releases: Sequence[int]


class Meanwhile(NamedTuple):
    """Whether ``claim`` is run, and what it has taken is held when ``now`` starts: until the end of whichever of ``releases``."""

    literal: Literal
    claim: int
    releases: Sequence[int]
    now: int


class Column(NamedTuple):
    """A hold, its claims by microbatch, and of each the operations of which one gives it back."""

    hold: Hold
    claims: list[int]
    releases: list[tuple[int, ...]]


class Memory:
    """The ``Capacity`` words of a model, and the variables that they need. ``check`` raises where there is no time left."""

    def __init__(self, ops: Operations, check: Callable[[], None]) -> None:
        self.ops, self.model, self._check = ops, ops.model, check
        self.lasting: list[Lasting] = []
        self.untils: list[Until] = []
        self.meanwhile: list[Meanwhile] = []
        self.moving: list[cp_model.IntVar] = []
        """How long parts of what may be away are held; they have no hints."""
        self.befores: dict[tuple[tuple[int, ...], int], Literal] = {}
        """The literals that whichever of some operations is run ends before another one starts."""
        self._later: dict[int, int] = {}
        self._earlier: dict[tuple[int, ...], tuple[int, ...]] = {}
        """The next or the one before of families that run in order."""

    def post(self, word: Capacity) -> None:
        """What is held fits."""
        pipeline, present = self.ops.pipeline, self.ops.present
        columns = [
            Column(
                hold,
                operations(pipeline, hold.claim).tolist(),
                list(zip(*(operations(pipeline, family).tolist() for family in hold.release), strict=True)),
            )
            for hold in word.holds
        ]
        columns = [column for column in columns if any(op in present for op in column.claims)]
        if word.away:
            self._moving(columns, word)
            return
        brief = [column for column in columns if column.hold.release == (column.hold.claim,)]
        lasting = [column for column in columns if column not in brief]
        counted = all(self._in_order(hold.claim) for hold, _, _ in lasting) and not spread(pipeline, word)
        if counted:
            self._counted(lasting, word.limit)
        if brief or not counted:  # what is taken while one operation runs is told by intervals alone
            self._cumulated(columns, word.limit)

    def post_order(self) -> None:
        """Families run in order: what is before a claim is before the next one of its family, and all earlier ones of its own
        family are before that claim. Propagation knows it only once the starts are nearly known."""
        for (ops, now), literal in self.befores.items():
            for key in ((ops, self._later.get(now, -1)), (self._earlier.get(ops, ()), now)):
                if (implied := self.befores.get(key)) is not None:
                    self.model.add_implication(literal, implied)

    @cached_property
    def _run(self) -> set[Family]:
        """The families that are run, all of each."""
        pipeline, present = self.ops.pipeline, self.ops.present
        stages, routes = range(pipeline.stages), range(len(pipeline.routes))
        families = [family for stage in stages for route in routes for family in computing(pipeline, stage, route)]
        families += [Family(stage, send, route) for stage in stages for send in Send for route in routes]
        return {f for f in families if all(present.get(op, 0) is None for op in operations(pipeline, f).tolist())}

    @cached_property
    def _shift(self) -> Shifts:
        return Shifts(self.ops.words, self._run)

    @cached_property
    def _earlier_families(self) -> Earlier | None:
        """Where each microbatch has a route of its own: what is known from one route to another."""
        if len(self.ops.pipeline.routes) == 1 or max(map(len, self.ops.pipeline.microbatches_of)) > 1:
            return None
        return Earlier(self.ops.words, self._run)

    def _in_order(self, family: Family) -> bool:
        """Whether a family runs in order; of input gradients that may be left out: they and the backwards run instead."""
        ways = [family] if family in self._run else [family._replace(kind=kind) for kind in (Kind.B, Kind.I)]
        return all(self._shift(before, after) == 1 for before in ways for after in ways)

    # --- counted ---

    def _counted(self, columns: Sequence[Column], limit: int) -> None:
        """Memory grows only when something is claimed: what is held then fits, said with a literal for each claim and
        release that may or may not have come before. Far stronger than intervals of unknown length where microbatches run
        in order, since most of these literals are then known."""
        present = self.ops.present
        at: dict[int, tuple[Family, int]] = {op: (hold.claim, j) for hold, claims, _ in columns for j, op in enumerate(claims)}
        for now, (family, j) in at.items():
            if now not in present:
                continue
            self._check()
            held, terms, counts = 0, list[cp_model.IntVar](), list[int]()
            for column in columns:
                add = self._held_at if column.hold.claim in self._run else self._perhaps_held_at
                held += add(column, now, family, j, terms, counts)
            if held + sum(count for count in counts if count > 0) > limit:
                fits = self.model.add(cp_model.LinearExpr.weighted_sum(terms, counts) <= limit - held)
                if (run := present[now]) is not None:
                    fits.only_enforce_if(run)
        for hold, claims, releases in columns:
            self._later |= pairwise(claims)
            self._earlier |= {(second,): (first,) for first, second in pairwise(claims)}
            if hold.claim in self._run and all(self._shift(a, b) <= 1 for a in hold.release for b in hold.release):
                runs = [tuple(op for op in ops if op in present) for ops in releases]
                self._earlier |= {second: first for first, second in pairwise(runs)}

    def _held_at(self, column: Column, now: int, family: Family, j: int, terms: list[cp_model.IntVar], counts: list[int]) -> int:
        """What is surely held when ``now``, the j-th of ``family``, starts; ``terms`` and their ``counts`` get the rest."""
        hold, claims, releases = column
        first, last = self._decided(hold.claim, family, j, len(claims))
        held = hold.amount * first
        if hold.claim == family:
            held += hold.amount
            last = first
        for t in range(first, last):
            terms.append(self._before([claims[t]], now))
            counts.append(hold.amount)
        first, last = self._given_back(hold, family, j, len(claims))
        held -= hold.amount * first
        for t in range(first, last):
            run = [op for op in releases[t] if op in self.ops.present]
            if all(self.ops.start[op] is not self.ops.start[now] for op in run):
                terms.append(self._before(run, now))
                counts.append(-hold.amount)
        return held

    def _perhaps_held_at(
        self, column: Column, now: int, family: Family, j: int, terms: list[cp_model.IntVar], counts: list[int]
    ) -> int:
        """The same where the claims may be left out: a literal for each that is run and holds something then."""
        hold, claims, releases = column
        present, model, held = self.ops.present, self.model, 0
        claimed, returned = self._decided(hold.claim, family, j, len(claims)), self._given_back(hold, family, j, len(claims))
        before = family.kind == Kind.F and family.route == hold.claim.route and family.stage <= hold.claim.stage
        for t in range(returned[0], min(claimed[1], j) if before else claimed[1]):
            claim, run = claims[t], [op for op in releases[t] if op in present]
            if claim == now:
                held += hold.amount
            elif claim in present:
                unless = [] if (given := present[claim]) is None else [~given]
                unless += [] if t < claimed[0] else [~self._before([claim], now)]
                unless += [] if t >= returned[1] else [self._before(run, now)]
                literal = model.new_bool_var(f"{self.ops.pipeline.index.op(claim)} holds at {self.ops.pipeline.index.op(now)}")
                model.add_bool_or([literal, *unless])
                self.meanwhile.append(Meanwhile(literal, claim, run, now))
                terms.append(literal)
                counts.append(hold.amount)
        return held

    def _given_back(self, hold: Hold, after: Family, j: int, count: int) -> tuple[int, int]:
        """As :meth:`_decided`, of whichever is run that gives back."""
        bounds = [self._decided(release, after, j, count) for release in hold.release]
        return min(a for a, _ in bounds), max(b for _, b in bounds)

    def _decided(self, before: Family, after: Family, j: int, count: int) -> tuple[int, int]:
        """Of ``before``, operations 0..a-1 surely precede ``after(j)`` if they are run, and those from b on surely do not."""
        if before.route != after.route and (earlier := self._earlier_families) is not None:
            return (1, 1) if earlier(before, after) else (0, 0 if earlier(after, before) else 1)
        if after not in self._run:
            return self._by_data(before, after, j, count)
        first = min(max(j - self._shift(before, after) + 1, 0), count)
        return first, max(first, min(j + self._shift(after, before), count))

    def _by_data(self, before: Family, after: Family, j: int, count: int) -> tuple[int, int]:
        """The same for an input gradient that may be left out, which other words may say nothing of then: what the data demand of
        a route that runs its forwards in order, and its input gradients and whole backwards as one sequence."""
        if before.route != after.route:
            return 0, count
        if before.kind == Kind.F:
            first = min(j + 1, count) if before.stage <= after.stage else 0
            return first, max(first, min(j + self._shift(after, before), count))
        if before.stage > after.stage:
            return 0 if before.kind == Kind.W else min(j + 1, count), count
        here = before.stage == after.stage and before.kind != Kind.W
        return j if here else 0, j + here

    def _before(self, some: Sequence[int], now: int) -> Literal:
        """That whichever of ``some`` is run ends before ``now`` starts, if that is run; if not, it starts after ``now`` ends."""
        key, ops = (tuple(some), now), self.ops
        if key not in self.befores:
            literal = self.befores[key] = self.model.new_bool_var("")  # a name would take a fifth of the time of all of it
            given = ops.present[now]
            for op in some:
                ops.ends_before(op, now, 0, [literal] if given is None else [literal, given])
                couple, run = ops.couple.get((now, op)), ops.present[op]
                apart = [] if couple is None else [~couple]
                ops.ends_before(now, op, 0, [~literal, *apart, *([] if run is None else [run])])
                if couple is not None:
                    self.model.add_implication(couple, ~literal)
        return self.befores[key]

    # --- intervals ---

    def _cumulated(self, columns: Iterable[Column], limit: int) -> None:
        holds, of = [], []
        for hold, claims, releases in columns:
            for claim, alternatives in zip(claims, releases, strict=True):
                if claim not in self.ops.present:
                    continue
                run = [op for op in alternatives if op in self.ops.present]
                name = f"hold {self.ops.pipeline.index.op(claim)}"
                end, given = self._end(run, name), self.ops.present[claim]
                holds.append(posting.Hold(self.ops.start[claim], end, hold.amount, self.ops.horizon, given, name))
                of.append((claim, run))
        sizes = reservoir(self.model, holds, limit)
        self.lasting += [Lasting(size, *ops) for size, ops in zip(sizes, of, strict=False)]

    def _moving(self, columns: Iterable[Column], word: Capacity) -> None:
        """Where some of it may be away meanwhile: what is held before that, and what again from then on, are intervals each."""
        ops, present = self.ops, self.ops.present
        slots = ops.pipeline.stages * ops.pipeline.microbatches
        left = {}
        for away in word.away:
            outs, backs = (operations(ops.pipeline, family).tolist() for family in (away.out, away.back))
            for out, back in zip(outs, backs, strict=True):
                if out in present:
                    left[out % slots] = (out, back, away.amount)
        holds: list[posting.Hold] = []
        for hold, claims, releases in columns:
            for claim, alternatives in zip(claims, releases, strict=True):
                if claim not in present:
                    continue
                run = [op for op in alternatives if op in present]
                name = f"hold {ops.pipeline.index.op(claim)}"
                end, given = self._end(run, name), present[claim]
                out, back, amount = left.get(claim % slots, (-1, -1, 0)) if hold.claim.kind == Kind.F else (-1, -1, 0)
                part = min(hold.amount, amount)
                life = self._lives.get((hold.claim, Kind.W in (family.kind for family in hold.release)), Life(0, 0))
                whole = posting.Hold(ops.start[claim], end, hold.amount - part, ops.horizon, given, name, life.whole)
                if whole.amount:
                    holds.append(whole)
                if part:
                    left[claim % slots] = (out, back, amount - part)
                    holds += self._in_parts(claim, out, back, whole._replace(amount=part), life)
        self.moving += reservoir(self.model, holds, word.limit)

    def _in_parts(self, claim: int, out: int, back: int, whole: posting.Hold, life: Life) -> list[posting.Hold]:
        """What is held as a ``whole``, but for the time between the copies where they are made."""
        ops = self.ops
        start, copied = ops.start, ops.present[out]
        sizes = [min(size for size, _ in ops.modes[op]) for op in (claim, out, back)]
        before = whole._replace(end=start[out] + sizes[1], present=copied, shortest=sizes[0] + sizes[1])
        behind = whole._replace(start=start[back], present=copied, shortest=sizes[2] + life.behind)
        return [before, behind] if copied is None else [whole._replace(present=~copied), before, behind]

    @cached_property
    def _lives(self) -> dict[tuple[Stream, bool], Life]:
        """By forward, and whether weight gradients give back what is held, how long that lives at least, in parts of a step."""
        pipeline, parts = self.ops.pipeline, self.ops.parts
        plain = unlimited(pipeline)
        steps = Fraction(self.ops.grid * plain.ticks.per_unit, pipeline.ticks.per_unit)
        graph = relaxed_graphs(plain, pairs=True)[0].rounded_down(steps)
        return {
            (graph.families[forward], weight): Life(*(parts * time for time in life[weight]))
            for forward, life in lives(graph).items()
            for weight in (False, True)
        }

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
