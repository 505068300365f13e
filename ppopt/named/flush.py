"""One stage per device, fused backward: GPipe and 1F1B."""

from __future__ import annotations

from collections.abc import Iterable

from ppopt.constraints import Family, Precede, Word, chain
from ppopt.named.definition import Definition, Parameters, alternating, fused
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
        forward, backward = Family(d, Kind.F), Family(d, Kind.B)
        yield from fused([d])
        yield from alternating(forward, backward, pipeline.devices - 1 - d, pipeline.microbatches)


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
)
