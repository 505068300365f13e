"""V-Half and V-Min: one microbatch's operations on a V at fixed slots, repeated every six slots, in a half or third of 1F1B's
memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import product

import numpy as np

from ppopt.constraints import Listed, Precede, Word, chain, memory_of
from ppopt.heuristics import Jobs, list_schedule
from ppopt.named.definition import Definition, limited, rules_without_memory
from ppopt.named.zero_bubble_v import in_order
from ppopt.op import Kind, Op
from ppopt.pipeline import Costs, IntArray, Links, Memory, Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import time_order

PERIOD = 6
Block = dict[tuple[Kind, int], int]
"""The slot of microbatch 0's operation by kind (``F``, ``I``) and stage."""


def block_half(devices: int) -> Block:
    """V-Half's: forwards leave at half speed."""
    wait = 0 if devices % 2 else 3
    slots = [(2 * d, 3 * devices - 2 - d, 3 * devices - 1 + wait + 2 * d, 6 * devices - 2 + wait - d) for d in range(devices)]
    return _block(slots)


def block_min(devices: int) -> Block:
    """V-Min's: forwards leave at full speed."""
    wait = 0 if devices % 3 else 2
    slots = [(d, 2 * devices - 1 - d, 2 * devices + wait + d, 4 * devices + wait - 1 - d) for d in range(devices)]
    return _block(slots)


def _block(slots: list[tuple[int, int, int, int]]) -> Block:
    last = 2 * len(slots) - 1
    block: Block = {}
    for d, (out, back, input_out, input_back) in enumerate(slots):
        block.update({(Kind.F, d): out, (Kind.F, last - d): back})
        block.update({(Kind.I, last - d): input_out, (Kind.I, d): input_back})
    return block


def peak_half(devices: int) -> int:
    """V-Half's peak in activations of a chunk."""
    return devices + 1 + (devices + 1) % 2


def peak_min(devices: int) -> int:
    """V-Min's peak in activations of a chunk."""
    return 2 * ((devices + 4) // 3)


def constraints(pipeline: Pipeline, peak: int) -> Iterable[Word]:
    """Each kind of a stage in order, and the peak. The rest of the published schedules is the work of heuristics."""
    yield from in_order(pipeline)
    yield from memory_of(limited(pipeline, Fraction(peak, 2)))


def repeated(pipeline: Pipeline, words: tuple[Word, ...], block: Block) -> Schedule:
    """The block, repeated: F and I in the order of their slots, W where a device would be idle or memory asks for it.

    Only while the pipeline fills and after the last microbatch has entered, an operation may run before others of earlier
    slots that cannot. How long filling lasts, and whether all this is done with the true costs or with equal ones, is tried
    out on at most 2D microbatches; what gives the shortest makespan with the true costs is kept.
    """
    small = pipeline.changed(microbatches=min(pipeline.microbatches, 2 * pipeline.devices))
    begins = (0, *(block[Kind.I, 0] - PERIOD * periods for periods in range(4)))
    tried = product(begins, (_as_it_is, _with_equal_costs))
    begin, view = min(tried, key=lambda way: time_order(small, _built(way[1](small), words, block, way[0])).makespan)
    return time_order(pipeline, _built(view(pipeline), words, block, begin))


def _as_it_is(pipeline: Pipeline) -> Pipeline:
    return pipeline


def _with_equal_costs(pipeline: Pipeline) -> Pipeline:
    return pipeline.changed(costs=Costs(per="stage"), links=Links(), memory=Memory(), recompute="none")


def _built(pipeline: Pipeline, words: tuple[Word, ...], block: Block, begin: int) -> Order:
    """The order with filling until slot ``begin`` (0: the order of the slots throughout)."""
    entered = PERIOD * (pipeline.microbatches - 1) if begin else PERIOD * pipeline.microbatches + max(block.values())
    slots: list[list[tuple[int, Op]]] = [[] for _ in range(pipeline.devices)]
    for (kind, stage), slot in block.items():
        slots[pipeline.routes[0][stage]] += [(slot + PERIOD * m, Op(stage, kind, m)) for m in range(pipeline.microbatches)]
    pinned: list[Word] = []
    for row in slots:
        row.sort()
        before = [op for slot, op in row if slot < begin]
        steady = [op for slot, op in row if begin <= slot <= entered]
        after = [op for slot, op in row if slot > entered]
        if steady:
            pinned.append(chain(Listed(tuple(steady))))
            pinned.append(Precede(Listed(tuple(before)), Listed((steady[0],) * len(before))))
            pinned.append(Precede(Listed((steady[-1],) * len(after)), Listed(tuple(after))))

    def by_slot(jobs: Jobs) -> tuple[IntArray, ...]:
        kind, stage, turn = jobs.features.kind, jobs.features.stage, jobs.features.turn
        table = np.zeros((len(Kind), pipeline.stages), dtype=np.int64)
        for (of, at), slot in block.items():
            table[of, at] = slot
        return (kind == Kind.W).astype(np.int64), table[kind, stage] + PERIOD * turn

    rules = (*rules_without_memory(pipeline), *words, *pinned)
    return list_schedule(pipeline, rules, by_slot, patient=True, reserve=False).order


def _definition(
    name: str, part: str, block: Callable[[int], Block], peak: Callable[[int], int], peak_form: str, idle: str
) -> Definition:
    return Definition(
        name=name,
        summary=f"a block of fixed slots on a V, repeated every six slots, in about {part} of 1F1B's memory",
        source="Qi et al. 2024, arXiv 2405.15362; sail-sg/zero-bubble-pipeline-parallelism zerobubble/scheduler/zbv_greedy.py",
        placement="wave",
        constrain=lambda pipeline, params: constraints(pipeline, peak(pipeline.devices)),
        aliases=(name.replace("-", ""),),
        split=True,
        least_chunks=2,
        peak=peak_form,
        idle=idle,
        open_rule="all but the order of each kind: F and I by their slots in the repeated block, W where the device would be "
        "idle or the peak asks for it; while the pipeline fills and drains, what can run does not wait for earlier slots",
        fill=lambda pipeline, words, params: repeated(pipeline, words, block(pipeline.devices)),
    )


DEFINITIONS = (
    _definition(
        "v-half",
        "half",
        block_half,
        peak_half,
        "D + 2 (even D), D + 1 (odd)",
        "at unit costs and M >= 2D: 3D-7 (even D >= 4), 3D-4 (odd D >= 3), 1 (D = 2)",
    ),
    _definition(
        "v-min",
        "a third",
        block_min,
        peak_min,
        "2 floor((D+4)/3)",
        "at unit costs and M >= 2D: 3, 5, 11, 15, 17, 27 at D = 2, 3, 4, 5, 6, 8",
    ),
)
