"""Small pipelines of layers, and every cut and choice of what recomputes of them."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from ppopt.pipeline import Layers, Links, Memory, Mix, Pipeline, PipelineError
from ppopt.pipeline.cutting import groups_of
from ppopt.pipeline.routes import routes_of
from ppopt.search import Settings, solve_closed

PLACES = (("linear", 1), ("loop", 2), ("wave", 2), ("wave", 3), ("bidirectional", 1))


@st.composite
def layers(draw: st.DrawFn, most: int, split: bool, quadratic: bool = False) -> Layers:
    """One to ``most`` layers, in groups; of some times a part may be ``quadratic``."""
    count = draw(st.integers(1, most))
    groups: list[dict[str, Any]] = []
    while count:
        n = min(count, draw(st.sampled_from((1, 1, 2, 3))))
        count -= n
        activation = draw(st.sampled_from((0, 1, 2, Fraction(1, 2))))
        group: dict[str, Any] = {
            "name": f"group {len(groups)}",
            "count": n,
            "forward": draw(st.sampled_from((0, 1, 2, Fraction(1, 2)))),
            "activation": activation,
            "weights": draw(st.sampled_from((0, 1))),
            "recompute": [
                {"name": "some", "time": draw(st.sampled_from((0, Fraction(1, 2)))), "saved": Fraction(activation, 4)},
                {"name": "full", "time": draw(st.sampled_from((0, 1, 2))), "saved": Fraction(activation * 3, 4)},
            ],
        }
        if len(groups) % 2:  # the last one need not save most
            group["recompute"].reverse()
        if split:
            group |= {name: draw(st.sampled_from((0, 1, 2))) for name in ("backward_input", "backward_weight")}
            group["frozen"] = draw(st.sampled_from((False, False, False, True)))
            retained = draw(st.sampled_from((None, None, activation, 2 * activation)))  # what I rebuilds may be more than is held
            group |= {} if retained is None else {"retained": retained}
        if draw(st.integers(0, 3)) == 0:  # what it takes once per step
            group |= {name: draw(st.sampled_from((0, 1, 3))) for name in ("all_gather", "reduce_scatter", "optimizer")}
        if not split:
            group["backward"] = draw(st.sampled_from((0, 1, 3)))
        groups.append(_with_squares(draw, group) if quadratic else group)
    return Layers(groups)


def _with_squares(draw: st.DrawFn, group: dict[str, Any]) -> dict[str, Any]:
    """A group of layers of whose times a part grows with the squares of lengths."""
    part = st.sampled_from((0, 0, Fraction(1, 2), 1))
    names = ("forward", "backward_input" if "backward_input" in group else "backward")
    levels_ = [level | {"quadratic": level["time"] * draw(part)} for level in group["recompute"]]
    return group | {f"{name}_quadratic": group[name] * draw(part) for name in names} | {"recompute": levels_}


@st.composite
def layered(
    draw: st.DrawFn,
    most_layers: int,
    most_cuts: int,
    recompute: tuple[str, ...] = ("none", "none", "full"),
    quadratic: bool = False,
) -> Pipeline:
    """A pipeline of layers whose partition is open, with a number of cuts that can be tried out."""
    devices = draw(st.integers(1, 3))
    placement, chunks = draw(st.sampled_from(PLACES))
    microbatches = draw(st.integers(1, 4))
    own = draw(layers(most_layers, draw(st.booleans()), quadratic))
    links = Links(draw(st.sampled_from((0, 0, 1, Fraction(1, 2)))))
    memory = Memory(static=draw(st.sampled_from((0, 1))), limit=draw(st.sampled_from((None, None, 4, 6, 9))))
    how = draw(st.sampled_from(recompute))
    stages = len(routes_of(placement, devices, chunks)[0])
    fits = len(own) >= stages and math.comb(len(own) - 1, stages - 1) <= most_cuts and stages * microbatches <= 18
    if not fits:
        placement, chunks, devices = "linear", 1, min(devices, len(own))
    return Pipeline(devices, microbatches, placement, chunks, layers=own, links=links, memory=memory, recompute=how)


@st.composite
def mixes(draw: st.DrawFn, microbatches: int, whole: bool = False) -> Mix:
    """How microbatches differ: by factors or by lengths, in either order, as ``whole`` sequences or as pieces of them."""
    order = draw(st.sampled_from(("given", "choose")))
    pieces = draw(st.sampled_from((1, 1, 2))) if microbatches % 2 == 0 and not whole else 1

    def each(values: tuple[Any, ...]) -> list[Any]:
        return [draw(st.sampled_from(values)) for _ in range(microbatches)]

    if draw(st.booleans()):
        lengths = each((1, 2, 4, (1, 1), (2, 1)))
        return Mix(lengths=lengths, length=draw(st.sampled_from((2, (1, 1)))), microbatch_order=order, pieces=pieces)
    costs = each((1, 2, Fraction(1, 2), 3))
    held = each((1, 2, Fraction(1, 2))) if draw(st.booleans()) else []
    return Mix(microbatch_costs=costs, microbatch_activations=held, microbatch_order=order, pieces=pieces)


@st.composite
def mixed(draw: st.DrawFn, most_layers: int, most_cuts: int, recompute: tuple[str, ...] = ("none", "none", "full")) -> Pipeline:
    """As :func:`layered`, with microbatches that differ, of layers whose times may have parts that are quadratic."""
    pipeline = draw(layered(most_layers, most_cuts, recompute, quadratic=True))
    links = Links(pipeline.links.latency, draw(st.sampled_from((0, 0, 1))))
    return pipeline.changed(mix=draw(mixes(pipeline.microbatches, whole=len(pipeline.routes) > 1)), links=links)


def cuts(pipeline: Pipeline) -> Iterator[tuple[int, ...]]:
    """The number of layers of each stage, for every cut."""
    assert pipeline.layers is not None
    whole = len(pipeline.layers)
    for ends in itertools.combinations(range(1, whole), pipeline.stages - 1):
        yield tuple(b - a for a, b in itertools.pairwise((0, *ends, whole)))


def levels(pipeline: Pipeline, counts: tuple[int, ...]) -> Iterator[Any]:
    """Everything that the stages of a cut may recompute."""
    assert pipeline.layers is not None
    each = []
    for row in groups_of(pipeline.layers, counts):
        options: list[tuple[Any, ...]] = [()]
        for group, n in zip(pipeline.layers.groups, row, strict=True):
            names = [level.name for level in group.recompute]
            ways = [way for way in itertools.product(range(n + 1), repeat=len(names)) if sum(way) <= n]
            new = [tuple((group.name, name, k) for name, k in zip(names, way, strict=True) if k) for way in ways]
            options = [(*option, *more) for option in options for more in new]
        each.append(options)
    for choice in itertools.product(*each):
        yield choice if any(choice) else "none"


def choices(pipeline: Pipeline) -> int:
    """How many cuts there are, each counted for everything that may recompute in it."""
    return sum(1 for counts in cuts(pipeline) for _ in levels(pipeline, counts))


def by_enumeration(pipeline: Pipeline, objective: Any) -> Fraction | None:
    """The best over every cut and everything that may recompute, where that is open, each solved to its optimum; ``None``: there
    is none."""
    values = []
    for counts in cuts(pipeline) if pipeline.partition == "best" else [pipeline.counts]:
        for choice in levels(pipeline, counts) if pipeline.recompute == "choose" else [pipeline.recompute]:
            try:
                cut = pipeline.changed(partition=counts, recompute=choice)
            except PipelineError:
                continue
            result = solve_closed(cut, objective, Settings(seconds=60, workers=1))
            if result.reason != "infeasible":
                assert result.reason == "optimal"
                assert result.ticks.value is not None
                values.append(Fraction(result.ticks.value, result.ticks.per_unit))
    return min(values, default=None)
