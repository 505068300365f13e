"""One graph of families: what a schedule must obey, said once for all microbatches.

Microbatches are alike, so the rules are relations between *families* (a stage, a kind, a route) and hold for every microbatch.
In cyclic scheduling such a graph is a set of uniform constraints (Hanen and Munier, "A study of the cyclic scheduling problem on
parallel processors", 1995). Bounds, modulo scheduling and cuts work on it.
:mod:`ppopt.constraints.graphs` makes it from the words.

*In order.* Every family runs its operations in the order of the microbatches. That loses nothing where the microbatches of a
route are alike (:func:`ppopt.constraints.cuts.in_order` has the proof), and the precedences that memory implies need it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from ppopt.constraints.words import Family
from ppopt.op import Kind


class Precedence(NamedTuple):
    """``after(n)`` starts at least ``lag`` ticks after the end of ``before(n - shift)``; both are families, by number.

    ``shift`` is the iteration distance.
    """

    before: int
    after: int
    shift: int = 0
    lag: int = 0


class Held(NamedTuple):
    """``amount`` is held from the start of ``first(n)`` to the end of ``last(n)``; both are families, by number."""

    first: int
    last: int
    amount: int


class Machine(NamedTuple):
    """Families that run one operation at a time among them, in topological order: a device, a link, or what stops each other."""

    name: str
    families: tuple[int, ...]


class Reservoir(NamedTuple):
    """What a device holds, and how much it may; static memory is taken off."""

    limit: int
    held: tuple[Held, ...]

    @property
    def simple(self) -> bool:
        """Whether it is one amount per microbatch. Then a precedence says it all."""
        return len(self.held) == 1


@dataclass(frozen=True)
class FamilyGraph:
    """Families with durations, uniform precedences, machines and reservoirs. Times in ticks.

    Families are numbered from 0 in a topological order of the precedences without a shift: route by route, down the stages and
    up again, ``W`` behind its ``I``, a transfer behind what it carries.
    """

    families: tuple[Family, ...]
    duration: tuple[int, ...]
    count: tuple[int, ...]
    """Per family its number of operations, which is that of its route's microbatches."""
    precedences: tuple[Precedence, ...]
    machines: tuple[Machine, ...]
    """The devices, then the links, then (where transfers block) what stops each other."""
    devices: int
    owners: int
    """The first ``owners`` machines are devices and links: every family belongs to exactly one of them."""
    reservoirs: tuple[Reservoir, ...]
    """One per device; none where memory is unlimited."""
    implied: tuple[Precedence, ...]
    """What follows from the reservoirs (:func:`~ppopt.constraints.implied.implied_by_memory`)."""
    lead: tuple[int, ...]
    """Per family, how long before its operations its device begins at least."""
    tail: tuple[int, ...]
    """Per family, how long after its operations its device ends at least."""

    # --- what is where ---

    @cached_property
    def label(self) -> tuple[str, ...]:
        """Per family its name, ``2F`` or ``2F@1``."""
        return tuple(map(str, self.families))

    @cached_property
    def owner(self) -> tuple[int, ...]:
        """Per family its device, or its link behind all devices: a place in ``machines``."""
        of = [0] * len(self.families)
        for place, machine in enumerate(self.machines[: self.owners]):
            for family in machine.families:
                of[family] = place
        return tuple(of)

    @cached_property
    def machines_of(self) -> tuple[tuple[int, ...], ...]:
        """Per family all machines that it needs; its owner is the first."""
        machines = [set(machine.families) for machine in self.machines]
        return tuple(tuple(m for m, own in enumerate(machines) if family in own) for family in range(len(self.families)))

    @property
    def held(self) -> tuple[Held, ...]:
        """What all reservoirs hold."""
        return tuple(held for reservoir in self.reservoirs for held in reservoir.held)

    @property
    def routes(self) -> int:
        """How many routes are taken."""
        return len({family.route for family in self.families})

    @property
    def one_by_one(self) -> bool:
        """Whether there are several microbatches, each on a route of its own."""
        return self.routes > 1 and max(self.count, default=0) == 1

    @property
    def scattered(self) -> bool:
        """Whether some stage has its operations on several devices."""
        owners = {f: owner for f, owner in zip(self.families, self.owner, strict=True) if isinstance(f.kind, Kind)}
        return len({(f.route, f.stage, owner) for f, owner in owners.items()}) > len({(f.route, f.stage) for f in owners})

    @property
    def in_pieces(self) -> bool:
        """Whether weight gradients come in pieces."""
        return any(family.piece >= 0 for family in self.families)

    @property
    def several_stages(self) -> bool:
        """Whether some device holds several stages."""
        forwards = set(self.of_kind(Kind.F))
        return any(len(forwards.intersection(machine.families)) > 1 for machine in self.machines[: self.devices])

    def of_kind(self, *kinds: Kind) -> tuple[int, ...]:
        """The families of these kinds."""
        return tuple(number for number, family in enumerate(self.families) if family.kind in kinds)

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Per machine, the durations of all its operations added up."""
        return tuple(sum(self.duration[o] * self.count[o] for o in machine.families) for machine in self.machines)

    @cached_property
    def work_per_microbatch(self) -> tuple[int, ...]:
        """Per machine, what it does for one microbatch of every route."""
        return tuple(sum(self.duration[o] for o in machine.families) for machine in self.machines)

    @cached_property
    def around(self) -> tuple[int, ...]:
        """Per machine, the least there is before its first operation and after its last one."""
        both = (self.lead, self.tail)
        return tuple(sum(min((of[o] for o in machine.families), default=0) for of in both) for machine in self.machines)

    # --- paths ---

    @cached_property
    def into(self) -> tuple[tuple[Precedence, ...], ...]:
        """Per family the precedences without a shift that end in it."""
        into: list[list[Precedence]] = [[] for _ in self.families]
        for precedence in self.precedences:
            if not precedence.shift:
                into[precedence.after].append(precedence)
        return tuple(map(tuple, into))

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Per family the set of families that it depends on, directly or not, as bits of an integer."""
        sets: list[int] = []
        for precedences in self.into:
            found = 0
            for before, *_ in precedences:
                found |= sets[before] | 1 << before
            sets.append(found)
        return tuple(sets)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """Per family the set of families that depend on it, directly or not, as bits of an integer."""
        sets = [0] * len(self.families)
        for family in reversed(range(len(self.families))):
            for before, *_ in self.into[family]:
                sets[before] |= sets[family] | 1 << family
        return tuple(sets)

    def path(self, first: int, last: int) -> int | None:
        """Least time from the start of ``first(n)`` to the end of ``last(n)``; ``None`` where it does not wait."""
        reach: dict[int, int] = {first: self.duration[first]}
        between = self.descendants[first] & (self.ancestors[last] | 1 << last)
        while between:
            family = (between & -between).bit_length() - 1
            between ^= 1 << family
            reach[family] = self.duration[family] + max(
                reach[before] + lag for before, _, _, lag in self.into[family] if before in reach
            )
        return reach.get(last)

    def round_trip(self, wait: Precedence) -> int | None:
        """Least time from one start of ``wait.after`` to that ``wait.shift`` microbatches later, for one implied precedence."""
        path = self.path(wait.after, wait.before)
        return None if path is None else path + wait.lag

    # --- other graphs ---

    def reversed(self) -> FamilyGraph:
        """The graph with time running backwards; family ``o`` becomes family ``len - 1 - o``."""
        last = len(self.families) - 1

        def turned(precedences: tuple[Precedence, ...]) -> tuple[Precedence, ...]:
            return tuple(Precedence(last - after, last - before, shift, lag) for before, after, shift, lag in precedences)

        return replace(
            self,
            families=self.families[::-1],
            duration=self.duration[::-1],
            count=self.count[::-1],
            precedences=turned(self.precedences),
            machines=tuple(Machine(name, tuple(last - o for o in reversed(own))) for name, own in self.machines),
            reservoirs=tuple(
                Reservoir(limit, tuple(Held(last - end, last - first, amount) for first, end, amount in held))
                for limit, held in self.reservoirs
            ),
            implied=turned(self.implied),
            lead=self.tail[::-1],
            tail=self.lead[::-1],
        )

    def rounded_down(self, grid: Fraction | int) -> FamilyGraph:
        """The graph in steps of ``grid`` ticks: a relaxation.

        Round every start of a schedule down to a step. What waits for ``duration + lag`` then waits for as many whole steps, and
        what did not overlap does not after that.
        """

        def waits(precedences: tuple[Precedence, ...]) -> tuple[Precedence, ...]:
            return tuple(p._replace(lag=self._steps(p, grid)) for p in precedences)

        return replace(
            self,
            duration=tuple(int(time // grid) for time in self.duration),
            precedences=waits(self.precedences),
            implied=waits(self.implied),
            lead=tuple(int(time // grid) for time in self.lead),
            tail=tuple(int(time // grid) for time in self.tail),
        )

    def _steps(self, precedence: Precedence, grid: Fraction | int) -> int:
        time = self.duration[precedence.before]
        return int((time + precedence.lag) // grid) - int(time // grid)

    def rounded(self, grid: int, slack: int = 0) -> FamilyGraph:
        """The graph in steps of ``grid`` ticks, rounded to the nearest: no relaxation, but its schedules are near.

        What takes any time takes a step at least. Between two owners everything waits ``slack`` steps longer.
        """

        def waits(precedences: tuple[Precedence, ...]) -> tuple[Precedence, ...]:
            return tuple(
                p._replace(lag=round(p.lag / grid) + (slack if self.owner[p.before] != self.owner[p.after] else 0))
                for p in precedences
            )

        return replace(
            self,
            duration=tuple(max(1, round(time / grid)) if time else 0 for time in self.duration),
            precedences=waits(self.precedences),
            implied=waits(self.implied),
        )

    def without(self, families: Collection[int]) -> FamilyGraph:
        """The graph without some families that nothing else waits for (weight gradients): a relaxation.

        What such a family would give back is given back at the end of what it waits for, where the family starts at the earliest.
        Its device ends no earlier than if it ran at once (:attr:`tail`).
        """
        into = {p.after: p.before for p in self.precedences if p.after in families and not p.shift}
        assert not any(p.before in families and p.after not in families for p in self.precedences), "nothing waits for them"
        tail = list(self.tail)
        for family, before in sorted(into.items(), reverse=True):
            if self.owner[family] == self.owner[before]:
                tail[before] = max(tail[before], self.duration[family] + tail[family])
        for family in sorted(into):  # what it waits for may go too
            into[family] = into.get(into[family], into[family])
        kept = [family for family in range(len(self.families)) if family not in families]
        return replace(self, tail=tuple(tail)).kept_alone(kept, into)

    def taken(self) -> FamilyGraph:
        """The graph without the families that have no operations: those of routes that no microbatch takes."""
        kept = [family for family, count in enumerate(self.count) if count]
        return self if len(kept) == len(self.count) else self.kept_alone(kept, {})

    def kept_alone(self, kept: list[int], instead: dict[int, int]) -> FamilyGraph:
        """With the families ``kept`` alone, numbered in that order; what others release, those ``instead`` of them do."""
        number = {family: place for place, family in enumerate(kept)}
        release = number | {family: number[other] for family, other in instead.items() if other in number}

        def among(precedences: tuple[Precedence, ...]) -> tuple[Precedence, ...]:
            return tuple(
                Precedence(number[before], number[after], shift, lag)
                for before, after, shift, lag in precedences
                if before in number and after in number
            )

        def some(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(values[family] for family in kept)

        return replace(
            self,
            families=tuple(self.families[family] for family in kept),
            duration=some(self.duration),
            count=some(self.count),
            precedences=among(self.precedences),
            machines=tuple(Machine(name, tuple(sorted(number[o] for o in own if o in number))) for name, own in self.machines),
            reservoirs=tuple(
                Reservoir(limit, merged(Held(number[f], release[end], amount) for f, end, amount in held if f in number))
                for limit, held in self.reservoirs
            ),
            implied=among(self.implied),
            lead=some(self.lead),
            tail=some(self.tail),
        )

    def restricted(self, devices: Collection[int]) -> FamilyGraph:
        """The graph where only ``devices`` run one operation at a time and have a limit of memory: a relaxation.

        Of each family on another device one operation runs at a time, as on a machine of its own. Machines that several devices
        or links share are left out.
        """
        others = set(range(self.devices)).difference(devices)
        free = [family for family, owner in enumerate(self.owner) if owner in others]
        of = self.machines[: self.owners]
        machines = [machine._replace(families=()) if place in others else machine for place, machine in enumerate(of)]
        return replace(
            self,
            machines=(*machines, *(Machine(self.label[family], (family,)) for family in free)),
            owners=self.owners + len(free),
            reservoirs=tuple(r._replace(held=()) if place in others else r for place, r in enumerate(self.reservoirs)),
            implied=tuple(wait for wait in self.implied if self.owner[wait.after] not in others),
        )

    def thinned(self, kept: int, of: int) -> FamilyGraph:
        """The graph for ``kept`` of every ``of`` microbatches, evenly spread: a relaxation, with that much less memory.

        Of ``of`` microbatches in a row ``kept`` are left, number ``n * of // kept`` as number n. The others are left out of a
        schedule as they are: what is left starts and ends when it did. A family holds microbatches that follow each other, and
        among these q of those left are ``(q - 1) * of // kept + 1`` microbatches at least, no less than
        ``((q - 1) * of + g) / kept`` with the greatest common divisor g. So what a device holds keeps
        ``sum of amount * of * q <= kept * limit + sum of amount * (of - g)``. A wait for the ``shift``-th before becomes one for
        the ``ceil(shift * kept / of)``-th of those left, which is no later.
        """
        assert self.routes == 1, "one route"
        assert 0 < kept <= of, (kept, of)

        def fewer(number: int) -> int:
            return -(-number * kept // of)

        def waits(precedences: tuple[Precedence, ...]) -> tuple[Precedence, ...]:
            return tuple(p._replace(shift=fewer(p.shift)) for p in precedences)

        slack = of - math.gcd(kept, of)
        return replace(
            self,
            count=tuple(map(fewer, self.count)),
            precedences=waits(self.precedences),
            reservoirs=tuple(
                Reservoir(
                    kept * limit + sum(h.amount * slack for h in held),
                    tuple(h._replace(amount=h.amount * of) for h in held),
                )
                for limit, held in self.reservoirs
            ),
            implied=waits(self.implied),
        )

    def computing(self) -> FamilyGraph:
        """The graph without what precedes and follows the operations of a device: a relaxation."""
        none = (0,) * len(self.families)
        return replace(self, lead=none, tail=none)

    def endless(self) -> FamilyGraph:
        """The graph for any number of microbatches: ``count`` is empty."""
        return replace(self, count=())


def merged(held: Iterable[Held]) -> tuple[Held, ...]:
    """What is held over the same time, as one."""
    amounts: dict[tuple[int, int], int] = {}
    for first, last, amount in held:
        amounts[first, last] = amounts.get((first, last), 0) + amount
    return tuple(Held(first, last, amount) for (first, last), amount in amounts.items())
