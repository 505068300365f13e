"""Microbatches that differ: what each takes and holds beside one of the costs, and in which order they run.

*Routes.* Within a route microbatches are alike: everything that counts them (solvers, bounds, list scheduling) relies on that. So
microbatches of one way through the devices that differ are on routes of their own, over the same devices, and each route has
durations and amounts of its own (:func:`on_routes`). Whatever is proved of several routes holds for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ppopt.pipeline.checks import check_size
from ppopt.pipeline.partitions import BEST
from ppopt.pipeline.parts import Number, PipelineError, exact, plain
from ppopt.pipeline.routes import Routes
from ppopt.pipeline.runtimes import check_shapes

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline

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
        return _by_stage(self.microbatch_costs) or _by_stage(self.microbatch_activations)

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


def _by_stage(rows: Factors) -> bool:
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


# --- routes ---


class Group(NamedTuple):
    """Sequences of one way that are alike: ``routes`` are those of their pieces, from the first piece on (one route where
    microbatches are whole sequences); ``sequences`` the microbatches of each."""

    way: int
    routes: tuple[int, ...]
    sequences: tuple[range, ...]


def groups_of(mix: Mix, ways: Routes, way_of: Sequence[int]) -> tuple[Group, ...]:
    """The groups of a mix, way by way, in the order of their first microbatches; ``way_of``: the way of each microbatch.

    Where the order is given, and not all of a way are alike, each sequence is a group of its own. A way that no microbatch takes
    has a group without sequences.

    Raises:
        PipelineError: the pieces of a sequence take different ways.
    """
    stages, found, first = len(ways[0]), list[Group](), 0
    of_way: list[list[range]] = [[] for _ in ways]
    for sequence in mix.sequences(len(way_of)):
        taken = {way_of[m] for m in sequence}
        if len(taken) > 1:
            problem = f"the pieces of a sequence take one route, microbatches {sequence[0]} to {sequence[-1]} do not"
            raise PipelineError("pipeline.pieces", problem)
        of_way[taken.pop()].append(sequence)
    for way, sequences in enumerate(of_way):
        alike: dict[Any, list[range]] = {}
        for sequence in sequences:
            alike.setdefault(tuple(mix.scales(m, stages) for m in sequence), []).append(sequence)
        together = list(alike.values()) or [[]]
        if mix.microbatch_order == GIVEN and len(together) > 1:
            together = [[sequence] for sequence in sequences]
        for group in together:
            routes = tuple(range(first, first + len(group[0] if group else (0,))))
            first += len(routes)
            found.append(Group(way, routes, tuple(group)))
    return tuple(found)


def on_routes(mix: Mix, ways: Routes, way_of: Sequence[int]) -> tuple[Routes, tuple[int, ...]]:
    """Routes on which microbatches are alike, and the route of each microbatch; ``ways``, ``way_of``: those without differences.

    Raises:
        PipelineError: as :func:`groups_of`.
    """
    if not mix.differs:
        return ways, tuple(way_of)
    split, routes = [0] * len(way_of), list[tuple[int, ...]]()
    for group in groups_of(mix, ways, way_of):
        routes += [ways[group.way]] * len(group.routes)
        for sequence in group.sequences:
            for route, m in zip(group.routes, sequence, strict=True):
                split[m] = route
    return tuple(routes), tuple(split)


def check_mix(pipeline: Pipeline) -> None:
    """Raise where the mix is about other microbatches or stages than a pipeline has, or something beside it is not known.

    Raises:
        PipelineError: it is.
    """
    mix = pipeline.mix
    stages = None if isinstance(pipeline.chunks, tuple) else pipeline.devices * pipeline.chunks
    if pipeline.routes:  # what is wrong with these is said later
        stages = len(pipeline.routes[0]) if isinstance(pipeline.routes[0], list | tuple) else None
    mix.check(pipeline.microbatches, stages)
    if mix.differs and pipeline.costs.overlap is not None:
        problem = "what an overlapped pair of microbatches that differ takes is not known; leave it out (forward + backward)"
        raise PipelineError("costs.overlap", problem)
    if mix.by_stage and pipeline.partition == BEST:
        name = next(name for name in ("microbatch_costs", "microbatch_activations") if _by_stage(getattr(mix, name)))
        problem = "a table per stage belongs to one cut of the layers, and that is left open; expected one factor per microbatch"
        raise PipelineError(f"pipeline.{name}", problem)
    if mix.differs and pipeline.data_parallel.per_pass:
        problem = "what passes over microbatches that differ exchange is not known; expected false"
        raise PipelineError("data_parallel.per_pass", problem)
    if mix.differs and pipeline.runtime:
        check_shapes(mix, pipeline.microbatches, stages or 1)


def apart(pipeline: Pipeline) -> dict[str, Any]:
    """The routes of a pipeline, and the route of each microbatch, so that those of a route are alike; once it is certain
    that there are not too many operations.

    Raises:
        PipelineError: as :func:`groups_of`.
    """
    check_size(pipeline)
    if not pipeline.mix.differs:
        return {}
    routes, split = on_routes(pipeline.mix, pipeline.ways, way_of_microbatch(pipeline))
    return {"routes": routes, "route_of_microbatch": split}


def way_of_microbatch(pipeline: Pipeline) -> tuple[int, ...]:
    """For each microbatch the number of its way."""
    if not pipeline.mix.differs:
        return pipeline.route_of_microbatch
    number = {way: place for place, way in enumerate(pipeline.ways)}
    return tuple(number[pipeline.routes[route]] for route in pipeline.route_of_microbatch)


def own_split(pipeline: Pipeline, changes: dict[str, Any], derived: set[str]) -> dict[str, Any]:
    """``changes`` of a pipeline whose microbatches differ, with its ways in place of the routes that follow from these.

    ``derived``: the fields that, changed, let the ways of the microbatches be derived anew.
    """
    if not pipeline.mix.differs or not pipeline.routes:
        return changes
    changes = dict(changes)
    kept = "routes" not in changes and changes.get("route_of_microbatch") == pipeline.route_of_microbatch
    if kept or not changes.keys() & {*derived, "route_of_microbatch"}:
        changes["route_of_microbatch"] = way_of_microbatch(pipeline)
    if pipeline.placement == "routes" and not changes.keys() & {"routes", "placement"}:
        changes["routes"] = pipeline.ways
    return changes
