"""The zero-bubble papers' automatic scheduler (:mod:`ppopt.heuristics.zero_bubble`), under a limit of D or 2D activations."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from ppopt.constraints import Family, Word, chain, memory_of
from ppopt.heuristics.zero_bubble import best_of_eight
from ppopt.named.definition import Definition, Parameter, Parameters, limited, split
from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def automatic(pipeline: Pipeline, activations: Fraction) -> Iterable[Word]:
    """Each kind in order, and room for ``activations`` of a microbatch; everything else is the heuristic's."""
    for d in range(pipeline.devices):
        yield from split([d])
        yield from (chain(Family(d, kind)) for kind in (Kind.F, Kind.I, Kind.W))
    yield from memory_of(limited(pipeline, activations))


def _definition(name: str, times: int, beside: str) -> Definition:
    most = "D" if times == 1 else "2D"

    def activations(pipeline: Pipeline, params: Parameters) -> Fraction:
        return Fraction(params.get("limit", times * pipeline.devices))

    return Definition(
        name=name,
        summary=f"automatic scheduler under a limit of {most} activations, best of eight settings by device span; not {beside}",
        source="Qi et al. 2023, arXiv 2401.10241; sail-sg/zero-bubble-pipeline-parallelism zerobubble/scheduler/zb.py",
        placement="linear",
        constrain=lambda pipeline, params: automatic(pipeline, activations(pipeline, params)),
        split=True,
        parameters=(Parameter("limit", "activations of a microbatch that a device may hold", most),),
        peak=f"at most {most}",
        open_rule="all but the order of each kind: a greedy heuristic with three yes/no settings; it keeps the given limits too",
        fill=lambda pipeline, words, params: best_of_eight(pipeline, activations(pipeline, params)),
        keeps_limit=True,
    )


DEFINITIONS = (_definition("zb-1p", 1, "zb-h1's alias zb1p"), _definition("zb-2p", 2, "zb-h2's alias zb2p"))
