"""Hanayo: microbatches run up and down the devices in waves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain as joined

import numpy as np

from ppopt.clock import check_time
from ppopt.constraints import Listed, Word, chain
from ppopt.named.definition import Definition, Parameter, Parameters, Restriction, fused
from ppopt.op import Kind, Op
from ppopt.pipeline import IntArray, Pipeline


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
    yield from fused(range(pipeline.stages))
    if variant == "rule":
        yield from (chain(Listed(by_rule(pipeline, d))) for d in range(devices))
    else:
        yield from (chain(Listed.of(pipeline.index, row)) for row in in_groups(pipeline))


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


@dataclass(frozen=True)
class Group:
    """Where the microbatches of a group run: slots count from its first, which comes ``slots`` before that of the next."""

    slots: int
    by_device: tuple[IntArray, ...]
    """Per device, by operation: its slot, its stage, its kind, and which of the group's microbatches it is for."""
    taken: tuple[frozenset[int], ...]
    """Per device, the slots that it leaves taken for the next group, counted from that one's first."""


def in_groups(pipeline: Pipeline) -> list[IntArray]:
    """The order of every device for groups of D microbatches, read off a grid on which F takes one slot and B two.

    Each group's first microbatch goes straight through; slots before its turns are kept free on each device; the
    others follow, each operation in the first free slots after its predecessor. Once a group finds the same slots taken as an
    earlier one did, all go on as they did from there.

    Numbers of operations (:class:`~ppopt.op.OpIndex`).
    """
    D, index, count = pipeline.devices, pipeline.index, pipeline.microbatches // pipeline.devices
    taken = (frozenset[int](),) * D
    known: dict[tuple[frozenset[int], ...], int] = {}
    groups: list[Group] = []
    while taken not in known and len(groups) < count:
        check_time()
        known[taken] = len(groups)
        groups.append(_group(pipeline, taken))
        taken = groups[-1].taken
    again = known.get(taken, 0)
    number = np.arange(count)
    like = np.where(number < len(groups), number, again + (number - again) % (len(groups) - again))
    begin = np.cumsum([0, *np.array([group.slots for group in groups])[like]])
    rows = []
    for d in range(D):
        slots, numbers = [], []
        for place, group in enumerate(groups):
            of_place = np.flatnonzero(like == place)[:, None]
            slot, stage, kind, microbatch = group.by_device[d]
            slots.append((begin[of_place] + slot).ravel())
            numbers.append(((kind * index.stages + stage) * index.microbatches + D * of_place + microbatch).ravel())
        rows.append(np.concatenate(numbers)[np.argsort(np.concatenate(slots))])
    return rows


def _group(pipeline: Pipeline, taken: tuple[frozenset[int], ...]) -> Group:
    """The next group, where these slots are taken."""
    D, v, route = pipeline.devices, pipeline.chunks, pipeline.routes[0]
    grids = [set(slots) for slots in taken]
    rows: list[list[tuple[int, int, int, int]]] = [[] for _ in range(D)]
    path = [(stage, Kind.F) for stage in range(pipeline.stages)]
    path += [(stage, Kind.B) for stage in reversed(range(pipeline.stages))]
    end = 0
    for microbatch in range(D):
        slot = 0
        placed: dict[tuple[int, Kind], int] = {}
        for stage, kind in path:
            grid, width = grids[route[stage]], 1 if kind == Kind.F else 2
            while any(slot + i in grid for i in range(width)):
                slot += 1
            grid.update(range(slot, slot + width))
            rows[route[stage]].append((slot, stage, kind, microbatch))
            placed[stage, kind] = slot
            slot += width
        if microbatch == 0:
            end = slot
            for d, grid in enumerate(grids):
                for turn, free in ((placed[2 * D - 1 - d, Kind.F], D - 1 - d), (placed[(v - 1) * D + D - 1 - d, Kind.B], d)):
                    grid.update(range(turn - free, turn))
    left = tuple(frozenset(slot - end for slot in grid if slot >= end) for grid in grids)
    return Group(end, tuple(np.array(row, dtype=np.int64).reshape(-1, 4).T for row in rows), left)


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
