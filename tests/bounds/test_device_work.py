"""The work of devices: that of the relaxed graph, which is not made for it."""

from random import Random

import pytest

from ppopt import bounds
from ppopt.constraints import relaxed_graphs
from ppopt.pipeline import Costs, DataParallel, Links, Mix, Pipeline

PLACES = (("linear", 3, 1), ("wave", 2, 2), ("loop", 2, 3), ("bidirectional", 4, 1))


def drawn(rng: Random) -> Pipeline:
    placement, devices, chunks = rng.choice(PLACES)
    stages = devices * chunks

    def some(least: int = 0) -> list[int]:
        return [rng.randint(least, 6) for _ in range(stages)]

    backward = rng.choice(({"backward": some(1)}, {"backward_input": some(), "backward_weight": some()}))
    costs = Costs(
        per="stage",
        forward=some(1),
        optimizer=rng.choice((None, some()[:devices])),
        overlap=rng.choice((None, some(6))) if placement == "bidirectional" and "backward" in backward else None,
        weight_pieces=rng.choice((1, 2)) if "backward_weight" in backward else 1,
        **backward,
    )
    exchanged = DataParallel(some()[:devices], some()[:devices], overlap=rng.random() < 0.5)
    links = Links(latency=rng.choice((0, 1)), occupancy=rng.choice((0, 1)))
    microbatches = rng.choice((2, 4))
    mix = Mix(
        microbatch_costs=[rng.randint(1, 3) for _ in range(microbatches)] if not costs.overlap and rng.random() < 0.5 else ()
    )
    return Pipeline(devices, microbatches, placement, chunks, costs=costs, data_parallel=exchanged, links=links, mix=mix)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_it_is_that_of_the_graph(seed: int, pairs: bool) -> None:
    pipeline = drawn(Random(seed))
    graphs = relaxed_graphs(pipeline, pairs, links=False)
    expected = max(max(map(sum, zip(graph.work, graph.around, strict=True))) for graph in graphs)
    found = bounds.work(pipeline, pairs=pairs)
    assert found is not None
    assert found.value == expected
