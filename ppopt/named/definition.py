"""What a named schedule is: a placement, and constraints in the words of :mod:`ppopt.constraints`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from ppopt.clock import OutOfTime, check_time
from ppopt.constraints import Family, OneOf, Precede, Stream, Together, Word, chain, check_words, in_pieces
from ppopt.heuristics import Stuck, covers, filled, order_of
from ppopt.heuristics.room import activations_of_one
from ppopt.named.in_turn import OUT_OF_TURN, in_turn, out_of_turn, retold
from ppopt.op import Kind
from ppopt.pipeline import CHOOSE, Pipeline, PipelineError, Routes, alike, routes_of
from ppopt.pipeline.rewriting import kept_here, undivided
from ppopt.pipeline.work_map import WorkMap, mapped
from ppopt.schedule import Order, Schedule
from ppopt.timing import CyclicOrder, time_order


class Restriction(ValueError):
    """A named schedule asked for where its definition does not allow it; the message names what is broken."""


@dataclass(frozen=True)
class Parameter:
    """A number or a word that fixes an order, besides the pipeline.

    ``choices`` are the words allowed; without them it is a whole number >= ``least``. ``default`` says in words what
    holds where it is not given.
    """

    name: str
    meaning: str
    default: str
    choices: tuple[str, ...] = ()
    least: int = 1

    def read(self, schedule: str, value: Any) -> Any:
        """``value``, validated.

        Raises:
            Restriction: it is no value of this parameter.
        """
        if self.choices:
            if value not in self.choices:
                raise Restriction(f"{schedule}: {self.name} must be one of {', '.join(self.choices)}, got {value!r}")
        elif isinstance(value, bool) or not isinstance(value, int) or value < self.least:
            raise Restriction(f"{schedule}: {self.name} must be a whole number >= {self.least}, got {value!r}")
        return value


Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Definition:
    """One named schedule.

    ``constrain`` gives its constraints on a pipeline of its placement; what they leave open, ``fill`` settles (a rule that
    is said in ``open_rule``). ``peak`` and ``idle`` (makespan - work) are the closed forms, in activations and durations of
    one chunk.
    """

    name: str
    summary: str
    source: str
    placement: str
    constrain: Callable[[Pipeline, Parameters], Iterable[Word]]
    aliases: tuple[str, ...] = ()
    split: bool = False
    """Whether it runs ``I`` and ``W`` (somewhere)."""
    chunks: Callable[[Parameters], int | None] | None = None
    """The number of chunks that the parameters fix, if they do."""
    least_chunks: int = 1
    """The number of chunks where nothing else says it."""
    any_chunks: bool = False
    """Whether it is defined for other numbers of chunks too."""
    routes: Callable[[int], Routes] | None = None
    """The routes on a number of devices, where ``placement`` does not give them."""
    work_map: Callable[[Pipeline, Parameters], WorkMap] | None = None
    """Which device runs what and keeps which weights, of a pipeline with the same stages, where neither of the two above says it.
    Such a schedule is shown beside others only where the model says something of weights, or is asked for it."""
    parameters: tuple[Parameter, ...] = ()
    needs: str = "-"
    advice: Callable[[Pipeline, Parameters], str] | None = None
    """What to change where the order deadlocks, in words; empty where that is not known."""
    peak: str = ""
    idle: str = ""
    open_rule: str = ""
    counted: str = ""
    """What its microbatches are, where they are not what those of other schedules are; tables mark it."""
    fill: Callable[[Pipeline, tuple[Word, ...], Parameters], Schedule] | None = None
    built_in: bool = field(default=False, compare=False)
    """Whether it is one of this package: its words are known to be about what a pipeline of its placement has, each on one
    device; to look at that takes as long as all else. Not for schedules of your own."""
    fills_gaps: bool = False
    """Whether ``fill`` lets the pieces of weight gradients go where a device would be idle. Else it knows whole ones alone, and
    the pieces of each follow one another."""
    keeps_limit: bool = False
    """Whether ``fill`` keeps the pipeline's memory limit where it can."""

    def read(self, params: Parameters) -> dict[str, Any]:
        """The parameters, validated.

        Raises:
            Restriction: one is unknown or out of range.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in params:
            if name not in known:
                allowed = f"its parameters are {', '.join(known)}" if known else "it has no parameters"
                raise Restriction(f"{self.name}: unknown parameter {name!r}; {allowed}")
        return {name: known[name].read(self.name, value) for name, value in params.items() if value is not None}

    def place(self, pipeline: Pipeline, chunks: int | None = None, **params: Any) -> Pipeline:
        """The same devices in this schedule's placement, with ``chunks`` stages per device.

        Without ``chunks``: what the parameters fix, else the pipeline's own number where it has this placement, else the
        schedule's smallest.

        Raises:
            Restriction: this number of chunks, or this placement on these devices, is not possible, or what the devices would
                do there is not known.
        """
        if self.work_map is not None:
            return self._mapped(pipeline, self.work_map, params)
        fixed = self.chunks(self.read(params)) if self.chunks else None
        if chunks is None:
            own = pipeline.chunks if self.any_chunks and self._placed_here(pipeline) else 0
            chunks = fixed or max(own, self.least_chunks)
        if fixed is not None and chunks != fixed:
            raise Restriction(f"{self.name}: {_listed(params)} means {fixed} chunks, got chunks = {chunks}")
        if not self.any_chunks and chunks != self.least_chunks:
            raise Restriction(f"{self.name}: chunks must be {self.least_chunks} (placement {self.placement}), got {chunks}")
        try:
            if self.routes is not None:
                routes = self.routes(pipeline.devices)
                here = routes == pipeline.ways and not pipeline.backward_routes
                return pipeline if here else pipeline.rerouted(routes)
            if (
                not pipeline.backward_routes
                and pipeline.stages == pipeline.devices * chunks
                and pipeline.ways == routes_of(self.placement, pipeline.devices, chunks)
            ):
                return pipeline
            return pipeline.placed(self.placement, chunks)
        except PipelineError as error:
            raise Restriction(f"{self.name}: {error}") from error

    def _mapped(self, pipeline: Pipeline, work_map: Callable[[Pipeline, Parameters], WorkMap], params: Parameters) -> Pipeline:
        try:
            pipeline = pipeline if pipeline.routes else pipeline.placements()[0]
            return mapped(pipeline, work_map(pipeline, self.read(params)))
        except PipelineError as error:
            raise Restriction(f"{self.name}: {error}") from error

    def _placed_here(self, pipeline: Pipeline) -> bool:
        if self.routes is not None:
            return pipeline.ways == self.routes(pipeline.devices)
        return pipeline.ways == routes_of(self.placement, pipeline.devices, pipeline.chunks)

    def _alike(self, pipeline: Pipeline) -> Pipeline:
        """With as many microbatches that are alike."""
        try:
            return alike(pipeline)
        except PipelineError as error:  # a runtime may refuse the routes that are left
            raise Restriction(f"{self.name}: {error}") from error

    def words(self, pipeline: Pipeline, **params: Any) -> tuple[Word, ...]:
        """Its constraints on a pipeline that has its placement (see :meth:`place`).

        Raises:
            Restriction: the definition does not allow these sizes, costs or parameters.
        """
        own = self.place(pipeline, pipeline.chunks, **(params if self.work_map is not None else {}))
        if (pipeline.ways, pipeline.backward_routes) != (own.ways, own.backward_routes):
            raise Restriction(f"{self.name}: the placement must be {self.placement}, got {pipeline.placement}")
        if pipeline.recompute == CHOOSE:
            problem = 'pipeline.recompute = "choose" leaves open which stages recompute; expected "none", "all" or a list'
            raise Restriction(f"{self.name}: {problem}")
        if self.split and not pipeline.costs.split:
            raise Restriction(f"{self.name}: needs backward_input and backward_weight; the costs give backward alone")
        if pipeline.mix.differs:
            plain = self._alike(pipeline)
            return tuple(retold(pipeline, plain, self.words(plain, **params)))
        if pipeline.costs.weight_pieces > 1:
            return in_pieces(pipeline, self.words(undivided(pipeline), **params))
        read = self.read(params)
        with self._noting():
            words = tuple(_timely(self.constrain(pipeline, read)))
            if not self.built_in:
                check_words(pipeline, words)
        return words

    def order(self, pipeline: Pipeline, **params: Any) -> Order:
        """Its order on a pipeline that has its placement.

        Raises:
            Restriction: as :meth:`words`, or the order would deadlock.
        """
        return self._timed(pipeline, params).order

    def schedule(self, pipeline: Pipeline, chunks: int | None = None, **params: Any) -> Schedule:
        """Its order on its own placement, timed; the memory limit is not looked at.

        Raises:
            Restriction: the definition does not allow these sizes, costs or parameters, or the order would deadlock.
        """
        return self._timed(self.place(pipeline, chunks, **params), params)

    def pinned(self, pipelines: Sequence[Pipeline], **params: Any) -> Order | None:
        """The only order that its constraints allow on each of these pipelines, which have its placement and differ in costs and
        memory alone; ``None`` where the constraints are not the same on all of them, or leave something open.

        Raises:
            Restriction: as :meth:`order`.
        """
        words = self.words(pipelines[0], **params)
        if any(self.words(pipeline, **params) != words for pipeline in pipelines[1:]):
            return None
        try:
            order = order_of(pipelines[0], words)
            if order is not None:
                time_order(pipelines[0], order)  # or it would deadlock
        except CyclicOrder as error:
            raise self._stuck(pipelines[0], params, error) from error
        if order is not None and out_of_turn(pipelines[0], order):
            raise Restriction(f"{self.name}: {OUT_OF_TURN}")
        return order

    def turned(self, schedule: Schedule, turns: Sequence[int]) -> Schedule:
        """A schedule of it with microbatches that differ in another order (:func:`~ppopt.named.in_turn.in_turn`).

        Raises:
            Restriction: the pipeline gives another order of these.
        """
        found = in_turn(schedule.pipeline, schedule.order, turns)
        if out_of_turn(found.pipeline, found.order):
            raise Restriction(f"{self.name}: {OUT_OF_TURN}")
        return found

    def _timed(self, pipeline: Pipeline, params: Parameters) -> Schedule:
        if pipeline.mix.differs:
            mean = self._timed(self.place(self._alike(pipeline), pipeline.chunks), params)
            return self.turned(replace(mean, pipeline=pipeline), ())
        words = self.words(pipeline, **params)
        if pipeline.engines:  # the order is that without copies to the host
            plain = self._timed(kept_here(pipeline), params)
            return time_order(pipeline, plain.order, words=() if self.built_in else words)
        try:
            with self._noting():
                order = order_of(pipeline, words) if self.built_in or covers(pipeline, words) else None
                if order is not None:
                    return time_order(pipeline, order, words=() if self.built_in else words)
                if self.fill is not None and (self.fills_gaps or pipeline.costs.weight_pieces == 1):
                    return self.fill(pipeline, words, self.read(params))
                if self.fill is not None:  # the pieces stand where the whole weight gradient did
                    return time_order(pipeline, self._timed(undivided(pipeline), params).order.divided(pipeline))
        except (CyclicOrder, Stuck) as error:
            raise self._stuck(pipeline, params, error) from error
        problem = "its constraints leave the order open, and it has no rule that settles it"
        advice = "give its Definition one, such as fill=ppopt.named.filled_greedily"
        raise Restriction(f"{self.name}: {self._size(pipeline, params)}: {problem}; {advice}")

    def _stuck(self, pipeline: Pipeline, params: Parameters, error: CyclicOrder | Stuck) -> Restriction:
        """The error of an order that cannot end, with what to change where that is known."""
        advice = self.advice(pipeline, self.read(params)) if self.advice and isinstance(error, CyclicOrder) else ""
        return Restriction(": ".join([self.name, self._size(pipeline, params), f"{advice}; {error}" if advice else str(error)]))

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """What goes wrong in a definition says in which. A pipeline of its own that cannot be, as one whose limit of memory has
        too many digits, is a restriction of it."""
        try:
            yield
        except (Restriction, CyclicOrder, Stuck, OutOfTime):
            raise
        except PipelineError as error:
            raise Restriction(f"{self.name}: {error}") from error
        except Exception as error:
            error.add_note(f"raised by the schedule {self.name}")
            raise

    def _size(self, pipeline: Pipeline, params: Parameters) -> str:
        sizes = {"devices": pipeline.devices, "microbatches": pipeline.microbatches, "chunks": pipeline.chunks, **params}
        return _listed(sizes)


def _timely(words: Iterable[Word]) -> Iterator[Word]:
    """The same words, as far as there is time for them."""
    for word in words:
        check_time()
        yield word


def _listed(values: Parameters) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def alternating(forward: Stream, backward: Stream, warmup: int, count: int) -> tuple[Precede, ...]:
    """``warmup`` forwards, then a forward and a backward in turn, then the remaining backwards.

    ``F(k + w) < B(k) < F(k + w + 1)``, for streams of ``count`` operations, each in its own order. A warm-up of all ``count``
    leaves ``F(count - 1) < B(0)``.
    """
    w = min(warmup, count - 1)
    return (chain(forward), chain(backward), Precede(forward, backward, shift=-w), Precede(backward, forward, shift=w + 1))


def overlapping(forward: Stream, backward: Stream, warmup: int, count: int) -> tuple[Precede | Together, ...]:
    """``warmup`` forwards, then pairs ``(F(k + w); B(k))``, then the remaining backwards.

    For streams of ``count`` operations, each in its own order; a warm-up of all ``count`` leaves no pairs.
    """
    chains = (chain(forward), chain(backward))
    if warmup >= count:
        return (*chains, Precede(forward, backward, shift=1 - count))
    return (*chains, Together(forward, backward, shift=warmup))


def deferred(input_: Stream, weight: Stream, by: int) -> tuple[Precede, ...]:
    """``I(k + by) < W(k) < I(k + by + 1)``: each W follows the I that comes ``by`` places later in the stream."""
    return (chain(weight), Precede(input_, weight, shift=-by), Precede(weight, input_, shift=by + 1))


def filled_greedily(pipeline: Pipeline, words: tuple[Word, ...], params: Parameters) -> Schedule:
    """What ``words`` leave open is decided as time goes by: of what a device can start, a backward comes before a forward
    and the older microbatch before the younger; a weight gradient runs where the device would be idle otherwise, or where
    the words ask for it before something else can go on."""
    return filled(pipeline, words)


def limited(pipeline: Pipeline, activations: Fraction) -> Pipeline:
    """The same pipeline with room for this number of activations of a microbatch (over all its stages there) on every device."""
    limits = tuple(one * activations / pipeline.amounts.per_unit for one in activations_of_one(pipeline))
    flat = pipeline.flat()
    return flat.changed(memory=replace(flat.memory, static=Fraction(0), weights=None, working=None, limit=limits))


def fused(stages: Iterable[int], route: int = 0) -> tuple[OneOf, ...]:
    """These stages run ``F`` and the full backward ``B``."""
    return tuple(OneOf(((Family(stage, kind, route),),)) for stage in stages for kind in (Kind.F, Kind.B))


def split(stages: Iterable[int], route: int = 0) -> tuple[OneOf, ...]:
    """These stages run ``F``, ``I`` and ``W``."""
    return tuple(
        OneOf((alternative,))
        for stage in stages
        for alternative in ((Family(stage, Kind.F, route),), (Family(stage, Kind.I, route), Family(stage, Kind.W, route)))
    )


class UnknownSchedule(ValueError):
    """A name that no schedule has; the message gives the nearest ones."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        near = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `ppopt schedules` lists them"
        super().__init__(f"there is no schedule {name!r}{hint}")
        self.name = name
