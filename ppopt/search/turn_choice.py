"""The order of microbatches left open, for an order of operations that is settled: which microbatch takes which place.

It begins with the rules of others (:mod:`ppopt.named.microbatch_orders`). Then passes over all orders, each with more states than
the one before (:class:`~ppopt.search.microbatch_turns.MicrobatchTurns`), give better ones and bounds, until the two meet. What
these cannot be told of (links that carry one transfer at a time, several routes, device spans) has the bounds of any schedule,
and is improved by moving one microbatch after the other.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction

from ppopt.clock import Clock
from ppopt.constraints import Word
from ppopt.heuristics import order_of
from ppopt.interrupt import noting
from ppopt.named import Restriction, Row, Table
from ppopt.named.in_turn import OUT_OF_TURN, in_turn, out_of_turn, retold
from ppopt.named.microbatch_orders import ORDERS, orders_of
from ppopt.named.model import Model
from ppopt.pipeline import CHOOSE, OPEN, Pipeline
from ppopt.pipeline.scaling import alike
from ppopt.schedule import Objective, Order, Schedule
from ppopt.search import tuning
from ppopt.search.binding import Binding
from ppopt.search.choices import Time, rows_in_time
from ppopt.search.closed import check_found, quick_bound
from ppopt.search.microbatch_turns import WIDTHS, MicrobatchTurns, orders_in_all
from ppopt.search.result import Limit, Reason, Result, Ticks
from ppopt.search.settings import Settings
from ppopt.search.step import Taken
from ppopt.search.whereabouts import at
from ppopt.timing import CyclicOrder

Turns = tuple[int, ...]


def settled_order(pipeline: Pipeline, binding: Binding | None) -> Order | None:
    """The order of a schedule that binds, of alike microbatches, where it leaves nothing open but the order of the microbatches;
    else ``None``.

    Raises:
        Restriction: the schedule is not defined for this pipeline, or runs the pieces of a sequence in another order than theirs;
            or it is open what recomputes.
    """
    if binding is None or not pipeline.mix.differs or pipeline.mix.microbatch_order != OPEN:
        return None
    if pipeline.recompute == CHOOSE:
        problem = "the order of microbatches and what recomputes are not decided together for a schedule that binds; expected "
        raise Restriction(f'{binding.schedule}: {problem}pipeline.microbatch_order = "given", or pipeline.recompute settled')
    plain = alike(pipeline)
    with suppress(CyclicOrder):
        order = order_of(plain, binding.words(plain))
        if order is not None and not order.paired:
            if out_of_turn(pipeline, in_turn(pipeline, order).order):
                raise Restriction(f"{binding.schedule}: {OUT_OF_TURN}")
            return order
    return None


@dataclass
class TurnChoice:
    """The best order of the microbatches of ``pipeline`` in the places of ``order``, that of a schedule that binds.

    The search can go on where it stopped (:meth:`go_on`). ``beside`` gives rows to show.
    """

    pipeline: Pipeline
    objective: Objective
    settings: Settings
    binding: Binding
    order: Order
    beside: Callable[[], Sequence[Row]] = lambda: ()
    result: Result | None = None
    best: Schedule | None = None
    turns: Turns = ()
    """The microbatches of the best order."""
    lower: int = 0
    """No order takes less, in ticks."""
    infeasible: bool = False
    proved_by: str = "work"
    steps: list[Taken] = field(default_factory=list)
    named: tuple[Row, ...] | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._clock, self._enough = Clock(0), math.inf
        self._random = random.Random(self.settings.seed)
        self._passes = self._possible_passes()
        self._progress: Callable[[Fraction | None, Fraction], None] | None = None

    # --- the branch ---

    def floor(self, objective: Objective) -> Fraction:
        """A quick lower bound."""
        return quick_bound(self.pipeline, objective)

    def go_on(self, clock: Clock, enough: Time, progress: Callable[[Fraction | None, Fraction], None] | None) -> Result:
        """Search until the clock is over, or until no order has less than ``enough``."""
        self._clock, self._progress = clock, progress
        self._enough = math.ceil(enough * self.pipeline.ticks.per_unit) if enough < math.inf else math.inf
        begun = time.monotonic()
        try:
            with noting():
                if self.named is None:
                    self.named = rows_in_time(self.beside, self.pipeline, clock)
                    self._begin()
                while not self.closed and not self.infeasible and not clock.over and self.lower < self._enough:
                    self._next()
        except KeyboardInterrupt:
            clock.interrupt()
        self.seconds += time.monotonic() - begun
        self.result = self._result()
        return self.result

    # --- what is known ---

    @property
    def value(self) -> float:
        """The objective of the best order, in ticks; infinite where none is known."""
        return math.inf if self.best is None else self.best.objective(self.objective)

    @property
    def closed(self) -> bool:
        """Whether the gap is no larger than asked for."""
        return self.best is not None and self.value - self.lower <= self.settings.gap * self.value

    def _timed(self, turns: Turns) -> Schedule | None:
        """The order with its microbatches in these turns; ``None``: it does not fit the memory."""
        self._clock.charge(tuning.SCHEDULED * self.pipeline.index.computations)
        schedule = in_turn(self.pipeline, self.order, turns)
        return schedule if schedule.within_memory and not out_of_turn(self.pipeline, schedule.order) else None

    def _offer(self, turns: Turns) -> bool:
        """Whether these turns are better than all before."""
        schedule = self._timed(turns)
        if schedule is None or schedule.objective(self.objective) >= self.value:
            return False
        self.best, self.turns = schedule, turns
        self._report()
        return True

    def _report(self) -> None:
        if self._progress is not None:
            unit = self.pipeline.ticks.per_unit
            value = None if self.best is None else Fraction(int(self.value), unit)
            self._progress(value, Fraction(self.lower, unit))

    # --- the search ---

    def _possible_passes(self) -> Iterator[tuple[int, bool]] | None:
        """The passes that come, by their width, and whether they are relaxed; ``None``: they cannot be told of everything."""
        pipeline = self.pipeline
        pieces = {len(sequence) for sequence in pipeline.mix.sequences(pipeline.microbatches)}
        one_way = len(pipeline.ways) == 1 and not pipeline.backward_routes and len(pieces) == 1
        simple = not pipeline.lines and not pipeline.engines and not pipeline.ticks.pauses
        if not one_way or not simple or self.objective != "makespan":
            return None
        self._over = MicrobatchTurns(pipeline, alike(pipeline), self.order)
        return iter([(width, relaxed) for width in WIDTHS for relaxed in (False, True) if self._over.ordered or not relaxed])

    def _begin(self) -> None:
        """The bounds of any schedule; the given order, and those of others."""
        self.lower = math.floor(self.floor(self.objective) * self.pipeline.ticks.per_unit)
        self.steps.append(Taken("bounds of any schedule", 0.0, f"bound {self.pipeline.time(self.lower)}"))
        begun, names = time.monotonic(), []
        if self._offer(tuple(range(self.pipeline.microbatches))):
            names.append("the given one")
        for name in ORDERS:
            names += [name for turns in orders_of(self.pipeline, name) if self._offer(turns)]
        found = f"best {self._shown()} ({names[-1]})" if names else "none fits the memory"
        self.steps.append(Taken("orders by rules", time.monotonic() - begun, found))

    def _next(self) -> None:
        """A pass; when there is none left, moves of single microbatches."""
        following = None if self._passes is None else next(self._passes, None)
        if following is None:
            self._move()
        else:
            self._pass(*following)

    def _pass(self, width: int, relaxed: bool) -> None:
        begun, below = time.monotonic(), min(self.value, self._enough)
        name = f"orders of microbatches, {'relaxed' if relaxed else 'restricted'} to {width} states"
        with at(name):
            found = self._over.passed(width, int(min(below, 2**61)), self._clock, relaxed=relaxed)
        if found is None:
            self.steps.append(Taken(name, time.monotonic() - begun, "stopped at the time limit"))
            return
        if found.kinds:
            self._offer(self._over.turns(found.kinds))
        bound = min(found.bound, int(min(self.value, 2**61)))
        if bound > self.lower and bound < 2**61:
            self.lower, self.proved_by = bound, self._argument
        self.infeasible = found.exact and not found.kinds and self.best is None and self._enough == math.inf
        known = "no order fits the memory" if self.infeasible else f"best {self._shown()}, bound {self.pipeline.time(self.lower)}"
        self.steps.append(Taken(name, time.monotonic() - begun, known))
        self._report()

    @property
    def _argument(self) -> str:
        return f"all {orders_in_all(self._over.counts.tolist())} orders of the microbatches"

    def _move(self) -> None:
        """Move one sequence after the other, or swap two, as long as that is no worse; begin anew from the best in the end."""
        begun, before = time.monotonic(), self.value
        sequences = self.pipeline.mix.sequences(self.pipeline.microbatches)
        place = {m: k for k, m in enumerate(self.turns or range(self.pipeline.microbatches))}
        order = sorted(range(len(sequences)), key=lambda s: place[sequences[s][0]])
        with at("moves of microbatches"):
            if len(order) < 2:
                self._clock.charge(self._clock.left)
            while not self.closed and not self._clock.over and len(order) > 1:
                a, b = self._random.sample(range(len(order)), 2)
                other = list(order)
                if self._random.random() < 0.5:
                    other[a], other[b] = other[b], other[a]
                else:
                    other.insert(b, other.pop(a))
                if self._offer(tuple(m for s in other for m in sequences[s])):
                    order = other
        found = f"best {self._shown()}" if self.value < before else "nothing better"
        self.steps.append(Taken("moves of microbatches", time.monotonic() - begun, found))

    def _shown(self) -> str:
        return "none" if self.best is None else f"{self.pipeline.time(int(self.value))}"

    # --- the answer ---

    def _result(self) -> Result:
        """The answer, its schedule checked."""
        words = self._words()
        if self.best is not None:
            check_found(self.best, words)
        reason: Reason = "infeasible" if self.infeasible else "no-solution"
        if self.best is not None:
            reason = "optimal" if self.lower >= self.value else "feasible"
        limit: Limit | None = None
        if reason in ("feasible", "no-solution") and self.lower < self._enough:
            limit = "interrupted" if self._clock.interrupted else "gap" if self.closed else "time"
        return Result(
            model=Model(self.pipeline),
            objective=self.objective,
            schedule=self.best,
            reason=reason,
            limit=limit,
            ticks=Ticks.of(self.pipeline, self.objective, self.best, self.lower),
            proved_by=self.proved_by,
            seconds=self.seconds,
            seed=self.settings.seed,
            versions={},
            named=Table(self.named or (), self.pipeline),
            steps=tuple(self.steps),
            binding=words,
        )

    def _words(self) -> tuple[Word, ...]:
        """The words of the schedule that binds, with the microbatches of the best order in their places."""
        plain = alike(self.pipeline)
        return tuple(retold(self.pipeline, plain, self.binding.words(plain), self.turns))
