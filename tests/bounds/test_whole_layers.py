"""What follows from whole layers: compared with every cut, and with every way to deal equal layers to the devices."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

import pytest

from ppopt.bounds.certificates import Certificate
from ppopt.bounds.ways import Part, Way
from ppopt.bounds.whole_layers import whole_layers
from ppopt.op import Kind
from ppopt.pipeline import Layer, Layers, Links, Pipeline
from ppopt.search import Settings, solve_closed
from ppopt.search.over_cuts import OverCuts
from tests.support.layered import cuts

PLACES = [("linear", 1, 3), ("wave", 2, 2), ("loop", 2, 2)]


def pipeline(chance: Random, place: tuple[str, int, int], most: int) -> Pipeline:
    """Of six layers or seven."""
    placement, chunks, devices = place
    split = chance.random() < 0.5

    def layer(name: int) -> Layer:
        backward = {"backward_input": 0, "backward_weight": 0} if split else {"backward": 0}
        times = {key: chance.randint(most // 2, most) for key in backward}
        return Layer(str(name), 1, chance.randint(most // 2, most), **times, activation=1)

    inner = [layer(name) for name in range(chance.randint(5, 6))]
    first = layer(9)
    if chance.random() < 0.5:  # an embedding
        nothing = {"backward_input": 0, "backward_weight": 0} if split else {"backward": 0}
        first = Layer("9", 1, 1, **nothing, activation=1)
    layers = Layers((first, *inner))
    links = Links(latency=chance.choice((0, 2)))
    return Pipeline(devices, chance.randint(1, 4), placement, chunks, links=links, layers=layers, partition="best")  # type: ignore[arg-type]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_no_cut_takes_less(place: tuple[str, int, int]) -> None:
    raised = 0
    for seed in range(4):
        given = pipeline(Random(seed), place, 6)
        bound = OverCuts(given, "makespan", Fraction(0)).bound
        assert given.layers is not None
        least = min(
            Fraction(found.ticks.value, found.ticks.per_unit)
            for counts in cuts(len(given.layers), given.stages)
            if (found := solve_closed(given.changed(partition=counts), settings=Settings(seconds=5, workers=1))).ticks.value
        )
        work = sum(sum(of) for of in OverCuts(given, "makespan", Fraction(0)).durations["times"].values())
        assert bound <= least
        raised += bound > Fraction(given.microbatches * work, given.devices)
    assert raised


def certificates(times: list[tuple[int, int]], device_of: list[int], microbatches: int) -> list[Certificate]:
    """Of each device: ``head + work + tail``."""
    found = []
    for device, (head, tail) in enumerate(times):
        own = [stage for stage, on in enumerate(device_of) if on == device]
        work = {Part(kind, stage): microbatches for stage in own for kind in (Kind.F, Kind.I)}
        found.append(Certificate((Way((), head),), Way.of(work), (Way.of({Part(Kind.F, own[0]): 1}, tail),)))
    return found


@pytest.mark.parametrize("device_of", [[0], [0, 1], [0, 1, 1, 0], [0, 1, 2, 0, 1, 2]], ids=str)
def test_of_equal_layers_it_is_the_best_way_to_deal_them(device_of: list[int]) -> None:
    chance = Random(0)
    for _ in range(30):
        devices, layers, microbatches = max(device_of) + 1, chance.randint(len(device_of), 9), chance.randint(1, 4)
        around = [(chance.randint(0, 40), chance.randint(0, 40)) for _ in range(devices)]
        forward, backward = chance.randint(1, 9), chance.randint(1, 9)
        takes = {Kind.F: [forward] * layers, Kind.I: [backward] * layers}
        dealt = (
            max(
                sum(own) + forward + microbatches * n * (forward + backward) for own, n in zip(around, numbers, strict=True)
            )
            for numbers in product(range(layers + 1), repeat=devices)
            if sum(numbers) == layers and all(n >= device_of.count(device) for device, n in enumerate(numbers))
        )  # fmt: skip
        assert whole_layers(certificates(around, device_of, microbatches), takes, device_of) == min(dealt)


def test_the_first_and_the_last_layer_are_where_their_stages_are() -> None:
    takes = {Kind.F: [9, 1, 1, 1, 1, 20], Kind.I: [0] * 6}
    one = certificates([(0, 0), (0, 0)], [0, 1], 1)
    assert whole_layers(one, takes, [0, 1]) == 20 + 20  # the last one alone, and its forward as the tail
    fewer = {Kind.F: [1] * 5 + [7], Kind.I: [0] * 6}
    assert whole_layers(one, takes, [0, 1], fewer) == 7 + 7


def test_what_is_not_of_all_stages_of_a_device_says_nothing() -> None:
    takes = {Kind.F: [2] * 4, Kind.I: [2] * 4}
    part = Certificate((Way(),), Way.of({Part(Kind.F, 1): 3}), (Way(),))
    uneven = Certificate((Way(),), Way.of({Part(Kind.F, 0): 3, Part(Kind.F, 2): 1}), (Way(),))
    several = Certificate((Way(),), Way.of({Part(Kind.F, 0): 3, Part(Kind.F, 2): 3}), (Way(),), spans=2)
    assert whole_layers([part, uneven, several], takes, [0, 1, 0]) == 3 * 2
    assert whole_layers([uneven, several], takes, [0, 1, 0]) == 0


@pytest.mark.parametrize("device_of", [[0, 1], [0, 1, 2, 3], [0, 1, 2, 2, 1, 0], [0, 1, 2, 0, 1, 2]], ids=str)
def test_an_embedding_and_a_head_are_where_the_first_and_the_last_stage_are(device_of: list[int]) -> None:
    chance, raised = Random(0), 0
    for _ in range(30):
        devices, inner, microbatches = max(device_of) + 1, chance.randint(len(device_of), 12), chance.randint(1, 4)
        layer, embedding, head = chance.randint(5, 9), chance.randint(0, 3), chance.randint(5, 20)
        takes = {Kind.F: [embedding, *[layer] * inner, head], Kind.I: [0, *[layer] * inner, head]}
        around = [(0, 0)] * devices
        ends = [microbatches * (embedding * (d == device_of[0]) + 2 * head * (d == device_of[-1])) for d in range(devices)]
        least = [device_of.count(d) - (d == device_of[0]) - (d == device_of[-1]) for d in range(devices)]
        dealt = min(
            max(end + microbatches * n * 2 * layer for end, n in zip(ends, numbers, strict=True))
            for numbers in product(range(inner + 1), repeat=devices)
            if sum(numbers) == inner and all(n >= own for n, own in zip(numbers, least, strict=True))
        )
        all_ = certificates(around, device_of, microbatches)
        assert whole_layers([replace(one, tails=(Way(()),)) for one in all_], takes, device_of) == dealt
        raised += dealt > microbatches * (sum(takes[Kind.F]) + sum(takes[Kind.I])) / devices
    assert raised
