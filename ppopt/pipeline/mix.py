"""Microbatches that differ: what each takes and holds beside one of the costs, and in which order they run.

Those that differ are on routes of their own (:mod:`ppopt.pipeline.mix_routes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ppopt.pipeline.parts import Number, PipelineError, exact, plain

Factors: TypeAlias = tuple[Fraction, ...] | tuple[tuple[Fraction, ...], ...]
"""One factor per microbatch, or a row of them per stage; empty: all are 1."""
Bag: TypeAlias = tuple[int, ...]
"""The lengths of the sequences of one microbatch, in tokens. Attention is inside each sequence only."""

GIVEN, OPEN = "given", "choose"
MOST_TOKENS = 10**9
KEYS = ("microbatch_costs", "microbatch_activations", "lengths", "length", "microbatch_order", "pieces")
"""The keys of ``[pipeline]`` in a model file that say how microbatches differ."""


class Scale(NamedTuple):
    """What a microbatch takes in a stage beside one of the costs."""

    linear: Fraction = Fraction(1)
    """Of the part of a duration that grows with the tokens."""
    square: Fraction = Fraction(1)
    """Of the part of a duration that grows with the squares of the lengths of its sequences."""
    held: Fraction = Fraction(1)
    """Of what is held of it, and of how long its transfers hold their links and its copies their engines."""


class Sizes(NamedTuple):
    """The sizes of microbatches, or of those of routes: the number of each one's, and of each size what it takes in every stage
    beside one of the costs, one object."""

    of: tuple[int, ...]
    scales: tuple[tuple[Scale, ...], ...]


@dataclass(frozen=True)
class Mix:
    """How the microbatches of a pipeline differ. Without anything in it they are alike.

    ``microbatch_costs``: for each microbatch a factor of all durations; or, for each stage, a list of them.
    ``microbatch_activations``: the same for what is held of it, and for how long its transfers hold links and its copies engines;
    by default the factors of the costs. Or ``lengths``: of each microbatch the length of its sequence in tokens, or those of its
    sequences; ``length`` says for which microbatch the costs are, in the same way. Then the parts of the costs that are called
    ``..._quadratic`` grow with the sum of the squares of the lengths, and everything else with their sum.

    ``microbatch_order``: ``"given"``, every stage runs its forwards in the order of the microbatches, and its backwards too;
    ``"choose"``, any order. ``pieces``: how many microbatches in a row are the pieces of one sequence, from its begin on; one
    number, or one for each sequence. A piece needs the ones before it in its forward, and those behind it in its backward, so
    the pieces run in this order and backwards in the other one.

    Raises:
        PipelineError: a value is out of range, or two of them say the same thing.
    """

    microbatch_costs: Factors = ()
    microbatch_activations: Factors = ()
    lengths: tuple[Bag, ...] = ()
    length: Bag = ()
    microbatch_order: str = GIVEN
    pieces: tuple[int, ...] = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            microbatch_costs: Sequence[Number] | Sequence[Sequence[Number]] = (),
            microbatch_activations: Sequence[Number] | Sequence[Sequence[Number]] = (),
            lengths: Sequence[int | Sequence[int]] = (),
            length: int | Sequence[int] = (),
            microbatch_order: str = GIVEN,
            pieces: int | Sequence[int] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("microbatch_costs", "microbatch_activations"):
            object.__setattr__(self, name, _factors(f"pipeline.{name}", getattr(self, name)))
        object.__setattr__(self, "lengths", _bags("pipeline.lengths", self.lengths))
        given: Any = self.length
        object.__setattr__(self, "length", () if given in ((), None) else _bag("pipeline.length", given))
        object.__setattr__(self, "pieces", _pieces("pipeline.pieces", self.pieces))
        if self.microbatch_order not in (GIVEN, OPEN):
            problem = f'expected "{GIVEN}" or "{OPEN}", got {self.microbatch_order!r}'
            raise PipelineError("pipeline.microbatch_order", problem)
        if self.lengths:
            for name in ("microbatch_costs", "microbatch_activations"):
                if getattr(self, name):
                    raise PipelineError(f"pipeline.{name}", "follows from pipeline.lengths; give one of them")
            if not self.length:
                problem = "missing; expected the length in tokens of the sequence for which the costs are"
                raise PipelineError("pipeline.length", problem)
        elif self.length:
            raise PipelineError("pipeline.length", "is the length for which the costs are; it needs pipeline.lengths")

    def __bool__(self) -> bool:
        """Whether anything is said."""
        return any(getattr(self, f.name) != f.default for f in fields(self))

    @property
    def differs(self) -> bool:
        """Whether microbatches are told apart: by what they take, or by the sequence that they are a piece of."""
        return bool(self.microbatch_costs or self.microbatch_activations or self.lengths or self.pieces)

    @property
    def by_stage(self) -> bool:
        """Whether some factors are given stage by stage."""
        return by_stage(self.microbatch_costs) or by_stage(self.microbatch_activations)

    @property
    def many(self) -> int | None:
        """The number of microbatches that it is about; ``None``: it does not say."""
        for row in (self.microbatch_costs, self.microbatch_activations):
            if row:
                return len(row[0]) if isinstance(row[0], tuple) else len(row)
        return len(self.lengths) or (sum(self.pieces) if len(self.pieces) > 1 else None)

    def scale(self, microbatch: int, stage: int) -> Scale:
        """What a microbatch takes in a stage beside one of the costs."""
        if self.lengths:
            bag, one = self.lengths[microbatch], self.length
            tokens, squares = Fraction(sum(bag), sum(one)), Fraction(sum(s * s for s in bag), sum(s * s for s in one))
            return Scale(tokens, squares, tokens)
        time = _factor(self.microbatch_costs, microbatch, stage)
        held = _factor(self.microbatch_activations or self.microbatch_costs, microbatch, stage)
        return Scale(time, time, held)

    def scales(self, microbatch: int, stages: int) -> tuple[Scale, ...]:
        """:meth:`scale` in every stage."""
        if not self.by_stage:
            return (self.scale(microbatch, 0),) * stages
        return tuple(self.scale(microbatch, stage) for stage in range(stages))

    def sizes(self, microbatches: int, stages: int) -> Sizes:
        """The sizes of microbatches, in the order of their first ones."""
        if (microbatches, stages) not in self._sizes:
            number, of, each = dict[Any, int](), list[int](), list[tuple[Scale, ...]]()
            for m in range(microbatches):
                bag = self.lengths[m] if self.lengths else ()
                told = (sum(bag), sum(s * s for s in bag)) if bag else self.scales(m, stages)
                of.append(number.setdefault(told, len(each)))
                if of[-1] == len(each):
                    each.append(self.scales(m, stages))
            self._sizes[microbatches, stages] = Sizes(tuple(of), tuple(each))
        return self._sizes[microbatches, stages]

    @cached_property
    def _sizes(self) -> dict[tuple[int, int], Sizes]:
        """By numbers of microbatches and stages, as far as they are known."""
        return {}

    def sequences(self, microbatches: int) -> tuple[range, ...]:
        """The microbatches of each sequence; one of its own for each where none is a piece."""
        sizes = self.pieces or (1,)
        each = sizes * (microbatches // sizes[0]) if len(sizes) == 1 else sizes
        return tuple(range(end - size, end) for end, size in zip(accumulate(each), each, strict=True))

    def most_held(self, microbatches: int) -> Fraction:
        """What is held of the largest sequence at some time, beside one of the costs; of factors that all stages share."""
        if not self.differs:
            return Fraction(1)
        return max(sum((self.scale(m, 0).held for m in of), Fraction(0)) for of in self.sequences(microbatches))

    def check(self, microbatches: Any, stages: int | None) -> None:
        """Raise where it is about other numbers of microbatches or stages; ``None``: that is left open.

        Raises:
            PipelineError: it is.
        """
        if not self.differs:
            return
        if isinstance(microbatches, tuple):
            raise PipelineError("pipeline.microbatches", "expected one number where microbatches differ, got several")
        for name in ("microbatch_costs", "microbatch_activations"):
            self._check_factors(f"pipeline.{name}", getattr(self, name), microbatches, stages)
        if self.lengths and len(self.lengths) != microbatches:
            problem = f"expected {microbatches} lengths (one per microbatch), got {len(self.lengths)}"
            raise PipelineError("pipeline.lengths", problem)
        total = sum(self.pieces)
        if len(self.pieces) == 1 and microbatches % total:
            problem = f"expected a part of the {microbatches} microbatches, which are pieces of whole sequences, got {total}"
            raise PipelineError("pipeline.pieces", problem)
        if len(self.pieces) > 1 and total != microbatches:
            problem = f"expected pieces of all {microbatches} microbatches, got {total} in all"
            raise PipelineError("pipeline.pieces", problem)

    @staticmethod
    def _check_factors(key: str, rows: Factors, microbatches: int, stages: int | None) -> None:
        if not rows:
            return
        if not isinstance(rows[0], tuple):
            if len(rows) != microbatches:
                raise PipelineError(key, f"expected {microbatches} factors (one per microbatch), got {len(rows)}")
            return
        if stages is None:
            raise PipelineError(key, "a table per stage belongs to one placement and number of chunks, and these are left open")
        if len(rows) != stages:
            raise PipelineError(key, f"expected a row of factors for each of the {stages} stages, got {len(rows)} rows")
        for s, row in enumerate(rows):
            if len(row) != microbatches:
                raise PipelineError(f"{key}[{s}]", f"expected {microbatches} factors (one per microbatch), got {len(row)}")


def mix_of(table: Mapping[str, Any]) -> Mix:
    """The mix that some of the :data:`KEYS` say."""
    return Mix(**{name: table[name] for name in KEYS if name in table})


def as_table(mix: Mix) -> dict[str, Any]:
    """The keys of a model file that say it, without those that have their default."""
    found: dict[str, Any] = {f.name: _plain(getattr(mix, f.name)) for f in fields(mix) if getattr(mix, f.name) != f.default}
    for name in ("pieces", "length"):
        if len(found.get(name, ())) == 1:
            found[name] = found[name][0]
    if mix.lengths and all(len(bag) == 1 for bag in mix.lengths):
        found["lengths"] = [bag[0] for bag in mix.lengths]
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return plain(value) if isinstance(value, Fraction) else value


def by_stage(rows: Factors) -> bool:
    """Whether there is a row of factors for each stage."""
    return bool(rows) and isinstance(rows[0], tuple)


def _factor(rows: Factors, microbatch: int, stage: int) -> Fraction:
    if not rows:
        return Fraction(1)
    row = rows[stage] if isinstance(rows[0], tuple) else rows
    return row[microbatch]


def _list(key: str, given: Any, what: str) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise PipelineError(key, f"expected {what}, got {given!r}")
    return list(given)


def _factors(key: str, given: Any) -> Factors:
    rows = _list(key, given, "a list of factors (one per microbatch), or one list of them per stage")
    if not any(isinstance(row, list | tuple) for row in rows):
        return tuple(_positive(f"{key}[{m}]", value) for m, value in enumerate(rows))
    table = []
    for s, row in enumerate(rows):
        if not isinstance(row, list | tuple) or not row:
            raise PipelineError(f"{key}[{s}]", f"expected a list of factors of a stage (one per microbatch), got {row!r}")
        table.append(tuple(_positive(f"{key}[{s}][{m}]", value) for m, value in enumerate(row)))
    return tuple(table)


def _positive(key: str, value: Any) -> Fraction:
    found = exact(key, value)
    if not found:
        raise PipelineError(key, "expected a factor > 0, got 0")
    return found


def _bags(key: str, given: Any) -> tuple[Bag, ...]:
    what = "a list with the length of each microbatch's sequence, or the lengths of its sequences"
    return tuple(_bag(f"{key}[{m}]", bag) for m, bag in enumerate(_list(key, given, what)))


def _bag(key: str, given: Any) -> Bag:
    each = list(given) if isinstance(given, list | tuple) else [given]
    if not each:
        raise PipelineError(key, "expected the length of at least one sequence, got an empty list")
    for i, length in enumerate(each):
        if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MOST_TOKENS:
            at = f"{key}[{i}]" if isinstance(given, list | tuple) else key
            raise PipelineError(at, f"expected a whole number of tokens, 1 to {MOST_TOKENS}, got {length!r}")
    return tuple(sorted(each, reverse=True))


def _pieces(key: str, given: Any) -> tuple[int, ...]:
    each = [given] if isinstance(given, int) else _list(key, given, "how many pieces a sequence has, or a list of that")
    for i, count in enumerate(each):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            at = key if isinstance(given, int) else f"{key}[{i}]"
            raise PipelineError(at, f"expected a whole number of pieces >= 1, got {count!r}")
    return () if set(each) == {1} else tuple(each)
