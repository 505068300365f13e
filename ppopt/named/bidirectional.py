"""Two directions with a copy of the weights each, fused backward: Chimera and BitPipe."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ppopt.clock import check_time
from ppopt.constraints import Listed, Word, chain
from ppopt.named.definition import Definition, Parameter, Parameters, Restriction, filled_greedily, fused
from ppopt.op import Kind
from ppopt.pipeline import IntArray, Pipeline, Routes

MERGE = Parameter("merge", "slots (the rule) or greedy (each direction's order kept)", "slots", choices=("slots", "greedy"))


def chimera(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """Operations by slot, in units of D microbatches, one stage per device and direction."""
    return by_slots("chimera", pipeline, params)


def bitpipe(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """Chimera's slots on two V's: two chunks per device and direction."""
    return by_slots("bitpipe", pipeline, params)


def by_slots(name: str, pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """A device runs its operations by slot, or, merged greedily, only those of each direction.

    Unit u is D microbatches, half of them in each direction. With j the index inside its direction and unit, ``F`` of
    stage s has slot ``2Su + 2j + s`` and ``B`` has ``2Su + 2j + 2S-1-s``. Slots of one device never tie.

    Raises:
        Restriction: an odd number of devices, microbatches that are no multiple of them, or routes with unequal shares of these.
    """
    devices, microbatches, stages = pipeline.devices, pipeline.microbatches, pipeline.stages
    if devices % 2:
        raise Restriction(f"{name}: devices must be even, got {devices}")
    if microbatches % devices:
        raise Restriction(f"{name}: microbatches must be a multiple of devices ({devices}), got {microbatches}")
    on_routes, index = pipeline.microbatches_of, pipeline.index
    if len(on_routes[0]) != len(on_routes[1]):
        raise Restriction(f"{name}: each route needs half of the microbatches, got {len(on_routes[0])} and {len(on_routes[1])}")
    columns: list[list[tuple[IntArray, int, IntArray]]] = [[] for _ in range(devices)]  # slots, route, numbers
    for route, on_route in enumerate(on_routes):
        unit, j = np.divmod(np.arange(len(on_route)), devices // 2)
        begin = 2 * stages * unit + 2 * j
        for stage, device in enumerate(pipeline.routes[route]):
            check_time()
            for slot, kind in ((stage, Kind.F), (2 * stages - 1 - stage, Kind.B)):
                columns[device].append((begin + slot, route, index.family(stage, kind) + on_route))
    for route in (0, 1):
        yield from fused(range(stages), route)
    for of_device in columns:
        for directions in ((0,), (1,)) if params.get("merge") == "greedy" else ((0, 1),):
            slots, _, numbers = zip(*(column for column in of_device if column[1] in directions), strict=True)
            yield chain(Listed.of(index, np.concatenate(numbers)[np.argsort(np.concatenate(slots))]))


def two_waves(devices: int) -> Routes:
    """Two V's, one from each end of the devices."""
    up = tuple(range(devices))
    return (up + up[::-1], up[::-1] + up)


DEFINITIONS = (
    Definition(
        name="chimera",
        summary="two pipes in opposite directions, in units of D microbatches that fill each other's gaps",
        source="Li, Hoefler 2021, arXiv 2107.06925 (direct concatenation)",
        placement="bidirectional",
        constrain=chimera,
        parameters=(MERGE,),
        needs="D even, M mod D = 0",
        peak="D/2 + 1 + min(d, D-1-d) (weights twice)",
        idle="(D-2)max(T_F,T_B) + (M/D-1)(D-2)|T_B-T_F|",
        open_rule="merge = greedy: a backward before a forward, the older microbatch first",
        fill=filled_greedily,
    ),
    Definition(
        name="bitpipe",
        summary="two V's in opposite directions, two chunks per device and direction, in units of D microbatches",
        source="Wu et al. 2024, arXiv 2410.19367; wuhouming/BitPipe. Built from its description: Chimera's slots on two V's",
        placement="bidirectional",
        constrain=bitpipe,
        least_chunks=2,
        routes=two_waves,
        parameters=(MERGE,),
        needs="D even, M mod D = 0",
        peak="D + D/2 + 1 + min(d, D-1-d) (weights twice)",
        idle="(D-2)max(T_F,T_B) + (M/D-1)(D-2)|T_B-T_F|",
        open_rule="merge = greedy: a backward before a forward, the older microbatch first",
        fill=filled_greedily,
    ),
)
