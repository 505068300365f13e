"""What microbatches that differ take and hold, route by route (:mod:`ppopt.pipeline.mix`), as exact tables ``[route][stage]``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ppopt.op import Kind
from ppopt.pipeline.mix import Mix, Scale, Sizes
from ppopt.pipeline.parts import DURATIONS, QUADRATIC, PipelineError, Value, plain
from ppopt.pipeline.rewriting import per_stage
from ppopt.pipeline.runtimes import TORCH
from ppopt.pipeline.tables import Entry, Rows, by_stage, durations, once_each, one_object_each

if TYPE_CHECKING:
    from ppopt.pipeline.model import Pipeline


def scales_of(pipeline: Pipeline) -> list[tuple[Scale, ...]]:
    """``[route][stage]``: what the microbatches of a route take beside one of the costs."""
    sizes = sizes_of(pipeline)
    return [sizes.scales[size] for size in sizes.of]


def sizes_of(pipeline: Pipeline) -> Sizes:
    """The sizes of the microbatches of each route of a pipeline; one where they are alike. A route that no microbatch takes has
    the first one."""
    if not pipeline.mix.differs:
        return Sizes((0,) * len(pipeline.routes), ((Scale(),) * len(pipeline.routes[0]),))
    sizes = pipeline.mix.sizes(pipeline.microbatches, pipeline.stages)
    of_route = dict(zip(pipeline.route_of_microbatch, sizes.of, strict=True))
    return Sizes(tuple(of_route.get(route, 0) for route in range(len(pipeline.routes))), sizes.scales)


def scaled_durations(pipeline: Pipeline, kinds: Sequence[Rows]) -> list[Rows]:
    """``[kind][route][stage]``: durations of the microbatches of each route, from those in the costs."""
    if not pipeline.mix.differs:
        return list(kinds)

    def time(x: Fraction | None, y: Fraction | None, by: Scale) -> Fraction | None:
        return None if x is None else (x - y) * by.linear + y * by.square if y else x * by.linear

    scales = scales_of(pipeline)
    tables = (map(one_object_each, both) for both in zip(kinds, _quadratic(pipeline), strict=True))
    return [once_each(partial(once_each, time), whole, part, scales) for whole, part in tables]


def scaled_amounts(pipeline: Pipeline, table: Sequence[Sequence[Entry]]) -> list[list[Entry]]:
    """``[route][stage]``: what is held of a microbatch of each route, from what the memory says; or how long that is copied."""
    if not pipeline.mix.differs:
        return [list(row) for row in table]

    def amount(x: Entry, by: Scale) -> Entry:
        return x if x is None else x * by.held

    def row(amounts: list[Entry], scales: Sequence[Scale]) -> list[Entry]:
        return once_each(amount, amounts, scales) if any(amounts) else amounts

    return once_each(row, one_object_each(table), scales_of(pipeline))


def scaled_working(pipeline: Pipeline, each: Sequence[Fraction]) -> list[list[Fraction]]:
    """``[route][device]``: what a backward of a microbatch of each route takes while it runs, from what the memory says.

    It grows with what is held of the microbatch; of several stages on a device, the one of which most is.
    """
    if not pipeline.mix.differs:
        return [list(each)] * len(pipeline.routes)

    none = list(each)

    def row(scales: Sequence[Scale], route: Sequence[int]) -> list[Fraction]:
        if not any(none):
            return none
        most = [max((by.held for by, own in zip(scales, route, strict=True) if own == d), default=None) for d in range(len(each))]
        elsewhere = max(by.held for by in scales)
        return [x * (elsewhere if by is None else by) for x, by in zip(each, most, strict=True)]

    return once_each(row, scales_of(pipeline), pipeline.backward_routes or pipeline.routes)


def scaled_transfers(pipeline: Pipeline, sending: list[list[list[Fraction]]]) -> list[list[list[Fraction]]]:
    """``[route][send][stage]``: how long transfers hold their links, from what the links say.

    What passes between a stage and the next one is as large as what the former holds, in both directions.
    """
    if not pipeline.mix.differs:
        return sending

    def row(on_route: list[list[Fraction]], scales: Sequence[Scale]) -> list[list[Fraction]]:
        if not any(map(any, on_route)):
            return on_route
        held = [by.held for by in scales]
        factors = held, [Fraction(1), *held[:-1]]
        return [[x * y for x, y in zip(*of, strict=True)] for of in zip(on_route, factors, strict=True)]

    return once_each(row, sending, scales_of(pipeline))


def longest_transfer(pipeline: Pipeline) -> Fraction:
    """The largest factor by which a transfer holds its link longer than the links say."""
    if not pipeline.mix.differs:
        return Fraction(1)
    return max(by.held for scales in sizes_of(pipeline).scales for by in scales)


def _quadratic(pipeline: Pipeline) -> list[list[list[Fraction]]]:
    """``[kind][route][stage]``: the parts of the durations that grow with the squares of lengths; W has none.

    PyTorch runs nothing in I of the first stage, and the whole backward in its W.
    """

    def row(given: Sequence[Fraction | None]) -> list[Fraction]:
        return [x or Fraction(0) for x in given]

    def part(name: str) -> list[list[Fraction]]:
        return once_each(row, durations(pipeline, f"{name}_quadratic"))

    none = [[Fraction(0)] * pipeline.stages] * len(pipeline.routes)
    forward, input_, weight = part("forward"), part("backward_input"), none
    full = input_ if pipeline.costs.backward is None or pipeline.costs.backward_quadratic is None else part("backward")
    if pipeline.costs.backward_input is None and pipeline.costs.backward_quadratic is not None:
        input_ = none
    if pipeline.runtime == TORCH and pipeline.costs.split:
        weight = once_each(lambda first, rest: [first[0], *rest[1:]], full, weight)
        input_ = once_each(lambda rest: [Fraction(0), *rest[1:]], input_)
    by_kind = {Kind.F: forward, Kind.B: full, Kind.I: input_, Kind.W: weight}
    return [by_kind[kind] for kind in Kind]


def check_quadratic(pipeline: Pipeline) -> None:
    """Raise where a part that grows with the square of a length is more than the whole, or there is no whole.

    Raises:
        PipelineError: it is.
    """
    for name in QUADRATIC:
        given = getattr(pipeline.costs, name)
        whole = getattr(pipeline.costs, name.removesuffix("_quadratic"))
        if given is None:
            continue
        if whole is None and name == "backward_quadratic":
            raise PipelineError(f"costs.{name}", "is a part of costs.backward, which is not given")
        if whole is None:
            raise PipelineError(f"costs.{name}", f"is a part of costs.{name.removesuffix('_quadratic')}, which is not given")
        back = name.startswith(("backward", "recompute"))

        def check(*rows: Sequence[Fraction | None], name: str = name) -> None:
            for stage, (part, all_) in enumerate(zip(*rows, strict=True)):
                if part is not None and all_ is not None and part > all_:
                    problem = f"expected at most the whole duration, of stage {stage} {plain(all_)}, got {plain(part)}"
                    raise PipelineError(f"costs.{name}", problem)

        once_each(check, by_stage(pipeline, given, back), by_stage(pipeline, whole, back))


@lru_cache(maxsize=4)  # each named schedule of a pipeline asks for it
def alike(pipeline: Pipeline) -> Pipeline:
    """The pipeline with as many microbatches that are alike: each takes and holds what they take and hold on average.

    Memory is unlimited and has no working sets, and nothing is copied to the host.
    """
    mix = pipeline.mix
    if not mix.differs:
        return pipeline if not mix else pipeline.changed(mix=Mix(), route_of_microbatch=pipeline.route_of_microbatch)
    flat = pipeline.flat()
    if mix.by_stage:
        flat = per_stage(flat)
    many = pipeline.microbatches
    each = [mix.scales(m, pipeline.stages if mix.by_stage else 1) for m in range(many)]
    mean = [Scale(*(sum(parts, Fraction(0)) / many for parts in zip(*of, strict=True))) for of in zip(*each, strict=True)]

    def scaled(value: Value | None, by: Callable[[Scale], Fraction]) -> Value | None:
        if value is None or not mix.by_stage:
            factor = by(mean[0])
            return tuple(x * factor for x in value) if isinstance(value, tuple) else value if value is None else value * factor
        assert isinstance(value, tuple)
        return tuple(x * by(of) for x, of in zip(value, mean, strict=True))

    costs: dict[str, Any] = {}
    for name in DURATIONS:
        value = getattr(flat.costs, name)
        part = getattr(flat.costs, f"{name}_quadratic", None)
        if name in QUADRATIC:
            costs[name] = None
        elif value is not None:
            linear = scaled(value, lambda of: of.linear)
            more = scaled(part, lambda of: of.square - of.linear)
            costs[name] = linear if more is None else _sum(linear, more)
    names = ("activation", "retained", "recompute_saved")
    memory: dict[str, Any] = {name: scaled(getattr(flat.memory, name), lambda of: of.held) for name in names}
    transfer = sum((of.held for of in mean), Fraction(0)) / len(mean)
    occupancy = flat.links.occupancy
    if isinstance(occupancy, tuple):
        occupancy = tuple(tuple(x * transfer for x in row) for row in occupancy)
    else:
        occupancy *= transfer
    return flat.changed(
        costs=dataclasses.replace(flat.costs, **costs),
        memory=dataclasses.replace(flat.memory, **memory, limit=None, working=None),
        links=dataclasses.replace(flat.links, occupancy=occupancy),
        offload=None,
        mix=Mix(),
        route_of_microbatch=flat.route_of_microbatch,
    )


def _sum(one: Value | None, other: Value) -> Value | None:
    if one is None:
        return other
    if isinstance(one, tuple) or isinstance(other, tuple):
        length = len(one) if isinstance(one, tuple) else len(other)  # type: ignore[arg-type]
        rows = [value if isinstance(value, tuple) else (value,) * length for value in (one, other)]
        return tuple(x + y for x, y in zip(*rows, strict=True))
    return one + other
