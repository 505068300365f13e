"""Hanayo: microbatches run up and down the devices in waves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain as joined

from ppopt.clock import check_time
from ppopt.constraints import Listed, Word, chain
from ppopt.named.definition import Definition, Parameter, Parameters, Restriction, fused
from ppopt.op import Kind, Op
from ppopt.pipeline import Pipeline


def hanayo(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """A construction, so a chain of operations per device: the authors' rule for M = D, groups of D beyond.

    Raises:
        Restriction: an odd number of chunks, or a number of microbatches that the variant has no rule for.
    """
    devices, microbatches, chunks = pipeline.devices, pipeline.microbatches, pipeline.chunks
    if chunks % 2:
        raise Restriction(f"hanayo: chunks must be even (2 per wave), got {chunks}")
    if microbatches % devices:
        raise Restriction(f"hanayo: microbatches must be a multiple of devices ({devices}), got {microbatches}")
    variant = params.get("variant", "rule" if microbatches == devices else "groups")
    if variant == "rule" and microbatches != devices:
        raise Restriction(f"hanayo: the variant rule needs microbatches = devices ({devices}), got {microbatches}")
    rows = [by_rule(pipeline, d) for d in range(devices)] if variant == "rule" else in_groups(pipeline)
    yield from fused(range(pipeline.stages))
    for row in rows:
        yield chain(Listed(tuple(row)))


def by_rule(pipeline: Pipeline, device: int) -> list[Op]:
    """The order of one device for M = D."""
    D, v = pipeline.devices, pipeline.chunks
    stage = [c * D + (device if c % 2 == 0 else D - 1 - device) for c in range(v)]
    every = range(D)
    queue: Iterator[Op] = joined(
        (Op(stage[0], Kind.F, m) for m in range(D - device, D)),
        (Op(stage[c], Kind.F, m) for c in range(2, v, 2) for m in every),
        (Op(stage[c], Kind.B, m) for c in range(v - 1, 0, -2) for m in every),
    )
    row = [Op(stage[0], Kind.F, m) for m in range(D - device)]
    steps = [Op(stage[c], Kind.F, m) for c in range(1, v, 2) for m in every]
    steps += [Op(stage[c], Kind.B, m) for c in range(v - 2, -1, -2) for m in every]
    for op in steps:
        row.append(op)
        row += [following for following in [next(queue, None)] if following is not None]
    return row


def in_groups(pipeline: Pipeline) -> list[list[Op]]:
    """The order of every device for groups of D microbatches, read off a grid on which F takes one slot and B two.

    Each group's first microbatch goes straight through; slots before its turns are kept free on each device; the
    others follow, each operation in the first free slots after its predecessor.
    """
    D, v, route = pipeline.devices, pipeline.chunks, pipeline.routes[0]
    grids = [_Grid() for _ in range(D)]
    path = [(stage, Kind.F) for stage in range(pipeline.stages)]
    path += [(stage, Kind.B) for stage in reversed(range(pipeline.stages))]
    begin = 0
    for first in range(0, pipeline.microbatches, D):
        check_time()
        for microbatch in range(first, first + D):
            slot = begin
            placed: dict[tuple[int, Kind], int] = {}
            for stage, kind in path:
                width = 1 if kind == Kind.F else 2
                grid = grids[route[stage]]
                slot = grid.first_free(slot, width)
                grid.put(slot, width, Op(stage, kind, microbatch))
                placed[stage, kind] = slot
                slot += width
            if microbatch == first:
                end = slot
                for d in range(D):
                    grids[d].block(placed[2 * D - 1 - d, Kind.F], D - 1 - d)
                    grids[d].block(placed[(v - 1) * D + D - 1 - d, Kind.B], d)
        begin = end
    return [grid.order() for grid in grids]


class _Grid:
    """The slots of one device."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._ops: list[tuple[int, Op]] = []

    def first_free(self, slot: int, width: int) -> int:
        while any(slot + i in self._taken for i in range(width)):
            slot += 1
        return slot

    def put(self, slot: int, width: int, op: Op) -> None:
        self._taken.update(range(slot, slot + width))
        self._ops.append((slot, op))

    def block(self, slot: int, count: int) -> None:
        self._taken.update(range(slot - count, slot))

    def order(self) -> list[Op]:
        return [op for _, op in sorted(self._ops)]


DEFINITIONS = (
    Definition(
        name="hanayo",
        summary="W waves up and down the devices, 2W chunks per device; groups of D microbatches where M > D",
        source="Liu et al. 2023, arXiv 2308.15762; groups: C-TC/Megatron-LM (branch crossdc) cdc_scheduler",
        placement="wave",
        constrain=hanayo,
        chunks=lambda params: 2 * params["waves"] if "waves" in params else None,
        least_chunks=2,
        any_chunks=True,
        parameters=(
            Parameter("waves", "number of waves (W); a device holds 2W chunks", "half the chunks"),
            Parameter("variant", "rule (the paper's, M = D) or groups", "rule where M = D", choices=("rule", "groups")),
        ),
        needs="M mod D = 0; an even number of chunks",
        peak="2WD - (D-1-d) for M = D; at most 2WD in groups",
        idle="2(D-1)max(T_F, T_B) for M = D",
    ),
)
