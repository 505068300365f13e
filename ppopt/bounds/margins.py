"""What devices do before their first operation and after their last one, as times that are linear in what layers take once per
step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from ppopt.bounds.ways import Once, Part, Time, Way, common
from ppopt.constraints import FamilyGraph
from ppopt.pipeline import Pipeline
from ppopt.pipeline.cutting import groups_of, summed
from ppopt.pipeline.traffic import stages_of_devices


class Margins(NamedTuple):
    """Of each family of a graph what there is before its operations at least, and behind them, until the device ends."""

    before: tuple[Way, ...]
    behind: tuple[Way, ...]

    def around(self, families: Sequence[int]) -> Way:
        """What a device does before and behind these families at least; it may be less than the least on a given cut."""
        first, last = (common([side[o] for o in families]) for side in self)
        return first.behind(last)


def given_once(pipeline: Pipeline) -> frozenset[Once]:
    """What the layers take once per step: it follows from the cut, and from nothing else."""
    layers = pipeline.layers
    if layers is None:
        return frozenset()
    exchanged = (Once.ALL_GATHER, Once.REDUCE_SCATTER) if layers.has("all_gather", "reduce_scatter") else ()
    return frozenset((*exchanged, *((Once.OPTIMIZER,) if layers.has("optimizer") else ())))


def once_of_stages(pipeline: Pipeline) -> dict[Part, Time]:
    """What the layers of each stage take once per step, in the ticks of a pipeline that is cut; these need not be whole."""
    layers = pipeline.layers
    found: dict[Part, Time] = {}
    for once in sorted(given_once(pipeline)):
        assert layers is not None
        each = summed(groups_of(layers, pipeline.counts), layers.each(once.field))
        assert each is not None
        found |= {Part(once, stage): _whole(time * pipeline.ticks.per_unit) for stage, time in enumerate(each)}
    return found


def margins_of(pipeline: Pipeline, graph: FamilyGraph, once: Collection[Once] = ()) -> Margins:
    """The margins of a graph of a pipeline, linear in what its layers take once per step; the rest is constant.

    ``once``: what counts as a time of stages as well, for a pipeline that has no layers which say so.

    Without overlap a device gathers for all of its stages before it begins, and scatters for all when it has ended; with overlap
    for a stage and the earlier ones (:class:`~ppopt.pipeline.DataParallel`). The optimizer step is that of all its stages.
    """
    counted = given_once(pipeline).union(once)
    own, overlap, stages_of = once_of_stages(pipeline), pipeline.data_parallel.overlap, stages_of_devices(pipeline)

    def parts(family: int, names: Collection[Once]) -> list[Part]:
        route, stage, kind = (of := graph.families[family]).route, of.stage, of.kind
        exchanging, computing = pipeline.routes[route][stage], int(pipeline.device_by_kind[route, kind, stage])
        sooner = [other for other in stages_of[exchanging] if other <= stage or not overlap]
        return [Part(name, other) for name in names for other in (stages_of[computing] if name == Once.OPTIMIZER else sooner)]

    def ways(given: Sequence[int], *names: Once) -> tuple[Way, ...]:
        said = [name for name in names if name in counted]
        return _ways(given, lambda family: parts(family, said) if said else [], own)

    return Margins(ways(graph.lead, Once.ALL_GATHER), ways(graph.tail, Once.REDUCE_SCATTER, Once.OPTIMIZER))


def _ways(given: Sequence[int], parts: Callable[[int], list[Part]], own: Mapping[Part, Time]) -> tuple[Way, ...]:
    """Of each family these parts, and as a constant what there is beside them on the pipeline's own cut."""
    found, known = [], dict[tuple[int, tuple[Part, ...]], Way]()
    for family, ticks in enumerate(given):
        of = tuple(parts(family))
        if (ticks, of) not in known:
            rest = ticks - sum((Fraction(own.get(part, 0)) for part in of), start=Fraction(0))
            assert rest >= 0, "a device does what its layers take"
            known[ticks, of] = Way.of(dict.fromkeys(of, 1), _whole(rest))
        found.append(known[ticks, of])
    return tuple(found)


def _whole(time: Fraction) -> Time:
    return int(time) if time.denominator == 1 else time
