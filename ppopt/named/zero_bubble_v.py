"""Zero-bubble schedules on a V: device d holds stages d and 2D-1-d, and the backward is split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ppopt.constraints import Listed, Word, chain
from ppopt.named.definition import Definition, Parameter, Parameters, split
from ppopt.op import Kind, Op
from ppopt.pipeline import Pipeline


def zb_v(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """The seven steps on every device, made for equal costs."""
    yield from split(range(pipeline.stages))
    for d in range(pipeline.devices):
        yield chain(Listed(tuple(seven_steps(pipeline, d, params.get("tail", "chunk0-first")))))


def seven_steps(pipeline: Pipeline, device: int, tail: str) -> Iterator[Op]:
    """The order of one device: written for at least 2D - 1 microbatches, those that do not exist left out."""
    devices, microbatches = pipeline.devices, pipeline.microbatches
    written = max(microbatches, 2 * devices - 1)
    stages = (device, 2 * devices - 1 - device)
    count = {(kind, chunk): 0 for kind in Kind for chunk in (0, 1)}

    def run(text: str) -> Iterator[Op]:
        """The next of ``F0``, ``I1``, …: kind and chunk."""
        for turn in text.split():
            key = (Kind[turn[0]], int(turn[1]))
            if count[key] < microbatches:
                yield Op(stages[key[1]], key[0], count[key])
            count[key] += 1

    yield from run("F0 " * (2 * (devices - device) - 1))
    yield from run("F1 F0 " * device)
    yield from run("F1 I1 W1 " * (devices - device))
    while count[Kind.F, 1] < count[Kind.F, 0] or count[Kind.F, 0] < written:
        if count[Kind.F, 0] < written:
            yield from run("F0")
        yield from run("I0 W0 F1 I1 W1")
    yield from run("I0 I1 " * device)
    yield from run("I0 W0 " * (devices - device))
    for chunk in (0, 1) if tail == "chunk0-first" else (1, 0):
        yield from run(f"W{chunk} " * (written - count[Kind.W, chunk]))


DEFINITIONS = (
    Definition(
        name="zb-v",
        summary="a V whose devices never idle between their first and last operation at equal costs, memory as 1F1B",
        source="Qi et al. 2023, arXiv 2401.10241, section 6; PyTorch ScheduleZBVZeroBubble (tail chunk1-first)",
        placement="wave",
        constrain=zb_v,
        aliases=("zbv", "zbvzerobubble"),
        split=True,
        least_chunks=2,
        parameters=(
            Parameter(
                "tail",
                "which chunk's leftover weight gradients come first",
                "chunk0-first",
                choices=("chunk0-first", "chunk1-first"),
            ),
        ),
        needs="- (closed forms: M >= 2D-1)",
        peak="2D",
        idle="(D-1)T_F, of the device span 0, at T_F = T_I = T_W",
    ),
)
