"""Pipelines of layers, and plain sums over their layers."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from random import Random
from typing import Any

from ppopt.pipeline import Layer, Layers, Memory, Pipeline, PipelineError

FULL = {"name": "full", "time": 3, "saved": 2}
HALF = {"name": "half", "time": 1, "saved": 1}
MODEL = Layers(
    [
        Layer("embedding", forward=1, backward_input=0, backward_weight=1, activation=1, weights=5),
        Layer("decoder", 5, forward=3, backward_input=4, backward_weight=2, activation=3, weights=2, recompute=[HALF, FULL]),
        Layer("head", forward=2, backward_input=2, backward_weight=2, activation=1, weights=5),
    ]
)
"""Seven layers."""

TEXT = """
[pipeline]
devices = 2
microbatches = 4
[[layers]]
name = "embedding"
forward = 1
backward_input = 0
backward_weight = 1
activation = 1
weights = 5
[[layers]]
name = "decoder"
count = 5
forward = 3
backward_input = 4
backward_weight = 2
activation = 3
weights = 2
recompute = [{ name = "half", time = 1, saved = 1 }, { name = "full", time = 3, saved = 2 }]
[[layers]]
name = "head"
forward = 2
backward_input = 2
backward_weight = 2
activation = 1
weights = 5
"""
"""The same layers as a file, on two devices."""


def heavy_head(decoders: int) -> Layers:
    """An embedding, so many decoders and a head that takes more than one of them."""
    return Layers(
        [
            {"name": "embedding", "forward": 1, "backward_input": 0, "backward_weight": 1, "activation": 1, "weights": 3},
            {
                "name": "decoder",
                "count": decoders,
                "forward": 4,
                "backward_input": 4,
                "backward_weight": 4,
                "activation": 2,
                "weights": 1,
                "recompute": [{"name": "full", "time": 4, "saved": 1}],
            },
            {"name": "head", "forward": 9, "backward_input": 9, "backward_weight": 9, "activation": 1, "weights": 3},
        ]
    )


def on(pipeline: Pipeline, counts: tuple[int, ...]) -> Pipeline | None:
    """The pipeline on another cut; ``None``: that has no room for a microbatch."""
    try:
        return pipeline.changed(partition=counts)
    except PipelineError:
        return None


def cuts(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every partition in which each stage has a layer."""
    for ends in combinations(range(1, layers), stages - 1):
        yield tuple(b - a for a, b in pairwise((0, *ends, layers)))


def each_layer(layers: Layers) -> list[Layer]:
    return [group for group in layers.groups for _ in range(group.count)]


def stages_of(values: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """The values of each stage's layers."""
    left = iter(values)
    return [[next(left) for _ in range(count)] for count in counts]


def a_layer(rng: Random, name: str, split: bool, frozen: bool = False) -> Layer:
    """A group of one to three layers; sometimes it has levels, a fused backward beside the parts, or retains little."""
    activation = rng.randint(1, 4)
    saved = [rng.randint(0, activation) for _ in range(rng.randint(0, 2))]
    fields: dict[str, Any] = {"backward": rng.randint(1, 5)}
    if split:
        fields = {"backward_input": rng.randint(0, 3), "backward_weight": rng.randint(0, 3)}
        if rng.random() < 0.3:
            fields["backward"] = rng.randint(1, 7)
    kept = activation - max(saved, default=0)
    if rng.random() < 0.3:
        fields["retained"] = Fraction(rng.randint(0, 2 * kept), 2)
    levels = [{"name": f"level{i}", "time": rng.randint(0, 3), "saved": value} for i, value in enumerate(saved)]
    fields |= {"activation": activation, "weights": rng.randint(0, 3), "recompute": levels}
    return Layer(name, rng.randint(1, 3), rng.randint(1, 5), frozen=frozen, **fields)


PLACES = (("linear", 2, 1), ("linear", 3, 1), ("wave", 2, 2), ("loop", 2, 2), ("bidirectional", 2, 1), ("bidirectional", 4, 1))


def a_pipeline(rng: Random, places: Sequence[tuple[str, int, int]] = PLACES, **fields: Any) -> Pipeline:
    """A random pipeline of layers on one of some placements, with a random cut, frozen layers and levels."""
    placement, devices, chunks = rng.choice(places)
    split = rng.random() < 0.7
    groups = [a_layer(rng, f"group{i}", split, split and rng.random() < 0.3) for i in range(rng.randint(3, 5))]
    layers = Layers(groups)
    stages = devices * chunks
    while len(layers) < stages:
        groups.append(a_layer(rng, f"group{len(groups)}", split))
        layers = Layers(groups)
    recompute = rng.choice(("none", *(["all", *layers.levels] if layers.levels else ())))
    given: dict[str, Any] = {
        "partition": rng.choice(list(cuts(len(layers), stages))),
        "memory": Memory(static=rng.randint(0, 2)),
        "recompute": recompute,
        **fields,
    }
    return Pipeline(devices, rng.choice((2, 4)), placement, chunks, layers=layers, **given)
