"""One stage per device, fused backward: GPipe, 1F1B and its relatives."""

from __future__ import annotations

from collections.abc import Iterable

from ppopt.constraints import Dealt, Family, Precede, Word, chain
from ppopt.named.definition import Definition, Parameter, Parameters, Restriction, alternating, fused, overlapping
from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def gpipe(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """All forwards, then all backwards, each in order: ``F(M-1) < B(0)``."""
    for d in range(pipeline.devices):
        forward, backward = Family(d, Kind.F), Family(d, Kind.B)
        yield from fused([d])
        yield from (chain(forward), chain(backward), Precede(forward, backward, shift=1 - pipeline.microbatches))


def one_f_one_b(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """``F(m + w) < B(m) < F(m + w + 1)`` with ``w = min(M, D - 1 - d)`` forwards of warm-up on device d."""
    for d in range(pipeline.devices):
        yield from fused([d])
        yield from alternating(Family(d, Kind.F), Family(d, Kind.B), pipeline.devices - 1 - d, pipeline.microbatches)


def one_f_one_b_overlap(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """``w = 2 (D - 1 - d) + 1`` forwards of warm-up, then pairs ``(F(m + w); B(m))``."""
    for d in range(pipeline.devices):
        warmup = 2 * (pipeline.devices - 1 - d) + 1
        yield from fused([d])
        yield from overlapping(Family(d, Kind.F), Family(d, Kind.B), warmup, pipeline.microbatches)


def pipedream(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """A device takes turns as soon as it can: no limit on the warm-up, which lasts until the first backward is there.

    In unit steps that is ``2 (D - 1 - d)`` forwards, then one forward and one backward in turn.
    """
    for d in range(pipeline.devices):
        yield from fused([d])
        yield from alternating(Family(d, Kind.F), Family(d, Kind.B), 2 * (pipeline.devices - 1 - d), pipeline.microbatches)


def seq1f1b(pipeline: Pipeline, params: Parameters) -> Iterable[Word]:
    """1F1B on pieces of sequences: the forwards piece by piece, the backwards of a sequence from its last piece.

    A piece is a microbatch of the pipeline: k in a row are one sequence. Piece q's attention reads the keys and values
    of the pieces before it on the same stage, and its backward adds to their gradients; the two chains see to both.

    Raises:
        Restriction: the microbatches are no multiple of the pieces of a sequence.
    """
    pieces = params.get("pieces", 2)
    if pipeline.microbatches % pieces:
        raise Restriction(
            f"seq1f1b: microbatches (pieces of sequences) must be a multiple of pieces ({pieces}), got {pipeline.microbatches}"
        )
    for d in range(pipeline.devices):
        backwards = Dealt((Family(d, Kind.B),), pieces, descending=True)
        warmup = pipeline.devices - d - 2 + pieces
        yield from fused([d])
        yield from alternating(Family(d, Kind.F), backwards, warmup, pipeline.microbatches)


DEFINITIONS = (
    Definition(
        name="gpipe",
        summary="all forwards, then all backwards",
        source="Huang et al. 2018, arXiv 1811.06965",
        placement="linear",
        constrain=gpipe,
        aliases=("afab", "fthenb"),
        peak="M",
        idle="(D-1)(T_F+T_B)",
    ),
    Definition(
        name="1f1b",
        summary="a warm-up of D-1-d forwards, then one forward and one backward in turn",
        source="Narayanan et al. 2020, arXiv 2006.09503 (PipeDream-flush); Fan et al. 2020, arXiv 2007.01045 (DAPPLE)",
        placement="linear",
        constrain=one_f_one_b,
        aliases=("pipedream-flush", "dapple"),
        peak="min(M, D-d)",
        idle="(D-1)(T_F+T_B)",
    ),
    Definition(
        name="1f1b-overlap",
        summary="1F1B whose steady state is overlapped pairs of one forward and one backward, with twice the warm-up",
        source="Victarry/PP-Schedule-Visualization, strategy 1f1b_overlap",
        placement="linear",
        constrain=one_f_one_b_overlap,
        aliases=("1f1b_overlap",),
        peak="min(M, 2(D-d))",
        idle="(D-1)(T_F+T_B) at T_O = T_F+T_B",
    ),
    Definition(
        name="pipedream",
        summary="one forward and one backward in turn from the first backward on, without a limit on the warm-up; not 1F1B",
        source="microsoft/dist-ir, its PipeDream scheduler",
        placement="linear",
        constrain=pipedream,
        aliases=("pipedream-alternating",),
        peak="min(M, 2(D-d)-1)",
        idle="(D-1)(T_F+T_B)",
    ),
    Definition(
        name="seq1f1b",
        summary="1F1B on pieces of sequences; a microbatch of the pipeline is one piece, k in a row are one sequence",
        source="Sun et al. 2024, arXiv 2406.03488; thunlp/Seq1F1B",
        placement="linear",
        constrain=seq1f1b,
        parameters=(Parameter("pieces", "how many pieces a sequence is cut into (k)", "2"),),
        needs="M mod k = 0, M and peak counted in pieces, which cost the same",
        counted="microbatches are pieces of sequences here, each as long as a whole microbatch of the others",
        peak="min(M, D-d-1+k)",
    ),
)
