"""V-Half and V-Min: one microbatch's operations on a V at fixed slots, repeated every six slots, in a half or third of 1F1B's
memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from ppopt.constraints import Word, memory_of
from ppopt.heuristics.repeated_block import Block, repeated
from ppopt.named.definition import Definition, limited
from ppopt.named.zero_bubble_v import in_order
from ppopt.pipeline import Pipeline


def block_half(devices: int) -> Block:
    """V-Half's: forwards leave at half speed."""
    wait = 0 if devices % 2 else 3
    return _block(
        out=[2 * d for d in range(devices)],
        back=[3 * devices - 2 - d for d in range(devices)],
        input_out=[3 * devices - 1 + wait + 2 * d for d in range(devices)],
        input_back=[6 * devices - 2 + wait - d for d in range(devices)],
    )


def block_min(devices: int) -> Block:
    """V-Min's: forwards leave at full speed."""
    wait = 0 if devices % 3 else 2
    return _block(
        out=list(range(devices)),
        back=[2 * devices - 1 - d for d in range(devices)],
        input_out=[2 * devices + wait + d for d in range(devices)],
        input_back=[4 * devices + wait - 1 - d for d in range(devices)],
    )


def _block(out: list[int], back: list[int], input_out: list[int], input_back: list[int]) -> Block:
    """Slots by device, of a microbatch's forwards and then its input gradients on the way out and back."""
    return Block(period=6, forward=(*out, *reversed(back)), input_gradient=(*input_back, *reversed(input_out)))


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
        fills_gaps=True,
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
